//! Owned entries: lists without `unsafe`.
//!
//! A [`Shelf`] owns its list heads and counters. An [`Entry`] is a counted handle to a value and its
//! nodes, and every list that the value is on holds one count. When an entry is taken off a list, that
//! count is kept until no section can come across the entry any more, and given back then. So memory
//! cannot be freed early, whatever is dropped when.
//!
//! This is the part of the crate that allocates: once for each entry, and for the notes of counts to be
//! given back. Following the lists costs what it costs in the core.
//!
//! ```
//! let shelf = olf::Shelf::<String>::new([2]); // one kind of list, two lists of it
//! let (todo, done) = (olf::ListId::new(0, 0), olf::ListId::new(0, 1));
//! let mut handle = shelf.join()?;
//! let task = olf::Entry::new("write the manual".to_string());
//! handle.write(|w| w.push_back(todo, &task))?;
//! handle.write(|w| {
//!     w.remove(0, &task)?;
//!     w.push_back(done, &task) // readers see the task on `todo` or on `done`, never on both or none
//! })?;
//! let view = handle.read();
//! assert_eq!(view.iter(todo)?.count(), 0);
//! assert_eq!(view.iter(done)?.map(|t| t.len()).collect::<Vec<_>>(), [16]);
//! # Ok::<(), olf::Error>(())
//! ```

#![allow(unsafe_code)] // The counts that lists hold live in raw pointers.

mod entry;
mod reading;
mod writing;

pub use entry::{Entry, Item};
pub use reading::{ShelfIter, ShelfRead};
pub use writing::ShelfWrite;

use crate::error::Error;
use crate::group::Group;
use crate::member::Member;
use crate::node::Node;
use crate::place::Place;
use crate::write::{End, complain};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::{AtomicPtr, Ordering};
use entry::Held;

/// Names a list of a shelf: its kind, and which one of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId {
    pub(crate) kind: usize,
    pub(crate) index: usize,
}

impl ListId {
    /// List `index` of kind `kind`. Whether a shelf has it shows when it is used.
    pub const fn new(kind: usize, index: usize) -> Self {
        Self { kind, index }
    }
}

/// A count that a list held, to be given back once the epoch is out of everybody's sight.
type Retired<T, const LINKS: usize, const K: usize> = (u64, Entry<T, LINKS, K>);

/// What a leaving handle could not give back yet.
struct Orphans<T, const LINKS: usize, const K: usize> {
    retired: Vec<Retired<T, LINKS, K>>,
    next: *mut Orphans<T, LINKS, K>,
}

/// A set of lists that share their counters and own their entries.
///
/// An entry has `LINKS` nodes, one for each kind of list that it can be on at the same time. All
/// operations of one [`Handle::write`] take effect at once.
pub struct Shelf<T, const LINKS: usize = 1, const K: usize = 4> {
    group: Box<Group<32, 128>>,
    heads: [Box<[Node<K>]>; LINKS],
    orphans: AtomicPtr<Orphans<T, LINKS, K>>,
}

// SAFETY: entries are shared with, and dropped by, any thread that has a handle; hence both bounds. The
// rest of a shelf is atomics.
unsafe impl<T: Send + Sync, const LINKS: usize, const K: usize> Send for Shelf<T, LINKS, K> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, const LINKS: usize, const K: usize> Sync for Shelf<T, LINKS, K> {}

impl<T: Send + Sync, const LINKS: usize, const K: usize> Shelf<T, LINKS, K> {
    /// A shelf with `lists[kind]` empty lists of each kind.
    pub fn new(lists: [usize; LINKS]) -> Self {
        Self {
            group: Box::new(Group::new()),
            heads: lists.map(|n| (0..n).map(|_| Node::new()).collect()),
            orphans: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// A thread's way in.
    ///
    /// # Errors
    ///
    /// [`Error::NoSeat`] if 32 handles exist already.
    pub fn join(&self) -> Result<Handle<'_, T, LINKS, K>, Error> {
        Ok(Handle {
            member: self.group.join()?,
            shelf: self,
            held: Vec::new(),
            unlinked: Vec::new(),
            retired: Vec::new(),
        })
    }

    fn head(&self, list: ListId) -> Result<Place<'_, K>, Error> {
        let kind = self.heads.get(list.kind).ok_or(Error::NoSuchList)?;
        kind.get(list.index).map(Place::from).ok_or(Error::NoSuchList)
    }
}

impl<T, const LINKS: usize, const K: usize> Drop for Shelf<T, LINKS, K> {
    fn drop(&mut self) {
        let mut orphans = *self.orphans.get_mut();
        while !orphans.is_null() {
            // SAFETY: made by `Box::into_raw` in `Handle::drop`, and no handle is left.
            let boxed = unsafe { Box::from_raw(orphans) };
            orphans = boxed.next;
        }
        for (kind, heads) in self.heads.iter().enumerate() {
            for head in heads {
                let head = Place::from(head);
                // SAFETY: nobody uses the shelf, so the newest links are the list.
                let mut at = unsafe { head.follow(head.last_next()) };
                while at != head {
                    // SAFETY: as above, before the node is cleared.
                    let next = unsafe { at.follow(at.last_next()) };
                    at.clear();
                    // SAFETY: `at` is not a head, and its list holds a count that ends here.
                    drop(unsafe { Entry::from_list(Held::<T, LINKS, K>::of_node(at, kind)) });
                    at = next;
                }
                head.clear();
            }
        }
    }
}

