//! The Harris-Michael list, memory reclaimed by quiescence (crossbeam-epoch).
//!
//! Harris, "A Pragmatic Implementation of Non-Blocking Linked-Lists", DISC 2001; Michael, "High
//! Performance Dynamic Lock-Free Hash Tables and List-Based Sets", SPAA 2002.

#![allow(unsafe_code)] // Shared pointers, guarded by the pinned epoch.

use crate::set::{Session, Set};
use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

struct Node {
    key: u64,
    /// Tag 1: this node is deleted.
    next: Atomic<Node>,
}

/// See the module.
pub struct EpochSet(Atomic<Node>);

/// One thread's access.
pub struct EpochSession<'s> {
    set: &'s EpochSet,
    handle: epoch::LocalHandle,
}

impl Set for EpochSet {
    type Session<'s> = EpochSession<'s>;

    fn new(_keys: u64) -> Self {
        Self(Atomic::null())
    }

    fn session(&self) -> EpochSession<'_> {
        EpochSession { set: self, handle: epoch::default_collector().register() }
    }
}

impl Drop for EpochSet {
    fn drop(&mut self) {
        // SAFETY: nobody else uses the set.
        let guard = unsafe { epoch::unprotected() };
        let mut at = self.0.load(Relaxed, guard);
        // SAFETY: as above.
        while let Some(node) = unsafe { at.as_ref() } {
            let next = node.next.load(Relaxed, guard);
            // SAFETY: as above.
            drop(unsafe { at.into_owned() });
            at = next.with_tag(0);
        }
    }
}

impl EpochSet {
    /// The link to, and the node with, the first key that is not less; unlinks deleted nodes it meets.
    fn search<'g>(&'g self, key: u64, guard: &'g Guard) -> (&'g Atomic<Node>, Shared<'g, Node>) {
        'again: loop {
            let mut link = &self.0;
            let mut at = link.load(Acquire, guard);
            loop {
                // SAFETY: loaded under the guard.
                let Some(node) = (unsafe { at.as_ref() }) else { return (link, at) };
                let next = node.next.load(Acquire, guard);
                if next.tag() == 1 {
                    let next = next.with_tag(0);
                    if link.compare_exchange(at, next, AcqRel, Relaxed, guard).is_err() {
                        continue 'again;
                    }
                    // SAFETY: unlinked by this thread, once.
                    unsafe { guard.defer_destroy(at) };
                    at = next;
                    continue;
                }
                if node.key >= key {
                    return (link, at);
                }
                link = &node.next;
                at = next;
            }
        }
    }
}

impl Session for EpochSession<'_> {
    fn contains(&mut self, key: u64) -> bool {
        let guard = self.handle.pin();
        let mut at = self.set.0.load(Acquire, &guard);
        // SAFETY: loaded under the guard.
        while let Some(node) = unsafe { at.as_ref() } {
            let next = node.next.load(Acquire, &guard);
            if node.key >= key {
                return node.key == key && next.tag() == 0;
            }
            at = next;
        }
        false
    }

    fn insert(&mut self, key: u64) -> bool {
        let guard = self.handle.pin();
        let mut fresh = Owned::new(Node { key, next: Atomic::null() });
        loop {
            let (link, at) = self.set.search(key, &guard);
            // SAFETY: loaded under the guard.
            if unsafe { at.as_ref() }.is_some_and(|n| n.key == key) {
                return false;
            }
            fresh.next.store(at, Relaxed);
            match link.compare_exchange(at, fresh, AcqRel, Relaxed, &guard) {
                Ok(_) => return true,
                Err(e) => fresh = e.new,
            }
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        let guard = self.handle.pin();
        loop {
            let (link, at) = self.set.search(key, &guard);
            // SAFETY: loaded under the guard.
            let Some(node) = (unsafe { at.as_ref() }) else { return false };
            if node.key != key {
                return false;
            }
            let next = node.next.load(Acquire, &guard);
            if next.tag() == 1
                || node
                    .next
                    .compare_exchange(next, next.with_tag(1), AcqRel, Relaxed, &guard)
                    .is_err()
            {
                continue;
            }
            if link.compare_exchange(at, next, AcqRel, Relaxed, &guard).is_ok() {
                // SAFETY: unlinked by this thread, once.
                unsafe { guard.defer_destroy(at) };
            }
            return true;
        }
    }
}
