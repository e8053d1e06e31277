//! Where the thread that waits for an answer runs.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, read},
};

/// The `/proc` through which callers are looked at.
pub(crate) struct Callers {
    proc_dir: OwnedFd,
}

impl Callers {
    /// With the given `/proc`, or the process's own.
    pub(crate) fn new(proc_dir: Option<OwnedFd>) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc_dir = proc_dir.map_or_else(|| openat(CWD, c"/proc", flags, Mode::empty()), Ok)?;
        Ok(Callers { proc_dir })
    }

    /// The processor on which the thread `tid` ran last; `None` if it cannot be examined.
    pub(crate) fn processor(&self, tid: u32) -> Option<usize> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("{tid}/stat");
        let file = openat(self.proc_dir.as_fd(), path, flags, Mode::empty()).ok()?;
        let mut buffer = [0; 1024];
        let length = read(&file, &mut buffer).ok()?;
        processor(buffer.get(..length)?)
    }
}

/// Field 39 of a line of `/proc/TID/stat` (`proc(5)`). The second field is a name in parentheses
/// that may hold anything.
fn processor(line: &[u8]) -> Option<usize> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        let mut line = b"7 (a ) b) S".to_vec();
        for field in 4..=41 {
            line.extend(format!(" {field}").into_bytes());
        }
        assert_eq!(processor(&line), Some(39));
        assert_eq!(processor(b"7 (a) S 1"), None);
        assert_eq!(processor(b""), None);
        let callers = Callers::new(None).unwrap();
        assert!(callers.processor(std::process::id()).is_some());
        assert_eq!(callers.processor(u32::MAX), None);
    }
}
