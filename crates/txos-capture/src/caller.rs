//! Whether a program asked, or overlayfs on its own account.
//!
//! A `stat` of a directory and a copy-up of it reach the mirror as the same GETATTR. The first is
//! a read of the directory's attributes; the second shows the program nothing, and must not count:
//! otherwise two creations in one directory would conflict by the directory's times. The calling
//! thread waits for the answer meanwhile, and `/proc/TID/syscall` (`proc(5)`) names its call.
//!
//! Only calls that are known to change something, or to open, enter or list it, and that show the
//! program no attributes, are taken for overlayfs's own. Everything else counts as a read, also a
//! caller that cannot be examined (no permission, a thread that is gone): conservative, since the
//! worst outcome is a retry. For a 32-bit caller the same numbers mean other calls; of its `stat`
//! family only `oldlstat`, which no C library of this century calls, has a number of this list.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{Errno, read},
    thread::sched_yield,
};

/// How often a caller that has not fallen asleep yet is looked at again.
const PATIENCE: usize = 100;

/// Calls in which overlayfs asks for itself.
#[cfg(target_arch = "x86_64")]
const OVERLAYS_OWN: &[i64] = &[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_creat,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_truncate,
    libc::SYS_bind,
    libc::SYS_getdents,
    libc::SYS_getdents64,
];
/// The same where the old calls without a directory do not exist.
#[cfg(not(target_arch = "x86_64"))]
const OVERLAYS_OWN: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_truncate,
    libc::SYS_bind,
    libc::SYS_getdents64,
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

    /// Whether the thread `tid`, which waits for an answer about a directory's attributes, is in a
    /// call that may show them to its program.
    pub(crate) fn reads_attrs(&self, tid: u32) -> bool {
        for _ in 0..PATIENCE {
            match self.current_call(tid) {
                Some(Call::Running) => sched_yield(),
                Some(Call::Waiting(number)) => return !OVERLAYS_OWN.contains(&number),
                None => return true,
            }
        }
        true
    }

    /// The processor on which the thread `tid` ran last (`proc(5)`, field 39 of `stat`).
    pub(crate) fn processor(&self, tid: u32) -> Option<usize> {
        let mut buffer = [0; 1024];
        processor(self.read(tid, "stat", &mut buffer)?)
    }

    fn current_call(&self, tid: u32) -> Option<Call> {
        let mut buffer = [0; 256];
        Call::parse(self.read(tid, "syscall", &mut buffer)?)
    }

    fn read<'b>(&self, tid: u32, file: &str, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let path = format!("{tid}/{file}");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(self.proc_dir.as_fd(), path, flags, Mode::empty()).ok()?;
        let length = read(&file, &mut *buffer).ok()?;
        buffer.get(..length)
    }
}

/// Field 39 of a line of `/proc/TID/stat`. The second field is a name in parentheses that may hold
/// anything.
fn processor(line: &[u8]) -> Option<usize> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// On a processor: it has not fallen asleep yet.
    Running,
    /// In the call of this number.
    Waiting(i64),
}

impl Call {
    /// The line of `/proc/TID/syscall`: `running`, or the number and the arguments of a call.
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        match text.split_ascii_whitespace().next()? {
            "running" => Some(Call::Running),
            number => number.parse().ok().map(Call::Waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(Call::parse(b"running\n"), Some(Call::Running));
        assert_eq!(Call::parse(b"83 0x7f 0x1 0x0\n"), Some(Call::Waiting(83)));
        assert_eq!(Call::parse(b"-1 0x7f 0x1\n"), Some(Call::Waiting(-1)));
        assert_eq!(Call::parse(b""), None);
        assert_eq!(Call::parse(b"\xff\n"), None);
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
    }

    #[test]
    fn a_stranger_counts_as_reading() {
        assert!(Callers::new(None).unwrap().reads_attrs(u32::MAX));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn no_stat_of_32_bit_programs_is_taken_for_overlays_own() {
        // oldstat, stat, lstat, fstat, oldlstat, oldfstat, stat64, lstat64, fstat64, fstatat64,
        // statx of arch/x86/entry/syscalls/syscall_32.tbl
        for number in [18, 106, 107, 108, 84, 28, 195, 196, 197, 300, 383] {
            let clash = OVERLAYS_OWN.contains(&number);
            assert_eq!(clash, number == 84, "{number}");
        }
    }
}
