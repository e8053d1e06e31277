//! A reference to a node that remembers what the node is embedded in.

#![allow(unsafe_code)] // A `Place` is a reference that keeps the provenance of its pointer.

use crate::node::Node;
use crate::sync::keep_branch;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// A `&Node` that may be turned into a reference to the object around the node.
///
/// In Rust's aliasing model a plain `&Node` gives access to the bytes of the node alone. Links are
/// therefore made from `Place`s: one derived from a pointer to the whole entry leads back to it.
pub struct Place<'a, const K: usize = 4> {
    at: NonNull<Node<K>>,
    _borrow: PhantomData<&'a Node<K>>,
}

impl<'a, const K: usize> Place<'a, K> {
    /// The place at this address.
    ///
    /// # Safety
    ///
    /// There is a node, and it stays there for `'a`.
    #[inline]
    pub unsafe fn new(at: NonNull<Node<K>>) -> Self {
        Self { at, _borrow: PhantomData }
    }

    /// The pointer, as links store it.
    #[inline]
    pub fn as_ptr(self) -> *mut Node<K> {
        self.at.as_ptr()
    }

    /// What a link of this node leads to; null stands for the node itself.
    ///
    /// # Safety
    ///
    /// `link` was read from this node in a section whose pin (or read epoch) is still published.
    #[inline]
    pub(crate) unsafe fn follow(self, link: *mut Node<K>) -> Self {
        // Whoever linked the node that `link` points to promised that its memory outlives every section
        // that may see it.
        match NonNull::new(link) {
            // SAFETY: as above.
            Some(at) => unsafe { Self::new(at) },
            None => {
                // Rare; without the branch the next load would wait for this comparison.
                keep_branch();
                self
            }
        }
    }
}

impl<'a, const K: usize> From<&'a Node<K>> for Place<'a, K> {
    /// For nodes that nothing has to be found around, such as heads.
    #[inline]
    fn from(node: &'a Node<K>) -> Self {
        Self { at: NonNull::from(node), _borrow: PhantomData }
    }
}

impl<const K: usize> Clone for Place<'_, K> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<const K: usize> Copy for Place<'_, K> {}

impl<const K: usize> Deref for Place<'_, K> {
    type Target = Node<K>;

    #[inline]
    fn deref(&self) -> &Node<K> {
        // SAFETY: contract of `new`.
        unsafe { self.at.as_ref() }
    }
}

impl<const K: usize> PartialEq for Place<'_, K> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl<const K: usize> Eq for Place<'_, K> {}

impl<const K: usize> core::fmt::Debug for Place<'_, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Place({:p})", self.at)
    }
}
