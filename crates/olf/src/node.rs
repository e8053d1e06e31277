//! A node: `K` versions of one place in a list.
//!
//! ```text
//!            slot 0     slot 1     slot 2     slot 3        newest: (12, slot 1)
//!          +----------+----------+----------+----------+
//!  epoch   |    8     |   12     |   11     |   18     |   12 is what a reader at 12..17 takes,
//!  next    |   -> B   |   -> D   | (undone) | -> E     |   8 what a reader at 8..11 takes,
//!  prev    |   -> H   |   -> H   |          | -> H     |   11 is odd: nobody's, free,
//!          +----------+----------+----------+----------+   18 belongs to a writer still at work.
//! ```
//!
//! Invariants (with `R <= every active L <= C`):
//! - an epoch stands in at most one slot of a node, and a slot's epoch only grows, apart from
//!   `my -> my|1 -> my` by the one writer that owns `my`;
//! - the newest valid slot `<= R` is never overwritten, nor any valid slot `> R`;
//! - the content of a slot whose even epoch is `<= C` does not change while a reader may pick it;
//! - `newest` names the node's newest committed version, unless a dead writer was undone there; then it
//!   names none. (See [`Node::slot_at`].)
//!
//! A default node is two cache lines. A forward traversal needs the first one only: the word `newest`
//! and the `next` pointers.
//!
//! A null pointer stands for the node itself: so a node can be built in a constant, and moved until it
//! is linked for the first time. For a list's head null means *empty*, for any other node *unlinked*.

use crate::epoch::INACTIVE;
use crate::error::Error;
use crate::sync::{
    AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, Watch, array, const_fn, keep_branch,
};
use core::hint::select_unpredictable;
use core::ptr;

/// A list node to be embedded in the listed object; nothing is ever allocated for it.
///
/// `K` is the number of versions it can hold, at least 2 (checked at compile time). With 2 the writers
/// of a node take turns; each further slot lets one more writer work ahead. 4 is a good choice.
///
/// ```compile_fail,E0080
/// static LONELY: olf::Node<1> = olf::Node::new();
/// ```
///
/// # Lifetime
///
/// Once linked, a node must stay where it is, and its memory must outlive every section that may
/// still see it: see [`Member::may_free`](crate::Member::may_free).
#[repr(C, align(64))]
pub struct Node<const K: usize = 4> {
    /// `epoch << SLOT_BITS | slot` of the newest committed version.
    pub(crate) newest: AtomicU64,
    /// Number of the group that writes this node; 0 before the first write.
    pub(crate) home: AtomicUsize,
    pub(crate) next: [AtomicPtr<Node<K>>; K],
    /// The attempt in which the owner of `epochs[i]` took slot `i`; only that owner looks at it.
    pub(crate) attempt: [AtomicU32; K],
    pub(crate) epochs: [AtomicU64; K],
    pub(crate) prev: [AtomicPtr<Node<K>>; K],
    /// Takes no room, except under loom.
    pub(crate) watch: [Watch; K],
}

/// Bits of `newest` that hold the slot.
const SLOT_BITS: u32 = 6;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
/// `newest` that names no version: greater than any epoch.
pub(crate) const NO_HINT: u64 = u64::MAX;

/// The value of `newest` for the version of `epoch` in `slot`.
#[inline]
pub(crate) fn hint(epoch: u64, slot: usize) -> u64 {
    epoch << SLOT_BITS | slot as u64
}

/// The slot that a word `newest` names.
#[inline]
pub(crate) fn slot_in(newest: u64) -> usize {
    (newest & SLOT_MASK) as usize
}

/// The same slot, by way of a branch for each of the usual ones: so the processor predicts it, and goes on
/// to the next node before the word that names it has arrived. Used as an index, the word would have
/// to arrive first; a traversal takes twice as long then.
#[inline]
fn predicted(slot: usize) -> usize {
    match slot {
        0 => {
            keep_branch();
            0
        }
        1 => {
            keep_branch();
            1
        }
        2 => {
            keep_branch();
            2
        }
        3 => {
            keep_branch();
            3
        }
        _ => slot,
    }
}

impl<const K: usize> Node<K> {
    const_fn! {
        /// A node on no list: slot 0 is committed at epoch 0, the others are free.
        pub const fn new() -> Self {
            const { assert!(K >= 2, "a node needs at least 2 slots") };
            const { assert!(K <= 1 << SLOT_BITS, "a node can have at most 64 slots") };
            let mut epochs: [AtomicU64; K] = array!(AtomicU64::new(INACTIVE));
            epochs[0] = AtomicU64::new(0);
            Self {
                newest: AtomicU64::new(0),
                home: AtomicUsize::new(0),
                next: array!(AtomicPtr::new(ptr::null_mut())),
                attempt: array!(AtomicU32::new(0)),
                epochs,
                prev: array!(AtomicPtr::new(ptr::null_mut())),
                watch: array!(Watch::new()),
            }
        }
    }

