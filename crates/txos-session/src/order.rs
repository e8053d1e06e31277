//! Ordered commit: the transactions of a group become visible in the order of their sequence numbers,
//! whatever order they run in.
//!
//! The numbers of a group count from 0 without gaps. A transaction waits in its end until all before it
//! have ended; then it is validated, so that one which had read what a predecessor changed loses and runs
//! again, now at the head of its group, where only outsiders can make it lose.
//!
//! # Invariants
//!
//! - A place is passed on when its transaction has committed or was given up for good; one that will run
//!   again keeps it, until its connection closes.
//! - A transaction that waits holds no lock that its predecessors need.
//! - No more than [`MOST`] groups are remembered: of more, the half that was used last. A group that is
//!   used again after so many others begins anew.

use std::{
    collections::{HashMap, HashSet},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// So many groups are remembered at the most.
const MOST: usize = 1 << 16;

/// A place in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) group: u64,
    pub(crate) sequence: u64,
}

#[derive(Default)]
struct Group {
    /// The first number that has not ended.
    next: u64,
    /// Numbers beyond it that were given up before their turn.
    passed: HashSet<u64>,
    /// When it was last used, in uses of all.
    used: u64,
}

/// All groups of a session.
#[derive(Default)]
pub(crate) struct Orders {
    groups: Mutex<Groups>,
    changed: Condvar,
}

#[derive(Default)]
struct Groups {
    known: HashMap<u64, Group>,
    uses: u64,
}

impl Groups {
    fn group(&mut self, number: u64) -> &mut Group {
        self.uses += 1;
        if self.known.len() >= MOST && !self.known.contains_key(&number) {
            let mut used: Vec<u64> = self.known.values().map(|group| group.used).collect();
            let (_, middle, _) = used.select_nth_unstable(MOST / 2);
            let from = *middle;
            self.known.retain(|_, group| group.used >= from);
        }
        let group = self.known.entry(number).or_default();
        group.used = self.uses;
        group
    }
}

impl Orders {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        // Each change is one step.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the place has been passed already, so that nothing can commit there.
    pub(crate) fn is_past(&self, place: Place) -> bool {
        let mut groups = self.groups();
        let group = groups.group(place.group);
        place.sequence < group.next || group.passed.contains(&place.sequence)
    }

    /// Waits until all before it have ended; `false` if `wanted` says that nobody waits for it any more.
    pub(crate) fn wait(&self, place: Place, wanted: &dyn Fn() -> bool) -> bool {
        /// How often it is asked.
        const LOOK: Duration = Duration::from_millis(50);
        let mut groups = self.groups();
        while groups.group(place.group).next < place.sequence {
            if !wanted() {
                return false;
            }
            let waited = self.changed.wait_timeout(groups, LOOK);
            groups = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The transaction of this place has ended for good.
    pub(crate) fn pass(&self, place: Place) {
        let mut groups = self.groups();
        let group = groups.group(place.group);
        group.passed.insert(place.sequence);
        while group.passed.remove(&group.next) {
            group.next += 1;
        }
        drop(groups);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_that_were_used_last_are_remembered() {
        let orders = Orders::default();
        let most = MOST as u64;
        (0..3 * most).for_each(|group| orders.pass(Place { group, sequence: 0 }));
        assert!(orders.groups().known.len() <= MOST);
        let past = |group| orders.is_past(Place { group, sequence: 0 });
        assert!(past(3 * most - 1) && past(3 * most - most / 4) && !past(0));
    }

    #[test]
    fn places_are_passed_in_any_order_and_taken_in_one() {
        let orders = Orders::default();
        let at = |sequence| Place { group: 1, sequence };
        assert!(orders.wait(at(0), &|| true));
        assert!(!orders.wait(at(1), &|| false));
        orders.pass(at(2));
        assert!(orders.is_past(at(2)) && !orders.is_past(at(0)));
        orders.pass(at(0));
        orders.wait(at(1), &|| true);
        std::thread::scope(|scope| {
            let last = scope.spawn(|| orders.wait(at(3), &|| true));
            orders.pass(at(1));
            assert!(last.join().expect("the wait ends"));
        });
        orders.wait(Place { group: 2, sequence: 0 }, &|| true);
    }
}
