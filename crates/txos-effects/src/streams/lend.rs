//! Outer input of which nothing is taken but what the command reads.
//!
//! A pipe or a stream socket cannot be given back what was read from it. So the command is lent a
//! copy of the first bytes that wait there (`tee(2)`, `MSG_PEEK`), in a pipe with room for one
//! buffer only: that it can be written to again says that all of it was read. Then as much is taken
//! outside and recorded. What the command has left over at its end was never taken.
//!
//! Invariants:
//! * What is lent is the head of what waits outside; it is taken before anything else is lent.
//! * Bytes are lent only when all that was fed before has been read, so that what is unread in the
//!   pipe is part of what is lent.
//!
//! Others who read the same input while the command runs are given bytes that the command has seen
//! too, or take some that it will then not be given; natively they would share them at random.

use super::input::Record;
use super::pump::CHUNK;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SocketType, recv, sockopt::socket_type};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, tee};

/// The least room that a pipe can have: one page, one buffer.
const ROOM: usize = 4096;

/// Input of which bytes can be seen before they are taken.
#[derive(Debug)]
pub(super) struct Lender<'f> {
    outer: &'f OwnedFd,
    inner: &'f OwnedFd,
    socket: bool,
    /// Bytes in the command's pipe, or read by it, and not taken outside yet.
    lent: usize,
}

impl<'f> Lender<'f> {
    /// `None` where `outer` can't be looked at before it is read.
    pub(super) fn new(outer: &'f OwnedFd, inner: &'f OwnedFd) -> Option<Lender<'f>> {
        let socket = match FileType::from_raw_mode(fstat(outer).ok()?.st_mode) {
            FileType::Fifo => false,
            FileType::Socket => socket_type(outer) == Ok(SocketType::STREAM),
            _ => return None,
        };
        let kept = fcntl_setpipe_size(inner, ROOM).ok()?;
        (kept == ROOM).then_some(Lender { outer, inner, socket, lent: 0 })
    }

    /// Whether something is lent: the command's pipe can be written to again when all was read.
    pub(super) fn is_out(&self) -> bool {
        self.lent > 0
    }

    /// Lends what waits outside, as much as fits. Gives `false` at the end of the input, or where an
    /// error ends it.
    pub(super) fn lend(&mut self) -> bool {
        let lent = if self.socket { self.lend_from_socket() } else { self.lend_from_pipe() };
        match lent {
            Ok(0) => false,
            Ok(lent) => {
                self.lent = lent;
                true
            }
            Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    fn lend_from_pipe(&self) -> Result<usize, Errno> {
        tee(self.outer, self.inner, ROOM, SpliceFlags::NONBLOCK)
    }

    fn lend_from_socket(&self) -> Result<usize, Errno> {
        let mut bytes = [0; ROOM];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let (_, seen) = recv(self.outer, &mut bytes[..], flags)?;
        if seen == 0 { Ok(0) } else { rustix::io::write(self.inner, &bytes[..seen]) }
    }

    /// Takes outside what the command has read of what is lent, and records it. Gives how much that
    /// was. What it has not read stays outside, and is not lent any more.
    pub(super) fn settle(&mut self, record: &std::sync::Mutex<Record>) -> u64 {
        let unread = ioctl_fionread(self.inner).unwrap_or(0);
        let read = self.lent.saturating_sub(usize::try_from(unread).unwrap_or(usize::MAX));
        self.lent = 0;
        let mut bytes = [0; CHUNK];
        let mut taken = 0;
        while taken < read {
            match self.take(&mut bytes[..read - taken]) {
                // Somebody else was faster.
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(some) => {
                    super::pump::lock(record).take(&bytes[..some]);
                    taken += some;
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        taken as u64
    }

    /// Reads without waiting: the outer description is others' too, so its mode stays.
    fn take(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        if self.socket {
            return recv(self.outer, bytes, RecvFlags::DONTWAIT).map(|(_, read)| read);
        }
        if ioctl_fionread(self.outer)? == 0 {
            return Ok(0);
        }
        rustix::io::read(self.outer, bytes)
    }
}
