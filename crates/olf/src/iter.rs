//! Walking typed lists: iterators of read sections and of write sections.

#![allow(unsafe_code)] // Following links to entries.

use crate::error::Error;
use crate::place::Place;
use crate::read::Read;
use crate::typed::{Chain, Double, Link, List, Single, entry_of};
use crate::write::Write;
use core::marker::PhantomData;

/// The entries of a list, first to last, as of a read section.
pub struct Iter<'r, 'm, 'g, L, const K: usize> {
    read: &'r Read<'m, 'g>,
    head: Place<'r, K>,
    at: Place<'r, K>,
    done: bool,
    _kind: PhantomData<fn() -> L>,
}

impl<'r, L: Link<K>, const K: usize> Iterator for Iter<'r, '_, '_, L, K>
where
    L::Entry: 'r,
{
    type Item = &'r L::Entry;

    #[inline]
    fn next(&mut self) -> Option<&'r L::Entry> {
        if self.done {
            return None;
        }
        // SAFETY: reached from the head, in the section that `read` borrows.
        self.at = unsafe { self.read.next(self.at) };
        if self.at == self.head {
            self.done = true;
            return None;
        }
        // SAFETY: not the head, hence an entry of this kind.
        Some(unsafe { entry_of::<L, K>(self.at) })
    }
}

/// The entries of a doubly linked list, last to first, as of a read section.
pub struct IterRev<'r, 'm, 'g, L, const K: usize>(Iter<'r, 'm, 'g, L, K>);

impl<'r, L: Link<K, Shape = Double>, const K: usize> Iterator for IterRev<'r, '_, '_, L, K>
where
    L::Entry: 'r,
{
    type Item = &'r L::Entry;

    fn next(&mut self) -> Option<&'r L::Entry> {
        let i = &mut self.0;
        if i.done {
            return None;
        }
        // SAFETY: reached from the head, in the section that `read` borrows.
        i.at = unsafe { i.read.prev(i.at) };
        if i.at == i.head {
            i.done = true;
            return None;
        }
        // SAFETY: not the head, hence an entry of this kind.
        Some(unsafe { entry_of::<L, K>(i.at) })
    }
}

impl<'m, 'g> Read<'m, 'g> {
    /// The entries, first to last. Time in proportion to their number (and to `K`); never waits.
    ///
    /// # Panics
    ///
    /// In debug builds, if the list belongs to another group; in release builds it looks empty.
    #[inline]
    pub fn iter<'r, L: Link<K, Shape = Double>, const K: usize>(
        &'r self,
        list: &'r List<L, K>,
    ) -> Iter<'r, 'm, 'g, L, K> {
        self.walk(Place::from(&list.head))
    }

    /// The entries, last to first.
    ///
    /// # Panics
    ///
    /// As [`Read::iter`].
    pub fn iter_rev<'r, L: Link<K, Shape = Double>, const K: usize>(
        &'r self,
        list: &'r List<L, K>,
    ) -> IterRev<'r, 'm, 'g, L, K> {
        IterRev(self.walk(Place::from(&list.head)))
    }

    /// The entries of a singly linked list.
    ///
    /// # Panics
    ///
    /// As [`Read::iter`].
    #[inline]
    pub fn iter_chain<'r, L: Link<K, Shape = Single>, const K: usize>(
        &'r self,
        chain: &'r Chain<L, K>,
    ) -> Iter<'r, 'm, 'g, L, K> {
        self.walk(Place::from(&chain.head))
    }

    #[inline]
    fn walk<'r, L, const K: usize>(&'r self, head: Place<'r, K>) -> Iter<'r, 'm, 'g, L, K> {
        // A head that this group never wrote has nothing on it that this section could see.
        let done = !head.readable_by(self.id());
        Iter { read: self, head, at: head, done, _kind: PhantomData }
    }
}

/// The entries of a list as a write section sees them: its own changes on top of a nested read.
///
/// Each step is logged, so the section commits only if what it walked over is still the same. Yields
/// an error once, then ends; hand it on with `?`.
pub struct WriteIter<'w, 'm, 'g, L, const K: usize> {
    write: &'w mut Write<'m, 'g>,
    head: Place<'m, K>,
    at: Place<'m, K>,
    done: bool,
    _kind: PhantomData<fn() -> L>,
}

impl<'m, L: Link<K>, const K: usize> Iterator for WriteIter<'_, 'm, '_, L, K>
where
    L::Entry: 'm,
{
    type Item = Result<&'m L::Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        // SAFETY: entries live as long as the section, which lasts for 'm (or whose owner promised in
        // `Member::begin` to drop what it got in time).
        match unsafe { self.write.next(self.at) } {
            Err(e) => {
                self.done = true;
                Some(Err(e))
            }
            Ok(at) if at == self.head => {
                self.done = true;
                None
            }
            Ok(at) => {
                self.at = at;
                // SAFETY: not the head, hence an entry of this kind.
                Some(Ok(unsafe { entry_of::<L, K>(at) }))
            }
        }
    }
}

impl<'m, 'g> Write<'m, 'g> {
    /// The entries, first to last, as this section sees them.
    pub fn iter<'w, L: Link<K, Shape = Double>, const K: usize>(
        &'w mut self,
        list: &'m List<L, K>,
    ) -> WriteIter<'w, 'm, 'g, L, K> {
        let head = Place::from(&list.head);
        WriteIter { write: self, head, at: head, done: false, _kind: PhantomData }
    }

    /// The entries of a singly linked list, as this section sees them.
    pub fn iter_chain<'w, L: Link<K, Shape = Single>, const K: usize>(
        &'w mut self,
        chain: &'m Chain<L, K>,
    ) -> WriteIter<'w, 'm, 'g, L, K> {
        let head = Place::from(&chain.head);
        WriteIter { write: self, head, at: head, done: false, _kind: PhantomData }
    }
}

macro_rules! debug_by_name {
    ($($name:ident),*) => {$(
        impl<L, const K: usize> core::fmt::Debug for $name<'_, '_, '_, L, K> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )*};
}
debug_by_name!(Iter, IterRev, WriteIter);
