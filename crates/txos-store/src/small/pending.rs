//! Which records are not checkpointed yet, and what they change.

use std::{collections::HashMap, sync::atomic::Ordering::SeqCst};

use super::{Key, of_plan};
use crate::{
    Result,
    journal::{Journal, Turn},
    plan::Shape,
};

/// What the records of all processes change that are not checkpointed yet.
#[derive(Default)]
pub(super) struct Pending {
    sequence: u64,
    /// Up to where the segment was read.
    upto: u64,
    changes: HashMap<Key, Shape>,
    records: usize,
}

impl Pending {
    /// Forgets what others checkpointed and learns what others wrote.
    pub(super) fn catch_up(&mut self, journal: &Journal, turn: &Turn<'_>) -> Result<()> {
        let control = journal.control();
        let sequence = control.sequence.load(SeqCst);
        let checkpointed = control.checkpointed.load(SeqCst);
        if self.sequence != sequence || checkpointed > self.upto {
            *self = Pending { sequence, upto: checkpointed, ..Pending::default() };
        } else if self.upto == checkpointed && self.records > 0 {
            self.changes.clear();
            self.records = 0;
        }
        let end = control.end.load(SeqCst);
        if self.upto < end {
            for (_, plan) in journal.plans_from(turn, self.upto)? {
                self.add(&of_plan(&plan), end);
            }
            self.upto = end;
        }
        Ok(())
    }

    /// A record was written, up to `end`.
    pub(super) fn add(&mut self, keys: &[(Key, Shape)], end: u64) {
        for (key, shape) in keys {
            let known = self.changes.entry(*key).or_insert(*shape);
            if known != shape {
                *known = Shape::Other;
            }
        }
        self.records += 1;
        self.upto = end;
    }

    /// How many records.
    pub(super) fn len(&self) -> usize {
        self.records
    }

    /// Whether something of `keys` is changed by a pending record in a way that cannot be folded
    /// with what comes.
    pub(super) fn overlaps(&self, keys: &[(Key, Shape)]) -> bool {
        keys.iter().filter(|(key, _)| key.number() & 1 == 0).any(|(key, shape)| {
            self.changes.get(key).is_some_and(|pending| *shape == Shape::Other || pending != shape)
        })
    }
}
