//! Write sections: from the epoch that a writer takes to the commit, which is a single store.
//!
//! ```text
//!   M += 2, my := M        acquire, change, acquire, change ...        wait for C == my - 2
//!       |----------------------- ahead of its turn ----------------------|
//!                                                                        |
//!                  nobody older changed a node that I copied? --- no --> undo, run again
//!                                                        |               (nobody is older now)
//!                                                       yes
//!                                                        |
//!                                                     C := my
//! ```
//!
//! The section's state lives in its [`Member`]; [`Write`] is the borrowed right to use it.

use crate::audit::Published;
use crate::epoch::{INACTIVE, STEP};
use crate::error::Error;
use crate::group::Domain;
use crate::log;
use crate::member::Member;
use crate::seat::{CLAIMING, IDLE, Seat};
use crate::sync::Ordering;
use crate::{read, wait};
use core::mem;

/// What a section that had to run again adds to its member's caution; one that did not takes 1 off. So
/// caution grows where more than one section in five collides.
const COLLISION: u32 = 4;
/// What a long wait for one's turn adds: there are more threads than processors.
const LONG_WAIT: u32 = 32;
/// With more caution than this a member begins to write only when nobody else does.
const CAREFUL: u32 = 16;
/// The most caution there is.
const MOST: u32 = 80;

/// The private state of a member's write section.
#[derive(Default)]
pub(crate) struct Section {
    /// The epoch being written.
    pub(crate) my: u64,
    /// How many times the body has been undone.
    pub(crate) attempt: u32,
    /// This attempt cannot commit.
    pub(crate) need_retry: bool,
    /// The log was last found valid when `C` was this.
    pub(crate) validated: u64,
    /// Number of log records in use.
    pub(crate) logged: usize,
    /// The epoch of the nested read, if one is going on.
    pub(crate) snapshot: Option<u64>,
    /// Something was read that the log does not name, so only an unmoved `C` proves it valid.
    pub(crate) unlogged: bool,
    /// The newest snapshot that something unlogged was read in.
    pub(crate) unlogged_at: u64,
    /// This attempt has slots of its own.
    pub(crate) owns: bool,
    /// Words `newest` below this can be followed by a glance without further ado; 0 when none can.
    pub(crate) glance_below: u64,
    /// Something was glanced at, in the snapshot of `glanced_at`.
    pub(crate) glanced: bool,
    pub(crate) glanced_at: u64,
    /// A mistake of the caller's in this attempt.
    pub(crate) misuse: Option<Error>,
    /// Commit or abort is still to come.
    pub(crate) open: bool,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// An older writer interfered; nothing happened, the body has to run again.
    Again,
    /// The section is over; its changes, if they were to be kept, are visible from this epoch on.
    Done(u64),
}

/// A write section: see [`Member::write`].
///
/// The operations on lists are in `impl` blocks of their own ([`List`](crate::List),
/// [`Chain`](crate::Chain)). Dropped before its end, as by a panic, the section changes nothing.
///
/// Its log names the nodes that it has touched until it ends, so they have to live for `'m`. What the
/// closure makes itself does not:
///
/// ```compile_fail,E0597
/// struct Task { node: olf::Node }
/// olf::link!(Tasks: Double<4> of Task => node);
/// static READY: olf::List<Tasks> = olf::List::new();
/// let group = olf::Group::<2, 8>::new();
/// let mut member = group.join().unwrap();
/// let _ = member.write(|w| {
///     let task = Task { node: olf::Node::new() };
///     w.remove(&READY, &task)
/// });
/// ```
pub struct Write<'m, 'g> {
    pub(crate) member: &'m mut Member<'g>,
}

/// Takes an epoch. Between the two stores a death would leave an epoch without an owner; `CLAIMING`
/// tells `recover` where to look.
#[inline]
pub(crate) fn claim(d: Domain<'_>, own: &Seat) -> u64 {
    own.writing.store(CLAIMING, Ordering::Relaxed);
    // Release: `CLAIMING`, and the pin before it, are visible to whoever sees this epoch handed out.
    // Acquire: see `Domain::horizon`.
    let my = d.counters.max.0.fetch_add(STEP, Ordering::AcqRel) + STEP;
    own.writing.store(my, Ordering::Release);
    my
}

/// Says that the epoch taken with [`claim`] is committed.
#[inline]
pub(crate) fn unclaim(own: &Seat) {
    own.writing.store(IDLE, Ordering::Release);
}

