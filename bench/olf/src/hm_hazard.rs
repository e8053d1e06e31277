//! The Harris-Michael list, memory reclaimed by hazard pointers (haphazard).

#![allow(unsafe_code)] // Pointers guarded by hazard pointers.

use crate::set::{Session, Set};
use haphazard::{Domain, HazardPointer, Singleton};
use std::mem;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// A domain of this benchmark's own.
#[non_exhaustive]
struct Family;
// SAFETY: `DOMAIN` is the only domain of this family.
unsafe impl Singleton for Family {}
static DOMAIN: Domain<Family> = Domain::new(&Family);

struct Node {
    key: u64,
    /// Lowest bit set: this node is deleted.
    next: AtomicPtr<Node>,
}

fn deleted(p: *mut Node) -> bool {
    p.addr() & 1 == 1
}

fn mark(p: *mut Node) -> *mut Node {
    p.map_addr(|a| a | 1)
}

fn unmark(p: *mut Node) -> *mut Node {
    p.map_addr(|a| a & !1)
}

/// See the module.
pub struct HazardSet(AtomicPtr<Node>);

/// One thread's hazard pointers: for the node whose link is followed, and for the node it leads to.
pub struct HazardSession<'s> {
    set: &'s HazardSet,
    before: HazardPointer<'static, Family>,
    at: HazardPointer<'static, Family>,
}

impl Set for HazardSet {
    type Session<'s> = HazardSession<'s>;

    fn new(_keys: u64) -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn session(&self) -> HazardSession<'_> {
        let hazard = || HazardPointer::new_in_domain(&DOMAIN);
        HazardSession { set: self, before: hazard(), at: hazard() }
    }
}

impl Drop for HazardSet {
    fn drop(&mut self) {
        let mut at = *self.0.get_mut();
        while !at.is_null() {
            // SAFETY: nobody else uses the set.
            let node = unsafe { Box::from_raw(at) };
            at = unmark(node.next.into_inner());
        }
    }
}

impl HazardSession<'_> {
    /// As in Michael's paper: each step protects the next node, then looks again whether it still is
    /// the next. On return `at`'s node is protected, and so is the one that holds the link.
    fn search(&mut self, key: u64) -> (*const AtomicPtr<Node>, *mut Node) {
        'again: loop {
            let mut link: *const AtomicPtr<Node> = &self.set.0;
            // SAFETY: the set's own link.
            let mut at = unsafe { (*link).load(Acquire) };
            loop {
                if at.is_null() {
                    return (link, at);
                }
                // SAFETY: the link is the set's or that of a node protected by `before`.
                if self.at.try_protect_ptr(at, unsafe { &*link }).is_err() {
                    continue 'again;
                }
                // SAFETY: protected, and linked after it was.
                let node = unsafe { &*at };
                let next = node.next.load(Acquire);
                if deleted(next) {
                    let next = unmark(next);
                    // SAFETY: as for the link above.
                    let unlinked = unsafe { (*link).compare_exchange(at, next, AcqRel, Relaxed) };
                    if unlinked.is_err() {
                        continue 'again;
                    }
                    retire(at);
                    at = next;
                    continue;
                }
                if node.key >= key {
                    return (link, at);
                }
                link = &node.next;
                mem::swap(&mut self.before, &mut self.at);
                at = next;
            }
        }
    }
}

fn retire(node: *mut Node) {
    // SAFETY: made by `Box::into_raw`, unlinked by this thread, once.
    unsafe { DOMAIN.retire_ptr::<_, Box<Node>>(node) };
}

impl Session for HazardSession<'_> {
    fn contains(&mut self, key: u64) -> bool {
        let (_, at) = self.search(key);
        // SAFETY: protected by `search`.
        !at.is_null() && unsafe { (*at).key } == key
    }

    fn insert(&mut self, key: u64) -> bool {
        let fresh = Box::into_raw(Box::new(Node { key, next: AtomicPtr::default() }));
        loop {
            let (link, at) = self.search(key);
            // SAFETY: `at` and the link's node are protected; `fresh` is ours until linked.
            unsafe {
                if !at.is_null() && (*at).key == key {
                    drop(Box::from_raw(fresh));
                    return false;
                }
                (*fresh).next.store(at, Relaxed);
                if (*link).compare_exchange(at, fresh, AcqRel, Relaxed).is_ok() {
                    return true;
                }
            }
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        loop {
            let (link, at) = self.search(key);
            // SAFETY: as in `insert`.
            unsafe {
                if at.is_null() || (*at).key != key {
                    return false;
                }
                let next = (*at).next.load(Acquire);
                if deleted(next)
                    || (*at).next.compare_exchange(next, mark(next), AcqRel, Relaxed).is_err()
                {
                    continue;
                }
                if (*link).compare_exchange(at, next, AcqRel, Relaxed).is_ok() {
                    retire(at);
                }
                return true;
            }
        }
    }
}
