//! What the benchmarks of several lists ask for: numbered nodes on numbered doubly linked lists.

use crate::locked::Spin;
use olf::{Error, Group, Member, Node, Place, Write};
use std::sync::{Mutex, RwLock};

/// Nodes and lists that threads share.
pub trait Arena: Sync {
    /// One thread's access.
    type Session<'s>: ArenaSession
    where
        Self: 's;
    /// All nodes on no list.
    fn new(nodes: usize, lists: usize) -> Self;
    /// A thread's access.
    fn session(&self) -> Self::Session<'_>;
}

/// The operations. Each is atomic.
pub trait ArenaSession {
    /// Puts each node at the back of its list. None of them is on a list.
    fn link(&mut self, places: &[(usize, usize)]);
    /// Takes the nodes off their lists.
    fn unlink(&mut self, nodes: &[usize]);
    /// Moves a node to the back of a list.
    fn move_to(&mut self, node: usize, to: usize);
    /// Walks over list `from` in search of the node; if it is there, moves it to its place on `to`. Both
    /// lists are in the order of their nodes' numbers.
    fn find_and_move(&mut self, node: usize, from: usize, to: usize) -> bool;
    /// Walks over a list in search of a node.
    fn lookup(&mut self, list: usize, node: usize) -> bool;
}

/// The node first, so that a place is also the entry's address.
#[repr(C)]
struct Numbered {
    node: Node,
    number: usize,
}

/// On `olf`.
pub struct OlfArena {
    group: Group<64, 64>,
    heads: Box<[Node]>,
    nodes: Box<[Numbered]>,
}

/// One thread's member.
pub struct OlfSession<'s> {
    arena: &'s OlfArena,
    member: Member<'s>,
}

impl OlfArena {
    #[allow(unsafe_code)] // From an entry to its node, keeping the way back.
    fn place(&self, node: usize) -> Place<'_> {
        // SAFETY: `Numbered` is `repr(C)` with the node first.
        unsafe { Place::new(std::ptr::NonNull::from(&self.nodes[node]).cast()) }
    }

    #[allow(unsafe_code)] // From a node to its entry.
    fn number(place: Place<'_>) -> usize {
        // SAFETY: all nodes but heads are made by `place`.
        unsafe { (*place.as_ptr().cast::<Numbered>()).number }
    }
}

impl OlfArena {
    /// The first node of a sorted list that is not before `node`; the head if there is none.
    #[allow(unsafe_code)] // The intrusive core.
    fn first_from<'m, 'a: 'm>(
        &'a self,
        w: &mut Write<'m, 'a>,
        list: usize,
        node: usize,
    ) -> Result<Place<'m>, Error> {
        let head = Place::from(&self.heads[list]);
        let mut at = head;
        loop {
            // SAFETY: the arena outlives all sections.
            at = unsafe { w.glance(at)? };
            if at == head || Self::number(at) >= node {
                return Ok(at);
            }
        }
    }
}

impl Arena for OlfArena {
    type Session<'s> = OlfSession<'s>;

    fn new(nodes: usize, lists: usize) -> Self {
        Self {
            group: Group::new(),
            heads: (0..lists).map(|_| Node::new()).collect(),
            nodes: (0..nodes).map(|number| Numbered { node: Node::new(), number }).collect(),
        }
    }

    fn session(&self) -> OlfSession<'_> {
        OlfSession { arena: self, member: self.group.join().expect("a seat") }
    }
}

impl Drop for OlfArena {
    fn drop(&mut self) {
        let mut member = self.group.join().expect("a seat");
        for node in 0..self.nodes.len() {
            // A node that is on no list answers with an error, as it should.
            let _ = member.write(|w| w.unlink(self.place(node)));
        }
    }
}

#[allow(unsafe_code)] // The intrusive core. The arena outlives all sections.
impl ArenaSession for OlfSession<'_> {
    fn link(&mut self, places: &[(usize, usize)]) {
        let a = self.arena;
        let done = self.member.write(|w| {
            for &(node, list) in places {
                // SAFETY: the arena outlives all sections.
                unsafe { w.link_before(Place::from(&a.heads[list]), a.place(node))? };
            }
            Ok::<_, Error>(())
        });
        done.expect("nodes on no list");
    }

    fn unlink(&mut self, nodes: &[usize]) {
        let a = self.arena;
        let done = self.member.write(|w| nodes.iter().try_for_each(|&n| w.unlink(a.place(n))));
        done.expect("nodes on lists");
    }

    fn move_to(&mut self, node: usize, to: usize) {
        let a = self.arena;
        let done = self.member.write(|w| {
            w.unlink(a.place(node))?;
            // SAFETY: the arena outlives all sections.
            unsafe { w.link_before(Place::from(&a.heads[to]), a.place(node)) }
        });
        done.expect("a node on a list");
    }

    fn find_and_move(&mut self, node: usize, from: usize, to: usize) -> bool {
        let a = self.arena;
        let moved = self.member.write(|w| {
            let found = a.first_from(w, from, node)?;
            if found == Place::from(&a.heads[from]) || OlfArena::number(found) != node {
                return Ok(false);
            }
            let place = a.first_from(w, to, node)?;
            w.unlink(found)?;
            // SAFETY: the arena outlives all sections.
            unsafe { w.link_before(place, found)? };
            Ok::<_, Error>(true)
        });
        moved.expect("a move cannot fail")
    }

    fn lookup(&mut self, list: usize, node: usize) -> bool {
        let read = self.member.read();
        let head = Place::from(&self.arena.heads[list]);
        let mut at = head;
        loop {
            // SAFETY: reached from the head.
            at = unsafe { read.next(at) };
            if at == head {
                return false;
            }
            if OlfArena::number(at) == node {
                return true;
            }
        }
    }
}

