//! What a [stand-in](crate::stand_in)'s table of descriptors leaves in the one that it was copied from, which
//! other threads use meanwhile.
//!
//! | a number, in the stand-in's table | after a commit, in the thread's |
//! |---|---|
//! | opened inside, and kept | the same |
//! | closed inside | closed |
//! | opened anew inside | the new one |
//! | as it was copied | as it is |
//!
//! After an abort everything is as it is. What another thread has closed or opened at a number since the beginning
//! stays as that thread made it.
//!
//! # Invariants
//!
//! - Numbers that were opened inside are reserved before the commit is asked for. If another thread has opened
//!   something at one of them, the transaction loses: two that were opened side by side cannot have one number, and
//!   which one it has is a result that the program has seen.
//! - The stand-in's table is gone when the thread goes on.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};

use rustix::{
    fs::{FileType, fstat},
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd},
    process::Pid,
    thread::gettid,
};
use txos_protocol::{pair, receive, send};

use crate::{
    descriptors::{self, high, numbers},
    stand_in::StandIn,
    sys::{self, Held},
};

/// A number of the table, as it was copied.
#[derive(Clone, Copy, Debug)]
struct Copied {
    fd: RawFd,
    /// Device and inode.
    identity: (u64, u64),
    cloexec: bool,
    /// Whether others have the same inode that are no file of a name: events, timers and their kind.
    is_one_of_many: bool,
}

/// A stand-in, and what its table was at the start.
#[derive(Debug)]
pub(crate) struct Tables {
    stand_in: StandIn,
    /// Each with a duplicate where its inode does not tell it from others.
    copied: Vec<(Copied, Option<Held>)>,
    /// Numbers that were the library's own at the start.
    held: Vec<RawFd>,
    /// A way for open files from the stand-in's table to the thread's: both ends are in both.
    way: (Held, Held),
}

/// What is to be done after the commit.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// Numbers of the thread's table that are kept for what was opened inside.
    made: Vec<RawFd>,
    /// Numbers at which another file of the view was opened.
    renewed: Vec<RawFd>,
}

/// A change of the thread's table.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Closed, if it is still what was copied.
    Close(Copied),
    /// What comes by the way next, if the number is still what was copied.
    Replace { copied: Copied, cloexec: bool },
    /// What comes by the way next.
    Fill { fd: RawFd, cloexec: bool },
    /// To be closed on exec, or not any more.
    Mark { copied: Copied, cloexec: bool },
}

/// How many open files are under way at a time: more may not fit.
const UNDER_WAY: usize = 32;

impl Tables {
    /// Has a stand-in go on from here, in a table without what is open on the mounts `others`, which are those of
    /// other threads' transactions.
    ///
    /// # Errors
    /// If there is no thread, descriptor or memory left.
    pub(crate) fn part(others: &[u32]) -> Result<Tables, Errno> {
        let (one, other) = pair()?;
        let way = (Held::dup(one.as_fd(), high())?, Held::dup(other.as_fd(), high())?);
        drop((one, other));
        // What other threads' ways across the border need for a moment is not to be copied.
        let low = descriptors::low();
        let stand_in = StandIn::start()?;
        drop(low);
        let mut tables = Tables { stand_in, copied: Vec::new(), held: Vec::new(), way };
        match tables.note(others) {
            Ok(()) => Ok(tables),
            Err(errno) => {
                tables.join(None);
                Err(errno)
            }
        }
    }

    fn note(&mut self, others: &[u32]) -> Result<(), Errno> {
        for fd in numbers()? {
            if descriptors::belongs(fd, others).unwrap_or(false) {
                sys::close(fd);
            } else if let Ok(copied) = Copied::look(fd) {
                if sys::is_held(fd, copied.identity) {
                    self.held.push(fd);
                    continue;
                }
                let borrowed = sys::borrow(fd);
                let duplicate = || Held::dup(borrowed, high());
                let duplicate = copied.is_one_of_many.then(duplicate).transpose()?;
                self.copied.push((copied, duplicate));
            }
        }
        Ok(())
    }

    /// Keeps the numbers of what was opened inside; at those that are `renewed` another file of the view is by now.
    /// `None` if another thread has opened something at one of them.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the process is out of descriptors.
    pub(crate) fn reserve(&self, renewed: Vec<RawFd>) -> Result<Option<Reserved>, Errno> {
        if !self.stand_in.is_here() {
            return Ok(Some(Reserved::default()));
        }
        let known =
            |fd| self.held.contains(&fd) || self.copied.iter().any(|(copied, _)| copied.fd == fd);
        let made = |fd: &RawFd| {
            let is_held = |found: Copied| sys::is_held(*fd, found.identity);
            !known(*fd) && Copied::look(*fd).is_ok_and(|found| !is_held(found))
        };
        let wanted: Vec<RawFd> = numbers()?.into_iter().filter(made).collect();
        let mut reserved = Reserved { made: Vec::new(), renewed };
        if wanted.is_empty() {
            return Ok(Some(reserved));
        }
        self.stand_in.outside(|| {
            for fd in wanted {
                match fcntl_dupfd_cloexec(&self.way.0, fd) {
                    // A number of the program's from here on.
                    Ok(kept) if kept.as_raw_fd() == fd => reserved.made.push(kept.into_raw_fd()),
                    other => {
                        reserved.release();
                        return other.map(|_| None);
                    }
                }
            }
            Ok(Some(reserved))
        })
    }

