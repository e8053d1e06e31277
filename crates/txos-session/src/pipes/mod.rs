//! Pipes and FIFOs across the border of a transaction.
//!
//! A pipe that was open before the beginning is another one inside; this is what joins the two.
//!
//! ```text
//!                  inside                session                      outside
//! written:  member ─▶ inner pipe ─▶ spool ─ ─ ─ at commit ─ ─ ─▶ outer pipe ─▶ anybody
//! lent:     member ◀─ inner pipe ◀─ copy of what waits ◀─ ─ ─ ─  outer pipe ◀─ anybody
//!                                   taken outside at commit
//! ```
//!
//! # Invariants
//!
//! - Outside nothing is taken and nothing is written before the commit: an abort, and a death of the session,
//!   leave the outer pipe as it was.
//! - What is lent is the head of what waits outside, in order. At the commit what members have read of it
//!   must still be the head, else somebody else has taken it, and the transaction has lost.
//! - One transaction at a time is lent what waits in a pipe: the lock (flock(2)) of the outer pipe tells the
//!   others, of other sessions too.
//! - Nobody who serves a pipe waits for it before the commit.

mod lent;
mod written;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    fs::{OFlags, fcntl_getfl},
    io::Errno,
};

pub(crate) use self::lent::Waiting;
use self::{lent::Lent, written::Written};

/// The pipes of one member's way through a transaction.
pub(crate) struct Pipes {
    written: Vec<Written>,
    lent: Vec<Lent>,
    /// Becomes readable when there may be something to do.
    events: Option<OwnedFd>,
}

impl Pipes {
    /// Serves pipes that a program gives as pairs: its own end, and the end of the inner pipe that is for the
    /// session. What is written and does not fit into memory goes to a file without a name in `scratch`.
    ///
    /// # Errors
    /// If the session is out of descriptors.
    pub(crate) fn serve(
        given: Vec<OwnedFd>,
        scratch: &Path,
        waiting: &Waiting,
    ) -> Result<Pipes, Errno> {
        let mut pipes = Pipes { written: Vec::new(), lent: Vec::new(), events: None };
        if given.is_empty() {
            return Ok(pipes);
        }
        let events = epoll::create(CreateFlags::CLOEXEC)?;
        let mut given = given.into_iter();
        while let (Some(outer), Some(inner)) = (given.next(), given.next()) {
            let mode = |fd: &OwnedFd| fcntl_getfl(fd).map(|flags| flags & OFlags::RWMODE);
            if mode(&outer)? == OFlags::WRONLY {
                let written = Written::new(outer, inner, scratch)?;
                written.watched().try_for_each(|(fd, what)| watch(&events, fd, what))?;
                pipes.written.push(written);
            } else {
                let both = mode(&inner)? == OFlags::RDONLY;
                let lent = Lent::new(outer, inner, both, waiting)?;
                lent.watched().try_for_each(|(fd, what)| watch(&events, fd, what))?;
                pipes.lent.push(lent);
            }
        }
        if !pipes.lent.is_empty() {
            watch(&events, waiting.bell(), EventFlags::IN)?;
        }
        pipes.events = Some(events);
        // Whom nobody reads from outside is told at once.
        pipes.pump()?;
        Ok(pipes)
    }

    /// Becomes readable when there may be something to do.
    pub(crate) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// Does what there is to do, and waits for nothing. Gives whether it is to be called again soon, whatever
    /// the events say.
    ///
    /// # Errors
    /// What waits outside, or what was written, cannot be held any more: the transaction is to be given up.
    pub(crate) fn pump(&mut self) -> Result<bool, Errno> {
        if let Some(events) = &self.events {
            let mut happened = [const { std::mem::MaybeUninit::uninit() }; 8];
            // What it is does not matter: all is looked at.
            let _ =
                epoll::wait(events, &mut happened[..], Some(&rustix::event::Timespec::default()));
        }
        for written in &mut self.written {
            written.pump()?;
        }
        let mut waits = false;
        for lent in &mut self.lent {
            waits |= lent.pump()?;
        }
        Ok(waits)
    }

    /// Nobody reads or writes inside any more: what was read and written is settled.
    ///
    /// # Errors
    /// As [`Pipes::pump`].
    pub(crate) fn settle(&mut self) -> Result<(), Errno> {
        self.events = None;
        for written in &mut self.written {
            written.pump()?;
        }
        self.lent.iter_mut().try_for_each(Lent::settle)
    }

    /// Whether what was read inside still waits outside.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.lent.iter().all(Lent::is_unchanged)
    }

    /// Takes outside what was read, and writes what was written; waits until there is room.
    pub(crate) fn commit(self) {
        self.lent.into_iter().for_each(Lent::commit);
        self.written.into_iter().for_each(Written::commit);
    }
}

fn watch(events: &OwnedFd, fd: BorrowedFd<'_>, what: EventFlags) -> Result<(), Errno> {
    match epoll::add(events, fd, EventData::new_u64(0), what | EventFlags::ET) {
        // One open file of the program at two numbers.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}
