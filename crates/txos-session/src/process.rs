//! How a process ended that is not a child of this one.
#![allow(unsafe_code)] // one ioctl that has no safe wrapper

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

/// A process that can be waited for, by its descriptor (pidfd_open(2)).
#[derive(Debug)]
pub(crate) struct Process {
    fd: OwnedFd,
    pid: i32,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with whatever status; or the kernel does not say.
    Exited,
    /// By a signal.
    Killed,
}

impl Process {
    pub(crate) fn open(pid: i32) -> Option<Process> {
        let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some(Process { fd, pid })
    }

    /// Waits for its end, but not longer than this, and not when `events` become readable.
    pub(crate) fn ended_within(
        &self,
        limit: Duration,
        events: Option<BorrowedFd<'_>>,
    ) -> Option<Ended> {
        let limit =
            Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut fds = vec![PollFd::new(&self.fd, PollFlags::IN)];
        fds.extend(events.map(|events| PollFd::from_borrowed_fd(events, PollFlags::IN)));
        if poll(&mut fds, Some(&limit)).is_err() || fds[0].revents().is_empty() {
            return None;
        }
        Some(match self.status() {
            Some(status) if libc::WIFSIGNALED(status) => Ended::Killed,
            _ => Ended::Exited,
        })
    }

    /// Its `wait(2)` status, after its end: from its own entry as long as nobody has waited for it, then
    /// from the descriptor.
    fn status(&self) -> Option<i32> {
        for _ in 0..2 {
            if let Some(status) = status_of_zombie(self.pid) {
                return Some(status);
            }
            if let Some(status) = status_of_reaped(&self.fd) {
                return Some(status);
            }
        }
        None
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// From `/proc/PID/stat` (proc_pid_stat(5)), whose last field is the status; for one that has ended and
/// was not waited for.
fn status_of_zombie(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, also brackets and blanks.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace();
    matches!(fields.next(), Some("Z" | "X")).then(|| fields.last()?.parse().ok())?
}

/// From the descriptor (`PIDFD_GET_INFO`, Linux 6.15); for one that was waited for.
fn status_of_reaped(process: &OwnedFd) -> Option<i32> {
    /// The first 64 bytes of `struct pidfd_info` (linux/pidfd.h).
    #[repr(C)]
    #[derive(Default)]
    struct Info {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    const EXIT: u64 = 1 << 3;
    // _IOWR(0xff, 11, struct pidfd_info)
    const GET_INFO: u64 = 0xc040_ff0b;
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the argument is the structure that this request takes, with the size that its number says,
    // and outlives the call.
    let result = unsafe { libc::ioctl(process.as_raw_fd(), GET_INFO as _, &raw mut info) };
    (result == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn tells_an_exit_from_a_signal() {
        for (script, ended) in
            [("exit 3", Ended::Exited), ("exit 0", Ended::Exited), ("kill -9 $$", Ended::Killed)]
        {
            let mut command = Command::new("sh");
            let child = command.args(["-c", &format!("read x; {script}")]).stdin(Stdio::piped());
            let mut child = child.spawn().expect("a shell");
            let process = Process::open(child.id() as i32).expect("a descriptor");
            assert_eq!(process.ended_within(Duration::from_millis(1), None), None);
            drop(child.stdin.take());
            // Before and after somebody has waited for it.
            let long = Duration::from_secs(600);
            assert_eq!(process.ended_within(long, None), Some(ended), "{script}");
            child.wait().expect("its end");
            if status_of_reaped(&process.fd).is_some() {
                assert_eq!(process.ended_within(long, None), Some(ended), "{script}");
            }
        }
    }
}
