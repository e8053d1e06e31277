//! crossbeam's skip list.

use crate::set::{Session, Set};
use crossbeam_skiplist::SkipSet as Skip;

/// See the module.
pub struct SkipSet(Skip<u64>);

/// One thread's access.
pub struct SkipSession<'s>(&'s Skip<u64>);

impl Set for SkipSet {
    type Session<'s> = SkipSession<'s>;

    fn new(_keys: u64) -> Self {
        Self(Skip::new())
    }

    fn session(&self) -> SkipSession<'_> {
        SkipSession(&self.0)
    }
}

impl Session for SkipSession<'_> {
    fn contains(&mut self, key: u64) -> bool {
        self.0.contains(&key)
    }

    fn insert(&mut self, key: u64) -> bool {
        // `insert` replaces; a set answers whether the key was new.
        !self.0.contains(&key) && {
            self.0.insert(key);
            true
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }
}