/// In debug builds: panics if a section that has ended, upon a view that held, misused a node.
#[cfg_attr(debug_assertions, track_caller)]
pub(crate) fn complain(misuse: Option<Error>) {
    if cfg!(debug_assertions)
        && let Some(how) = misuse
    {
        panic!("olf: misuse in a write section: {how}");
    }
}

/// Ends a section whose guard was forgotten: an epoch must not go without its commit.
pub(crate) fn end_leaked(member: &mut Member<'_>) {
    if member.section.open {
        drop(Write { member });
    }
}

impl<'m, 'g> Write<'m, 'g> {
    pub(crate) fn begin(member: &'m mut Member<'g>) -> Self {
        let d = member.d;
        let own = member.published();
        debug_assert!(!member.section.open, "olf: the last write section was leaked, not ended");
        end_leaked(member);
        if member.is_evicted() {
            // A section that is over already: all that it can answer is an error.
            member.evicted = true;
            member.section = Section { need_retry: true, ..Section::default() };
            return Self { member };
        }
        if own.reading.load(Ordering::Relaxed) & INACTIVE == 0 {
            // Left open, it would hold back the slots that this section may have to wait for.
            debug_assert!(false, "olf: the last read section was leaked, not ended");
            read::leave(d, member.seat);
        }
        wait::gate(d, member.caution <= CAREFUL);
        let pin = d.counters.committed.0.load(Ordering::Acquire);
        own.pin.store(pin, Ordering::Relaxed);
        let my = claim(d, own);
        // What is freed from here on was unlinked later than this; the pin itself may be a little older.
        let since = d.counters.committed.0.load(Ordering::Acquire);
        d.counters.mirror.note(member.seat, Published::Pin, since);
        member.section = Section { my, validated: pin, open: true, ..Section::default() };
        Self { member }
    }

    /// Leaves the section open, for callers that cannot keep a guard, such as C.
    pub fn leave_open(self) {
        mem::forget(self);
    }

    /// Takes up a section that [`Write::leave_open`] left.
    ///
    /// # Safety
    ///
    /// The member has a write section open. The promise of [`Member::begin`] holds on.
    #[allow(unsafe_code)] // Only the declaration.
    pub unsafe fn reopen(member: &'m mut Member<'g>) -> Self {
        debug_assert!(member.section.open, "olf: no write section is open");
        Self { member }
    }

    /// The epoch that this section will commit as.
    pub fn epoch(&self) -> u64 {
        self.member.section.my
    }

    /// How often the body has been undone: 0 in the first attempt, seldom more than 1.
    pub fn attempt(&self) -> u32 {
        self.member.section.attempt
    }

    /// What lets the C header follow links without a call. A node whose first word is below the first of
    /// these, and whose second word equals the second, may be followed as [`Write::glance`] would follow it,
    /// until the section's next operation. The first is 0 when none may.
    #[doc(hidden)]
    pub fn glance_words(&self) -> (u64, usize) {
        (self.member.section.glance_below, self.member.d.id())
    }

