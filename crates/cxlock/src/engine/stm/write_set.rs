//! The values that an attempt wants to write, found again by cell.

use super::Cell;
use std::collections::BTreeMap;

/// Up to here a search backwards beats an index.
const LINEAR: usize = 16;

#[derive(Debug)]
pub(super) struct Write<'c> {
    pub(super) cell: &'c Cell,
    pub(super) value: u64,
}

/// Buffered writes, one for each cell.
#[derive(Debug, Default)]
pub(super) struct WriteSet<'c> {
    entries: Vec<Write<'c>>,
    /// One bit for each cell, by its address: a clear bit says "not written".
    filter: u64,
    /// Address to position, once there are more than [`LINEAR`].
    index: BTreeMap<usize, usize>,
}

impl<'c> WriteSet<'c> {
    pub(super) fn with_memory(entries: Vec<Write<'c>>) -> Self {
        Self { entries, ..Self::default() }
    }

    /// Leaves an empty set.
    pub(super) fn take_memory(&mut self) -> Vec<Write<'c>> {
        let entries = std::mem::take(&mut self.entries);
        self.clear();
        entries
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.filter = 0;
        if !self.index.is_empty() {
            self.index.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Write<'c>> {
        self.entries.iter()
    }

    #[inline]
    pub(super) fn get(&self, cell: &Cell) -> Option<u64> {
        self.position(cell).map(|at| self.entries[at].value)
    }

    #[inline]
    pub(super) fn insert(&mut self, cell: &'c Cell, value: u64) {
        if let Some(at) = self.position(cell) {
            self.entries[at].value = value;
            return;
        }
        self.entries.push(Write { cell, value });
        self.filter |= bit(cell);
        match self.entries.len() {
            0..=LINEAR => {}
            n if n == LINEAR + 1 => {
                let all = self.entries.iter().enumerate().map(|(at, w)| (address(w.cell), at));
                self.index = all.collect();
            }
            n => {
                self.index.insert(address(cell), n - 1);
            }
        }
    }

    #[inline]
    fn position(&self, cell: &Cell) -> Option<usize> {
        if self.filter & bit(cell) == 0 {
            None
        } else if self.entries.len() <= LINEAR {
            self.entries.iter().rposition(|w| std::ptr::eq(w.cell, cell))
        } else {
            self.index.get(&address(cell)).copied()
        }
    }
}

fn address(cell: &Cell) -> usize {
    cell.meta.address()
}

/// Cells are at least 16 bytes apart, so the low bits say nothing.
#[inline]
fn bit(cell: &Cell) -> u64 {
    1 << ((address(cell) >> 4) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(loom))]
    #[test]
    fn last_write_wins_below_and_above_the_index() {
        let cells: Vec<Cell> = (0..100).map(|_| Cell::default()).collect();
        for n in [1, LINEAR, LINEAR + 1, LINEAR + 2, 100] {
            let mut set = WriteSet::default();
            for round in 0..2 {
                for (i, cell) in cells[..n].iter().enumerate() {
                    set.insert(cell, i as u64 + round);
                }
            }
            assert_eq!(set.len(), n);
            for (i, cell) in cells.iter().enumerate() {
                assert_eq!(set.get(cell), (i < n).then_some(i as u64 + 1), "{n} {i}");
            }
        }
    }
}
