//! Loom models: every interleaving, and every value that the C++20 memory model lets a load return,
//! of small cases. `./check.sh loom`.
//!
//! The loops of the algorithm are unbounded, so the number of preemptions is bounded
//! (`LOOM_MAX_PREEMPTIONS`, 2 unless set), as is usual; weak-memory choices are not.

use crate::node::Node;
use crate::place::Place;
use crate::sync::{AtomicUsize, Ordering};
use crate::write::claim;
use crate::{Error, Group, Member, read};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

type Small = Group<4, 8>;

/// Two heads and some items on them, of one group.
struct World<const K: usize> {
    group: Small,
    heads: [Node<K>; 2],
    items: Vec<Node<K>>,
}

impl<const K: usize> World<K> {
    /// All items are on list 0.
    fn new(items: usize, enter_tries: u32) -> Arc<Self> {
        let world = Self {
            group: Small::with_enter_tries(enter_tries),
            heads: [Node::new(), Node::new()],
            items: (0..items).map(|_| Node::new()).collect(),
        };
        let world = Arc::new(world);
        let mut member = world.group.join().unwrap();
        for item in &world.items {
            member.write(|w| link(w, &world.heads[0], item)).unwrap();
        }
        drop(member);
        world
    }

    fn move_to<'a>(&'a self, member: &mut Member<'a>, item: usize, to: usize) {
        let node = &self.items[item];
        member
            .write(|w| {
                w.unlink(Place::from(node))?;
                link(w, &self.heads[to], node)
            })
            .unwrap();
    }

    /// How many items are on each list, forwards; asserts that backwards is the same.
    fn counts(&self, member: &mut Member<'_>) -> [usize; 2] {
        let r = member.read();
        let count = |head: &Node<K>| {
            let head = Place::from(head);
            let (mut at, mut forwards, mut backwards) = (head, 0, 0);
            // SAFETY: the world outlives all sections.
            while {
                // SAFETY: as above.
                at = unsafe { r.next(at) };
                at != head
            } {
                forwards += 1;
            }
            while {
                // SAFETY: as above.
                at = unsafe { r.prev(at) };
                at != head
            } {
                backwards += 1;
            }
            assert_eq!(forwards, backwards);
            forwards
        };
        [count(&self.heads[0]), count(&self.heads[1])]
    }
}

fn link<'a, const K: usize>(
    w: &mut crate::Write<'_, 'a>,
    head: &'a Node<K>,
    node: &'a Node<K>,
) -> Result<(), Error> {
    // SAFETY: the world outlives all sections.
    unsafe { w.link_after(Place::from(head), Place::from(node)) }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    model_with(2, f);
}

/// [`model`] with at least so many preemptions.
fn model_with(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.max(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(f);
}

/// Section 8.2.5 of the source: a reader enters while `C` moves and `R` is raised.
#[test]
fn enter_against_commit_against_advance() {
    model(|| {
        let group = Arc::new(Small::new());
        let committer = Arc::clone(&group);
        let t1 = thread::spawn(move || {
            committer.join().unwrap().write(|_| Ok::<_, Error>(())).unwrap();
        });
        let advancer = Arc::clone(&group);
        let t2 = thread::spawn(move || {
            advancer.domain().advance();
        });
        let member = group.join().unwrap();
        let d = group.domain();
        let e = read::enter(d, member.seat);
        t1.join().unwrap();
        t2.join().unwrap();
        let r = d.counters.read.0.load(Ordering::Acquire);
        assert!(r <= e, "R rose to {r} above an active reader at {e}");
        read::leave(d, member.seat);
    });
}

/// A reader of two lists sees the item once, however often it moves and slots are reused.
#[test]
fn snapshot_while_slots_are_reused() {
    model(|| {
        let world = World::<2>::new(1, 64);
        let writer = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = writer.group.join().unwrap();
            writer.move_to(&mut member, 0, 1);
            writer.move_to(&mut member, 0, 0);
        });
        let mut member = world.group.join().unwrap();
        let [a, b] = world.counts(&mut member);
        assert_eq!(a + b, 1, "{a} and {b}");
        t.join().unwrap();
    });
}

