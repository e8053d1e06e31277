//! Write sections of a shelf.

use super::entry::{Entry, Held, Item};
use super::{ListId, Shelf};
use crate::error::Error;
use crate::place::Place;
use crate::write::Write;
use alloc::vec::Vec;
use core::ptr::NonNull;

/// A write section; see [`Handle::write`](super::Handle::write). All errors are to be handed on.
pub struct ShelfWrite<'w, 'm, 's, T, const LINKS: usize, const K: usize> {
    pub(super) write: &'w mut Write<'m, 's>,
    pub(super) shelf: &'s Shelf<T, LINKS, K>,
    pub(super) held: &'w mut Vec<(Entry<T, LINKS, K>, bool)>,
    pub(super) unlinked: &'w mut Vec<NonNull<Held<T, LINKS, K>>>,
}

impl<'w, 'm, 's, T: Send + Sync, const LINKS: usize, const K: usize>
    ShelfWrite<'w, 'm, 's, T, LINKS, K>
{
    /// Puts an entry at the front of a list.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyLinked`] if it is on a list of this kind; [`Error::NoSuchList`],
    /// [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    pub fn push_front<'e>(
        &mut self,
        list: ListId,
        entry: impl Into<Item<'e, T, LINKS, K>>,
    ) -> Result<(), Error>
    where
        T: 'e,
    {
        let head = self.head(list)?;
        self.put(list.kind, entry.into(), |write, node| {
            // SAFETY: the contract of `put`; heads live with the shelf.
            unsafe { write.link_after(head, node) }
        })
    }

    /// Puts an entry at the back of a list.
    ///
    /// # Errors
    ///
    /// As [`ShelfWrite::push_front`].
    pub fn push_back<'e>(
        &mut self,
        list: ListId,
        entry: impl Into<Item<'e, T, LINKS, K>>,
    ) -> Result<(), Error>
    where
        T: 'e,
    {
        let head = self.head(list)?;
        self.put(list.kind, entry.into(), |write, node| {
            // SAFETY: as in `push_front`.
            unsafe { write.link_before(head, node) }
        })
    }

    /// Puts an entry before another one, which is on a list of that kind.
    ///
    /// # Errors
    ///
    /// As [`ShelfWrite::push_front`]; [`Error::NotLinked`] if `at` is on none.
    pub fn insert_before<'e, 'f>(
        &mut self,
        kind: usize,
        at: impl Into<Item<'e, T, LINKS, K>>,
        entry: impl Into<Item<'f, T, LINKS, K>>,
    ) -> Result<(), Error>
    where
        T: 'e + 'f,
    {
        self.check(kind)?;
        let at = self.hold(at.into(), kind);
        if !self.write.is_linked(at)? {
            return Err(Error::NotLinked);
        }
        self.put(kind, entry.into(), |write, node| {
            // SAFETY: as in `push_front`; `at` is held, too.
            unsafe { write.link_before(at, node) }
        })
    }

    /// Takes an entry off the list of that kind that it is on.
    ///
    /// # Errors
    ///
    /// [`Error::NotLinked`]; [`Error::NoSuchList`], [`Error::Foreign`], [`Error::LogFull`],
    /// [`Error::Retry`].
    pub fn remove<'e>(
        &mut self,
        kind: usize,
        entry: impl Into<Item<'e, T, LINKS, K>>,
    ) -> Result<(), Error>
    where
        T: 'e,
    {
        self.check(kind)?;
        let item = entry.into();
        let node = self.hold(item, kind);
        self.write.unlink(node)?;
        self.unlinked.push(item.held());
        Ok(())
    }

    /// Takes an entry off its list and puts it at the back of `list`, of the same kind.
    ///
    /// # Errors
    ///
    /// As [`ShelfWrite::remove`].
    pub fn move_to_back<'e>(
        &mut self,
        list: ListId,
        entry: impl Into<Item<'e, T, LINKS, K>>,
    ) -> Result<(), Error>
    where
        T: 'e,
    {
        let head = self.head(list)?;
        let node = self.hold(entry.into(), list.kind);
        self.write.unlink(node)?;
        // The count goes along from list to list.
        // SAFETY: as in `push_front`.
        unsafe { self.write.link_before(head, node) }
    }

    /// The first entry of a list.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchList`], [`Error::Retry`].
    pub fn front(&mut self, list: ListId) -> Result<Option<Item<'w, T, LINKS, K>>, Error>
    where
        T: 'w,
    {
        self.find(list, |_| true)
    }

    /// The first entry of a list for which `wanted` says yes. What is walked over is relied upon: if an
    /// older section changes it, this one runs again.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchList`], [`Error::Retry`].
    pub fn find(
        &mut self,
        list: ListId,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Option<Item<'w, T, LINKS, K>>, Error>
    where
        T: 'w,
    {
        let head = self.head(list)?;
        let mut at = head;
        loop {
            // SAFETY: what is returned is bound to 'w, within the section.
            at = unsafe { self.write.next(at) }?;
            if at == head {
                return Ok(None);
            }
            // SAFETY: not the head, hence the node of an entry, which lives as long as the section: a
            // list holds a count, or `held` does.
            let item = unsafe { Item::new(Held::of_node(at, list.kind)) };
            if wanted(&item) {
                return Ok(Some(item));
            }
        }
    }

    /// Takes the first entry off a list.
    ///
    /// # Errors
    ///
    /// As [`ShelfWrite::front`].
    pub fn pop_front(&mut self, list: ListId) -> Result<Option<Entry<T, LINKS, K>>, Error>
    where
        T: 'w,
    {
        let Some(item) = self.front(list)? else { return Ok(None) };
        self.remove(list.kind, item)?;
        Ok(Some(item.entry()))
    }

    /// The epoch that this section will commit as.
    pub fn epoch(&self) -> u64 {
        self.write.epoch()
    }

    fn head(&self, list: ListId) -> Result<Place<'m, K>, Error> {
        let shelf: &'s Shelf<T, LINKS, K> = self.shelf;
        shelf.head(list)
    }

    /// Keeps the entry until the section has ended: its log is about to name a node of the entry, which
    /// nothing that the closure drops, and no panic, may free before that.
    fn hold(&mut self, item: Item<'_, T, LINKS, K>, kind: usize) -> Place<'m, K> {
        self.held.push((item.entry(), false));
        // SAFETY: the count just taken is given back only after the section.
        unsafe { Place::new(NonNull::new_unchecked(item.place(kind).as_ptr())) }
    }

    /// Has `link` put an entry on a list of that kind. The list holds a count of the entry from then on,
    /// until nobody can see it there.
    fn put(
        &mut self,
        kind: usize,
        entry: Item<'_, T, LINKS, K>,
        link: impl FnOnce(&mut Write<'m, 's>, Place<'m, K>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let node = self.hold(entry, kind);
        link(self.write, node)?;
        // If the section commits, the count of the last entry held is that list's.
        if let Some((_, for_list)) = self.held.last_mut() {
            *for_list = true;
        }
        Ok(())
    }

    fn check(&self, kind: usize) -> Result<(), Error> {
        if kind < LINKS { Ok(()) } else { Err(Error::NoSuchList) }
    }
}

impl<T, const LINKS: usize, const K: usize> core::fmt::Debug
    for ShelfWrite<'_, '_, '_, T, LINKS, K>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ShelfWrite").finish_non_exhaustive()
    }
}
