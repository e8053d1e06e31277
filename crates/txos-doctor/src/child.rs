//! Trying something in a forked child, whose end undoes it.
//!
//! A user namespace can be entered by a process with one thread only, mounts and seccomp filters
//! stay with the process that made them: so such steps run in a child made by fork(2), and a pipe
//! carries its answer back. The child has one thread, a copy of the parent's memory, and leaves by
//! `_exit`: no destructor of the parent's objects runs twice.
//!
//! The steps should prepare what they can before the fork: after it other threads of the parent are
//! gone, with whatever locks they held.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::sys;

/// How long a child may take before it is killed and counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The step that failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The call, as a person would name it.
    pub step: String,
    /// The kernel's answer.
    pub errno: Errno,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.errno.to_string();
        // The number says nothing to a person that the words don't.
        let words = text.split(" (os error").next().unwrap_or(&text);
        write!(f, "{}: {words}", self.step)
    }
}

/// Names the step on a failing result.
pub(crate) trait At<T> {
    /// The same result, its error saying that it came from `step`.
    fn at(self, step: &str) -> Result<T, Failed>;
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, step: &str) -> Result<T, Failed> {
        self.map_err(|errno| Failed { step: step.to_owned(), errno })
    }
}

/// Runs `steps` in a child and returns what they returned. A child that dies or hangs is a failure
/// of the step "child" (`ECHILD`, `ETIMEDOUT`).
pub(crate) fn in_child(steps: impl FnOnce() -> Result<i64, Failed>) -> Result<i64, Failed> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).at("pipe")?;
    match sys::fork().at("fork")? {
        None => {
            drop(reader);
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps));
            if let Ok(answer) = answer {
                send(&writer, answer);
            }
            sys::exit_now()
        }
        Some(pid) => {
            drop(writer);
            let answer = receive(reader);
            if answer.is_err() {
                // It may hang in a call: it is this process's own child and not yet waited for.
                let _ = kill_process(pid, Signal::KILL);
            }
            reap(pid);
            answer?
        }
    }
}

/// Waits for a child of this process to end.
pub(crate) fn reap(pid: Pid) {
    while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(Errno::INTR)) {}
}

// The answer on the pipe: error number (0 for none), value, then the step's name to the end.
fn send(writer: &OwnedFd, answer: Result<i64, Failed>) {
    let (errno, value, step) = match answer {
        Ok(value) => (0, value, String::new()),
        Err(failed) => (failed.errno.raw_os_error(), 0, failed.step),
    };
    let mut bytes = Vec::with_capacity(12 + step.len());
    bytes.extend_from_slice(&errno.to_ne_bytes());
    bytes.extend_from_slice(&value.to_ne_bytes());
    bytes.extend_from_slice(step.as_bytes());
    // Short enough for one atomic write; a failure leaves the parent with an empty pipe.
    let _ = rustix::io::write(writer, &bytes);
}

fn receive(reader: OwnedFd) -> Result<Result<i64, Failed>, Failed> {
    wait_readable(&reader)?;
    let mut bytes = Vec::new();
    let read = std::fs::File::from(reader).take(4096).read_to_end(&mut bytes);
    if read.is_err() || bytes.len() < 12 {
        return Err(Errno::CHILD).at("child");
    }
    let (errno, rest) = bytes.split_at(4);
    let (value, step) = rest.split_at(8);
    let errno = i32::from_ne_bytes(errno.try_into().unwrap_or_default());
    let value = i64::from_ne_bytes(value.try_into().unwrap_or_default());
    Ok(if errno == 0 {
        Ok(value)
    } else {
        let step = String::from_utf8_lossy(step).into_owned();
        Err(Failed { step, errno: Errno::from_raw_os_error(errno) })
    })
}

fn wait_readable(reader: &OwnedFd) -> Result<(), Failed> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Err(Errno::TIMEDOUT).at("child"),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).at("poll"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_comes_back() {
        assert_eq!(in_child(|| Ok(-42)), Ok(-42));
    }

    #[test]
    fn the_failing_step_comes_back() {
        let failed = in_child(|| Err(Errno::PERM).at("mount overlay")).unwrap_err();
        assert_eq!(failed, Failed { step: "mount overlay".into(), errno: Errno::PERM });
    }

    #[test]
    fn failures_are_words() {
        let failed = Failed { step: "mount overlay".into(), errno: Errno::PERM };
        assert_eq!(failed.to_string(), "mount overlay: Operation not permitted");
    }

    #[test]
    fn a_child_that_dies_is_a_failure() {
        let failed = in_child(|| sys::exit_now()).unwrap_err();
        assert_eq!(failed.errno, Errno::CHILD);
    }
}
