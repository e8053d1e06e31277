//! Read sections.

#![allow(unsafe_code)] // Following links.

use crate::audit::Published;
use crate::epoch::INACTIVE;
use crate::group::Domain;
use crate::member::Member;
use crate::place::Place;
use crate::sync::{Ordering, store_then_load};
use crate::wait;

/// A read section: every list of the group as it was at one committed epoch.
///
/// It ends when dropped. References to entries live no longer than it.
pub struct Read<'m, 'g> {
    member: &'m mut Member<'g>,
    epoch: u64,
}

/// Publishes the epoch that will be read, and returns it.
///
/// ```text
/// reader                          writer short of slots (`advance`)
///   e := C                          m := C
///   L := e          (store)         fence
///   fence           (full)          read every L          -- misses the store?
///   C == e ?        (load)          R := min(m, all L)       then this load sees C >= m
/// ```
///
/// 1. `e` is loaded with acquire: all that was committed up to `e` is visible.
/// 2. `L := e` may be relaxed, the fence orders it. (What stands for the two here: `store_then_load`.)
/// 3. Without the fence the last load could pass the store (even on x86: store buffer), both sides
///    would miss each other, and `R` could rise above `e`: the slots being read would be reused.
/// 4. If `C` moved, `e` may be older than `R` already, so another attempt is made. An attempt fails
///    only if a writer commits in between.
#[inline]
pub(crate) fn try_enter(d: Domain<'_>, seat: usize) -> Option<u64> {
    let c = &d.counters.committed.0;
    let e = c.load(Ordering::Acquire);
    if store_then_load(&d.seats[seat].reading, e, c) != e {
        return None;
    }
    // Not before: an epoch that was given up at once would raise a false alarm.
    d.counters.mirror.note(seat, Published::Reading, e);
    Some(e)
}

/// Enters by [`try_enter`], or by queueing if that fails too often.
#[inline]
pub(crate) fn enter(d: Domain<'_>, seat: usize) -> u64 {
    for _ in 0..d.enter_tries {
        if let Some(e) = try_enter(d, seat) {
            return e;
        }
    }
    enter_in_turn(d, seat)
}

/// The slow way in, for a reader that commits keep overtaking: it takes an epoch as if to write. When
/// its turn comes nobody else can move `C`, so `L := C` holds; then it commits nothing and lets the
/// writers behind it go on.
#[cold]
fn enter_in_turn(d: Domain<'_>, seat: usize) -> u64 {
    let own = &d.seats[seat];
    // The failed attempts left an epoch in `L`. It must not hold `R` back while this thread waits for
    // writers that may be waiting for `R`.
    leave(d, seat);
    let my = crate::write::claim(d, own);
    let e = wait::committed(d, seat, my - 2);
    d.counters.mirror.note(seat, Published::Reading, e);
    own.reading.store(e, Ordering::Relaxed);
    // Release: a thread that sees `C == my`, and so could raise `R` above `e`, sees `L == e`. One that
    // still sees `C == my - 2` cannot raise `R` above it.
    d.counters.committed.0.store(my, Ordering::Release);
    crate::write::unclaim(own);
    wait::announce(d, my);
    e
}

#[cold]
fn evicted() -> ! {
    panic!("olf: this member was reported dead and undone; drop it and join the group anew");
}

/// Ends reading. Release: the loads of the section come before the reuse of any slot that they saw.
#[inline]
pub(crate) fn leave(d: Domain<'_>, seat: usize) {
    let own = &d.seats[seat];
    d.counters.mirror.note(seat, Published::Reading, INACTIVE);
    let l = own.reading.load(Ordering::Relaxed);
    own.reading.store(l | INACTIVE, Ordering::Release);
}

impl<'m, 'g> Read<'m, 'g> {
    #[inline]
    pub(crate) fn enter(member: &'m mut Member<'g>) -> Self {
        if member.is_evicted() {
            evicted();
        }
        debug_assert!(
            member.published().reading.load(Ordering::Relaxed) & INACTIVE != 0,
            "olf: the last read section was leaked, not ended"
        );
        let epoch = enter(member.d, member.seat);
        Self { member, epoch }
    }

    /// The epoch that this section sees.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Leaves the section open and gives its epoch, for callers that cannot keep a guard, such as C.
    #[inline]
    pub fn leave_open(self) -> u64 {
        let epoch = self.epoch;
        core::mem::forget(self);
        epoch
    }

    /// Takes up a section that [`Read::leave_open`] left.
    ///
    /// # Safety
    ///
    /// The member has a section of that epoch open.
    #[inline]
    pub unsafe fn reopen(member: &'m mut Member<'g>, epoch: u64) -> Self {
        Self { member, epoch }
    }

    /// The group's number.
    #[inline]
    pub(crate) fn id(&self) -> usize {
        self.member.d.id()
    }

    /// The place behind `at` in this section's view; `at` itself if it is an empty head or on no list.
    ///
    /// For people who build their own structure out of nodes, all of which keep the contract of
    /// [`Write::link_after`](crate::Write::link_after).
    ///
    /// # Safety
    ///
    /// `at` is a head of this group, or was reached from one in this section; and the result is not
    /// used after it.
    #[inline]
    pub unsafe fn next<'a, const K: usize>(&self, at: Place<'a, K>) -> Place<'a, K> {
        let next = at.next_in(at.usual_slot_at(self.epoch));
        // SAFETY: read from `at` in this section.
        unsafe { at.follow(next) }
    }

    /// The place before `at` in this section's view; see [`Read::next`].
    ///
    /// # Safety
    ///
    /// As [`Read::next`].
    #[inline]
    pub unsafe fn prev<'a, const K: usize>(&self, at: Place<'a, K>) -> Place<'a, K> {
        let prev = at.prev_in(at.usual_slot_at(self.epoch));
        // SAFETY: read from `at` in this section.
        unsafe { at.follow(prev) }
    }
}

impl Drop for Read<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        leave(self.member.d, self.member.seat);
    }
}