/// A slot goes from a reader to a writer that never looks at the reader: by way of a third thread, which
/// sees it leave and raises `R`.
#[test]
fn slot_handed_on_by_a_third() {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let handed_on = Arc::clone(&count);
    model_with(3, move || {
        let world = World::<2>::new(1, 64);
        let d = world.group.domain();
        let reader = world.group.join().unwrap();
        let seat = reader.seat;
        core::mem::forget(reader);
        let e = read::enter(d, seat);
        let mut member = world.group.join().unwrap();
        world.move_to(&mut member, 0, 1);
        let theirs = Arc::clone(&world);
        let t1 = thread::spawn(move || {
            for node in [&theirs.heads[0], &theirs.items[0]] {
                assert!(!node.next_in(node.slot_at(e)).is_null());
            }
            read::leave(theirs.group.domain(), seat);
        });
        let theirs = Arc::clone(&world);
        let t2 = thread::spawn(move || {
            theirs.group.domain().advance();
        });
        // The others go first; loom has to be asked.
        thread::yield_now();
        thread::yield_now();
        // What `acquire` does, but for the copy, whose fence orders more than this is to rest on.
        let node = &world.heads[0];
        let i = node.slot_of(e).unwrap();
        let w = crate::Write::begin(&mut member);
        if d.counters.read.0.load(Ordering::Acquire) > e {
            handed_on.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            w.take(node, (i, e)).unwrap();
            node.set_next(i, Place::from(&world.items[0]).as_ptr());
        }
        drop(w);
        t1.join().unwrap();
        t2.join().unwrap();
    });
    assert_ne!(count.load(std::sync::atomic::Ordering::Relaxed), 0, "no schedule handed it on");
}

fn two_writers<const K: usize>() {
    model(|| {
        let world = World::<K>::new(2, 64);
        let writer = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = writer.group.join().unwrap();
            writer.move_to(&mut member, 0, 1);
        });
        let mut member = world.group.join().unwrap();
        world.move_to(&mut member, 1, 1);
        t.join().unwrap();
        assert_eq!(world.counts(&mut member), [0, 2], "an update was lost");
    });
}

#[test]
fn conflicting_writers_with_two_slots() {
    two_writers::<2>();
}

#[test]
fn conflicting_writers_with_three_slots() {
    two_writers::<3>();
}

/// The reader that queues behind writers.
#[test]
fn reader_in_turn() {
    model(|| {
        let world = World::<2>::new(1, 0);
        let writer = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = writer.group.join().unwrap();
            writer.move_to(&mut member, 0, 1);
        });
        let mut member = world.group.join().unwrap();
        let [a, b] = world.counts(&mut member);
        assert_eq!(a + b, 1);
        t.join().unwrap();
    });
}

/// A nested read and an older or younger writer that is short of slots: both end, and what was read
/// is true at commit.
#[test]
fn nested_read_against_starving_writer() {
    model(|| {
        let world = World::<2>::new(2, 64);
        let writer = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = writer.group.join().unwrap();
            let mut epoch = 0;
            member
                .write(|w| {
                    epoch = w.epoch();
                    w.unlink(Place::from(&writer.items[0]))?;
                    link(w, &writer.heads[1], &writer.items[0])
                })
                .unwrap();
            epoch
        });
        let mut member = world.group.join().unwrap();
        let (found, epoch) = member
            .write(|w| {
                let head = Place::from(&world.heads[1]);
                // SAFETY: the world outlives all sections.
                let found = unsafe { w.next(head) }? != head;
                w.unlink(Place::from(&world.items[1]))?;
                Ok::<_, Error>((found, w.epoch()))
            })
            .unwrap();
        let theirs = t.join().unwrap();
        assert_eq!(found, theirs < epoch, "the nested read contradicts the order of commits");
    });
}

/// Step 6: a slot is copied while another writer takes it over. The copy is whole, or is not taken.
#[test]
fn copy_against_reuse() {
    model(|| {
        let world = World::<3>::new(2, 64);
        let (node, old, new) = (&world.heads[0], &world.items[0], &world.items[1]);
        let own = |node: &Node<3>| Place::from(node).as_ptr();
        // Slot 0, at epoch 0, was superseded; a slow writer still believes it to be the newest.
        node.next[0].store(own(old), Ordering::Relaxed);
        node.prev[0].store(own(old), Ordering::Relaxed);
        let theirs = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = theirs.group.join().unwrap();
            let w = crate::Write::begin(&mut member);
            let node = &theirs.heads[0];
            if let Some(i) = w.take(node, (0, 0)) {
                node.set_next(i, Place::from(&theirs.items[1]).as_ptr());
                node.set_prev(i, Place::from(&theirs.items[1]).as_ptr());
            }
        });
        if crate::acquire::copy(node, (0, 0), 2) {
            assert_eq!(node.next_in(2), own(old), "a torn copy was taken for whole");
            assert_eq!(node.prev_in(2), own(old), "a torn copy was taken for whole");
            assert_ne!(node.next_in(2), own(new));
        }
        t.join().unwrap();
    });
}

