//! A thread dies at each step of its section; the others undo it and go on.
//!
//! Death is a section that is left open for good. The steps inside of one call are in `recover`'s own
//! unit tests.

#![cfg(not(any(loom, shuttle)))]
#![allow(unsafe_code)] // Intrusive nodes, and reports of deaths.
#![allow(clippy::unwrap_used)] // A test; its helpers too.

use olf::{Error, Group, List, Member, Node};

struct Thing {
    id: u32,
    node: Node<3>,
}

olf::link!(Things: Double<3> of Thing => node);

struct World {
    group: Group<8, 16>,
    lists: [List<Things, 3>; 2],
    things: Vec<Thing>,
}

impl World {
    /// Runs a test in a world whose things are all on list 0. They are taken off in the end, and nothing
    /// moves in between: not even a box that holds the world.
    fn run(test: impl FnOnce(&World)) {
        let things = (0..4).map(|id| Thing { id, node: Node::new() }).collect();
        let world = Self { group: Group::new(), lists: [List::new(), List::new()], things };
        let mut m = world.group.join().unwrap();
        for t in &world.things {
            // SAFETY: the world outlives its members and is emptied before it goes.
            m.write(|w| unsafe { w.push_back(&world.lists[0], t) }).unwrap();
        }
        test(&world);
        for t in &world.things {
            m.write(|w| w.remove(&world.lists[0], t)).unwrap();
        }
    }

    fn see(&self, m: &mut Member<'_>) -> [Vec<u32>; 2] {
        let r = m.read();
        self.lists.each_ref().map(|l| r.iter(l).map(|t| t.id).collect())
    }

    fn bury(&self, dead: Member<'_>) {
        let seat = dead.seat();
        std::mem::forget(dead);
        // SAFETY: the member is forgotten, so nothing can use it.
        unsafe { self.group.report_failed(seat) };
    }
}

#[test]
fn a_writer_dies_after_any_number_of_operations() {
    for steps in 0..=4 {
        World::run(|world| {
            let mut dead = world.group.join().unwrap();
            // SAFETY: the world outlives its members; nothing is used after the section.
            let mut w = unsafe { dead.begin() };
            for t in &world.things[..steps] {
                // SAFETY: as above.
                unsafe { w.move_to_back(&world.lists[1], t).unwrap() };
            }
            w.leave_open();
            world.bury(dead);
            let mut m = world.group.join().unwrap();
            let others = std::thread::scope(|s| {
                // A younger writer that waits for the dead one's nodes until somebody helps.
                let younger = s.spawn(|| {
                    let mut m = world.group.join().unwrap();
                    // SAFETY: as above.
                    m.write(|w| unsafe { w.move_to_back(&world.lists[1], &world.things[3]) })
                        .unwrap();
                    world.see(&mut m)
                });
                std::thread::sleep(std::time::Duration::from_millis(5));
                assert_eq!(m.recover(), 1, "after {steps} steps");
                younger.join().unwrap()
            });
            assert_eq!(others, [vec![0, 1, 2], vec![3]], "after {steps} steps");
            assert_eq!(world.see(&mut m), others);
            assert_eq!(m.recover(), 0, "there is nothing left to do");
        });
    }
}

#[test]
fn a_reader_dies_and_its_slots_come_free() {
    World::run(|world| {
        let mut dead = world.group.join().unwrap();
        dead.read().leave_open();
        world.bury(dead);
        let mut m = world.group.join().unwrap();
        assert_eq!(m.recover(), 1);
        // More versions than a node has slots: the dead reader would stop the third.
        for i in 0..10 {
            // SAFETY: the world outlives its members.
            m.write(|w| unsafe { w.move_to_back(&world.lists[i % 2], &world.things[0]) }).unwrap();
        }
        assert_eq!(world.see(&mut m), [vec![1, 2, 3], vec![0]]);
    });
}

