//! One attempt: what it read, what it wants to write.
//!
//! After TL2 (Dice, Shalev, Shavit 2006) with the snapshot extension of LSA (Riegel, Felber,
//! Fetzer 2006). Invariants:
//!
//! 1. All of `reads` were valid together at clock `snapshot`. A read that is newer than the
//!    snapshot first moves the snapshot, which proves all earlier reads again; so even an attempt
//!    that can no longer commit has only ever seen one consistent state (opacity).
//! 2. A word in `reads` was free.
//! 3. Nothing is visible, and no word held, before [`Log::hold`].
//! 4. Nothing here waits without bound: a word that stays held ends the attempt.

use super::buffers::Buffers;
use super::write_set::WriteSet;
use super::{Cell, clock};
use crate::restart::Reason;
use crate::sync::CELL_PATIENCE;
use crate::wait::pause;
use crate::word::{Stamp, Word};
use std::mem;

/// A word that a commit holds or is about to.
#[derive(Debug)]
pub(super) struct Hold<'c> {
    word: &'c Word,
    /// What it was before; `None` as long as it is not held.
    before: Option<Stamp>,
    written: bool,
}

/// Sets of an attempt; usable again after [`Log::reset`], which keeps the memory.
#[derive(Debug)]
pub struct Log<'c> {
    snapshot: u64,
    reads: Vec<(&'c Word, Stamp)>,
    writes: WriteSet<'c>,
    /// Sorted by address while a commit runs, else empty.
    holds: Vec<Hold<'c>>,
    /// Entries that either set may have.
    limit: usize,
    doomed: Option<Reason>,
}

impl Default for Log<'_> {
    fn default() -> Self {
        let Buffers { reads, writes, holds } = Buffers::take();
        let writes = WriteSet::with_memory(writes);
        Self { snapshot: 0, reads, writes, holds, limit: usize::MAX, doomed: None }
    }
}

impl Drop for Log<'_> {
    fn drop(&mut self) {
        self.roll_back();
        let (reads, holds) = (mem::take(&mut self.reads), mem::take(&mut self.holds));
        Buffers { reads, writes: self.writes.take_memory(), holds }.give_back();
    }
}

impl<'c> Log<'c> {
    /// A fresh attempt.
    #[inline]
    pub(super) fn reset(&mut self, limit: usize) {
        debug_assert!(self.holds.is_empty());
        self.reads.clear();
        self.writes.clear();
        self.limit = limit;
        self.doomed = None;
        self.snapshot = clock::now();
    }

    /// Ends the attempt; the first reason stays.
    pub(super) fn doom(&mut self, reason: Reason) -> Reason {
        *self.doomed.get_or_insert(reason)
    }

    #[inline]
    fn alive(&self) -> Result<(), Reason> {
        self.doomed.map_or(Ok(()), Err)
    }

    #[inline]
    pub(super) fn read(&mut self, cell: &'c Cell) -> Result<u64, Reason> {
        self.alive()?;
        if let Some(value) = self.writes.get(cell) {
            return Ok(value);
        }
        for round in 0..=CELL_PATIENCE {
            let before = cell.meta.load();
            if before.is_held() {
                pause(round);
                continue;
            }
            let value = cell.load();
            if cell.meta.load() != before {
                continue;
            }
            if before.version() > self.snapshot {
                self.extend()?;
                continue;
            }
            self.note(&cell.meta, before)?;
            return Ok(value);
        }
        Err(self.doom(Reason::Conflict))
    }

    #[inline]
    pub(super) fn write(&mut self, cell: &'c Cell, value: u64) -> Result<(), Reason> {
        self.alive()?;
        self.writes.insert(cell, value);
        if self.writes.len() > self.limit {
            return Err(self.doom(Reason::Overflow));
        }
        Ok(())
    }

    /// `xtest`: enters a free lock word into the read set, leaves a held one out.
    #[inline]
    pub(super) fn subscribe(&mut self, word: &'c Word) -> Result<bool, Reason> {
        self.alive()?;
        loop {
            let seen = word.load();
            if seen.is_held() {
                return Ok(false);
            }
            if seen.version() <= self.snapshot {
                self.note(word, seen)?;
                return Ok(true);
            }
            self.extend()?;
        }
    }