/// Memory given back when `may_free` says so is out of everybody's sight.
#[test]
fn may_free_against_readers_and_writers() {
    struct Payload(UnsafeCell<usize>);
    // SAFETY: loom checks each access.
    unsafe impl Sync for Payload {}
    // SAFETY: as above.
    unsafe impl Send for Payload {}

    fn run(other: for<'a> fn(&'a World<4>, &mut Member<'a>, &Payload)) {
        model(move || {
            let world = World::<4>::new(1, 64);
            let payload = Arc::new(Payload(UnsafeCell::new(1)));
            let (theirs, seen) = (Arc::clone(&world), Arc::clone(&payload));
            let t = thread::spawn(move || {
                let mut member = theirs.group.join().unwrap();
                other(&theirs, &mut member, &seen);
            });
            let mut member = world.group.join().unwrap();
            let mut epoch = 0;
            member
                .write(|w| {
                    epoch = w.epoch();
                    w.unlink(Place::from(&world.items[0]))
                })
                .unwrap();
            if member.may_free(epoch) {
                // Freed: loom complains of any access that is not ordered before this one.
                // SAFETY: as above.
                payload.0.with_mut(|p| unsafe { *p = 0 });
            }
            t.join().unwrap();
        });
    }

    run(|world, member, payload| {
        let r = member.read();
        let head = Place::from(&world.heads[0]);
        // SAFETY: the world outlives all sections.
        if unsafe { r.next(head) } != head {
            // SAFETY: as above.
            payload.0.with(|p| assert_eq!(unsafe { *p }, 1));
        }
    });
    run(|world, member, payload| {
        let head = Place::from(&world.heads[0]);
        member
            .write(|w| {
                // SAFETY: the world outlives all sections.
                if unsafe { w.next(head) }? != head {
                    // SAFETY: as above.
                    payload.0.with(|p| assert_eq!(unsafe { *p }, 1));
                }
                Ok::<_, Error>(())
            })
            .unwrap();
    });
    // A writer that holds the node by a slot of its own, and nothing else: only its pin says so.
    run(|world, member, payload| {
        let node = &world.items[0];
        member
            .write(|w| {
                let i = w.acquire(node)?;
                if !node.next_in(i).is_null() {
                    // SAFETY: as above.
                    payload.0.with(|p| assert_eq!(unsafe { *p }, 1));
                }
                Ok::<_, Error>(())
            })
            .unwrap();
    });
}

/// What a writer did before its commit is visible to readers at its epoch.
#[test]
fn commit_publishes() {
    model(|| {
        let world = World::<2>::new(1, 64);
        let value = Arc::new(AtomicUsize::new(0));
        let (theirs, cell) = (Arc::clone(&world), Arc::clone(&value));
        let t = thread::spawn(move || {
            let mut member = theirs.group.join().unwrap();
            cell.store(7, Ordering::Relaxed);
            theirs.move_to(&mut member, 0, 1);
        });
        let mut member = world.group.join().unwrap();
        if world.counts(&mut member) == [0, 1] {
            assert_eq!(value.load(Ordering::Relaxed), 7);
        }
        t.join().unwrap();
    });
}

/// An epoch is taken by a thread that dies at once; another one finds and commits it, while a living
/// writer takes the next.
#[test]
fn lost_epoch_is_settled() {
    model(|| {
        let world = World::<2>::new(1, 64);
        let dead = world.group.join().unwrap();
        let own = dead.published();
        claim(world.group.domain(), own);
        own.writing.store(crate::seat::CLAIMING, Ordering::Relaxed);
        // SAFETY: `dead` takes no further step.
        unsafe { world.group.report_failed(dead.seat) };
        let theirs = Arc::clone(&world);
        let t = thread::spawn(move || {
            let mut member = theirs.group.join().unwrap();
            theirs.move_to(&mut member, 0, 1);
        });
        let mut member = world.group.join().unwrap();
        assert_eq!(member.recover(), 1);
        t.join().unwrap();
        assert_eq!(world.counts(&mut member), [0, 1]);
        core::mem::forget(dead);
    });
}
