//! The FUSE device as a place from which workers take requests.
//!
//! A worker reads without blocking, and sleeps only when there is nothing to read. It sleeps in an
//! epoll of its own, exclusively, so that one request wakes one worker, and so that the stop event
//! wakes all of them: a worker never blocks where it could not be told to end.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, CreateFlags, EventData, EventFlags},
        eventfd,
    },
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, read, write},
};

use crate::{CaptureError, Result};

/// A request has to fit: a header and a name or two. More room makes for longer batches of FORGET.
pub(crate) const BUFFER: usize = 64 * 1024;

/// How often a worker looks for the mount that is about to be made.
const MOUNT_POLL: Duration = Duration::from_micros(50);

pub(crate) struct Device {
    fuse: OwnedFd,
    stop: OwnedFd,
}

/// What a worker got from the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes of a request.
    Request(usize),
    /// Nothing now.
    Nothing,
    /// Not mounted yet.
    NotMounted,
    /// The connection has ended.
    Ended,
}

impl Device {
    pub(crate) fn new(fuse: OwnedFd) -> Result<Self> {
        let failed = |action| move |errno| CaptureError::Device { action, errno };
        let flags = fcntl_getfl(&fuse).map_err(failed("examine"))?;
        fcntl_setfl(&fuse, flags | OFlags::NONBLOCK).map_err(failed("set up"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(failed("make an event for"))?;
        Ok(Device { fuse, stop })
    }

    /// Takes a request if there is one.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            match read(&self.fuse, &mut *buffer) {
                Ok(count) => return Received::Request(count),
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(Errno::PERM) => return Received::NotMounted,
                // Taken back by a signal before it was read; the next one is behind it.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(_) => return Received::Ended,
            }
        }
    }

    /// Gives an answer. The kernel refuses answers to requests that were taken back, and all when
    /// the connection has ended; neither is anybody's failure.
    pub(crate) fn send(&self, answer: &[u8]) {
        let _ = write(&self.fuse, answer);
    }

    /// Tells every worker to end.
    pub(crate) fn stop(&self) {
        // Cannot fail but for a counter that is full, and then the event is set anyway.
        let _ = write(&self.stop, &1u64.to_ne_bytes());
    }

    /// A place to wait at, for one worker.
    pub(crate) fn waiter(&self) -> Result<Waiter> {
        let failed = |errno| CaptureError::Device { action: "wait for", errno };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        epoll::add(&epoll, &self.stop, EventData::new_u64(STOP), EventFlags::IN).map_err(failed)?;
        Ok(Waiter { epoll, registered: false })
    }
}

const STOP: u64 = 1;
const FUSE: u64 = 2;

/// Where one worker sleeps.
pub(crate) struct Waiter {
    epoll: OwnedFd,
    registered: bool,
}

impl Waiter {
    /// Sleeps a moment while the file system is not mounted yet: the device reports nothing then.
    /// `false` when told to stop.
    pub(crate) fn until_mounted(&self) -> bool {
        !self.sleep(Some(MOUNT_POLL))
    }

    /// Sleeps until there may be a request. `false` when told to stop.
    pub(crate) fn until_request(&mut self, device: &Device) -> bool {
        if !self.registered {
            let events = EventFlags::IN | EventFlags::EXCLUSIVE;
            let added =
                epoll::add(&self.epoll, device.fuse.as_fd(), EventData::new_u64(FUSE), events);
            if added.is_err() {
                return false;
            }
            self.registered = true;
        }
        !self.sleep(None)
    }

    /// Whether the stop event woke it.
    fn sleep(&self, limit: Option<Duration>) -> bool {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut events = Vec::with_capacity(2);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref())
        {
            Ok(_) => events.iter().any(|event| event.data.u64() == STOP),
            Err(Errno::INTR) => false,
            Err(_) => true,
        }
    }
}
