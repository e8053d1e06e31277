//! A node: `K` versions of one place in a list.
//!
//! ```text
//!            slot 0     slot 1     slot 2     slot 3
//!          +----------+----------+----------+----------+
//!  epoch   |    8     |   12     |   11     |   18     |   12 is what a reader at 12..17 takes,
//!  next    |   -> B   |   -> D   | (undone) | -> E     |   8 what a reader at 8..11 takes,
//!  prev    |   -> H   |   -> H   |          | -> H     |   11 is odd: nobody's, free,
//!          +----------+----------+----------+----------+   18 belongs to a writer still at work.
//! ```
//!
//! The four epochs and the four `next` pointers of a default node fill exactly one cache line, which
//! is all that a forward traversal touches.
//!
//! Invariants (with `R <= every active L <= C`):
//! - an epoch stands in at most one slot of a node, and a slot's epoch only grows, apart from
//!   `my -> my|1 -> my` by the one writer that owns `my`;
//! - the newest valid slot `<= R` is never overwritten, nor any valid slot `> R`;
//! - the content of a slot whose even epoch is `<= C` does not change while a reader may pick it.
//!
//! A null pointer stands for the node itself: so a node can be built in a constant, and moved until it
//! is linked for the first time. For a list's head null means *empty*, for any other node *unlinked*.

use crate::epoch::INACTIVE;
use crate::error::Error;
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, array, const_fn};
use core::ptr;

/// A list node to be embedded in the listed object; nothing is ever allocated for it.
///
/// `K` is the number of versions it can hold, at least 2 (checked at compile time). With 2 the writers
/// of a node take turns; each further slot lets one more writer work ahead. 4 is a good choice.
///
/// # Lifetime
///
/// Once linked, a node must stay where it is, and its memory must outlive every section that may
/// still see it: see [`Member::may_free`](crate::Member::may_free).
#[repr(C, align(64))]
pub struct Node<const K: usize = 4> {
    pub(crate) epochs: [AtomicU64; K],
    pub(crate) next: [AtomicPtr<Node<K>>; K],
    pub(crate) prev: [AtomicPtr<Node<K>>; K],
    /// The attempt in which the owner of `epochs[i]` took slot `i`; only that owner looks at it.
    pub(crate) attempt: [AtomicU32; K],
    /// Number of the group that writes this node; 0 before the first write.
    pub(crate) home: AtomicUsize,
}

impl<const K: usize> Node<K> {
    const_fn! {
        /// A node on no list: slot 0 is committed at epoch 0, the others are free.
        pub const fn new() -> Self {
            const { assert!(K >= 2, "a node needs at least 2 slots") };
            let mut epochs: [AtomicU64; K] = array!(AtomicU64::new(INACTIVE));
            epochs[0] = AtomicU64::new(0);
            Self {
                epochs,
                next: array!(AtomicPtr::new(ptr::null_mut())),
                prev: array!(AtomicPtr::new(ptr::null_mut())),
                attempt: array!(AtomicU32::new(0)),
                home: AtomicUsize::new(0),
            }
        }
    }

    /// Forgets all versions, so that the node can be used with another group.
    ///
    /// The exclusive borrow proves that no section sees the node through a reference; that no *list*
    /// leads to it is the same promise which allows the memory to be freed.
    pub fn reset(&mut self) {
        // The old value is overwritten in place rather than dropped: a drop would audit it.
        // (A `Node` owns nothing, so nothing leaks.)
        core::mem::forget(core::mem::take(self));
    }

    /// The slot with the greatest even epoch `<= e`: what a reader at `e` must follow.
    ///
    /// Relaxed loads do. The reader's acquire load of `C >= x` made every slot epoch `x <= e`, and the
    /// pointers stored with it, visible. A slot that is being reused shows either its old epoch, which
    /// a newer slot `<= e` outbids, or one `> e`.
    #[inline]
    pub(crate) fn slot_at(&self, e: u64) -> usize {
        let mut best = 0;
        let mut newest = 0;
        for i in 0..K {
            let x = self.epochs[i].load(Ordering::Relaxed);
            if x & INACTIVE == 0 && x <= e && x >= newest {
                newest = x;
                best = i;
            }
        }
        best
    }

    /// The slot whose epoch is exactly `my`.
    #[inline]
    pub(crate) fn slot_of(&self, my: u64) -> Option<usize> {
        (0..K).find(|&i| self.epochs[i].load(Ordering::Relaxed) == my)
    }

    /// Successor in slot `i`, null for the node itself.
    #[inline]
    pub(crate) fn next_in(&self, i: usize) -> *mut Node<K> {
        self.next[i].load(Ordering::Relaxed)
    }

    /// Predecessor in slot `i`, null for the node itself.
    #[inline]
    pub(crate) fn prev_in(&self, i: usize) -> *mut Node<K> {
        self.prev[i].load(Ordering::Relaxed)
    }

    /// Stores the successor into slot `i`, which the caller's section owns.
    #[inline]
    pub(crate) fn set_next(&self, i: usize, to: *mut Node<K>) {
        let to = if ptr::eq(to, self) { ptr::null_mut() } else { to };
        self.next[i].store(to, Ordering::Relaxed);
    }

    /// Stores the predecessor into slot `i`, which the caller's section owns.
    #[inline]
    pub(crate) fn set_prev(&self, i: usize, to: *mut Node<K>) {
        let to = if ptr::eq(to, self) { ptr::null_mut() } else { to };
        self.prev[i].store(to, Ordering::Relaxed);
    }

    /// Whether a section of group `id` may follow this head; false where the list was never written.
    ///
    /// # Panics
    ///
    /// In debug builds, if the node belongs to another group. Release builds show it as empty.
    #[inline]
    pub(crate) fn readable_by(&self, id: usize) -> bool {
        let home = self.home.load(Ordering::Relaxed);
        debug_assert!(home == 0 || home == id, "olf: a list is read by a member of another group");
        home == id
    }

    /// Binds the node to group `id` at its first write.
    #[inline]
    pub(crate) fn settle(&self, id: usize) -> Result<(), Error> {
        if self.home.load(Ordering::Relaxed) == id {
            return Ok(());
        }
        match self.home.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(home) if home == id => Ok(()),
            Err(_) => Err(Error::Foreign),
        }
    }

    /// The greatest even epoch of all slots, and its slot: the last word once nobody writes.
    #[cfg(any(debug_assertions, test))]
    pub(crate) fn newest(&self) -> (u64, usize) {
        let i = self.slot_at(u64::MAX - 1);
        (self.epochs[i].load(Ordering::Relaxed), i)
    }
}

#[cfg(debug_assertions)]
impl<const K: usize> Drop for Node<K> {
    fn drop(&mut self) {
        crate::audit::node_dropped(self);
    }
}

impl<const K: usize> Default for Node<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const K: usize> core::fmt::Debug for Node<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut list = f.debug_list();
        for i in 0..K {
            let x = self.epochs[i].load(Ordering::Relaxed);
            list.entry(&(x, self.next_in(i), self.prev_in(i)));
        }
        list.finish()
    }
}
