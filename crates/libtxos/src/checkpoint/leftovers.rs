//! What an attempt that is rolled back leaves beside the state of the program: children that were killed with it, for
//! whose end nobody waits, [signals](pending) that were sent in it, and offsets of open files and directories
//! that are carried nowhere since they have no name, or are those of `/proc`.
//!
//! Invariants:
//!
//! - A child from before is never waited for, nor one that left the transaction and is free.

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FileType, PROC_SUPER_MAGIC, SeekFrom, fstat, fstatfs, readlink, seek},
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid},
};

use super::pending;
use crate::{
    descriptors::{is_exempt, numbers},
    sys,
};

/// How long a child that was killed may take to end.
const LONGEST: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_micros(200);

/// What there was before the attempt.
#[derive(Debug, Default)]
pub(crate) struct Before {
    children: Vec<Pid>,
    /// Of what is carried nowhere and not exempt: number, device and inode, offset.
    stays: Vec<(RawFd, (u64, u64), u64)>,
}

impl Before {
    /// What there is now.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub(crate) fn look() -> Result<Before, Errno> {
        let stays = numbers()?.into_iter().filter_map(|fd| {
            let stat = fstat(sys::borrow(fd)).ok()?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let has_offset = matches!(kind, FileType::RegularFile | FileType::Directory);
            let offset = || seek(sys::borrow(fd), SeekFrom::Current(0)).ok();
            let is_left = || !is_exempt(fd) && (stat.st_nlink == 0 || is_of_processes(fd));
            (has_offset && is_left()).then_some((fd, (stat.st_dev, stat.st_ino), offset()?))
        });
        Ok(Before { children: children(), stays: stays.collect() })
    }

    /// After the rollback: waits for the children that have come since and ended with the attempt, drops the signals
    /// that it has left (but for those of members which were `deferred` to the end), and sets the offsets.
    pub(crate) fn restore(&self, deferred: bool) {
        for (fd, identity, offset) in &self.stays {
            let file = sys::borrow(*fd);
            if fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == *identity) {
                let _ = seek(file, SeekFrom::Start(*offset));
            }
        }
        let mut ended = Vec::new();
        for child in children().into_iter().filter(|child| !self.children.contains(child)) {
            if reap(child) {
                ended.push(child.as_raw_pid());
            }
        }
        pending::drop_those_of(&ended, deferred);
    }
}

/// Whether it is a file or directory of `/proc`, which is carried nowhere.
fn is_of_processes(fd: RawFd) -> bool {
    fstatfs(sys::borrow(fd)).is_ok_and(|of| of.f_type == PROC_SUPER_MAGIC)
}

/// The children of this process, those that have ended as well.
fn children() -> Vec<Pid> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(waitid(WaitId::All, options), Err(Errno::CHILD)) {
        return Vec::new();
    }
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Waits for a child that was killed. Gives whether it has ended.
fn reap(child: Pid) -> bool {
    let began = Instant::now();
    let place = |of: String| readlink(of, Vec::new());
    while matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None)) {
        let is_free = place(format!("/proc/{}/ns/mnt", child.as_raw_pid()))
            .is_ok_and(|its| Ok(its) == place("/proc/thread-self/ns/mnt".to_owned()));
        if is_free || began.elapsed() > LONGEST {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}
