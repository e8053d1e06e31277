//! Read sections of a shelf.

use super::entry::{Held, Item};
use super::{ListId, Shelf};
use crate::error::Error;
use crate::place::Place;
use crate::read::Read;
use core::marker::PhantomData;

/// All lists of a shelf, as of one moment.
pub struct ShelfRead<'m, 's, T, const LINKS: usize, const K: usize> {
    pub(super) read: Read<'m, 's>,
    pub(super) shelf: &'s Shelf<T, LINKS, K>,
}

impl<'m, 's, T: Send + Sync, const LINKS: usize, const K: usize> ShelfRead<'m, 's, T, LINKS, K> {
    /// The entries of a list, first to last; `rev` on the iterator is not needed, see
    /// [`ShelfRead::iter_rev`].
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchList`].
    pub fn iter(&self, list: ListId) -> Result<ShelfIter<'_, 'm, 's, T, LINKS, K>, Error> {
        self.walk(list, false)
    }

    /// The entries of a list, last to first.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchList`].
    pub fn iter_rev(&self, list: ListId) -> Result<ShelfIter<'_, 'm, 's, T, LINKS, K>, Error> {
        self.walk(list, true)
    }

    /// The epoch that this section sees.
    pub fn epoch(&self) -> u64 {
        self.read.epoch()
    }

    fn walk(
        &self,
        list: ListId,
        backwards: bool,
    ) -> Result<ShelfIter<'_, 'm, 's, T, LINKS, K>, Error> {
        let head = self.shelf.head(list)?;
        Ok(ShelfIter {
            read: &self.read,
            head,
            at: head,
            kind: list.kind,
            backwards,
            done: !head.readable_by(self.read.id()),
            _value: PhantomData,
        })
    }
}

/// Iterator over a list of a shelf.
pub struct ShelfIter<'r, 'm, 's, T, const LINKS: usize, const K: usize> {
    read: &'r Read<'m, 's>,
    head: Place<'r, K>,
    at: Place<'r, K>,
    kind: usize,
    backwards: bool,
    done: bool,
    _value: PhantomData<&'r T>,
}

impl<'r, T, const LINKS: usize, const K: usize> Iterator for ShelfIter<'r, '_, '_, T, LINKS, K> {
    type Item = Item<'r, T, LINKS, K>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        // SAFETY: reached from the head, in the section that `read` borrows.
        self.at = unsafe {
            if self.backwards { self.read.prev(self.at) } else { self.read.next(self.at) }
        };
        if self.at == self.head {
            self.done = true;
            return None;
        }
        // SAFETY: not the head, hence the node of an entry, which lives as long as the section.
        Some(unsafe { Item::new(Held::of_node(self.at, self.kind)) })
    }
}

impl<T, const LINKS: usize, const K: usize> core::fmt::Debug for ShelfRead<'_, '_, T, LINKS, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShelfRead").field("epoch", &self.read.epoch()).finish_non_exhaustive()
    }
}

impl<T, const LINKS: usize, const K: usize> core::fmt::Debug
    for ShelfIter<'_, '_, '_, T, LINKS, K>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShelfIter").finish_non_exhaustive()
    }
}
