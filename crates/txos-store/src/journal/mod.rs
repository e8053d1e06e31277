//! The journal: which transactions are committed and may not be wholly applied yet.
//!
//! Two segments in the directory `journal` of the state directory, used in turn; records one after
//! the other in each (see `frame`, and docs/journal.md). A commit record that is whole decides: the
//! transaction is committed from then on, whatever happens. A checkpoint record says that all
//! before it is applied and flushed.
//!
//! # What the disk is trusted to do
//!
//! - What was written before a successful `fdatasync(2)` is there after a crash.
//! - What was not may be there in part, in any order. So behind the mark up to which a segment is
//!   known to be flushed (each record carries it) anything may be broken: nothing there was
//!   decided. A record that is broken before the mark of a later one cannot come from a crash: it
//!   is damage, is reported, and stops all commits.
//!
//! # Invariants
//!
//! - A record is written under the lock and flushed outside it: one flush serves all records that
//!   were written before it began, of all processes (`segments::flush_to`).
//! - Records of one segment are contiguous, and none crosses into another segment.
//! - A segment is left only when all in it is applied, flushed and checkpointed, and the header of
//!   the next is flushed: so recovery looks at one segment only, the one of the higher sequence.
//! - Space in a segment is written with zeros before it is used: a record allocates nothing, so it
//!   fails for want of space never, and its flush moves no metadata.
//! - After a failed flush nothing is committed until recovery has made everything anew.

pub(crate) mod codec;
pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod legacy;
pub(crate) mod plan;
mod replay;
mod seats;
mod segments;
#[cfg(test)]
mod tests;
mod waiting;

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, atomic::Ordering::SeqCst},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, retry_on_intr},
};

use self::{control::Control, seats::SeatFile};
pub(crate) use self::{
    seats::{Held, UnderWay},
    segments::Written,
};
use crate::{
    Result, StateDir, StoreError,
    sys::{self, Mapped},
};

const REMEDY: &str = "copy the state directory aside, find out what harmed the disk, \
                      and then remove the journal to go on without what it says";

/// The open journal of a state directory, for all threads of a process.
pub(crate) struct Journal {
    dir: PathBuf,
    segments: [File; 2],
    control: Mapped<Control>,
    lock: File,
    /// Threads take turns by this, processes by `flock` on the file: an open file is one holder.
    turn: Mutex<()>,
    flush: File,
    flushing: Mutex<()>,
    seats: Mutex<Vec<SeatFile>>,
}

/// The journal's lock, held.
pub(crate) struct Turn<'j> {
    journal: &'j Journal,
    _guard: MutexGuard<'j, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = flock(&self.journal.lock, FlockOperation::Unlock);
    }
}

impl Journal {
    /// Opens the journal, which is made where there is none. One of the version before is put
    /// aside for recovery to read.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if what is there is no journal.
    pub(crate) fn open(state: &StateDir) -> Result<Journal> {
        let dir = state.path().join("journal");
        make_directory(&dir)?;
        let open = |name: &str| {
            let path = dir.join(name);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            options.open(&path).map_err(|error| StoreError::std("open", &path, &error))
        };
        let control = open("control")?;
        let control = Mapped::new(&control)
            .map_err(|errno| StoreError::io("map", dir.join("control"), errno))?;
        let journal = Journal {
            segments: [open("0")?, open("1")?],
            control,
            lock: open("lock")?,
            turn: Mutex::new(()),
            flush: open("flush")?,
            flushing: Mutex::new(()),
            seats: Mutex::new(Vec::new()),
            dir,
        };
        let turn = journal.take()?;
        journal.begin(&turn)?;
        drop(turn);
        Ok(journal)
    }

    /// What is shared with other processes.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Takes the lock.
    pub(crate) fn take(&self) -> Result<Turn<'_>> {
        let guard = self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        retry_on_intr(|| flock(&self.lock, FlockOperation::LockExclusive))
            .map_err(|errno| StoreError::io("lock", self.dir.join("lock"), errno))?;
        Ok(Turn { journal: self, _guard: guard })
    }

    /// Whether commits must wait for a recovery: after a failed flush, a reboot, or a death.
    pub(crate) fn trusted(&self) -> bool {
        self.control.poisoned.load(SeqCst) == 0
    }

    /// Refuses to go on after a failed flush.
    pub(crate) fn require_trust(&self) -> Result<()> {
        match self.control.poisoned.load(SeqCst) {
            0 => Ok(()),
            UNRECOVERED => {
                let reason = "what an earlier crash left is not recovered";
                Err(StoreError::refused(&self.dir, reason, "run txos recover"))
            }
            _ => {
                let reason = "an earlier flush failed, and nothing is trusted to the disk since";
                Err(StoreError::refused(
                    &self.dir,
                    reason,
                    "see to the disk, then run txos recover",
                ))
            }
        }
    }

    /// Whether a flush failed.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.control.poisoned.load(SeqCst) & POISONED != 0
    }

    /// Recovery has finished all there was.
    pub(crate) fn trust_again(&self, turn: &Turn<'_>) {
        self.bury(turn);
        self.control.poisoned.store(0, SeqCst);
    }

    /// No more commits until a recovery.
    pub(crate) fn poison(&self) {
        self.control.poisoned.fetch_or(POISONED, SeqCst);
    }

    fn failed(&self, action: &'static str, errno: Errno) -> StoreError {
        StoreError::io(action, &self.dir, errno)
    }
}

/// A flush failed.
pub(crate) const POISONED: u32 = 1;
/// A reboot, or the loss of the control page, has come in between.
pub(crate) const UNRECOVERED: u32 = 2;

/// The journal of the version before, put aside.
fn legacy_path(dir: &Path) -> PathBuf {
    dir.with_file_name("journal-1")
}

fn make_directory(dir: &Path) -> Result<()> {
    let make = || fs::DirBuilder::new().mode(0o700).create(dir);
    let failed = |error: std::io::Error| StoreError::std("make", dir, &error);
    match make() {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            if fs::symlink_metadata(dir).map_err(failed)?.is_dir() {
                return Ok(());
            }
            // Nobody moves a directory over a file: of two that come here at once one moves it.
            match fs::rename(dir, legacy_path(dir)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(failed(error));
                }
                _ => {}
            }
            match make() {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        Err(error) => return Err(failed(error)),
    }
    let above = dir.parent().unwrap_or(Path::new("/"));
    File::open(above).map_err(failed).and_then(|above| {
        sys::flush_open(&above, sys::Flush::All)
            .map_err(|errno| StoreError::io("flush", dir, errno))
    })
}
