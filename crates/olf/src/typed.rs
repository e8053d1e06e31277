//! Lists with the type of their entries: [`List`] (doubly linked) and [`Chain`] (singly linked).
//!
//! A *kind* of list is a type made by [`link!`](crate::link): it names the entry's type and the field that
//! links it. Entries on several kinds of lists at a time have a node for each kind. That a node of
//! one kind ends up in a list of another does not compile; that it is on two lists of one kind is
//! refused with [`Error::AlreadyLinked`](crate::Error::AlreadyLinked).

#![allow(unsafe_code)] // From a node's address to its entry's.

use crate::node::Node;
use crate::place::Place;
use crate::sync::const_fn;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Shape of a kind of lists: doubly linked.
#[derive(Debug)]
pub enum Double {}
/// Shape of a kind of lists: singly linked. Changes touch two nodes instead of three.
#[derive(Debug)]
pub enum Single {}

/// A kind of list. Implemented by [`link!`](crate::link).
///
/// # Safety
///
/// Every `Entry` has a `Node<K>` at `OFFSET`, and no other implementation names the same node with
/// another `Shape`.
pub unsafe trait Link<const K: usize = 4> {
    /// What is on the list. Every thread can come across it, hence `Sync`.
    type Entry: Sync;
    /// [`Double`] or [`Single`].
    type Shape;
    /// Where in the entry the node lies, in bytes.
    const OFFSET: usize;
}

/// Declares a kind of list: `link!(pub ByName: Double<4> of Dentry => name_node)`.
///
/// ```
/// struct Dentry { name: String, by_name: olf::Node, by_age: olf::Node<2> }
/// olf::link!(ByName: Double<4> of Dentry => by_name);
/// olf::link!(ByAge: Single<2> of Dentry => by_age);
/// static NAMES: olf::List<ByName> = olf::List::new();
/// static AGES: olf::Chain<ByAge, 2> = olf::Chain::new();
/// ```
///
/// The field must be a node of that `K`:
///
/// ```compile_fail,E0308
/// struct Dentry { by_name: olf::Node<2> }
/// olf::link!(ByName: Double<4> of Dentry => by_name);
/// ```
///
/// and a list takes its own kind of entries only:
///
/// ```compile_fail,E0308
/// struct Dentry { by_name: olf::Node }
/// struct Inode { by_number: olf::Node }
/// olf::link!(ByName: Double<4> of Dentry => by_name);
/// let (names, inode) = (olf::List::<ByName>::new(), Inode { by_number: olf::Node::new() });
/// let group = olf::Group::<2, 8>::new();
/// group.join().unwrap().write(|w| unsafe { w.push_back(&names, &inode) }).unwrap();
/// ```
#[macro_export]
macro_rules! link {
    ($(#[$m:meta])* $v:vis $name:ident: $shape:ident<$k:literal> of $entry:ty => $field:ident) => {
        $(#[$m])*
        #[derive(Debug)]
        $v enum $name {}
        // SAFETY: the offset is the compiler's, and the function below type-checks the field.
        #[allow(unsafe_code)]
        unsafe impl $crate::Link<$k> for $name {
            type Entry = $entry;
            type Shape = $crate::$shape;
            const OFFSET: usize = {
                const fn _node_of(entry: &$entry) -> &$crate::Node<$k> {
                    &entry.$field
                }
                ::core::mem::offset_of!($entry, $field)
            };
        }
    };
}

/// The node that links `entry`, with the right to find the entry again.
#[inline]
pub(crate) fn place_of<L: Link<K>, const K: usize>(entry: &L::Entry) -> Place<'_, K> {
    let at = NonNull::from(entry);
    // SAFETY: contract of `Link`; the entry is borrowed for as long as the place.
    unsafe { Place::new(at.byte_add(L::OFFSET).cast()) }
}

/// The entry that the node at `place` links.
///
/// # Safety
///
/// The place is that of a live entry of kind `L`, not a head, reached within a section through links
/// made from [`place_of`].
#[inline]
pub(crate) unsafe fn entry_of<'a, L: Link<K>, const K: usize>(place: Place<'_, K>) -> &'a L::Entry
where
    L::Entry: 'a,
{
    // SAFETY: contract of `Link` and of this function.
    unsafe { &*place.as_ptr().byte_sub(L::OFFSET).cast::<L::Entry>() }
}

macro_rules! list_type {
    ($(#[$m:meta])* $name:ident, $shape:ident) => {
        $(#[$m])*
        pub struct $name<L: Link<K, Shape = $shape>, const K: usize = 4> {
            pub(crate) head: Node<K>,
            _kind: PhantomData<fn() -> L>,
        }

        impl<L: Link<K, Shape = $shape>, const K: usize> $name<L, K> {
            const_fn! {
                /// An empty list. It must not move once an entry was linked.
                pub const fn new() -> Self {
                    Self { head: Node::new(), _kind: PhantomData }
                }
            }

            /// The node that the first and the last entry are linked to.
            pub fn head(&self) -> &Node<K> {
                &self.head
            }
        }

        impl<L: Link<K, Shape = $shape>, const K: usize> Default for $name<L, K> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<L: Link<K, Shape = $shape>, const K: usize> core::fmt::Debug for $name<L, K> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name)).field("head", &self.head).finish()
            }
        }
    };
}

list_type! {
    /// A doubly linked list of kind `L`. Operations are on [`Read`](crate::Read) and
    /// [`Write`](crate::Write).
    List, Double
}
list_type! {
    /// A singly linked list of kind `L`. Operations are on [`Read`](crate::Read) and
    /// [`Write`](crate::Write).
    Chain, Single
}
