//! What the single-list benchmark asks of a list: a sorted set of keys, one session for each thread.

/// A set that threads share.
pub trait Set: Sync {
    /// One thread's access.
    type Session<'s>: Session
    where
        Self: 's;

    /// An empty set for keys below `keys`.
    fn new(keys: u64) -> Self;

    /// A thread's access to the set.
    fn session(&self) -> Self::Session<'_>;
}

/// The three operations of table 8.1. Each says whether it did what it was asked.
pub trait Session {
    /// Whether the key is there.
    fn contains(&mut self, key: u64) -> bool;
    /// Puts the key there; false if it was.
    fn insert(&mut self, key: u64) -> bool;
    /// Takes the key away; false if it was not there.
    fn remove(&mut self, key: u64) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    /// Against the standard library's set, and from two threads that must not disturb each other.
    fn behaves<S: Set>() {
        let set = S::new(64);
        let mut model = BTreeSet::new();
        let mut rng = Rng::new(7);
        let mut session = set.session();
        for _ in 0..4000 {
            let key = rng.below(64);
            match rng.below(3) {
                0 => assert_eq!(session.contains(key), model.contains(&key)),
                1 => assert_eq!(session.insert(key), model.insert(key)),
                _ => assert_eq!(session.remove(key), model.remove(&key)),
            }
        }
        drop(session);
        std::thread::scope(|s| {
            for parity in 0..2 {
                let set = &set;
                s.spawn(move || {
                    let mut session = set.session();
                    let keys = (0..64).filter(move |k| k % 2 == parity);
                    keys.clone().for_each(|k| {
                        session.insert(k);
                    });
                    for _ in 0..200 {
                        keys.clone().for_each(|k| assert!(session.remove(k)));
                        keys.clone().for_each(|k| assert!(session.insert(k)));
                    }
                });
            }
        });
        let mut session = set.session();
        (0..64).for_each(|k| assert!(session.contains(k)));
        (0..64).for_each(|k| assert!(session.remove(k)));
        (0..64).for_each(|k| assert!(!session.contains(k)));
    }

    #[test]
    fn all_sets_agree() {
        behaves::<crate::olf_set::OlfSet>();
        behaves::<crate::locked::SpinSet>();
        behaves::<crate::locked::MutexSet>();
        behaves::<crate::locked::RwSet>();
        behaves::<crate::hm_epoch::EpochSet>();
        behaves::<crate::hm_hazard::HazardSet>();
        behaves::<crate::skip::SkipSet>();
    }
}
