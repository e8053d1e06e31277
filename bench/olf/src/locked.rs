//! The same list with plain links, behind one lock: a spinlock, a mutex, a reader-writer lock.
//!
//! Keys have their nodes for good here too, so no allocation blurs the comparison.

#![allow(unsafe_code)] // A spinlock hands out what it guards.

use crate::set::{Session, Set};
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// As large as a node of a heap-allocated list.
#[repr(align(32))]
struct PlainNode {
    next: usize,
    key: u64,
}

/// A sorted list: `nodes[k]` belongs to key `k`, the last one is the head.
pub struct Plain(Vec<PlainNode>);

const NOT_LINKED: usize = usize::MAX;

impl Plain {
    fn new(keys: u64) -> Self {
        let mut nodes: Vec<_> = (0..=keys).map(|key| PlainNode { next: NOT_LINKED, key }).collect();
        nodes[keys as usize].next = keys as usize;
        Self(nodes)
    }

    /// The last node before `key` (or the head), and the one behind it (or the head).
    #[inline]
    fn search(&self, key: u64) -> (usize, usize) {
        let mut before = self.0.len() - 1;
        loop {
            let at = self.0[before].next;
            // The head's key is greater than all others.
            if self.0[at].key >= key {
                return (before, at);
            }
            before = at;
        }
    }

    fn contains(&self, key: u64) -> bool {
        self.search(key).1 == key as usize
    }

    fn insert(&mut self, key: u64) -> bool {
        let (before, at) = self.search(key);
        if at == key as usize {
            return false;
        }
        self.0[key as usize].next = at;
        self.0[before].next = key as usize;
        true
    }

    fn remove(&mut self, key: u64) -> bool {
        let (before, at) = self.search(key);
        if at != key as usize {
            return false;
        }
        self.0[before].next = self.0[at].next;
        self.0[at].next = NOT_LINKED;
        true
    }
}

/// A test-and-test-and-set spinlock, as kernels and the original's evaluation have it: it never yields.
pub struct Spin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock lets one thread at a time at the value.
unsafe impl<T: Send> Sync for Spin<T> {}

/// Unlocks when dropped.
pub struct SpinGuard<'l, T>(&'l Spin<T>);

impl<T> Spin<T> {
    /// An unlocked value.
    pub fn new(value: T) -> Self {
        Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        while self.taken.swap(true, Ordering::Acquire) {
            while self.taken.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        SpinGuard(self)
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

macro_rules! locked_set {
    ($(#[$m:meta])* $name:ident, $session:ident, $lock:ident, $read:expr, $write:expr) => {
        $(#[$m])*
        pub struct $name($lock<Plain>);

        /// One thread's access.
        pub struct $session<'s>(&'s $name);

        impl Set for $name {
            type Session<'s> = $session<'s>;
            fn new(keys: u64) -> Self {
                Self($lock::new(Plain::new(keys)))
            }
            fn session(&self) -> $session<'_> {
                $session(self)
            }
        }

        impl Session for $session<'_> {
            fn contains(&mut self, key: u64) -> bool {
                $read(&self.0.0).contains(key)
            }
            fn insert(&mut self, key: u64) -> bool {
                $write(&self.0.0).insert(key)
            }
            fn remove(&mut self, key: u64) -> bool {
                $write(&self.0.0).remove(key)
            }
        }
    };
}

fn lock(mutex: &Mutex<Plain>) -> MutexGuard<'_, Plain> {
    mutex.lock().expect("no panic under the lock")
}

fn shared(lock: &RwLock<Plain>) -> RwLockReadGuard<'_, Plain> {
    lock.read().expect("no panic under the lock")
}

fn exclusive(lock: &RwLock<Plain>) -> RwLockWriteGuard<'_, Plain> {
    lock.write().expect("no panic under the lock")
}

locked_set! {
    /// Behind a spinlock.
    SpinSet, SpinSession, Spin, Spin::lock, Spin::lock
}
locked_set! {
    /// Behind the standard library's mutex.
    MutexSet, MutexSession, Mutex, lock, lock
}
locked_set! {
    /// Behind the standard library's reader-writer lock.
    RwSet, RwSession, RwLock, shared, exclusive
}
