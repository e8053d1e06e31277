//! The threads that carry bytes between the manager's descriptors and the transaction's.
//!
//! Invariants:
//! * A pump never blocks where it cannot be stopped: it polls both sides together with the
//!   [`Control`] of its attempt. The outer descriptors are shared with other processes and keep
//!   their mode; only the inner ends, which are ours alone, are non-blocking.
//! * When one side is gone the pump closes the other, so that the end that is left sees what it
//!   would see natively (end of file, `EPIPE`).

use super::spool::Spool;
use crate::Error;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use txos_host::Bell;

/// What is carried at once. A pipe that polls writable takes `PIPE_BUF` (4096) bytes for sure.
pub(super) const CHUNK: usize = 16 << 10;
const PIPE_BUF: usize = 4096;

/// How the pumps of one attempt are told to stop. Raised once, never lowered.
#[derive(Debug)]
pub(super) struct Control {
    ended: Bell,
    cancelled: Bell,
}

impl Control {
    pub(super) fn new() -> Result<Control, Error> {
        let event = || Bell::new().map_err(Error::system("make a stop event for pumps"));
        Ok(Control { ended: event()?, cancelled: event()? })
    }

    /// The transaction's processes have ended: carry on what is there already, then stop.
    pub(super) fn end(&self) {
        let _ = self.ended.ring();
    }

    /// Stop at once; what is not yet written outside is dropped.
    pub(super) fn cancel(&self) {
        let _ = self.cancelled.ring();
    }
}

/// What a wait found.
pub(super) struct Ready<const N: usize> {
    /// The events on each descriptor.
    pub(super) on: [PollFlags; N],
    /// The processes have ended.
    pub(super) ended: bool,
    /// Stop now.
    pub(super) cancelled: bool,
}

/// Waits until something happens on one of `fds` or `control` is raised. `watch_end` is given when
/// the end still has to be noticed: an end that was seen already would else end every wait.
pub(super) fn wait<const N: usize, F: AsFd>(
    control: &Control,
    watch_end: bool,
    fds: [(Option<&F>, PollFlags); N],
    timeout_ms: Option<i64>,
) -> Ready<N> {
    let mut polled = Vec::with_capacity(N + 2);
    polled.push(PollFd::new(&control.cancelled, PollFlags::IN));
    let end_events = if watch_end { PollFlags::IN } else { PollFlags::empty() };
    polled.push(PollFd::new(&control.ended, end_events));
    let mut slot = [None; N];
    for (at, (fd, events)) in fds.iter().enumerate() {
        if let Some(fd) = fd {
            slot[at] = Some(polled.len());
            polled.push(PollFd::new(*fd, *events));
        }
    }
    let timeout = timeout_ms
        .map(|ms| rustix::time::Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 });
    // An interrupted wait reports nothing; the caller comes back.
    let found = poll(&mut polled, timeout.as_ref()).is_ok();
    let events = |at: usize| if found { polled[at].revents() } else { PollFlags::empty() };
    Ready {
        on: slot.map(|at| at.map_or(PollFlags::empty(), events)),
        ended: !events(1).is_empty(),
        cancelled: !events(0).is_empty(),
    }
}

/// Whether nobody is left to read what we would write.
pub(super) fn gone(events: PollFlags) -> bool {
    events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

/// Whether reading would give something, the end of the file included.
pub(super) fn readable(events: PollFlags) -> bool {
    events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
}

/// Locks what a pump shares. A pump that failed leaves its plain data as they are.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where held or live output goes.
pub(super) enum Sink {
    /// Kept until [`flush`].
    Held(Arc<Mutex<Spool>>),
    /// Written at once.
    Live(Arc<OwnedFd>),
}

/// Carries output from `inner` until its last writer has gone, or the end is raised and it is
/// empty. An error closes `inner`, so that the writer gets `EPIPE` as it would natively.
pub(super) fn carry_out(inner: OwnedFd, sink: &Sink, control: &Control) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    let mut ended = false;
    loop {
        let outer = match sink {
            Sink::Live(outer) => Some(&**outer),
            Sink::Held(_) => None,
        };
        let inner_now = if ended { None } else { Some(&inner) };
        let fds = [(inner_now, PollFlags::IN), (outer, PollFlags::empty())];
        if !ended {
            let ready = wait(control, true, fds, None);
            if ready.cancelled || gone(ready.on[1]) {
                return Ok(());
            }
            ended = ready.ended;
            if !ended && !readable(ready.on[0]) {
                continue;
            }
        }
        match rustix::io::read(&inner, &mut *bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => match sink {
                Sink::Held(spool) => lock(spool).append(&bytes[..read])?,
                Sink::Live(outer) => write_all(outer, &bytes[..read], control)?,
            },
            Err(Errno::AGAIN) if ended => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes everything, stopping at a cancel.
pub(super) fn write_all(outer: &OwnedFd, mut bytes: &[u8], control: &Control) -> io::Result<()> {
    while !bytes.is_empty() {
        let ready = wait(control, false, [(Some(outer), PollFlags::OUT)], None);
        if ready.cancelled {
            return Ok(());
        }
        if ready.on[0].is_empty() {
            continue;
        }
        match rustix::io::write(outer, &bytes[..bytes.len().min(PIPE_BUF)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes all that was held, in order, and forgets it.
pub(super) fn flush(spool: &mut Spool, outer: &OwnedFd, control: &Control) -> io::Result<()> {
    let mut bytes = vec![0; CHUNK];
    let mut at = 0;
    let result = loop {
        match spool.read_at(at, &mut bytes) {
            Ok(0) => break Ok(()),
            Ok(read) => {
                if let Err(error) = write_all(outer, &bytes[..read], control) {
                    break Err(error);
                }
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    spool.clear();
    result
}
