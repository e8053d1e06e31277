//! List surgery on bare nodes: circular lists through a head, doubly or singly linked.
//!
//! Each operation acquires the nodes whose links it changes and then stores plain pointers; until
//! the section commits, only the section sees them. The section's log names the nodes until it ends, so
//! they have to live that long: `'m`, which nothing that a closure makes by itself can satisfy.
//!
//! ```text
//!   unlink(B):   A <--> B <--> C        acquires B, A, C
//!   link_after(A, B):  A <--> C         acquires A, B, C
//!   chain_after(A, B), unchain_after(A):  A --> B --> C    acquire A, B only
//! ```

#![allow(unsafe_code)] // Links are pointers.

use crate::error::Error;
use crate::place::Place;
use crate::sync::Ordering;
use crate::write::Write;

impl<'m> Write<'m, '_> {
    /// Links `node` behind `at`, which is a head or a linked node, into a doubly linked list.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyLinked`], [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    ///
    /// # Safety
    ///
    /// For each node of the list, its head included:
    /// 1. From here on it stays where it is, and its memory is neither freed nor used for another
    ///    purpose before [`Member::may_free`](crate::Member::may_free) agrees for the section that
    ///    unlinked it. A head counts as unlinked once its list is empty and nobody uses it.
    /// 2. It is used in lists of one shape only: doubly or singly linked.
    ///
    /// And the group stays where it is from here on, and is dropped before its memory goes.
    pub unsafe fn link_after<const K: usize>(
        &mut self,
        at: Place<'m, K>,
        node: Place<'m, K>,
    ) -> Result<(), Error> {
        let n = self.acquire_unlinked(node)?;
        let a = self.acquire(&*at)?;
        // SAFETY: read from `at` in this section.
        let after = unsafe { at.follow(at.next_in(a)) };
        let b = self.acquire(&*after)?;
        node.set_next(n, after.as_ptr());
        node.set_prev(n, at.as_ptr());
        at.set_next(a, node.as_ptr());
        after.set_prev(b, node.as_ptr());
        Ok(())
    }

    /// Links `node` before `at`; see [`Write::link_after`].
    ///
    /// # Errors
    ///
    /// As [`Write::link_after`].
    ///
    /// # Safety
    ///
    /// As [`Write::link_after`].
    pub unsafe fn link_before<const K: usize>(
        &mut self,
        at: Place<'m, K>,
        node: Place<'m, K>,
    ) -> Result<(), Error> {
        let n = self.acquire_unlinked(node)?;
        let a = self.acquire(&*at)?;
        // SAFETY: read from `at` in this section.
        let before = unsafe { at.follow(at.prev_in(a)) };
        let b = self.acquire(&*before)?;
        node.set_next(n, at.as_ptr());
        node.set_prev(n, before.as_ptr());
        before.set_next(b, node.as_ptr());
        at.set_prev(a, node.as_ptr());
        Ok(())
    }

    /// Takes `node` out of its doubly linked list.
    ///
    /// # Errors
    ///
    /// [`Error::NotLinked`], [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    pub fn unlink<const K: usize>(&mut self, node: Place<'m, K>) -> Result<(), Error> {
        let n = self.acquire(&*node)?;
        if node.next_in(n).is_null() {
            return Err(Error::NotLinked);
        }
        // SAFETY: both were read from `node` in this section.
        let (before, after) =
            unsafe { (node.follow(node.prev_in(n)), node.follow(node.next_in(n))) };
        let b = self.acquire(&*before)?;
        let a = self.acquire(&*after)?;
        before.set_next(b, after.as_ptr());
        after.set_prev(a, before.as_ptr());
        node.set_next(n, node.as_ptr());
        node.set_prev(n, node.as_ptr());
        Ok(())
    }

    /// Links `node` behind `at` into a singly linked list: `at` is its head or a linked node.
    ///
    /// # Errors
    ///
    /// As [`Write::link_after`].
    ///
    /// # Safety
    ///
    /// As [`Write::link_after`].
    pub unsafe fn chain_after<const K: usize>(
        &mut self,
        at: Place<'m, K>,
        node: Place<'m, K>,
    ) -> Result<(), Error> {
        let n = self.acquire_unlinked(node)?;
        let a = self.acquire(&*at)?;
        let after = at.next_in(a);
        node.set_next(n, if after.is_null() { at.as_ptr() } else { after });
        at.set_next(a, node.as_ptr());
        Ok(())
    }

    /// Takes the node behind `at` out of its singly linked list, and returns it; `None` if `at` is an
    /// empty head.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    ///
    /// # Safety
    ///
    /// `at` is not the last node (behind it comes the head, which would be cut off), and the result is
    /// not used after the section.
    pub unsafe fn unchain_after<const K: usize>(
        &mut self,
        at: Place<'m, K>,
    ) -> Result<Option<Place<'m, K>>, Error> {
        let a = self.acquire(&*at)?;
        if at.next_in(a).is_null() {
            return Ok(None);
        }
        // SAFETY: read from `at` in this section.
        let node = unsafe { at.follow(at.next_in(a)) };
        let n = self.acquire(&*node)?;
        at.set_next(a, node.next_in(n));
        node.set_next(n, node.as_ptr());
        Ok(Some(node))
    }

    /// The place behind `at` as this section sees it; `at` itself if it is an empty head or on no list.
    /// Logged: if an older writer changes it, the section runs again.
    ///
    /// # Errors
    ///
    /// [`Error::Retry`], [`Error::Foreign`].
    ///
    /// # Safety
    ///
    /// The result is not used after the section.
    pub unsafe fn next<const K: usize>(&mut self, at: Place<'m, K>) -> Result<Place<'m, K>, Error> {
        let (next, _) = self.peek(&*at)?;
        // SAFETY: read from `at` in this section.
        Ok(unsafe { at.follow(next) })
    }

    /// The place before `at`; see [`Write::next`].
    ///
    /// # Errors
    ///
    /// [`Error::Retry`], [`Error::Foreign`].
    ///
    /// # Safety
    ///
    /// The result is not used after the section.
    pub unsafe fn prev<const K: usize>(&mut self, at: Place<'m, K>) -> Result<Place<'m, K>, Error> {
        let (_, prev) = self.peek(&*at)?;
        // SAFETY: read from `at` in this section.
        Ok(unsafe { at.follow(prev) })
    }

    /// As [`Write::next`], but not logged: for long searches. What the section then does must rest on
    /// nodes that it acquires (all operations that change a list acquire what they change), and which
    /// are unchanged since the glance, or the attempt is lost.
    ///
    /// A sorted list shows the use: having found by glances where a key belongs, link the new node behind
    /// its predecessor. If that commits, the predecessor was still on the list, with the same successor,
    /// because both unlinking it and linking something behind it write to it.
    ///
    /// # Errors
    ///
    /// [`Error::Retry`], [`Error::Foreign`].
    ///
    /// # Safety
    ///
    /// The result is not used after the section.
    #[inline]
    pub unsafe fn glance<const K: usize>(
        &mut self,
        at: Place<'m, K>,
    ) -> Result<Place<'m, K>, Error> {
        let newest = at.newest.load(Ordering::Relaxed);
        let usual = newest < self.member.section.glance_below
            && at.home.load(Ordering::Relaxed) == self.domain().id();
        let next = if usual { at.next_by(newest) } else { self.glance_links(&*at)?.0 };
        // SAFETY: read from `at` in this section.
        Ok(unsafe { at.follow(next) })
    }

    /// Whether the node is on a list, as this section sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Retry`].
    pub fn is_linked<const K: usize>(&mut self, node: Place<'m, K>) -> Result<bool, Error> {
        let (next, _) = self.peek(&*node)?;
        Ok(!next.is_null())
    }

    fn acquire_unlinked<const K: usize>(&mut self, node: Place<'m, K>) -> Result<usize, Error> {
        let n = self.acquire(&*node)?;
        if !node.next_in(n).is_null() {
            return Err(self.misused(Error::AlreadyLinked));
        }
        #[cfg(not(any(loom, shuttle)))]
        self.domain().counters.enter(self.domain().seats);
        Ok(n)
    }
}
