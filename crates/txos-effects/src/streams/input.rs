//! Standard input that is fed through a pipe and recorded, so that a retry reads the same bytes.
//!
//! Invariants:
//! * Nothing is fed that is not recorded first, unless recording has failed; then the record says
//!   so and cannot be replayed.
//! * Outside is read only while the reader inside is there and its pipe has room. What the command
//!   leaves unread stays outside for whoever reads there next: of pipes and stream sockets no more is
//!   taken than it has read (see [`super::lend`]), what can seek is set back. Where a retry reads
//!   less than the attempt before it, what lies between stays taken.

use super::lend::Lender;
use super::pump::{CHUNK, Control, gone, lock, readable, wait};
use super::spool::Spool;
use rustix::event::PollFlags;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, ioctl_fionread};
use std::sync::Mutex;

/// What was read from outside so far, over all attempts.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) spool: Spool,
    /// The end of the outer input was seen.
    pub(super) eof: bool,
    /// Recording failed, and why. Bytes after that are fed but not kept.
    pub(super) lost: Option<String>,
    /// Bytes read from outside.
    pub(super) taken: u64,
    /// Whether there can be a retry at all; else nothing is kept.
    pub(super) keep: bool,
}

impl Record {
    pub(super) fn new(spool: Spool, keep: bool) -> Record {
        Record { spool, eof: false, lost: None, taken: 0, keep }
    }

    /// Notes bytes that were read from outside. Whether they were kept.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        self.taken += bytes.len() as u64;
        if !self.keep || self.lost.is_some() {
            return false;
        }
        match self.spool.append(bytes) {
            Ok(()) => true,
            Err(error) => {
                self.lost = Some(error.to_string());
                false
            }
        }
    }
}

/// Feeds `inner` (non-blocking): first the record, then `outer`, until either has no more.
/// Returns how many bytes of the whole input the command has read.
pub(super) fn feed(
    inner: &OwnedFd,
    outer: &OwnedFd,
    record: &Mutex<Record>,
    control: &Control,
) -> u64 {
    let mut bytes = vec![0; CHUNK];
    // Position in the whole input of what goes into the pipe next.
    let mut fed = 0;
    // Bytes that are in hand and not kept: their place in `bytes`.
    let mut loose = 0..0;
    let mut lender = Lender::new(outer, inner);
    loop {
        let ready = wait(control, true, [(Some(inner), PollFlags::OUT)], None);
        if ready.cancelled || ready.ended || gone(ready.on[0]) {
            break;
        }
        if let Some(lender) = &mut lender
            && lender.is_out()
        {
            fed += lender.settle(record);
        }
        if loose.is_empty() {
            let kept = lock(record).spool.read_at(fed, &mut bytes).unwrap_or(0);
            if kept > 0 {
                match write_some(inner, &bytes[..kept]) {
                    Some(written) => fed += written as u64,
                    None => break,
                }
                continue;
            }
            if lock(record).eof {
                break;
            }
            let fds = [(Some(inner), PollFlags::empty()), (Some(outer), PollFlags::IN)];
            let ready = wait(control, true, fds, None);
            if ready.cancelled || ready.ended || gone(ready.on[0]) {
                break;
            }
            if !readable(ready.on[1]) {
                continue;
            }
            if let Some(lender) = &mut lender {
                if !lender.lend() {
                    lock(record).eof = true;
                }
                continue;
            }
            match rustix::io::read(outer, &mut *bytes) {
                Ok(0) => lock(record).eof = true,
                Ok(read) if lock(record).take(&bytes[..read]) => {}
                Ok(read) => loose = 0..read,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // As natively an error of a read, here the end: there is no way to hand it on.
                Err(_) => lock(record).eof = true,
            }
        } else {
            match write_some(inner, &bytes[loose.clone()]) {
                Some(written) => {
                    loose.start += written;
                    fed += written as u64;
                }
                None => break,
            }
        }
    }
    if let Some(lender) = &mut lender
        && lender.is_out()
    {
        return fed + lender.settle(record);
    }
    fed.saturating_sub(ioctl_fionread(inner).unwrap_or(0))
}

/// Writes what fits; `None` when nobody reads any more.
fn write_some(inner: &OwnedFd, bytes: &[u8]) -> Option<usize> {
    match rustix::io::write(inner, bytes) {
        Ok(written) => Some(written),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}
