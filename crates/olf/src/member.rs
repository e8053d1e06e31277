//! A member: one thread's way into a group. It reads and writes, one section at a time.

use crate::error::Error;
use crate::group::Domain;
use crate::read::{self, Read};
use crate::seat::{FREE, Seat};
use crate::sync::Ordering;
use crate::write::{End, Section, Write};
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
    pub(crate) section: Section,
    /// How much it has suffered from others lately; see `write`.
    pub(crate) caution: u32,
    /// One thread at a time: `Send`, not `Sync`.
    _alone: PhantomData<Cell<()>>,
}

impl<'g> Member<'g> {
    pub(crate) fn new(d: Domain<'g>, seat: usize) -> Self {
        Self { d, seat, section: Section::default(), caution: 0, _alone: PhantomData }
    }

    #[inline]
    pub(crate) fn published(&self) -> &'g Seat {
        &self.d.seats[self.seat]
    }

    /// Begins a read section: an unchanging view of all lists of the group, as of now.
    ///
    /// Never blocks on a writer. Constant time: two loads, one store and one full barrier, again for
    /// each commit that happens meanwhile. A long section keeps writers from reusing slots, so it
    /// costs them, in the end until it is over.
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
    /// What `f` returned, except [`Error::Retry`], which is dealt with here.
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
    pub fn write<T, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut Write<'_, 'g>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut w = Write::begin(self);
        loop {
            let result = f(&mut w);
            match w.finish(result.is_ok())? {
                End::Again => {}
                End::Done(_) => return result,
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
        epoch <= self.d.horizon()
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        crate::write::end_leaked(self);
        read::leave(self.d, self.seat);
        let seat = self.published();
        // Release pairs with the acquire of the next `join` of this seat.
        seat.state.store(FREE, Ordering::Release);
    }
}

impl core::fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Member").field("seat", &self.seat).finish_non_exhaustive()
    }
}
