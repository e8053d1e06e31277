//! Optimistic lock-free lists that compose.
//!
//! Linked lists for concurrent system software: nodes are embedded in the objects that are listed, no path
//! allocates, readers never wait, and a writer can change any number of lists in one atomic section.
//! Singly and doubly linked. The algorithm is that of D. E. Porter's dissertation (*Operating System
//! Transactions*, 2010, chapter 8), with its gaps closed.
//!
//! # A first look
//!
//! ```
//! use olf::{Error, Group, List, Node};
//!
//! struct Task { id: u32, node: Node }
//! olf::link!(Tasks: Double<4> of Task => node);
//!
//! static GROUP: Group = Group::new();              // counters and seats, shared by the lists
//! static READY: List<Tasks> = List::new();
//! static DONE: List<Tasks> = List::new();
//! static TASK: Task = Task { id: 7, node: Node::new() };
//!
//! let mut member = GROUP.join()?;                  // one for each thread
//! // SAFETY: all of them are statics: they neither move nor go away.
//! member.write(|w| unsafe { w.push_back(&READY, &TASK) })?;
//! member.write(|w| unsafe { w.move_to_back(&DONE, &TASK) })?; // at every moment on exactly one list
//!
//! let view = member.read();                        // both lists, as of one moment
//! assert_eq!(view.iter(&READY).count(), 0);
//! assert_eq!(view.iter(&DONE).next().map(|t| t.id), Some(7));
//! # Ok::<(), Error>(())
//! ```
//!
//! Without `unsafe`, at the price of one allocation for each entry: [`Shelf`].
//!
//! # The idea
//!
//! A node holds not one pair of links but `K` of them, each stamped with the *epoch* of the write section
//! that made it. A reader notes the committed epoch when it begins, and at each node follows the newest
//! pair that is not newer than that. Nothing that a writer does meanwhile can show:
//!
//! ```text
//!            H                         A                         D
//!     +---+------------+        +---+------------+        +---+------------+
//!     | 2 | next = A   |------->| 2 | next = D   |------->| 2 | next = H   |--> H
//!     +---+------------+        +---+------------+        +---+------------+
//!     | 4 | next = D   |--.     | 4 | unlinked   |     .->| 4 | prev = H   |
//!     +---+------------+  |     +---+------------+     |  +---+------------+
//!                         '------------------------------'
//!
//!     a reader that began at epoch 2 or 3 goes H, A, D; one that began at 4 goes H, D
//! ```
//!
//! A writer takes the next epoch from a counter, works on private slots while others do the same, and
//! commits when its turn comes by storing its epoch into the counter that readers begin with:
//! one store makes all its changes visible, on however many lists. If an older writer has changed a
//! node that it had copied, it undoes its slots and runs again, now as the oldest, which nobody can
//! disturb. So every section ends after at most two runs, whatever the others do, as long as they run.
//!
//! Slots are used again as soon as no reader can need them. Readers publish their epochs for that; a
//! writer short of slots takes the minimum. Where each step is argued:
//!
//! | module | what it explains |
//! |---|---|
//! | `epoch` | the three counters `C`, `M`, `R` |
//! | `node` | slots, and which one a reader takes |
//! | `read` | how a reader enters, line by line |
//! | `acquire` | how a writer gets a slot, the table of cases, why nobody waits for ever |
//! | `write`, `log` | commit, validation, undoing |
//! | `nested` | reading inside a write section |
//! | `group` | raising `R`, and when memory may be freed |
//! | `wait` | spin, yield, sleep, and the gate before writers |
//! | `recover` | threads that die |
//! | `register` | nodes that are dropped too early |
//!
//! # Memory orderings
//!
//! All shared words are atomics; what makes them safe to read is, in the order of the hand-overs:
//!
//! 1. *Commit to reader.* The commit stores `C` with release, `enter` loads it with acquire. Writers
//!    load their predecessor's `C` with acquire before they store theirs, so the chain reaches
//!    back to every older commit. After that, readers use relaxed loads (`node`).
//! 2. *Reader to the scan for the oldest.* `L` stored, full fence, `C` loaded; against `C` loaded, full
//!    fence, every `L` loaded (`read`, `Domain::advance`). One side sees the other.
//! 3. *Reader to the next owner of a slot.* Leaving stores `L` with release; the scan loads it with acquire,
//!    hands on by `R` (acquire and release); the next owner loads `R` with acquire.
//! 4. *Owner to owner.* A slot is taken from an owner whose epoch is committed, or given up; the taker has
//!    loaded that `C` with acquire (`acquire`), so the exchange of the slot's epoch is relaxed.
//! 5. *Owner against copier.* A seqlock: the owner's release fence between taking a slot and storing to
//!    it, the copier's acquire fence between its loads and the second look (`acquire`).
//! 6. *Section to the freeing of memory.* The pin is stored before, and the epoch taken from `M` by, a
//!    read-modify-write; the freeing thread does one on `M` too. One of them sees the other
//!    (`Domain::horizon`).
//!
//! Each is the subject of loom models, and of mutants that these kill (`mutants/`): 14 for the first; 1, 7 and
//! 13 for the second, and 20, on the processor, for the exchange that stands for its store and fence; 16, 17
//! and 18 for the third; 19 for the fourth; 8 and 9 for the fifth; 11 for the sixth. One has none: the
//! acquire of `R` by the next owner, as the fence of the copy that follows it (5) would do as well. The
//! models hold each slot's links to more than their values: under loom every access that claims to be
//! ordered is also one to a cell that reports races.
//!
//! # Costs
//!
//! | | |
//! |---|---|
//! | begin to read | a load, an atomic exchange, a load; again for each commit in between |
//! | step of a reader | a load of one cache line, as in a plain list |
//! | change | a scan of `K` slots, a compare-and-exchange and a copy for each node changed: 3 in a doubly linked list, 2 in a singly linked one |
//! | commit | `K` loads for each node changed or read, and a store |
//! | node | 128 bytes with `K` = 2, 3 or 4 |
//! | group | 128 bytes a seat and 40 a log record |
//!
//! Writers of a group commit one after the other: lists that are never changed together belong in groups
//! of their own.
//!
//! # The contract of the intrusive core
//!
//! The types make sure that lists of different kinds are not mixed up and that a section is not begun
//! within another. The caller of an `unsafe` operation promises the rest: a node that was linked stays
//! where it is, and its memory is not given back before [`Member::may_free`] agrees. (A `Box` that is moved
//! counts as moving its content: Rust's aliasing rules end all pointers into it. Use statics, an `Arc`, or
//! memory held by a raw pointer.) The group stays where it is too, once it has linked a node, and is
//! dropped before its memory goes. What is done wrong nevertheless:
//!
//! | mistake | what happens |
//! |---|---|
//! | entry on a list of another kind, write inside read, node that dies before the section, `K < 2` | does not compile |
//! | node on two lists of one kind | debug builds: panic when the section ends, if its view held; release builds: [`Error::AlreadyLinked`]. Whoever does not know asks [`Write::is_listed`] |
//! | node or list used with two groups | the same with [`Error::Foreign`]; reading: panic in debug builds, an empty list in release builds |
//! | more writers of a node than its `K` slots | no mistake: they wait for their turn |
//! | more nodes than the log holds | [`Error::LogFull`], nothing is changed; for nodes only read, nothing but speed is lost |
//! | closure panics | the section is undone, the panic goes on |
//! | section's guard is leaked | panic at the next section in debug builds; in release builds that ends the leaked one, without effect |
//! | error swallowed by the closure | the section runs again all the same |
//! | node dropped while linked | panic in debug builds with `std`; else (and while a panic unwinds) the process is aborted if the group has members, or nobody can [join](Error::Poisoned) it any more if it has none ([`Shelf`] makes it impossible) |
//! | node dropped while a section may see it | panic in debug builds with `std`; else the drop waits for that section, and aborts the process after ten seconds, for it may be the thread's own |
//! | member used that was reported dead | writing: [`Error::Evicted`]; reading: panic, in all builds |
//! | thread waits for itself by a second seat of the same group | hangs |
//! | thread dies inside a section | others wait until it is [reported](Group::report_failed) and [undone](Member::recover) |
//!
//! # Features
//!
//! `std` (default): waiting threads yield and sleep instead of only spinning, and debug builds panic where
//! a node is freed too early. `alloc`: [`Shelf`]. Neither is needed for the intrusive core. 64-bit atomics are.

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
// The models promise what users of the unsafe operations promise.
#[allow(unsafe_code, clippy::unwrap_used)]
mod models;
mod nested;
mod node;
mod place;
mod read;
mod recover;
#[cfg(not(any(loom, shuttle)))]
mod register;
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
