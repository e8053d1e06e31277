//! Optimistic lock-free lists that compose.

#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod acquire;
mod audit;
mod epoch;
mod error;
mod group;
#[cfg(all(test, not(any(loom, shuttle))))]
mod interpose;
mod iter;
mod links;
mod list;
mod log;
mod member;
#[cfg(all(test, loom))]
#[allow(unsafe_code)] // The models promise what users of the unsafe operations promise.
mod models;
mod nested;
mod node;
mod place;
mod read;
mod recover;
mod seat;
#[cfg(all(feature = "alloc", not(any(loom, shuttle))))]
mod shelf;
mod sync;
mod typed;
mod wait;
mod write;

pub use error::Error;
pub use group::Group;
pub use iter::{Iter, IterRev, WriteIter};
pub use member::Member;
pub use node::Node;
pub use place::Place;
pub use read::Read;
#[cfg(all(feature = "alloc", not(any(loom, shuttle))))]
pub use shelf::{Entry, Handle, Item, ListId, Shelf, ShelfIter, ShelfRead, ShelfWrite};
pub use typed::{Chain, Double, Link, List, Single};
pub use write::{End, Write};
