//! The FUSE device as a place from which workers take requests.
//!
//! A worker blocks in `read(2)`: a request then costs two system calls, its taking and its answer
//! (waiting in epoll first made each round a third dearer). What a blocked reader cannot hear of
//! is told by a signal (see [`crate::nudge`]).

use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};

/// A request has to fit: a header and a name or two. More room makes for longer batches of FORGET.
pub(crate) const BUFFER: usize = 64 * 1024;

pub(crate) struct Device {
    fuse: OwnedFd,
}

/// What a worker got from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes of a request.
    Request(usize),
    /// A signal instead of a request.
    Interrupted,
    /// Not mounted yet.
    NotMounted,
    /// The connection has ended.
    Ended,
}

impl Device {
    pub(crate) fn new(fuse: OwnedFd) -> Self {
        Device { fuse }
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        match read(&self.fuse, buffer) {
            Ok(count) => Received::Request(count),
            // ENOENT: taken back by a signal to its caller before it was read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => Received::Interrupted,
            Err(Errno::PERM) => Received::NotMounted,
            Err(_) => Received::Ended,
        }
    }

    /// Gives an answer. The kernel refuses answers to requests that were taken back, and all when
    /// the connection has ended; neither is anybody's failure.
    pub(crate) fn send(&self, answer: &[u8]) {
        let _ = write(&self.fuse, answer);
    }
}
