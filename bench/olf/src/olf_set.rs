//! A sorted set on one `olf` chain. Each key has its node for good, as an object with an embedded node.

#![allow(unsafe_code)] // The intrusive core, as system software would use it.

use crate::set::{Session, Set};
use olf::{Error, Group, Member, Node, Place, Write};
use std::ptr::NonNull;

/// The node first: its epochs and `next` pointers on the first cache line.
#[repr(C)]
struct Keyed {
    node: Node,
    key: u64,
}

/// See the module.
pub struct OlfSet {
    group: Group<64, 16>,
    head: Node,
    entries: Box<[Keyed]>,
}

/// One thread's member.
pub struct OlfSession<'s> {
    set: &'s OlfSet,
    member: Member<'s>,
}

impl Set for OlfSet {
    type Session<'s> = OlfSession<'s>;

    fn new(keys: u64) -> Self {
        let entries = (0..keys).map(|key| Keyed { node: Node::new(), key }).collect();
        Self { group: Group::new(), head: Node::new(), entries }
    }

    fn session(&self) -> OlfSession<'_> {
        OlfSession { set: self, member: self.group.join().expect("a seat") }
    }
}

impl Drop for OlfSet {
    fn drop(&mut self) {
        let mut session = self.session();
        (0..self.entries.len() as u64).for_each(|key| {
            session.remove(key);
        });
    }
}

impl OlfSet {
    fn place(&self, key: u64) -> Place<'_> {
        let entry = NonNull::from(&self.entries[key as usize]);
        // SAFETY: `Keyed` is `repr(C)` with the node first.
        unsafe { Place::new(entry.cast()) }
    }

    /// The key of a node that is not the head.
    #[inline]
    fn key(place: Place<'_>) -> u64 {
        // SAFETY: all nodes but the head are made by `place`, from a whole entry.
        unsafe { (*place.as_ptr().cast::<Keyed>()).key }
    }

    /// The last place before `key`, and the one behind it.
    fn search<'m, 's: 'm>(
        &'s self,
        w: &mut Write<'m, 's>,
        key: u64,
    ) -> Result<(Place<'m>, Place<'m>), Error> {
        let head = Place::from(&self.head);
        let mut before = head;
        loop {
            // SAFETY: the set outlives all sections.
            let at = unsafe { w.glance(before)? };
            if at == head || Self::key(at) >= key {
                return Ok((before, at));
            }
            before = at;
        }
    }
}

impl Session for OlfSession<'_> {
    fn contains(&mut self, key: u64) -> bool {
        let read = self.member.read();
        let head = Place::from(&self.set.head);
        let mut at = head;
        loop {
            // SAFETY: reached from the head.
            at = unsafe { read.next(at) };
            if at == head {
                return false;
            }
            let found = OlfSet::key(at);
            if found >= key {
                return found == key;
            }
        }
    }

    fn insert(&mut self, key: u64) -> bool {
        let set = self.set;
        let inserted = self.member.write(|w| {
            let (before, at) = set.search(w, key)?;
            if at != Place::from(&set.head) && OlfSet::key(at) == key {
                return Ok(false);
            }
            // SAFETY: the set outlives all sections.
            unsafe { w.chain_after(before, set.place(key))? };
            Ok::<_, Error>(true)
        });
        inserted.expect("an insertion cannot fail")
    }

    fn remove(&mut self, key: u64) -> bool {
        let set = self.set;
        let removed = self.member.write(|w| {
            let (before, at) = set.search(w, key)?;
            if at == Place::from(&set.head) || OlfSet::key(at) != key {
                return Ok(false);
            }
            // SAFETY: `at` is behind `before`; the set outlives all sections.
            unsafe { w.unchain_after(before)? };
            Ok::<_, Error>(true)
        });
        removed.expect("a removal cannot fail")
    }
}
