//! Pipes and FIFOs across the border of a view.
//!
//! A pipe that is open before the beginning is another one inside: what members write to it appears outside
//! at the commit, what they read from it is taken there at the commit. The session serves the other end
//! (see there); this makes the inner pipes and lends their ends the program's numbers.
//!
//! Invariants:
//!
//! - Descriptors that were one open file before are one inside.
//! - The library keeps no end of an inner pipe: when members have closed theirs, the session sees the end.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, open},
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd},
    pipe::{PipeFlags, pipe_with},
    thread::gettid,
};
use txos_protocol::DESCRIPTORS;

use crate::sys;

/// An end of a pipe that is open before the beginning.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) fd: RawFd,
    pub(crate) cloexec: bool,
    flags: OFlags,
    /// Device and inode.
    pipe: (u64, u64),
}

impl End {
    /// The end that a number stands for; `None` if it is no pipe or FIFO.
    ///
    /// # Errors
    /// If it is not open.
    pub(crate) fn look(fd: RawFd, stat: &Stat) -> Result<Option<End>, Errno> {
        let borrowed = sys::borrow(fd);
        let flags = fcntl_getfl(borrowed)?;
        let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        if !is_pipe || flags.contains(OFlags::PATH) {
            return Ok(None);
        }
        let cloexec = fcntl_getfd(borrowed)?.contains(FdFlags::CLOEXEC);
        Ok(Some(End { fd, cloexec, flags, pipe: (stat.st_dev, stat.st_ino) }))
    }

    fn mode(&self) -> OFlags {
        self.flags & OFlags::RWMODE
    }

    fn reads(&self) -> bool {
        self.mode() != OFlags::WRONLY
    }

    fn writes(&self) -> bool {
        self.mode() != OFlags::RDONLY
    }
}

/// What a number inside stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pipe: (u64, u64),
    mode: OFlags,
}

impl Inner {
    /// What a number stands for; `None` if it is no pipe.
    pub(crate) fn of(fd: RawFd) -> Option<Inner> {
        let stat = fstat(sys::borrow(fd)).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Fifo {
            return None;
        }
        let mode = fcntl_getfl(sys::borrow(fd)).ok()? & OFlags::RWMODE;
        Some(Inner { pipe: (stat.st_dev, stat.st_ino), mode })
    }
}

/// The inner pipes, before the view is entered.
#[derive(Debug, Default)]
pub(crate) struct Conduits {
    ends: Vec<(End, OwnedFd)>,
    /// For the session: of each pipe the program's end, and the other end of the inner one.
    outer: Vec<RawFd>,
    theirs: Vec<OwnedFd>,
}

impl Conduits {
    /// Makes a pipe for each that has ends among these. `Err` is a number that cannot be carried.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub(crate) fn new(ends: Vec<End>) -> Result<Result<Conduits, RawFd>, Errno> {
        let mut conduits = Conduits::default();
        let mut rest = ends;
        while let Some(first) = rest.first() {
            let pipe = first.pipe;
            let (these, others): (Vec<End>, Vec<End>) =
                rest.into_iter().partition(|end| end.pipe == pipe);
            rest = others;
            // Packets would be joined.
            if let Some(end) = these.iter().find(|end| end.flags.contains(OFlags::DIRECT)) {
                return Ok(Err(end.fd));
            }
            if conduits.theirs.len() * 2 >= DESCRIPTORS {
                return Ok(Err(these[0].fd));
            }
            conduits.add(these)?;
        }
        Ok(Ok(conduits))
    }

    fn add(&mut self, ends: Vec<End>) -> Result<(), Errno> {
        let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
        let reader = ends.iter().find(|end| end.reads()).map(|end| end.fd);
        let both = reader.is_some() && ends.iter().any(End::writes);
        self.outer.push(reader.unwrap_or(ends[0].fd));
        let first = self.ends.len();
        // The session has one end; the other one is for the first open file of the program's.
        let (theirs, ours) = match both || reader.is_none() {
            true => (reading, writing),
            false => (writing, reading),
        };
        let mut ours = Some(ours);
        for end in ends {
            let same = |other: &&(End, OwnedFd)| {
                sys::same_open_file(gettid(), other.0.fd, gettid(), end.fd)
            };
            let inner = match self.ends[first..].iter().find(same) {
                Some((_, inner)) => fcntl_dupfd_cloexec(inner, 0)?,
                None => {
                    let alone = end.mode() != OFlags::RDWR && (!both || end.writes());
                    match ours.take_if(|_| alone) {
                        Some(inner) if end.flags.contains(OFlags::NONBLOCK) => {
                            fcntl_setfl(&inner, OFlags::NONBLOCK)?;
                            inner
                        }
                        Some(inner) => inner,
                        None => opened(&theirs, end.flags)?,
                    }
                }
            };
            self.ends.push((end, inner));
        }
        self.theirs.push(theirs);
        Ok(())
    }

    /// What the session gets.
    pub(crate) fn given(&self) -> Vec<BorrowedFd<'_>> {
        let pairs = self.outer.iter().zip(&self.theirs);
        pairs.flat_map(|(outer, theirs)| [sys::borrow(*outer), theirs.as_fd()]).collect()
    }

    /// The program's ends, each with what takes its place.
    pub(crate) fn into_ends(self) -> impl Iterator<Item = (End, OwnedFd, Option<Inner>)> {
        self.ends.into_iter().map(|(end, inner)| {
            let is = Inner::of(inner.as_raw_fd());
            (end, inner, is)
        })
    }
}

/// An open file of its own for an end of a pipe.
fn opened(pipe: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/fd/{}", pipe.as_raw_fd());
    let flags = flags & (OFlags::RWMODE | OFlags::NONBLOCK);
    open(path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// Whether reading and writing waits, and where is written, is the program's choice, also if it made it inside.
pub(crate) fn keep_choice(inside: RawFd, before: BorrowedFd<'_>) {
    let choices = OFlags::NONBLOCK | OFlags::APPEND;
    let flags = [fcntl_getfl(sys::borrow(inside)), fcntl_getfl(before)];
    if let [Ok(now), Ok(then)] = flags
        && (now ^ then).intersects(choices)
    {
        let _ = fcntl_setfl(before, (then - choices) | (now & choices));
    }
}
