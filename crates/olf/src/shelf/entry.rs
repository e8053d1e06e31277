//! Entries: a value, its nodes, and the number of handles and lists that hold it.

use crate::node::Node;
use crate::place::Place;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::mem::{ManuallyDrop, offset_of};
use core::ops::Deref;
use core::ptr::NonNull;

/// What an entry's handles and lists point to.
pub(crate) struct Held<T, const LINKS: usize, const K: usize> {
    links: [Node<K>; LINKS],
    value: T,
}

impl<T, const LINKS: usize, const K: usize> Held<T, LINKS, K> {
    /// The entry whose node of that kind is at `place`.
    ///
    /// # Safety
    ///
    /// There is one, and the place was reached through links of that kind.
    #[inline]
    pub(crate) unsafe fn of_node(place: Place<'_, K>, kind: usize) -> NonNull<Self> {
        let offset = offset_of!(Self, links) + kind * size_of::<Node<K>>();
        // SAFETY: links are made from `Item::place`, so the pointer is into, and for, a whole `Held`.
        unsafe { NonNull::new_unchecked(place.as_ptr()).byte_sub(offset).cast() }
    }
}

/// A counted handle to a value that can be put on lists.
///
/// Clones are handles to the same entry. Dropping them all does not take it off its lists.
pub struct Entry<T, const LINKS: usize = 1, const K: usize = 4>(Arc<Held<T, LINKS, K>>);

impl<T, const LINKS: usize, const K: usize> Entry<T, LINKS, K> {
    /// An entry on no list.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Held { links: core::array::from_fn(|_| Node::new()), value }))
    }

    /// Takes over the count that a list held.
    ///
    /// # Safety
    ///
    /// A list held one, by a forgotten `Entry`, and does not use it any more.
    pub(crate) unsafe fn from_list(held: NonNull<Held<T, LINKS, K>>) -> Self {
        // SAFETY: `Item::from` made the pointer by `Arc::as_ptr`; the count is the caller's promise.
        Self(unsafe { Arc::from_raw(held.as_ptr()) })
    }

    /// Whether both are handles to one entry.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T, const LINKS: usize, const K: usize> Clone for Entry<T, LINKS, K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T, const LINKS: usize, const K: usize> Deref for Entry<T, LINKS, K> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: core::fmt::Debug, const LINKS: usize, const K: usize> core::fmt::Debug
    for Entry<T, LINKS, K>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Entry").field(&**self).finish()
    }
}

/// An entry met on a list, for as long as the section; or any [`Entry`], borrowed.
pub struct Item<'a, T, const LINKS: usize = 1, const K: usize = 4> {
    held: NonNull<Held<T, LINKS, K>>,
    _borrow: PhantomData<&'a T>,
}

impl<'a, T, const LINKS: usize, const K: usize> Item<'a, T, LINKS, K> {
    /// # Safety
    ///
    /// The entry lives for 'a, and the pointer comes from an `Entry`.
    #[inline]
    pub(crate) unsafe fn new(held: NonNull<Held<T, LINKS, K>>) -> Self {
        Self { held, _borrow: PhantomData }
    }

    pub(crate) fn held(self) -> NonNull<Held<T, LINKS, K>> {
        self.held
    }

    /// The entry's node of that kind, which must be less than `LINKS`.
    pub(crate) fn place(self, kind: usize) -> Place<'a, K> {
        assert!(kind < LINKS, "olf: entries of this shelf have {LINKS} links");
        let offset = offset_of!(Held<T, LINKS, K>, links) + kind * size_of::<Node<K>>();
        // SAFETY: within the entry, which lives for 'a.
        unsafe { Place::new(self.held.byte_add(offset).cast()) }
    }

    /// A handle that keeps the entry beyond the section.
    pub fn entry(self) -> Entry<T, LINKS, K> {
        // SAFETY: the entry is alive, so somebody holds a count; this adds one of our own.
        let borrowed = ManuallyDrop::new(unsafe { Entry::from_list(self.held) });
        Entry::clone(&borrowed)
    }

    /// The value, for as long as the section.
    #[inline]
    pub fn value(self) -> &'a T {
        // SAFETY: contract of `new`.
        unsafe { &(*self.held.as_ptr()).value }
    }
}

impl<'a, T, const LINKS: usize, const K: usize> From<&'a Entry<T, LINKS, K>>
    for Item<'a, T, LINKS, K>
{
    fn from(entry: &'a Entry<T, LINKS, K>) -> Self {
        // SAFETY: `as_ptr` is not null and good for the whole allocation, counts included.
        let held = unsafe { NonNull::new_unchecked(Arc::as_ptr(&entry.0).cast_mut()) };
        Self { held, _borrow: PhantomData }
    }
}

impl<T, const LINKS: usize, const K: usize> Clone for Item<'_, T, LINKS, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const LINKS: usize, const K: usize> Copy for Item<'_, T, LINKS, K> {}

impl<T, const LINKS: usize, const K: usize> Deref for Item<'_, T, LINKS, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value()
    }
}

impl<T: core::fmt::Debug, const LINKS: usize, const K: usize> core::fmt::Debug
    for Item<'_, T, LINKS, K>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Item").field(self.value()).finish()
    }
}
