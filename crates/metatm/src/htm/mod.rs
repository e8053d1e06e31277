//! Transactions in hardware: sets, undo logs and the table of who holds which word.
//!
//! Versions are eager: a write goes to memory at once and the old value to the writer's undo log.
//! Detection is eager and exact to the word: `table` knows for each word of any live set its
//! writer and its readers, and every access asks it first (`machine::conflict`). Invariants:
//!
//! 1. A word has at most one writer, and then no reader but that writer.
//! 2. `filter[line]` counts the words of that line in `table`, so that an access to a line outside
//!    of every set costs one look.
//! 3. A transaction that was told to restart holds nothing: its old values are back and its sets
//!    are empty before the winner's access happens.
//!
//! The isolation checker uses none of this. Each transaction logs the value of each word at its
//! first read; at commit every such word must still hold that value, or the last one that the
//! transaction itself wrote. Together with in-place writes this proves that all reads were true at
//! one instant, the commit, which is what serializable means. A restart is checked the same way:
//! every word read must hold again what was first read.

pub mod policy;
pub mod status;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::mem::{Addr, LINE_SHIFT, Memory};
use policy::Claim;
use status::{Reason, Status};

/// Index of a live transaction.
pub type Slot = usize;

/// Live transactions that the hardware can tell apart: running, suspended and descheduled.
pub const SLOTS: usize = 256;

const NONE: u16 = u16::MAX;

/// One transaction, from its first `xbegin` through all restarts to its commit.
#[derive(Debug, Clone, Default)]
pub struct Tx {
    /// Identifier that `xgettxid` returns; 0 in a free slot.
    pub id: u64,
    /// Mark on cache lines, new at each attempt; never 0 while live.
    pub mark: u32,
    /// Thread that began it.
    pub thread: usize,
    /// Interrupt nesting of that thread when it began.
    pub frame: u32,
    /// Flat nesting depth.
    pub depth: u32,
    /// Restart scope of the thread to which a restart returns.
    pub scope: u32,
    /// Cycle of the first attempt; not refreshed.
    pub born: u64,
    /// Conflict priority, fixed for its life.
    pub prio: u8,
    /// Restarts so far.
    pub restarts: u32,
    /// Set while it waits to be restarted.
    pub aborted: Option<Reason>,
    /// What the next `xbegin` returns.
    pub status: Status,
    /// Its last instruction was an `xtest` that failed.
    pub spinning: bool,
    /// Its thread is not on any processor.
    pub parked: bool,
    /// Waits granted by the polite policy in this attempt.
    pub waited: u32,
    /// Lines of its sets that left L1 in this attempt.
    pub overflowed: u32,
    /// Instructions of this attempt.
    pub instrs: u64,
    /// Cycles of this attempt.
    pub cycles: u64,
    /// Interrupt flag to restore at a restart.
    pub irq_on: bool,
    /// Preemption count to restore at a restart.
    pub preempt: u32,
    /// Bytes in use on the stack, to restore at a restart.
    pub sp: u32,
    /// cxspinlocks held, to restore at a restart.
    pub cx: Vec<crate::sync::cx::Held>,
    /// First value read of each word in the read set.
    pub reads: Vec<(u32, u32)>,
    /// Each word in the write set with its old value, oldest first.
    pub writes: Vec<(u32, u32)>,
    /// The last value written to each word of `writes`.
    wrote: Vec<u32>,
}

impl Tx {
    /// Words read plus words written; one that is both counts twice.
    pub fn size(&self) -> u32 {
        (self.reads.len() + self.writes.len()) as u32
    }

    /// What it can say for itself in a conflict.
    pub fn claim(&self) -> Claim {
        Claim {
            prio: self.prio,
            size: self.size(),
            born: self.born,
            restarts: self.restarts,
            id: self.id,
        }
    }
}

#[derive(Debug, Clone)]
struct Holders {
    writer: u16,
    readers: [u64; SLOTS / 64],
}

impl Holders {
    fn is_empty(&self) -> bool {
        self.writer == NONE && self.readers.iter().all(|r| *r == 0)
    }
}

/// A multiplicative hash for word numbers: deterministic and fast.
#[derive(Default)]
struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }
    fn write_u32(&mut self, n: u32) {
        let h = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = h ^ (h >> 29);
    }
}

/// All transactional state of the machine.
pub struct Htm {
    /// Slots, free ones included.
    pub tx: Vec<Tx>,
    free: Vec<Slot>,
    table: HashMap<u32, Holders, BuildHasherDefault<WordHasher>>,
    filter: Vec<u16>,
    next_id: u64,
    next_mark: u32,
}