impl<T, const LINKS: usize, const K: usize> core::fmt::Debug for Shelf<T, LINKS, K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shelf").field("group", &self.group).finish_non_exhaustive()
    }
}

/// A thread's seat at a [`Shelf`].
pub struct Handle<'s, T: Send + Sync, const LINKS: usize = 1, const K: usize = 4> {
    member: Member<'s>,
    shelf: &'s Shelf<T, LINKS, K>,
    /// Counts that keep the entries of this attempt while its log names them; `true`: the count is for
    /// a list that the entry was put on.
    held: Vec<(Entry<T, LINKS, K>, bool)>,
    /// Entries, by one link each, that this attempt took off lists.
    unlinked: Vec<core::ptr::NonNull<Held<T, LINKS, K>>>,
    retired: Vec<Retired<T, LINKS, K>>,
}

// SAFETY: the raw pointers are used within a section only, by the thread that runs it.
unsafe impl<T: Send + Sync, const LINKS: usize, const K: usize> Send for Handle<'_, T, LINKS, K> {}

/// Retired entries that a handle collects before it looks whether some can be given back.
const BATCH: usize = 64;

impl<'s, T: Send + Sync, const LINKS: usize, const K: usize> Handle<'s, T, LINKS, K> {
    /// Begins a read section; see [`Member::read`].
    pub fn read(&mut self) -> ShelfRead<'_, 's, T, LINKS, K> {
        ShelfRead { read: self.member.read(), shelf: self.shelf }
    }

    /// Runs `f` as one atomic change; see [`Member::write`].
    ///
    /// # Errors
    ///
    /// What `f` returned.
    ///
    /// # Panics
    ///
    /// As [`Member::write`].
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write<R, E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&mut ShelfWrite<'_, '_, 's, T, LINKS, K>) -> Result<R, E>,
    ) -> Result<R, E> {
        // Left over by a panic, whose section was undone.
        self.held.clear();
        self.unlinked.clear();
        let mut w = crate::Write::begin(&mut self.member);
        let (epoch, result) = loop {
            let result = f(&mut ShelfWrite {
                write: &mut w,
                shelf: self.shelf,
                held: &mut self.held,
                unlinked: &mut self.unlinked,
            });
            // The counts in `held` go only after the section's log, which names the entries.
            match w.finish(result.is_ok())? {
                End::Again => {
                    self.held.clear();
                    self.unlinked.clear();
                }
                End::Done(epoch) => break (epoch, result),
            }
        };
        let misuse = w.section().misuse;
        drop(w);
        if result.is_ok() {
            self.settle(epoch);
        }
        self.held.clear();
        self.unlinked.clear();
        complain(misuse);
        result
    }

    /// Turns the counts of a committed section over to the lists, and retires those of the lists.
    fn settle(&mut self, epoch: u64) {
        self.held.drain(..).filter(|(_, for_list)| *for_list).for_each(mem::forget);
        for held in self.unlinked.drain(..) {
            // SAFETY: the committed section took the entry off one list, which held this count.
            let entry = unsafe { Entry::from_list(held) };
            self.retired.push((epoch, entry));
        }
        if self.retired.len() >= BATCH {
            self.collect();
        }
    }

    /// Gives back what no section can see any more; returns how many counts are still kept.
    ///
    /// Called now and then by [`Handle::write`]. The values' destructors run here, outside of sections.
    pub fn collect(&mut self) -> usize {
        let mut orphans = self.shelf.orphans.swap(core::ptr::null_mut(), Ordering::AcqRel);
        while !orphans.is_null() {
            // SAFETY: made by `Box::into_raw` in `drop`; the swap made this thread its owner.
            let mut boxed = unsafe { Box::from_raw(orphans) };
            self.retired.append(&mut boxed.retired);
            orphans = boxed.next;
        }
        let horizon = self.member.d.horizon();
        let (gone, kept): (Vec<_>, _) =
            mem::take(&mut self.retired).into_iter().partition(|(epoch, _)| *epoch <= horizon);
        self.retired = kept;
        drop(gone);
        self.retired.len()
    }
}

impl<T: Send + Sync, const LINKS: usize, const K: usize> Drop for Handle<'_, T, LINKS, K> {
    fn drop(&mut self) {
        if self.collect() == 0 {
            return;
        }
        let retired = mem::take(&mut self.retired);
        let fresh = Box::into_raw(Box::new(Orphans { retired, next: core::ptr::null_mut() }));
        let mut top = self.shelf.orphans.load(Ordering::Relaxed);
        loop {
            // SAFETY: not published yet.
            unsafe { (*fresh).next = top };
            // The stack is only ever emptied as a whole, so there is no ABA problem.
            match self.shelf.orphans.compare_exchange_weak(
                top,
                fresh,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }
}

impl<T: Send + Sync, const LINKS: usize, const K: usize> core::fmt::Debug
    for Handle<'_, T, LINKS, K>
{
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handle").field("member", &self.member).finish_non_exhaustive()
    }
}
