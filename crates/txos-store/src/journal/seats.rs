//! Seats: which commits are between their record and the end of their apply.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    sync::{PoisonError, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    thread::futex,
};

use super::{
    Journal, Turn,
    control::{SEATS, Seat, collide},
};
use crate::{Result, StoreError};

/// A seat that this process owns, for as long as the file is open.
pub(super) struct SeatFile {
    index: usize,
    file: File,
}

/// A seat that is held, from before the record to the end of the apply. Dropping it lets go.
pub(crate) struct Held<'j> {
    journal: &'j Journal,
    file: Option<SeatFile>,
}

/// A commit that must be waited for.
pub(crate) struct Wait<'j> {
    journal: &'j Journal,
    seat: &'j Seat,
}

impl Wait<'_> {
    /// Returns when it has ended, or after a while.
    pub(crate) fn wait(self) {
        self.journal.wait_for(self.seat);
    }
}

impl Held<'_> {
    /// Leaves the seat held, and owned by nobody: the commit must be finished by recovery.
    pub(crate) fn abandon(mut self) {
        self.file = None;
    }

    fn seat(&self) -> Option<&Seat> {
        self.file.as_ref().map(|file| &self.journal.control.seats[file.index])
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        #[cfg(test)]
        if crate::sys::watch::dead() {
            // Killed: the seat stays as it is, and nobody owns it.
            self.file = None;
            return;
        }
        let Some(seat) = self.seat() else { return };
        release(seat);
        let mut pool = self.journal.seats.lock().unwrap_or_else(PoisonError::into_inner);
        pool.extend(self.file.take());
    }
}

fn release(seat: &Seat) {
    seat.held.store(0, SeqCst);
    let _ = futex::wake(&seat.held, futex::Flags::empty(), i32::MAX as u32);
}

/// What the commits between record and apply were changing at a moment.
#[derive(Default)]
pub(crate) struct UnderWay {
    keys: Vec<u64>,
    all: bool,
}

impl UnderWay {
    /// Whether there was none.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.all
    }

    /// Whether one of them touches one of `keys`; `None` touches everything.
    pub(crate) fn meets(&self, keys: Option<&[u64]>) -> bool {
        match keys {
            None => !self.is_empty(),
            Some(keys) => {
                let met = |key: &u64| self.keys.iter().any(|held| collide(*held, *key));
                self.all || (!self.keys.is_empty() && keys.iter().any(met))
            }
        }
    }
}

/// What stands in the way of a commit.
enum Way<'j> {
    Free,
    Wait(&'j Seat),
    /// A seat that is held and that nobody owns.
    Dead,
}

impl Journal {
    /// Takes the lock when no commit that touches one of `keys` (`None`: any) is between its record
    /// and the end of its apply.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if a recovery must come first.
    pub(crate) fn enter(&self, keys: Option<&[u64]>) -> Result<Turn<'_>> {
        loop {
            let turn = self.take()?;
            self.require_trust()?;
            match self.way(keys, false) {
                Way::Free => return Ok(turn),
                Way::Wait(seat) => {
                    drop(turn);
                    self.wait_for(seat);
                }
                Way::Dead => {
                    let reason = "a process died while it applied its commit";
                    return Err(StoreError::refused(&self.dir, reason, "run txos recover"));
                }
            }
        }
    }

    /// Takes the lock for a recovery: when all who live are done.
    pub(crate) fn enter_for_recovery(&self) -> Result<Turn<'_>> {
        loop {
            let turn = self.take()?;
            match self.way(None, true) {
                Way::Wait(seat) => {
                    drop(turn);
                    self.wait_for(seat);
                }
                _ => return Ok(turn),
            }
        }
    }

    fn way(&self, keys: Option<&[u64]>, past_dead: bool) -> Way<'_> {
        for (index, seat) in self.control.seats.iter().enumerate() {
            if !seat.meets(keys) {
                continue;
            }
            if !self.is_dead(index) {
                return Way::Wait(seat);
            }
            if !past_dead {
                return Way::Dead;
            }
        }
        Way::Free
    }

    /// What is under way, under the lock: none begins, but each may end at any moment.
    pub(crate) fn under_way(&self, _turn: &Turn<'_>) -> UnderWay {
        let mut under_way = UnderWay::default();
        for seat in self.control.seats.iter().filter(|seat| seat.held.load(SeqCst) != 0) {
            seat.copy(&mut under_way.keys, &mut under_way.all);
        }
        under_way
    }

    /// What stands between its record and the end of its apply and touches one of `keys`; the
    /// caller has the lock.
    pub(crate) fn in_the_way(&self, keys: Option<&[u64]>) -> Option<Wait<'_>> {
        let seat = self.control.seats.iter().find(|seat| seat.meets(keys))?;
        Some(Wait { journal: self, seat })
    }

    /// Whether a commit died between its record and the end of its apply.
    pub(crate) fn has_dead(&self) -> bool {
        let held = |index: &usize| self.control.seats[*index].held.load(SeqCst) != 0;
        (0..SEATS).filter(held).any(|index| self.is_dead(index))
    }

    fn wait_for(&self, seat: &Seat) {
        let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = futex::wait(&seat.held, futex::Flags::empty(), 1, Some(&limit));
    }

    /// Whether nobody owns the seat.
    fn is_dead(&self, index: usize) -> bool {
        match self.seat_file(index) {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => self.control.seats[index].held.load(SeqCst) != 0,
                Err(_) => false,
            },
            Err(_) => false,
        }
    }

    fn seat_file(&self, index: usize) -> Result<File> {
        let path = self.dir.join(format!("seat.{index}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(&path).map_err(|error| StoreError::std("open", &path, &error))
    }

    /// Holds a seat for the record that will be written next. What it will change is `keys`
    /// (`None`: anything).
    pub(crate) fn hold(&self, _turn: &Turn<'_>, keys: Option<&[u64]>) -> Result<Held<'_>> {
        let pooled = self.seats.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let file = match pooled {
            Some(file) => file,
            None => self.find_seat()?,
        };
        self.control.seats[file.index].hold(self.control.end.load(SeqCst), keys);
        Ok(Held { journal: self, file: Some(file) })
    }

    fn find_seat(&self) -> Result<SeatFile> {
        loop {
            for index in 0..SEATS {
                // One that a death left held waits for recovery.
                if self.control.seats[index].held.load(SeqCst) != 0 {
                    continue;
                }
                let file = self.seat_file(index)?;
                match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(SeatFile { index, file }),
                    Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                    Err(errno) => return Err(self.failed("lock a seat of", errno)),
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The places of the records whose commits died, under the lock.
    pub(crate) fn dead_records(&self, _turn: &Turn<'_>) -> Vec<u64> {
        let held = |seat: &&Seat| seat.held.load(SeqCst) != 0;
        self.control.seats.iter().filter(held).map(|seat| seat.record.load(SeqCst)).collect()
    }

    /// Lets go of all seats: recovery has finished what they stood for.
    pub(crate) fn bury(&self, _turn: &Turn<'_>) {
        for seat in self.control.seats.iter().filter(|seat| seat.held.load(SeqCst) != 0) {
            release(seat);
        }
        self.control.ended.store(self.control.started.load(SeqCst), SeqCst);
    }
}

impl std::fmt::Debug for SeatFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seat {} ({:?})", self.index, self.file)
    }
}
