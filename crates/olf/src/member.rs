//! A member: one thread's way into a group. It reads and writes, one section at a time.

use crate::error::Error;
use crate::group::Domain;
use crate::read::{self, Read};
use crate::seat::{FREE, Seat, with_state};
use crate::sync::Ordering;
use crate::write::{End, Section, Write, complain};
use core::cell::Cell;
use core::marker::PhantomData;

/// A thread's seat in a [`Group`](crate::Group).
///
/// Sections borrow the member exclusively, so a write section inside a read section, or two sections of
/// one member at a time, do not compile:
///
/// ```compile_fail,E0499
/// let group = olf::Group::<4, 16>::new();
/// let mut member = group.join().unwrap();
/// let reading = member.read();
/// let _ = member.write(|_| Ok::<(), olf::Error>(()));
/// drop(reading);
/// ```
///
/// The types cannot see a thread that takes *two* seats of one group and waits for itself: don't.
pub struct Member<'g> {
    pub(crate) d: Domain<'g>,
    pub(crate) seat: usize,
    /// The seat's state for as long as it is this member's.
    ticket: u64,
    /// Somebody reported this member dead, wrongly, and ended its section.
    pub(crate) evicted: bool,
    pub(crate) section: Section,
    /// How much it has suffered from others lately; see `write`.
    pub(crate) caution: u32,
    /// One thread at a time: `Send`, not `Sync`.
    _alone: PhantomData<Cell<()>>,
}

impl<'g> Member<'g> {
    pub(crate) fn new(d: Domain<'g>, seat: usize, ticket: u64) -> Self {
        Self {
            d,
            seat,
            ticket,
            evicted: false,
            section: Section::default(),
            caution: 0,
            _alone: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn published(&self) -> &'g Seat {
        &self.d.seats[self.seat]
    }

    /// Whether another thread reported this member dead (see
    /// [`Group::report_failed`](crate::Group::report_failed)). Its seat is, or soon will be, somebody else's;
    /// all that is left to do is to drop it and to join anew.
    #[inline]
    pub fn is_evicted(&self) -> bool {
        self.evicted || self.published().state.load(Ordering::Relaxed) != self.ticket
    }

    /// Begins a read section: an unchanging view of all lists of the group, as of now.
    ///
    /// Never blocks on a writer. Constant time: two loads, one store and one full barrier, again for
    /// each commit that happens meanwhile. A long section keeps writers from reusing slots, so it
    /// costs them, in the end until it is over.
    ///
    /// # Panics
    ///
    /// If the member [was reported dead](Member::is_evicted): another thread may have its seat.
    #[inline]
    pub fn read(&mut self) -> Read<'_, 'g> {
        Read::enter(self)
    }

    /// Runs `f` as one atomic change of all the lists that it touches.
    ///
    /// `f` runs again, from the start, when an older writer interferes: once, as the second run is in
    /// nobody's way. It should have no other effects than on lists, or ones that bear repeating. What
    /// it returns decides: `Ok` commits, an error (or a panic) leaves everything as it was.
    ///
    /// # Errors
    ///
    /// What `f` returned, except [`Error::Retry`], which is dealt with here; [`Error::Evicted`] if the
    /// member was reported dead.
    ///
    /// # Panics
    ///
    /// In debug builds, if `f` put a node on a list that is on a list of that kind, or used one with two
    /// groups, whatever it made of the error: the section is over by then. Release builds leave it at the
    /// error. A panic of `f` undoes the section and goes on.
    ///
    /// # Example
    ///
    /// ```
    /// let group = olf::Group::<4, 16>::new();
    /// let mut member = group.join()?;
    /// let answer = member.write(|_w| Ok::<_, olf::Error>(42))?;
    /// assert_eq!((answer, group.committed()), (42, 2));
    /// # Ok::<(), olf::Error>(())
    /// ```
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write<T, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut Write<'_, 'g>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut w = Write::begin(self);
        loop {
            let result = f(&mut w);
            match w.finish(result.is_ok())? {
                End::Again => {}
                End::Done(_) => {
                    complain(w.section().misuse);
                    return result;
                }
            }
        }
    }

    /// Begins a write section that is ended by hand ([`Write::end`], until it says
    /// [`End::Done`](crate::End)), for callers whose body cannot be a closure, such as C.
    ///
    /// # Safety
    ///
    /// References and pointers that the section hands out must not be used once it has ended. (In
    /// [`Member::write`] the closure's signature sees to that.)
    #[allow(unsafe_code)] // Only the declaration: what it allows is the caller's to prove.
    pub unsafe fn begin(&mut self) -> Write<'_, 'g> {
        Write::begin(self)
    }

    /// Whether memory of a node that was unlinked by the section that committed at `epoch` can be
    /// freed or used for another purpose: no section of the group can still come across it.
    ///
    /// Relinking the node needs no such wait; that is what its slots are for. Takes time in proportion
    /// to the seats in use.
    pub fn may_free(&self, epoch: u64) -> bool {
        self.d.is_out_of_sight(epoch)
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        crate::write::end_leaked(self);
        if self.is_evicted() {
            // Whoever recovers the seat clears it, or has done so; then it may be another's.
            return;
        }
        read::leave(self.d, self.seat);
        let free = with_state(self.ticket, FREE);
        // Release pairs with the acquire of the next `join` of this seat. An exchange, lest a report of
        // death that comes right now be lost, and the seat freed twice.
        let _ = self.published().state.compare_exchange(
            self.ticket,
            free,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}

impl core::fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Member").field("seat", &self.seat).finish_non_exhaustive()
    }
}
