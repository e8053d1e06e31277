//! Changing typed lists inside a write section.

#![allow(unsafe_code)] // Linking is a promise about memory.

use crate::error::Error;
use crate::place::Place;
use crate::typed::{Chain, Double, Link, List, Single, entry_of, place_of};
use crate::write::Write;

impl<'m> Write<'m, '_> {
    /// Puts `entry` at the front.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyLinked`] if it is on a list of this kind; [`Error::Foreign`],
    /// [`Error::LogFull`], [`Error::Retry`].
    ///
    /// # Safety
    ///
    /// Neither the list nor the entry moves from here on, nor is its memory given back before
    /// [`Member::may_free`](crate::Member::may_free) agrees for the section that unlinked it. The group
    /// stays where it is as well, and is dropped before its memory goes.
    pub unsafe fn push_front<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        list: &'m List<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        // SAFETY: passed on; the kind has one shape by contract of `Link`.
        unsafe { self.link_after(Place::from(&list.head), place_of::<L, K>(entry)) }
    }

    /// Puts `entry` at the back.
    ///
    /// # Errors
    ///
    /// As [`Write::push_front`].
    ///
    /// # Safety
    ///
    /// As [`Write::push_front`].
    pub unsafe fn push_back<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        list: &'m List<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        // SAFETY: passed on.
        unsafe { self.link_before(Place::from(&list.head), place_of::<L, K>(entry)) }
    }

    /// Puts `entry` before `at`, which is on `list`.
    ///
    /// # Errors
    ///
    /// As [`Write::push_front`]; [`Error::NotLinked`] if `at` is on no list.
    ///
    /// # Safety
    ///
    /// As [`Write::push_front`].
    pub unsafe fn insert_before<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        _list: &'m List<L, K>,
        at: &'m L::Entry,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        let at = place_of::<L, K>(at);
        self.must_be_linked(at)?;
        // SAFETY: passed on.
        unsafe { self.link_before(at, place_of::<L, K>(entry)) }
    }

    /// Takes `entry` off the list that it is on. Constant time.
    ///
    /// # Errors
    ///
    /// [`Error::NotLinked`]; [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    pub fn remove<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        _list: &'m List<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        self.unlink(place_of::<L, K>(entry))
    }

    /// Takes `entry` off the list that it is on and puts it at the back of `to`.
    ///
    /// # Errors
    ///
    /// As [`Write::remove`].
    ///
    /// # Safety
    ///
    /// As [`Write::push_front`], for the list `to`.
    pub unsafe fn move_to_back<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        to: &'m List<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        self.remove(to, entry)?;
        // SAFETY: passed on; the entry was linked, so its promise is given already.
        unsafe { self.push_back(to, entry) }
    }

    /// The first entry, acquired rather than only read: for taking it off.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    pub fn front<L: Link<K, Shape = Double>, const K: usize>(
        &mut self,
        list: &'m List<L, K>,
    ) -> Result<Option<&'m L::Entry>, Error>
    where
        L::Entry: 'm,
    {
        let head = Place::from(&list.head);
        let i = self.acquire(&*head)?;
        // SAFETY: read from the head in this section.
        let first = unsafe { head.follow(head.next_in(i)) };
        // SAFETY: not the head, hence an entry of this kind, which outlives the section.
        Ok((first != head).then(|| unsafe { entry_of::<L, K>(first) }))
    }

    /// Puts `entry` at the front of a singly linked list.
    ///
    /// # Errors
    ///
    /// As [`Write::push_front`].
    ///
    /// # Safety
    ///
    /// As [`Write::push_front`].
    pub unsafe fn chain_front<L: Link<K, Shape = Single>, const K: usize>(
        &mut self,
        chain: &'m Chain<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        // SAFETY: passed on.
        unsafe { self.chain_after(Place::from(&chain.head), place_of::<L, K>(entry)) }
    }

    /// Puts `entry` behind `at`, which is on `chain`.
    ///
    /// # Errors
    ///
    /// As [`Write::push_front`]; [`Error::NotLinked`] if `at` is on no list.
    ///
    /// # Safety
    ///
    /// As [`Write::push_front`].
    pub unsafe fn chain_behind<L: Link<K, Shape = Single>, const K: usize>(
        &mut self,
        _chain: &'m Chain<L, K>,
        at: &'m L::Entry,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        let at = place_of::<L, K>(at);
        self.must_be_linked(at)?;
        // SAFETY: passed on.
        unsafe { self.chain_after(at, place_of::<L, K>(entry)) }
    }

    /// Takes the first entry off a singly linked list.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`], [`Error::LogFull`], [`Error::Retry`].
    pub fn pop_chain<L: Link<K, Shape = Single>, const K: usize>(
        &mut self,
        chain: &'m Chain<L, K>,
    ) -> Result<Option<&'m L::Entry>, Error>
    where
        L::Entry: 'm,
    {
        // SAFETY: a head is not the last node of a list that has one, and an empty head yields none;
        // the reference returned lasts as long as the section.
        let first = unsafe { self.unchain_after(Place::from(&chain.head)) }?;
        // SAFETY: not the head, hence an entry of this kind.
        Ok(first.map(|place| unsafe { entry_of::<L, K>(place) }))
    }

    /// Takes `entry` off `chain`; looks for its predecessor from the front.
    ///
    /// # Errors
    ///
    /// [`Error::NotLinked`] if it is not on `chain`; [`Error::Foreign`], [`Error::LogFull`],
    /// [`Error::Retry`].
    pub fn remove_chain<L: Link<K, Shape = Single>, const K: usize>(
        &mut self,
        chain: &'m Chain<L, K>,
        entry: &'m L::Entry,
    ) -> Result<(), Error> {
        let head = Place::from(&chain.head);
        let wanted = place_of::<L, K>(entry);
        let mut at = head;
        loop {
            // SAFETY: not used after the section.
            let behind = unsafe { self.next(at) }?;
            if behind == head {
                return Err(Error::NotLinked);
            }
            if behind == wanted {
                // SAFETY: `at` is not the last node, and the result is dropped at once.
                return unsafe { self.unchain_after(at) }.map(drop);
            }
            at = behind;
        }
    }

    /// Whether `entry` is on a list of this kind, as this section sees it.
    ///
    /// # Errors
    ///
    /// [`Error::Foreign`], [`Error::Retry`].
    pub fn is_listed<L: Link<K>, const K: usize>(
        &mut self,
        entry: &'m L::Entry,
    ) -> Result<bool, Error> {
        self.is_linked(place_of::<L, K>(entry))
    }

    fn must_be_linked<const K: usize>(&mut self, at: Place<'m, K>) -> Result<(), Error> {
        let i = self.acquire(&*at)?;
        if at.next_in(i).is_null() { Err(Error::NotLinked) } else { Ok(()) }
    }
}