#[test]
fn a_nested_read_dies() {
    World::run(|world| {
        let mut dead = world.group.join().unwrap();
        // SAFETY: nothing is used after the section.
        let mut w = unsafe { dead.begin() };
        assert_eq!(
            w.iter(&world.lists[0]).map(|t| t.unwrap().id).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        w.remove(&world.lists[0], &world.things[1]).unwrap();
        w.leave_open();
        world.bury(dead);
        let mut m = world.group.join().unwrap();
        assert_eq!(m.recover(), 1);
        for i in 0..10 {
            // SAFETY: the world outlives its members.
            m.write(|w| unsafe { w.move_to_back(&world.lists[i % 2], &world.things[1]) }).unwrap();
        }
        assert_eq!(world.see(&mut m), [vec![0, 2, 3], vec![1]]);
    });
}

#[test]
fn several_die_and_several_help() {
    World::run(|world| {
        let mut victims: Vec<_> = (0..3).map(|_| world.group.join().unwrap()).collect();
        for (dead, t) in victims.iter_mut().zip(&world.things) {
            // SAFETY: the world outlives its members; nothing is used after the section.
            let mut w = unsafe { dead.begin() };
            // The second and third would wait for the first, so each takes only its own node.
            let _ = w.is_linked(olf::Place::from(&t.node)).unwrap();
            w.leave_open();
        }
        victims.into_iter().for_each(|v| world.bury(v));
        let freed: usize = std::thread::scope(|s| {
            let help = || world.group.join().unwrap().recover();
            let helpers: Vec<_> = (0..3).map(|_| s.spawn(help)).collect();
            helpers.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!(freed, 3);
        let mut m = world.group.join().unwrap();
        m.write(|w| w.remove(&world.lists[0], &world.things[0])).unwrap();
        // SAFETY: the world outlives its members.
        m.write(|w| unsafe { w.push_front(&world.lists[0], &world.things[0]) }).unwrap();
        assert_eq!(world.see(&mut m), [vec![0, 1, 2, 3], vec![]]);
    });
}

#[test]
fn one_who_was_only_thought_dead_is_told() {
    World::run(|world| {
        let mut slow = world.group.join().unwrap();
        let seat = slow.seat();
        // SAFETY: nothing is used after the section.
        let mut w = unsafe { slow.begin() };
        w.remove(&world.lists[0], &world.things[2]).unwrap();
        // SAFETY: for this test the thread takes no step until the recovery is over.
        unsafe { world.group.report_failed(seat) };
        let mut m = world.group.join().unwrap();
        assert_eq!(m.recover(), 1);
        // SAFETY: nothing of the section is used after it.
        assert_eq!(unsafe { w.end(true) }, Err(Error::Evicted));
        drop(w);
        assert!(slow.is_evicted());
        assert_eq!(world.see(&mut m), [vec![0, 1, 2, 3], vec![]]);
    });
}

#[test]
fn an_evicted_member_leaves_its_old_seat_alone() {
    World::run(|world| {
        let mut slow = world.group.join().unwrap();
        let seat = slow.seat();
        // SAFETY: nothing is used after the section.
        let mut w = unsafe { slow.begin() };
        assert!(w.front(&world.lists[0]).unwrap().is_some());
        assert_eq!(w.iter(&world.lists[0]).count(), 4);
        // SAFETY: for this test the thread takes no step until the recovery is over.
        unsafe { world.group.report_failed(seat) };
        let mut m = world.group.join().unwrap();
        assert_eq!(m.recover(), 1);
        let mut successor = world.group.join().unwrap();
        assert_eq!(successor.seat(), seat);
        let view = successor.read();
        // SAFETY: nothing of the section is used after it.
        assert_eq!(unsafe { w.end(true) }, Err(Error::Evicted));
        drop(w);
        // Whatever it tries from now on: it is told, and its old seat is the other's.
        assert_eq!(slow.write(|_| Ok::<_, Error>(())), Err(Error::Evicted));
        // SAFETY: nothing is used after the section.
        let mut w = unsafe { slow.begin() };
        assert_eq!(w.remove(&world.lists[0], &world.things[0]), Err(Error::Retry));
        // SAFETY: as above.
        assert_eq!(unsafe { w.end(true) }, Err(Error::Evicted));
        drop(w);
        let read = std::panic::AssertUnwindSafe(|| drop(slow.read()));
        assert!(std::panic::catch_unwind(read).is_err());
        drop(slow);
        let removed = m
            .write(|w| {
                // SAFETY: the world outlives its members.
                unsafe { w.move_to_back(&world.lists[0], &world.things[3])? };
                Ok::<_, Error>(w.epoch())
            })
            .unwrap();
        assert!(!m.may_free(removed), "the view of the seat's new owner was ended");
        assert_eq!(view.iter(&world.lists[0]).count(), 4);
        let third = world.group.join().unwrap();
        assert_ne!(third.seat(), seat, "the seat's new owner lost it");
        drop(view);
        assert!(m.may_free(removed));
    });
}

#[test]
fn a_section_left_open_ends_with_its_member() {
    World::run(|world| {
        let mut forgetful = world.group.join().unwrap();
        // SAFETY: nothing is used after the section.
        let mut w = unsafe { forgetful.begin() };
        w.remove(&world.lists[0], &world.things[2]).unwrap();
        w.leave_open();
        drop(forgetful);
        let mut m = world.group.join().unwrap();
        // SAFETY: the world outlives its members.
        m.write(|w| unsafe { w.move_to_back(&world.lists[1], &world.things[0]) }).unwrap();
        assert_eq!(world.see(&mut m), [vec![1, 2, 3], vec![0]]);
    });
}
