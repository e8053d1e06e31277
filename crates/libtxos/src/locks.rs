//! Record locks of the program (fcntl_locking(2)).
//!
//! They belong to the table of descriptors, and the kernel releases all that a process has on a file when it
//! closes any descriptor of that file: so a file with such locks cannot be carried into a view and back. Locks
//! of open files (`F_OFD_SETLK`, flock(2)) stay where they are.

use std::os::fd::RawFd;

use rustix::io::Errno;

/// The files on which this process has record locks, taken through one of these: device and inode.
///
/// # Errors
/// If `/proc` cannot be read.
pub(crate) fn files(numbers: &[RawFd]) -> Result<Vec<(u64, u64)>, Errno> {
    let mut files = Vec::new();
    for fd in numbers {
        let text = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}"))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        files.extend(text.lines().filter_map(file_of));
    }
    Ok(files)
}

/// The file of a line `lock: 1: POSIX ADVISORY WRITE 77 fe:00:131 0 EOF` (proc_pid_fdinfo(5)).
fn file_of(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("lock:")?.split_ascii_whitespace().skip(1);
    if words.next() != Some("POSIX") {
        return None;
    }
    let file = words.nth(3)?;
    let mut parts = file.split(':');
    let mut number = |base| u64::from_str_radix(parts.next()?, base).ok();
    let (major, minor, inode) = (number(16)?, number(16)?, number(10)?);
    let device = rustix::fs::makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?);
    Some((device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_locks() {
        let line = "lock:\t1: POSIX  ADVISORY  WRITE 2481 fe:00:131 0 EOF";
        assert_eq!(file_of(line), Some((rustix::fs::makedev(0xfe, 0), 131)));
        assert_eq!(file_of("lock:\t1: FLOCK  ADVISORY  WRITE 2481 fe:00:131 0 EOF"), None);
        assert_eq!(file_of("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:131 0 EOF"), None);
        assert_eq!(file_of("flags:\t0100002"), None);
    }
}
