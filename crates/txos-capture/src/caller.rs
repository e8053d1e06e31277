//! The thread that waits for an answer: where it runs, and in which call it is (`proc(5)`).

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, read},
    thread::sched_yield,
};

/// How often a caller that has not fallen asleep yet is looked at again.
const PATIENCE: usize = 100;

/// getxattrat(2) and listxattrat(2), Linux 6.13; the same on all machines.
const GETXATTRAT: i64 = 464;
const LISTXATTRAT: i64 = 465;

const READS_XATTRS: [i64; 8] = [
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    GETXATTRAT,
    LISTXATTRAT,
];

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

    /// Whether the thread `tid` is in a call that shows its program extended attributes, and not
    /// in one in which overlayfs reads them for itself. Who cannot be examined (a program that its
    /// user may not read, or a busy machine) is not taken for a program: a mark too many is seen
    /// at most, one too few loses the identity of a file.
    pub(crate) fn reads_xattrs(&self, tid: u32) -> bool {
        for _ in 0..PATIENCE {
            let mut buffer = [0; 256];
            let Some(line) = self.read(tid, "syscall", &mut buffer) else { return false };
            match call(line) {
                Some(Call::Running) => sched_yield(),
                Some(Call::Waiting(number)) => return READS_XATTRS.contains(&number),
                None => return false,
            }
        }
        false
    }

    /// The processor on which the thread `tid` ran last; `None` if it cannot be examined.
    pub(crate) fn processor(&self, tid: u32) -> Option<usize> {
        let mut buffer = [0; 1024];
        processor(self.read(tid, "stat", &mut buffer)?)
    }

    fn read<'b>(&self, tid: u32, file: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let path = format!("{tid}/{file}");
        let file = openat(self.proc_dir.as_fd(), path, flags, Mode::empty()).ok()?;
        let length = read(&file, &mut *buffer).ok()?;
        buffer.get(..length)
    }
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// It is on a processor: it has not fallen asleep yet.
    Running,
    /// It waits in the call of this number.
    Waiting(i64),
}

/// The line of `/proc/TID/syscall`: `running`, or the number and the arguments of a call.
fn call(line: &[u8]) -> Option<Call> {
    match std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()? {
        "running" => Some(Call::Running),
        number => number.parse().ok().map(Call::Waiting),
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
    fn calls() {
        assert_eq!(call(b"running\n"), Some(Call::Running));
        assert_eq!(call(b"83 0x7f 0x1 0x0\n"), Some(Call::Waiting(83)));
        assert_eq!(call(b""), None);
        assert!(!Callers::new(None).unwrap().reads_xattrs(u32::MAX), "a stranger is no program");
    }

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