    #[inline]
    fn note(&mut self, word: &'c Word, seen: Stamp) -> Result<(), Reason> {
        if self.reads.len() >= self.limit {
            return Err(self.doom(Reason::Overflow));
        }
        self.reads.push((word, seen));
        Ok(())
    }

    /// Moves the snapshot to now, if all that was read still stands.
    fn extend(&mut self) -> Result<(), Reason> {
        let now = clock::now();
        if self.reads.iter().any(|(word, seen)| word.load() != *seen) {
            return Err(self.doom(Reason::Conflict));
        }
        self.snapshot = now;
        Ok(())
    }

    /// Commits: holds the written words, proves the read ones, publishes.
    pub(super) fn commit(&mut self) -> Result<(), Reason> {
        self.alive()?;
        if self.writes.is_empty() {
            // All reads were valid together at `snapshot`: that is where it happened.
            return Ok(());
        }
        self.hold(false)?;
        let version = clock::tick();
        // If nobody ticked since the snapshot, nobody can have changed what was read.
        if version != self.snapshot + 1 && !self.still_valid() {
            self.roll_back();
            return Err(self.doom(Reason::Conflict));
        }
        self.publish_as(version);
        Ok(())
    }

    /// Holds everything that was written *and* read, all of it unchanged since it was read: until
    /// it is published or rolled back nobody can change what this attempt's outcome rests on.
    pub(super) fn prepare(&mut self) -> Result<(), Reason> {
        self.alive()?;
        self.hold(true)?;
        if !self.still_valid() {
            self.roll_back();
            return Err(self.doom(Reason::Conflict));
        }
        Ok(())
    }

    /// Holds words in the order of their addresses, all or none.
    fn hold(&mut self, reads_too: bool) -> Result<(), Reason> {
        let hold = |word, written| Hold { word, before: None, written };
        self.holds.extend(self.writes.iter().map(|w| hold(&w.cell.meta, true)));
        if reads_too {
            self.holds.extend(self.reads.iter().map(|(word, _)| hold(*word, false)));
        }
        // A word that was read and written comes first as written, and stays.
        self.holds.sort_unstable_by_key(|h| (h.word.address(), !h.written));
        self.holds.dedup_by_key(|h| h.word.address());
        for hold in &mut self.holds {
            hold.before = hold_one(hold.word);
            if hold.before.is_none() {
                self.roll_back();
                return Err(self.doom(Reason::Conflict));
            }
        }
        Ok(())
    }

    /// Whether each word that was read is as it was, or was so when this attempt came to hold it.
    fn still_valid(&self) -> bool {
        self.reads.iter().all(|(word, seen)| {
            let now = word.load();
            now == *seen || (now.is_held() && self.held_as(word) == Some(*seen))
        })
    }

    fn held_as(&self, word: &Word) -> Option<Stamp> {
        let at = self.holds.binary_search_by_key(&word.address(), |h| h.word.address()).ok()?;
        self.holds[at].before
    }

    /// Makes the writes visible and frees every word. Cannot fail, allocates nothing.
    pub(super) fn publish(&mut self) {
        let version = if self.writes.is_empty() { 0 } else { clock::tick() };
        self.publish_as(version);
    }

    fn publish_as(&mut self, version: u64) {
        for write in self.writes.iter() {
            write.cell.store(write.value);
        }
        for Hold { word, before, written } in self.holds.drain(..) {
            match before {
                Some(_) if written => word.free_cell(version),
                Some(before) => word.free_cell(before.version()),
                None => {}
            }
        }
    }

    /// Frees every word as it was.
    pub(super) fn roll_back(&mut self) {
        for Hold { word, before, .. } in self.holds.drain(..) {
            if let Some(before) = before {
                word.free_cell(before.version());
            }
        }
    }
}

fn hold_one(word: &Word) -> Option<Stamp> {
    (0..=CELL_PATIENCE).find_map(|round| {
        let seen = word.load();
        if word.try_hold(seen) {
            return Some(seen);
        }
        pause(round);
        None
    })
}
