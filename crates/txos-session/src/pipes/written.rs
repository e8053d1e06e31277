//! What members write to a pipe that leads outside.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll::EventFlags, poll},
    fs::{OFlags, fcntl_setfl},
    io::{Errno, read, write},
};
use txos_effects::streams::{DEFAULT_LIMIT, Spool};

/// Bytes that are moved in one go.
const CHUNK: usize = 64 * 1024;

/// A pipe that members write to.
pub(super) struct Written {
    outer: OwnedFd,
    /// `None` when nobody writes any more, or nobody reads outside.
    inner: Option<OwnedFd>,
    spool: Spool,
}

impl Written {
    pub(super) fn new(outer: OwnedFd, inner: OwnedFd, scratch: &Path) -> Result<Written, Errno> {
        fcntl_setfl(&inner, OFlags::NONBLOCK)?;
        let spool = Spool::new(scratch.to_owned(), DEFAULT_LIMIT);
        Ok(Written { outer, inner: Some(inner), spool })
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, EventFlags)> {
        let inner = self.inner.iter().map(|inner| (inner.as_fd(), EventFlags::IN));
        // Errors are always reported: the last reader has gone.
        inner.chain([(self.outer.as_fd(), EventFlags::empty())])
    }

    /// Keeps what was written.
    pub(super) fn pump(&mut self) -> Result<(), Errno> {
        let Some(inner) = &self.inner else { return Ok(()) };
        let mut bytes = [0; CHUNK];
        loop {
            match read(inner, &mut bytes) {
                Ok(0) => break self.inner = None,
                Ok(length) => self
                    .spool
                    .append(&bytes[..length])
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOSPC))?,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        // Nobody reads outside: who writes on is told, as ever.
        if self.is_broken() {
            self.inner = None;
        }
        Ok(())
    }

    fn is_broken(&self) -> bool {
        let mut fds = [PollFd::new(&self.outer, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::ERR)
    }

    /// Writes all of it outside, as long as anybody reads there.
    pub(super) fn commit(self) {
        let (mut at, mut bytes) = (0, [0; CHUNK]);
        while let Ok(length @ 1..) = self.spool.read_at(at, &mut bytes) {
            let mut rest = &bytes[..length];
            while !rest.is_empty() {
                match write(&self.outer, rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        let mut fds = [PollFd::new(&self.outer, PollFlags::OUT)];
                        let _ = poll(&mut fds, None);
                    }
                    Err(errno) => {
                        tracing::debug!(%errno, "nobody reads what was written to a pipe");
                        return;
                    }
                }
            }
            at += length as u64;
        }
    }
}
