//! The groups that are in use, by number; and what happens to a node whose memory is given back too early.
//!
//! A node knows its group by number only, as it may outlive it. So a group enters itself here when its first
//! node is linked, and leaves when it is dropped; whoever drops a node finds the group's seats here. A
//! node whose group is gone can go as well: no section can follow a link to it any more.
//!
//! What the drop of a node does in release builds (in debug builds `audit` panics first):
//! - *still linked*: neighbours lead to the node. If the group has no members, nobody can follow them now, and
//!   the group is *poisoned*: nobody can join any more. (So a panic that unwinds past members, lists and
//!   nodes gets through.) Else the process is aborted; nothing else would be safe. A joining thread takes its
//!   seat and then looks at the poison, the drop poisons and then looks at the seats, all of it
//!   sequentially consistent, so one of them sees the other.
//! - *taken off, but perhaps still seen*: it waits until no section can come across it, as the caller
//!   should have done. A section of the same thread will not end that way, so after [`PATIENCE`] the
//!   process is aborted.
//!
//! Entries are fields of the groups, so nothing is allocated; the lists of entries hang off a static table of
//! buckets, each behind a lock that is held for a walk over a bucket and a look at the seats.
//!
//! Invariant: what a bucket leads to is alive. A group is entered by the unsafe operations that link nodes,
//! whose callers promise that from then on it stays where it is, and is dropped before its memory goes;
//! the drop takes the bucket's lock.

#![allow(unsafe_code)] // Entries are reached by address.

use crate::epoch::Counters;
use crate::group::Domain;
use crate::node::Node;
use crate::seat::{FREE, Seat, state_of};
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};
use crate::wait::Backoff;
use core::ptr;
use core::slice;
use core::sync::atomic::AtomicBool;

/// Looks at the seats before a node's drop gives up: ten seconds, where waiting threads can sleep.
#[cfg(feature = "std")]
const PATIENCE: u64 = 100_000;
/// Looks at the seats before a node's drop gives up.
#[cfg(not(feature = "std"))]
const PATIENCE: u64 = 1 << 32;

const BUCKETS: usize = 64;

/// A group's place in its bucket.
pub(crate) struct Entered {
    entered: AtomicBool,
    poisoned: AtomicBool,
    next: AtomicPtr<Counters>,
    seats: AtomicPtr<Seat>,
    count: AtomicUsize,
}

impl Entered {
    pub(crate) const fn new() -> Self {
        Self {
            entered: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
            seats: AtomicPtr::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
        }
    }
}

impl Entered {
    /// Whether a linked node was freed. Called by a thread that has just taken a seat.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::SeqCst)
    }
}

struct Bucket {
    locked: AtomicBool,
    first: AtomicPtr<Counters>,
}

static TABLE: [Bucket; BUCKETS] =
    [const { Bucket { locked: AtomicBool::new(false), first: AtomicPtr::new(ptr::null_mut()) } };
        BUCKETS];

/// The lock of a bucket.
struct Held(&'static Bucket);

impl Held {
    fn of(id: usize) -> Self {
        let bucket = &TABLE[id % BUCKETS];
        let mut backoff = Backoff::default();
        while bucket.locked.swap(true, Ordering::Acquire) {
            backoff.pause();
        }
        Self(bucket)
    }

    /// The link that leads to group `id`, or the last one.
    fn find(&self, id: usize) -> &AtomicPtr<Counters> {
        let mut link = &self.0.first;
        // SAFETY: what a bucket leads to is alive while the bucket is locked.
        while let Some(group) = unsafe { link.load(Ordering::Relaxed).as_ref() } {
            if group.id.load(Ordering::Relaxed) == id {
                break;
            }
            link = &group.entered.next;
        }
        link
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

impl Counters {
    /// Enters the group, the first time. The caller's caller has promised that it does not move any more.
    #[inline]
    pub(crate) fn enter(&self, seats: &[Seat]) {
        if !self.entered.entered.load(Ordering::Relaxed) {
            self.enter_now(seats);
        }
    }

    #[cold]
    fn enter_now(&self, seats: &[Seat]) {
        let bucket = Held::of(self.id.load(Ordering::Relaxed));
        if self.entered.entered.swap(true, Ordering::Relaxed) {
            return;
        }
        self.entered.seats.store(seats.as_ptr().cast_mut(), Ordering::Relaxed);
        self.entered.count.store(seats.len(), Ordering::Relaxed);
        let first = &bucket.0.first;
        self.entered.next.store(first.load(Ordering::Relaxed), Ordering::Relaxed);
        first.store(ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
    }

    /// Takes the group out, before its memory goes.
    pub(crate) fn leave(&self) {
        if self.entered.entered.load(Ordering::Relaxed) {
            let id = self.id.load(Ordering::Relaxed);
            let bucket = Held::of(id);
            let link = bucket.find(id);
            if ptr::eq(link.load(Ordering::Relaxed), self) {
                link.store(self.entered.next.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

/// What stands in the way of giving a node's memory back.
enum Obstacle {
    Linked,
    Seen,
}

/// What, at this moment, makes the drop of `node` of group `id` harmful.
fn obstacle<const K: usize>(node: &Node<K>, id: usize) -> Option<Obstacle> {
    let bucket = Held::of(id);
    let group = bucket.find(id).load(Ordering::Relaxed);
    // SAFETY: the bucket is locked, so the group is alive if it is there; its seats are as well.
    let d = unsafe {
        let counters = group.as_ref()?;
        let seats = counters.entered.seats.load(Ordering::Relaxed);
        let seats = slice::from_raw_parts(seats, counters.entered.count.load(Ordering::Relaxed));
        Domain::without_logs(counters, seats)
    };
    let (epoch, slot) = node.last();
    if !node.next_in(slot).is_null() {
        d.counters.entered.poisoned.store(true, Ordering::SeqCst);
        let taken = |seat: &Seat| state_of(seat.state.load(Ordering::SeqCst)) != FREE;
        return d.seats.iter().any(taken).then_some(Obstacle::Linked);
    }
    (!d.is_out_of_sight(epoch)).then_some(Obstacle::Seen)
}

/// Called when a node that was linked once is dropped: returns when its memory can go.
pub(crate) fn node_dropped<const K: usize>(node: &Node<K>, id: usize) {
    let mut backoff = Backoff::default();
    for _ in 0..PATIENCE {
        match obstacle(node, id) {
            None => return,
            Some(Obstacle::Linked) => abort("a node is freed while it is linked; unlink it first"),
            Some(Obstacle::Seen) => backoff.pause(),
        }
    }
    abort("a node is freed while a section may still see it; wait for Member::may_free");
}

/// Ends the process: the memory is about to go, and unwinding would not stop it.
#[cold]
fn abort(why: &str) -> ! {
    #[cfg(feature = "std")]
    {
        std::eprintln!("olf: {why}");
        std::process::abort()
    }
    #[cfg(not(feature = "std"))]
    {
        /// A panic while panicking aborts, which `core` has no other way to ask for.
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("olf: aborted");
            }
        }
        let _bomb = Bomb;
        panic!("olf: {why}")
    }
}