    /// Forgets all versions, so that the node can be used with another group.
    ///
    /// The exclusive borrow proves that no section sees the node through a reference. That no *list* leads
    /// to it is the same promise which allows the memory to be freed; so debug builds audit it likewise.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// [`Node::slot_at`] for traversals of lists that seldom change: quicker while the slots are as they
    /// were last time, slower when they are not.
    #[inline]
    pub(crate) fn usual_slot_at(&self, e: u64) -> usize {
        let newest = self.newest.load(Ordering::Relaxed);
        if newest <= e << SLOT_BITS | SLOT_MASK {
            return predicted(slot_in(newest));
        }
        self.search(e)
    }

    /// The slot with the greatest even epoch `<= e`: what a reader at `e` must follow.
    ///
    /// `newest` mostly knows. A writer stores it for each of its nodes while it alone may commit, before
    /// `C := my`. The reader loaded `C >= e` with acquire, so it sees the word as the last commit `<= e`
    /// to this node has left it, or a later one; relaxed loads do. If the epoch in it is `<= e`, then it
    /// is that last commit's: the version sought. If it is greater, all slots are looked at.
    ///
    #[inline]
    pub(crate) fn slot_at(&self, e: u64) -> usize {
        let newest = self.newest.load(Ordering::Relaxed);
        if newest <= e << SLOT_BITS | SLOT_MASK { slot_in(newest) } else { self.search(e) }
    }

    /// [`Node::slot_at`] by looking at all slots.
    ///
    /// Relaxed loads do here too: every slot epoch `x <= e`, and the pointers stored with it, are
    /// visible since the load of `C`. A slot that is being reused shows either its old epoch, which a
    /// newer slot `<= e` outbids, or one `> e`.
    #[cold]
    fn search(&self, e: u64) -> usize {
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
        self.watch[i].read();
        self.next[i].load(Ordering::Relaxed)
    }

    /// The successor in the slot that `newest` names, for searches in lists that change: all successors are
    /// loaded and one is chosen without a branch, so that no load waits for another one, and nothing is
    /// mispredicted.
    #[inline]
    pub(crate) fn next_by(&self, newest: u64) -> *mut Node<K> {
        let slot = slot_in(newest);
        self.watch[slot].read();
        let next = |i: usize| self.next[i].load(Ordering::Relaxed);
        let odd = slot & 1 != 0;
        match K {
            2 => select_unpredictable(odd, next(1), next(0)),
            4 => {
                let low = select_unpredictable(odd, next(1), next(0));
                let high = select_unpredictable(odd, next(3), next(2));
                select_unpredictable(slot & 2 != 0, high, low)
            }
            _ => next(slot),
        }
    }

    /// Predecessor in slot `i`, null for the node itself.
    #[inline]
    pub(crate) fn prev_in(&self, i: usize) -> *mut Node<K> {
        self.watch[i].read();
        self.prev[i].load(Ordering::Relaxed)
    }

    /// Stores the successor into slot `i`, which the caller's section owns.
    #[inline]
    pub(crate) fn set_next(&self, i: usize, to: *mut Node<K>) {
        let to = if ptr::eq(to, self) { ptr::null_mut() } else { to };
        self.watch[i].write();
        self.next[i].store(to, Ordering::Relaxed);
    }

    /// Stores the predecessor into slot `i`, which the caller's section owns.
    #[inline]
    pub(crate) fn set_prev(&self, i: usize, to: *mut Node<K>) {
        let to = if ptr::eq(to, self) { ptr::null_mut() } else { to };
        self.watch[i].write();
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

    /// The newest successor. Meaningful when nobody writes.
    #[cfg(all(feature = "alloc", not(any(loom, shuttle))))]
    pub(crate) fn last_next(&self) -> *mut Node<K> {
        self.next_in(self.search(u64::MAX - 1))
    }

    /// Takes the links out of every slot. Nobody may be using the node.
    #[cfg(all(feature = "alloc", not(any(loom, shuttle))))]
    pub(crate) fn clear(&self) {
        for at in self.next.iter().chain(&self.prev) {
            at.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// The greatest even epoch of all slots, and its slot: the last word once nobody writes.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn last(&self) -> (u64, usize) {
        let i = self.search(u64::MAX - 1);
        (self.epochs[i].load(Ordering::Relaxed), i)
    }
}

/// Returns once nobody can see the node; a node that is linked still ends the process. Debug builds panic
/// in both cases. See the crate's table of mistakes.
#[cfg(not(any(loom, shuttle)))]
impl<const K: usize> Drop for Node<K> {
    #[inline]
    fn drop(&mut self) {
        let id = *self.home.get_mut();
        if id != 0 {
            crate::audit::node_dropped(self);
            crate::register::node_dropped(self, id);
        }
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