    #[inline]
    pub(crate) fn domain(&self) -> Domain<'g> {
        self.member.d
    }

    #[inline]
    pub(crate) fn section(&mut self) -> &mut Section {
        &mut self.member.section
    }

    /// Marks the attempt as lost.
    #[inline]
    pub(crate) fn lost(&mut self) -> Error {
        self.section().need_retry = true;
        self.section().glance_below = 0;
        Error::Retry
    }

    /// Ends an attempt: waits for all older writers, then commits (`keep`) or takes everything back.
    ///
    /// With `keep == false` the log is validated all the same: an abort that was decided upon a view
    /// which turned out stale is taken again.
    ///
    /// For sections begun by [`Member::begin`]; [`Member::write`] calls it by itself.
    ///
    /// # Errors
    ///
    /// [`Error::Evicted`] if another thread reported this one dead and ended the section.
    ///
    /// # Safety
    ///
    /// If the answer is anything but [`End::Again`], no reference or pointer that the section handed out
    /// is used any more. (So a closure given to [`Member::write`] must not call this.)
    #[allow(unsafe_code)] // Only the declaration.
    pub unsafe fn end(&mut self, keep: bool) -> Result<End, Error> {
        self.finish(keep)
    }

    /// [`Write::end`], for callers inside of the crate that let go of everything.
    pub(crate) fn finish(&mut self, keep: bool) -> Result<End, Error> {
        let d = self.domain();
        let my = self.section().my;
        if !self.section().open {
            return if self.member.evicted { Err(Error::Evicted) } else { Ok(End::Done(my)) };
        }
        // Before the seat is touched: once evicted, it may be somebody else's.
        if d.counters.committed.0.load(Ordering::Acquire) >= my {
            return Err(self.evicted());
        }
        self.suspend();
        let mut slow = false;
        let c = wait::committed_noting(d, self.member.seat, my - STEP, &mut slow);
        if c >= my {
            return Err(self.evicted());
        }
        if slow {
            self.member.caution = MOST.min(self.member.caution + LONG_WAIT);
        }
        if self.section().need_retry || !self.holds_at(c) {
            self.undo();
            self.member.caution = MOST.min(self.member.caution + COLLISION);
            let s = self.section();
            s.attempt += 1;
            s.need_retry = false;
            s.unlogged = false;
            s.glanced = false;
            s.owns = false;
            s.misuse = None;
            s.validated = c;
            return Ok(End::Again);
        }
        if keep {
            let n = self.section().logged;
            log::announce(&d.log(self.member.seat)[..n], my);
        } else {
            self.undo();
        }
        self.commit(my);
        self.member.caution = self.member.caution.saturating_sub(1);
        Ok(End::Done(my))
    }

    /// `C := my`. Only the owner of `my` gets here while `C == my - 2`, so a store does.
    ///
    /// Release: every pointer stored in a slot of ours, and all that the user stored in entries, is
    /// visible to whoever loads this epoch, and by the chain of acquires, any later one.
    fn commit(&mut self, my: u64) {
        let d = self.domain();
        d.counters.committed.0.store(my, Ordering::Release);
        self.close();
        wait::announce(d, my);
    }

    /// Ends a section that somebody else has ended already. Nothing of the seat is touched: whoever did it
    /// clears it, and it may have a new owner.
    fn evicted(&mut self) -> Error {
        self.member.evicted = true;
        let s = self.section();
        s.open = false;
        s.need_retry = true;
        s.snapshot = None;
        s.glance_below = 0;
        Error::Evicted
    }

    /// Remembers a mistake of the caller's, for [`complain`].
    #[cold]
    pub(crate) fn misused(&mut self, how: Error) -> Error {
        self.section().misuse = Some(how);
        how
    }

    /// Clears the seat after a commit.
    fn close(&mut self) {
        let own = self.member.published();
        own.logged.store(0, Ordering::Relaxed);
        unclaim(own);
        self.member.d.counters.mirror.note(self.member.seat, Published::Pin, INACTIVE);
        // Release: our last look at any node comes before its memory is given back.
        own.pin.store(INACTIVE, Ordering::Release);
        let s = self.section();
        s.open = false;
        // Nothing can be acquired with an epoch that is committed.
        s.need_retry = true;
    }

    /// Marks all slots of this attempt as given up and empties the log.
    fn undo(&mut self) {
        let my = self.section().my;
        let n = self.section().logged;
        log::invalidate(&self.domain().log(self.member.seat)[..n], my);
        self.section().logged = 0;
        self.member.published().logged.store(0, Ordering::Release);
    }

    /// Nothing that this attempt copied or read was changed by a section that committed up to `c`.
    pub(crate) fn holds_at(&mut self, c: u64) -> bool {
        let n = self.section().logged;
        let s = &self.member.section;
        if s.validated == c {
            // Nobody has committed since.
            return true;
        }
        if s.unlogged && s.unlogged_at != c {
            return false;
        }
        let records = &self.domain().log(self.member.seat)[..n];
        log::unchanged(records, c)
    }

    /// Ends the section without effect, whatever its state: after a panic of the body.
    fn abandon(&mut self) {
        let d = self.domain();
        let my = self.section().my;
        if d.counters.committed.0.load(Ordering::Acquire) >= my {
            self.evicted();
            return;
        }
        self.suspend();
        if wait::committed(d, self.member.seat, my - STEP) >= my {
            self.evicted();
            return;
        }
        self.undo();
        self.commit(my);
    }

    /// Stops holding `R` back, before any wait; see `nested`.
    #[inline]
    pub(crate) fn suspend(&mut self) -> bool {
        self.section().glance_below = 0;
        if self.section().snapshot.take().is_none() {
            return false;
        }
        read::leave(self.member.d, self.member.seat);
        true
    }
}

impl Drop for Write<'_, '_> {
    fn drop(&mut self) {
        if self.section().open {
            self.abandon();
        }
    }
}