impl Htm {
    /// No transaction, over `lines` lines of memory.
    pub fn new(lines: usize) -> Self {
        Self {
            tx: Vec::new(),
            free: Vec::new(),
            table: HashMap::default(),
            filter: vec![0; lines],
            next_id: 1,
            next_mark: 1,
        }
    }

    /// A fresh transaction; `None` if all slots are taken.
    pub fn create(&mut self) -> Option<Slot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.tx.len() < SLOTS => {
                self.tx.push(Tx::default());
                self.tx.len() - 1
            }
            None => return None,
        };
        let tx = &mut self.tx[slot];
        let (mut reads, mut writes, mut wrote) = (
            std::mem::take(&mut tx.reads),
            std::mem::take(&mut tx.writes),
            std::mem::take(&mut tx.wrote),
        );
        reads.clear();
        writes.clear();
        wrote.clear();
        *tx = Tx { id: self.next_id, reads, writes, wrote, ..Tx::default() };
        self.next_id += 1;
        self.fresh_mark(slot);
        Some(slot)
    }

    /// Gives the attempt a mark that no earlier attempt's cache lines carry.
    pub fn fresh_mark(&mut self, slot: Slot) {
        self.tx[slot].mark = self.next_mark;
        self.next_mark = self.next_mark.checked_add(1).unwrap_or(1);
    }

    /// Puts into `out` the slots other than `me` that an access to `a` conflicts with.
    #[inline]
    pub fn enemies(&self, a: Addr, write: bool, me: Option<Slot>, out: &mut Vec<Slot>) {
        out.clear();
        if self.filter[(a >> LINE_SHIFT) as usize] == 0 {
            return;
        }
        let Some(h) = self.table.get(&(a / 4)) else { return };
        if h.writer != NONE && Some(usize::from(h.writer)) != me {
            out.push(usize::from(h.writer));
        }
        if !write {
            return;
        }
        for (i, bits) in h.readers.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let slot = i * 64 + bits.trailing_zeros() as usize;
                if Some(slot) != me && slot != usize::from(h.writer) {
                    out.push(slot);
                }
                bits &= bits - 1;
            }
        }
    }

    fn holders(&mut self, a: Addr) -> &mut Holders {
        let filter = &mut self.filter[(a >> LINE_SHIFT) as usize];
        self.table.entry(a / 4).or_insert_with(|| {
            *filter += 1;
            Holders { writer: NONE, readers: [0; SLOTS / 64] }
        })
    }

    /// Enters `a`, which holds `value`, into the read set of `slot`.
    #[inline]
    pub fn add_read(&mut self, slot: Slot, a: Addr, value: u32) {
        let h = self.holders(a);
        let (i, bit) = (slot / 64, 1u64 << (slot % 64));
        if h.readers[i] & bit == 0 && usize::from(h.writer) != slot {
            h.readers[i] |= bit;
            self.tx[slot].reads.push((a / 4, value));
        }
    }

    /// Enters `a` into the write set of `slot`: `old` is its value now, `new` the one to come.
    #[inline]
    pub fn add_write(&mut self, slot: Slot, a: Addr, old: u32, new: u32) {
        let h = self.holders(a);
        let mine = usize::from(h.writer) == slot;
        h.writer = slot as u16;
        let tx = &mut self.tx[slot];
        if mine {
            if let Some(i) = tx.writes.iter().rposition(|(w, _)| *w == a / 4) {
                tx.wrote[i] = new;
            }
            return;
        }
        tx.writes.push((a / 4, old));
        tx.wrote.push(new);
    }

    fn release(&mut self, slot: Slot) {
        let (i, bit) = (slot / 64, 1u64 << (slot % 64));
        let tx = &mut self.tx[slot];
        for (word, _) in tx.reads.drain(..).chain(tx.writes.drain(..)) {
            if let Some(h) = self.table.get_mut(&word) {
                h.readers[i] &= !bit;
                if usize::from(h.writer) == slot {
                    h.writer = NONE;
                }
                if h.is_empty() {
                    self.table.remove(&word);
                    self.filter[(word >> (LINE_SHIFT - 2)) as usize] -= 1;
                }
            }
        }
        tx.wrote.clear();
    }

    /// Puts the old values of `slot` back (unless `forget`, a sabotage) and empties its sets;
    /// the number of words put back.
    ///
    /// # Errors
    /// A word does not hold again what the attempt first read.
    pub fn roll_back(
        &mut self,
        slot: Slot,
        mem: &mut Memory,
        forget: bool,
    ) -> std::result::Result<u32, String> {
        let tx = &self.tx[slot];
        let words = tx.writes.len() as u32;
        if !forget {
            for (word, old) in tx.writes.iter().rev() {
                mem.set(word * 4, *old);
            }
        }
        let wrong = tx.reads.iter().find(|(word, seen)| mem.get(word * 4) != *seen);
        let wrong = wrong.map(|(word, seen)| {
            format!(
                "transaction {} read {seen} at {:#x}, which holds {} after its restart",
                tx.id,
                word * 4,
                mem.get(word * 4)
            )
        });
        self.release(slot);
        wrong.map_or(Ok(words), Err)
    }

    /// Frees `slot` after a commit.
    pub fn retire(&mut self, slot: Slot) {
        self.release(slot);
        self.tx[slot].id = 0;
        self.free.push(slot);
    }

    /// The isolation check; what is wrong, if anything.
    pub fn violation(&self, slot: Slot, mem: &Memory) -> Option<String> {
        let tx = &self.tx[slot];
        for ((word, _), wrote) in tx.writes.iter().zip(&tx.wrote) {
            let now = mem.get(word * 4);
            if now != *wrote {
                return Some(format!(
                    "transaction {} wrote {wrote} to {:#x}, which holds {now} at commit",
                    tx.id,
                    word * 4
                ));
            }
        }
        for (word, seen) in &tx.reads {
            let now = mem.get(word * 4);
            if now != *seen {
                match tx.writes.iter().find(|(w, _)| w == word) {
                    Some((_, old)) if old == seen => {}
                    _ => {
                        return Some(format!(
                            "transaction {} read {seen} at {:#x}, which holds {now} at commit",
                            tx.id,
                            word * 4
                        ));
                    }
                }
            }
        }
        None
    }

    /// Number of words in any set; 0 when nothing is live.
    pub fn words(&self) -> usize {
        self.table.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup() -> (Htm, Memory, Slot, Slot) {
        let mem = Memory::new(1 << 16).expect("memory");
        let mut htm = Htm::new(mem.lines());
        let (a, b) = (htm.create().expect("slot"), htm.create().expect("slot"));
        (htm, mem, a, b)
    }

    #[test]
    fn conflicts_are_exact_to_the_word() {
        let (mut htm, _, a, b) = setup();
        let mut out = Vec::new();
        htm.add_read(a, 128, 0);
        htm.enemies(132, true, Some(b), &mut out);
        assert!(out.is_empty(), "a neighbour in the same line is no conflict");
        htm.enemies(128, false, Some(b), &mut out);
        assert!(out.is_empty(), "two readers are no conflict");
        htm.enemies(128, true, Some(b), &mut out);
        assert_eq!(out, [a]);
        htm.enemies(128, true, Some(a), &mut out);
        assert!(out.is_empty(), "nobody conflicts with itself");
        htm.add_write(a, 128, 0, 1);
        htm.enemies(128, false, Some(b), &mut out);
        assert_eq!(out, [a], "a writer that read is one enemy");
    }

    #[test]
    fn rollback_restores_the_oldest_value_and_empties_the_table() {
        let (mut htm, mut mem, a, _) = setup();
        mem.set(256, 5);
        htm.add_read(a, 256, 5);
        htm.add_write(a, 256, 5, 6);
        mem.set(256, 6);
        htm.add_write(a, 256, 6, 7);
        mem.set(256, 7);
        assert_eq!(htm.violation(a, &mem), None);
        assert_eq!(htm.roll_back(a, &mut mem, false), Ok(1));
        assert_eq!((mem.get(256), htm.words(), htm.filter[4]), (5, 0, 0));
    }

    #[test]
    fn the_checker_sees_a_foreign_write_to_either_set() {
        let (mut htm, mut mem, a, b) = setup();
        htm.add_read(a, 256, 0);
        mem.set(256, 9);
        assert!(htm.violation(a, &mem).expect("read").contains("0x100"));
        htm.add_write(b, 512, 0, 1);
        mem.set(512, 4);
        assert!(htm.violation(b, &mem).expect("write").contains("0x200"));
    }

    #[test]
    fn slots_are_bounded_and_reused() {
        let mut htm = Htm::new(64);
        let slots: Vec<_> = (0..SLOTS).map(|_| htm.create().expect("slot")).collect();
        assert_eq!(htm.create(), None);
        let old = htm.tx[slots[3]].id;
        htm.retire(slots[3]);
        let again = htm.create().expect("freed");
        assert_eq!(again, slots[3]);
        assert!(htm.tx[again].id > old, "identifiers are never reused");
    }
}