    /// The thread goes on, outside: with what the stand-in made of the table, or with the table as it is.
    pub(crate) fn join(self, reserved: Option<Reserved>) {
        if let Some(reserved) = reserved.filter(|_| self.stand_in.is_here()) {
            self.carry_out(&self.changes(&reserved));
        }
        let Tables { stand_in, way, .. } = self;
        stand_in.end();
        drop(way);
    }

    /// Whether this is the process of the thread: not so in one that was forked inside.
    pub(crate) fn is_here(&self) -> bool {
        self.stand_in.is_here()
    }

    /// Gives numbers back that were reserved for a commit that did not happen.
    pub(crate) fn release(&self, reserved: Reserved) {
        if !reserved.made.is_empty() {
            self.stand_in.outside(|| reserved.release());
        }
    }

    fn changes(&self, reserved: &Reserved) -> Vec<Change> {
        let thread = Pid::from_raw(self.stand_in.thread());
        let is_the_threads =
            |fd| thread.is_some_and(|thread| sys::same_open_file(gettid(), fd, thread, fd));
        let is_as_copied = |now: Copied, copied: &Copied, duplicate: Option<&Held>| {
            let same =
                |held: &Held| sys::same_open_file(gettid(), held.as_raw_fd(), gettid(), now.fd);
            now.identity == copied.identity && duplicate.is_none_or(same)
        };
        let before = self.copied.iter().filter_map(|(copied, duplicate)| {
            let copied = *copied;
            let Ok(now) = Copied::look(copied.fd) else { return Some(Change::Close(copied)) };
            let cloexec = now.cloexec;
            let is_same = is_the_threads(copied.fd);
            // What another thread has opened at its number is left to that.
            let is_kept = is_same
                || !reserved.renewed.contains(&copied.fd)
                    && is_as_copied(now, &copied, duplicate.as_ref());
            match is_kept {
                false => Some(Change::Replace { copied, cloexec }),
                true if cloexec != copied.cloexec => Some(Change::Mark { copied, cloexec }),
                true => None,
            }
        });
        let made = reserved.made.iter().map(|fd| {
            let flags = fcntl_getfd(sys::borrow(*fd)).unwrap_or(FdFlags::CLOEXEC);
            Change::Fill { fd: *fd, cloexec: flags.contains(FdFlags::CLOEXEC) }
        });
        before.chain(made).collect()
    }

    fn carry_out(&self, changes: &[Change]) {
        for changes in changes.chunks(UNDER_WAY) {
            for fd in changes.iter().filter_map(Change::comes) {
                if let Err(errno) = send(&self.way.0, &[0], Some(sys::borrow(fd))) {
                    sys::end_process(&format!(
                        "cannot give descriptor {fd} to all threads: {errno}"
                    ));
                }
            }
            self.stand_in.outside(|| changes.iter().for_each(|change| self.carry_out_one(*change)));
        }
    }

    /// In the thread's table.
    fn carry_out_one(&self, change: Change) {
        let come = || match receive(&self.way.1, &mut [0]) {
            Ok((_, Some(fd))) => fd,
            _ => sys::end_process("cannot take a descriptor that was opened inside"),
        };
        match change {
            Change::Close(copied) if copied.is_there() => sys::close(copied.fd),
            Change::Replace { copied, cloexec } => {
                // Looked at first: what comes gets the lowest number that is free.
                let is_there = copied.is_there();
                let new = come();
                if is_there {
                    sys::give_back(new.as_fd(), copied.fd, cloexec);
                }
            }
            Change::Fill { fd, cloexec } => sys::give_back(come().as_fd(), fd, cloexec),
            Change::Mark { copied, cloexec } if copied.is_there() => {
                let flags = if cloexec { FdFlags::CLOEXEC } else { FdFlags::empty() };
                let _ = fcntl_setfd(sys::borrow(copied.fd), flags);
            }
            Change::Close(_) | Change::Mark { .. } => {}
        }
    }
}

impl Reserved {
    fn release(&self) {
        self.made.iter().for_each(|fd| sys::close(*fd));
    }
}

impl Change {
    /// The number in the stand-in's table of what it needs from there.
    fn comes(&self) -> Option<RawFd> {
        match self {
            Change::Replace { copied, .. } => Some(copied.fd),
            Change::Fill { fd, .. } => Some(*fd),
            Change::Close(_) | Change::Mark { .. } => None,
        }
    }
}

impl Copied {
    /// What is open at a number.
    ///
    /// # Errors
    /// If nothing is.
    fn look(fd: RawFd) -> Result<Copied, Errno> {
        let stat = fstat(sys::borrow(fd))?;
        let cloexec = fcntl_getfd(sys::borrow(fd))?.contains(FdFlags::CLOEXEC);
        let is_one_of_many = FileType::from_raw_mode(stat.st_mode) == FileType::Unknown;
        Ok(Copied { fd, identity: (stat.st_dev, stat.st_ino), cloexec, is_one_of_many })
    }

    /// Whether the same is there in the calling thread's table.
    fn is_there(&self) -> bool {
        Copied::look(self.fd).is_ok_and(|now| now.identity == self.identity)
    }
}
