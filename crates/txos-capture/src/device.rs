//! The FUSE device as a place from which workers take requests.
//!
//! A worker blocks in `read(2)`: a request then costs two system calls, its taking and its answer
//! (waiting in epoll first made each round a third dearer). What a blocked reader cannot hear of
//! is told by a signal (see [`crate::nudge`]).

use std::os::fd::OwnedFd;

use rustix::io::{Errno, read, write};

/// A request has to fit: a header and a name or two. More room makes for longer batches of FORGET.
pub(crate) const BUFFER: usize = 64 * 1024;

/// `enum fuse_notify_code` (linux/fuse.h).
const INVAL_INODE: u32 = 2;
const INC_EPOCH: u32 = 8;

/// The head of a notification (`struct fuse_out_header`) that is followed by `more` bytes.
fn notification(code: u32, more: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + more as usize);
    bytes.extend((16 + more).to_ne_bytes());
    bytes.extend(code.to_ne_bytes());
    bytes.extend(0u64.to_ne_bytes());
    bytes
}

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

    /// Makes the kernel ask again for every name (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16) and for what it
    /// knows of the root.
    pub(crate) fn forget_entries(&self) -> rustix::io::Result<()> {
        let mut root = notification(INVAL_INODE, 24);
        root.extend(1u64.to_ne_bytes());
        root.extend([0; 16]); // all of its pages
        match write(&self.fuse, &root) {
            // It knows nothing of it.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        write(&self.fuse, &notification(INC_EPOCH, 0)).map(drop)
    }

    /// Gives an answer. The kernel refuses answers to requests that were taken back, and all when
    /// the connection has ended; neither is anybody's failure.
    pub(crate) fn send(&self, answer: &[u8]) {
        let _ = write(&self.fuse, answer);
    }
}