/// As large as a heap-allocated node.
#[repr(align(32))]
#[derive(Clone)]
struct Links {
    next: usize,
    prev: usize,
}

/// Plain doubly linked lists: heads behind the nodes.
pub struct Plain {
    links: Vec<Links>,
    nodes: usize,
}

impl Plain {
    fn new(nodes: usize, lists: usize) -> Self {
        let links = (0..nodes + lists).map(|n| Links { next: n, prev: n }).collect();
        Self { links, nodes }
    }

    fn push(&mut self, node: usize, list: usize) {
        self.insert_before(self.nodes + list, node);
    }

    fn insert_before(&mut self, at: usize, node: usize) {
        let before = self.links[at].prev;
        self.links[node] = Links { next: at, prev: before };
        self.links[before].next = node;
        self.links[at].prev = node;
    }

    /// The first node of a sorted list that is not before `node`; the head, whose number is greater than
    /// all others, if there is none.
    fn first_from(&self, list: usize, node: usize) -> usize {
        let mut at = self.links[self.nodes + list].next;
        while at < node {
            at = self.links[at].next;
        }
        at
    }

    fn take(&mut self, node: usize) {
        let Links { next, prev } = self.links[node].clone();
        self.links[prev].next = next;
        self.links[next].prev = prev;
    }

    fn contains(&self, node: usize, list: usize) -> bool {
        let head = self.nodes + list;
        let mut at = self.links[head].next;
        while at != head && at != node {
            at = self.links[at].next;
        }
        at == node
    }
}

macro_rules! locked_arena {
    ($(#[$m:meta])* $name:ident, $session:ident, $lock:ident, $l:ident => $read:expr, $write:expr) => {
        $(#[$m])*
        pub struct $name($lock<Plain>);

        /// One thread's access.
        pub struct $session<'s>(&'s $name);

        impl Arena for $name {
            type Session<'s> = $session<'s>;
            fn new(nodes: usize, lists: usize) -> Self {
                Self($lock::new(Plain::new(nodes, lists)))
            }
            fn session(&self) -> $session<'_> {
                $session(self)
            }
        }

        impl ArenaSession for $session<'_> {
            fn link(&mut self, places: &[(usize, usize)]) {
                let $l = &self.0.0;
                let mut plain = $write;
                places.iter().for_each(|&(node, list)| plain.push(node, list));
            }
            fn unlink(&mut self, nodes: &[usize]) {
                let $l = &self.0.0;
                let mut plain = $write;
                nodes.iter().for_each(|&node| plain.take(node));
            }
            fn move_to(&mut self, node: usize, to: usize) {
                let $l = &self.0.0;
                let mut plain = $write;
                plain.take(node);
                plain.push(node, to);
            }
            fn find_and_move(&mut self, node: usize, from: usize, to: usize) -> bool {
                let $l = &self.0.0;
                let mut plain = $write;
                let found = plain.first_from(from, node) == node;
                if found {
                    let place = plain.first_from(to, node);
                    plain.take(node);
                    plain.insert_before(place, node);
                }
                found
            }
            fn lookup(&mut self, list: usize, node: usize) -> bool {
                let $l = &self.0.0;
                $read.contains(node, list)
            }
        }
    };
}

locked_arena! {
    /// Behind a spinlock.
    SpinArena, SpinSession, Spin, l => l.lock(), l.lock()
}
locked_arena! {
    /// Behind the standard library's mutex.
    MutexArena, MutexSession, Mutex,
    l => l.lock().expect("no panic under the lock"), l.lock().expect("no panic under the lock")
}
locked_arena! {
    /// Behind the standard library's reader-writer lock.
    RwArena, RwSession, RwLock,
    l => l.read().expect("no panic under the lock"), l.write().expect("no panic under the lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behaves<A: Arena>() {
        let arena = A::new(4, 3);
        let mut s = arena.session();
        s.link(&[(0, 0), (1, 0), (2, 1)]);
        assert!(s.lookup(0, 1) && !s.lookup(1, 1));
        s.move_to(1, 1);
        assert!(!s.lookup(0, 1) && s.lookup(1, 1));
        assert!(s.find_and_move(0, 0, 2) && !s.find_and_move(0, 0, 2));
        assert!(s.lookup(2, 0));
        s.unlink(&[0, 1]);
        assert!(!s.lookup(2, 0) && s.lookup(1, 2) && !s.lookup(1, 1));
    }

    #[test]
    fn all_arenas_agree() {
        behaves::<OlfArena>();
        behaves::<SpinArena>();
        behaves::<MutexArena>();
        behaves::<RwArena>();
    }
}
