//! One thread: what the operations do, what they refuse, and what is left after an abort or a panic.

#![cfg(not(any(loom, shuttle)))]
#![allow(unsafe_code)] // The intrusive operations; the world of each test outlives its members.

use olf::{Chain, Error, Group, List, Member, Node, Place};
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Thing {
    id: u32,
    by_age: Node,
    by_name: Node<2>,
}

olf::link!(ByAge: Double<4> of Thing => by_age);
olf::link!(ByName: Single<2> of Thing => by_name);

static GROUP: Group<4, 16> = Group::new();

fn thing(id: u32) -> Thing {
    Thing { id, by_age: Node::new(), by_name: Node::new() }
}

fn ids(member: &mut Member<'_>, list: &List<ByAge>) -> Vec<u32> {
    let r = member.read();
    let forwards: Vec<u32> = r.iter(list).map(|t| t.id).collect();
    let mut backwards: Vec<u32> = r.iter_rev(list).map(|t| t.id).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
    forwards
}

fn push<'g>(member: &mut Member<'g>, list: &'g List<ByAge>, t: &'g Thing) -> Result<(), Error> {
    // SAFETY: things and lists of these tests outlive the members and are emptied before they go.
    member.write(|w| unsafe { w.push_back(list, t) })
}

#[test]
fn doubly_linked() {
    let group = Group::<4, 16>::new();
    let (list, other) = (List::<ByAge>::new(), List::<ByAge>::new());
    let things: Vec<Thing> = (0..5).map(thing).collect();
    let mut m = group.join().unwrap();
    assert!(ids(&mut m, &list).is_empty());
    for t in &things[..3] {
        push(&mut m, &list, t).unwrap();
    }
    // SAFETY: as in `push`.
    m.write(|w| unsafe { w.push_front(&list, &things[3]) }).unwrap();
    // SAFETY: as above.
    m.write(|w| unsafe { w.insert_before(&list, &things[1], &things[4]) }).unwrap();
    assert_eq!(ids(&mut m, &list), [3, 0, 4, 1, 2]);
    // SAFETY: as above.
    m.write(|w| unsafe { w.move_to_back(&other, &things[4]) }).unwrap();
    m.write(|w| {
        let first = w.front(&list)?.ok_or(Error::NotLinked)?;
        // SAFETY: as above.
        unsafe { w.move_to_back(&other, first) }
    })
    .unwrap();
    assert_eq!((ids(&mut m, &list), ids(&mut m, &other)), (vec![0, 1, 2], vec![4, 3]));
    let seen: Vec<u32> = m
        .write(|w| {
            w.remove(&list, &things[1])?;
            // SAFETY: as above.
            unsafe { w.push_front(&list, &things[1])? };
            w.iter(&list).map(|t| t.map(|t| t.id)).collect::<Result<_, Error>>()
        })
        .unwrap();
    assert_eq!(seen, [1, 0, 2], "a section sees its own changes");
    m.write(|w| things.iter().try_for_each(|t| w.remove(&list, t))).unwrap();
    assert!(ids(&mut m, &list).is_empty() && ids(&mut m, &other).is_empty());
}

#[test]
fn singly_linked() {
    let group = Group::<4, 16>::new();
    let chain = Chain::<ByName, 2>::new();
    let things: Vec<Thing> = (0..4).map(thing).collect();
    let mut m = group.join().unwrap();
    // SAFETY: as in `push`.
    m.write(|w| {
        // SAFETY: as above.
        unsafe {
            w.chain_front(&chain, &things[0])?;
            w.chain_front(&chain, &things[1])?;
            w.chain_behind(&chain, &things[0], &things[2])?;
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let see =
        |m: &mut Member<'_>| -> Vec<u32> { m.read().iter_chain(&chain).map(|t| t.id).collect() };
    assert_eq!(see(&mut m), [1, 0, 2]);
    assert_eq!(m.write(|w| w.remove_chain(&chain, &things[3])), Err(Error::NotLinked));
    m.write(|w| w.remove_chain(&chain, &things[2])).unwrap();
    assert_eq!(see(&mut m), [1, 0]);
    let popped = m.write(|w| Ok::<_, Error>(w.pop_chain(&chain)?.map(|t| t.id))).unwrap();
    assert_eq!((popped, see(&mut m)), (Some(1), vec![0]));
    m.write(|w| w.pop_chain(&chain).map(drop)).unwrap();
    assert!(m.write(|w| Ok::<_, Error>(w.pop_chain(&chain)?.is_none())).unwrap());
}

#[test]
fn a_view_does_not_change() {
    let (list, things) = (List::<ByAge>::new(), [thing(1), thing(2)]);
    let mut old = GROUP.join().unwrap();
    let mut m = GROUP.join().unwrap();
    push(&mut m, &list, &things[0]).unwrap();
    let view = old.read();
    push(&mut m, &list, &things[1]).unwrap();
    // Two more versions of the head fit; the slot that the view needs is left alone.
    m.write(|w| w.remove(&list, &things[1])).unwrap();
    assert_eq!(view.iter(&list).map(|t| t.id).collect::<Vec<_>>(), [1]);
    drop(view);
    m.write(|w| w.remove(&list, &things[0])).unwrap();
    assert!(ids(&mut old, &list).is_empty());
}

#[test]
fn abort_and_panic_leave_no_trace() {
    let group = Group::<4, 16>::new();
    let (list, things) = (List::<ByAge>::new(), [thing(1), thing(2)]);
    let mut m = group.join().unwrap();
    push(&mut m, &list, &things[0]).unwrap();
    // SAFETY: as in `push`.
    let aborted = m.write(|w| {
        // SAFETY: as above.
        unsafe { w.push_back(&list, &things[1])? };
        w.remove(&list, &things[0])?;
        Err::<(), _>(Error::Aborted)
    });
    assert_eq!(aborted, Err(Error::Aborted));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        m.write(|w| -> Result<(), Error> {
            // SAFETY: as above.
            unsafe { w.push_back(&list, &things[1])? };
            panic!("in the middle")
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(ids(&mut m, &list), [1]);
    push(&mut m, &list, &things[1]).unwrap();
    assert_eq!(ids(&mut m, &list), [1, 2]);
    m.write(|w| things.iter().try_for_each(|t| w.remove(&list, t))).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused() {
    let group = Group::<2, 4>::new();
    let (list, things) = (List::<ByAge>::new(), (0..6).map(thing).collect::<Vec<_>>());
    let mut m = group.join().unwrap();
    push(&mut m, &list, &things[0]).unwrap();
    assert_eq!(m.write(|w| w.remove(&list, &things[1])), Err(Error::NotLinked));
    // SAFETY: as in `push`.
    let too_many =
        m.write(|w| things[1..6].iter().try_for_each(|t| unsafe { w.push_back(&list, t) }));
    assert_eq!(too_many, Err(Error::LogFull));
    assert_eq!(ids(&mut m, &list), [0]);
    let second = group.join().unwrap();
    assert!(matches!(group.join(), Err(Error::NoSeat)));
    drop(second);
    assert!(group.join().is_ok());
    m.write(|w| w.remove(&list, &things[0])).unwrap();
}

#[test]
fn an_error_swallowed_does_not_commit_a_lost_attempt() {
    let group = Group::<2, 16>::new();
    let (list, things) = (List::<ByAge>::new(), [thing(1), thing(2)]);
    let (mut m, mut other) = (group.join().unwrap(), group.join().unwrap());
    // The section begins after another one has taken an older epoch, which changes the list under it.
    // SAFETY: references are not used after the section.
    let mut older = unsafe { other.begin() };
    let mut attempts = 0;
    std::thread::scope(|s| {
        let (m, list, things) = (&mut m, &list, &things);
        let attempts = &mut attempts;
        let t = s.spawn(move || {
            m.write(|w| {
                *attempts += 1;
                // SAFETY: as in `push`.
                let _ = unsafe { w.push_back(list, &things[1]) };
                Ok::<_, Error>(())
            })
            .unwrap();
        });
        while group.committed() == 0 && !t.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            // SAFETY: as in `push`.
            unsafe { older.push_back(list, &things[0]).unwrap() };
            // SAFETY: nothing of the section is used after it.
            assert!(matches!(unsafe { older.end(true) }, Ok(olf::End::Done(2))));
        }
        t.join().unwrap();
    });
    drop(older);
    assert_eq!(ids(&mut m, &list), [1, 2], "after {attempts} attempts");
    m.write(|w| things.iter().try_for_each(|t| w.remove(&list, t))).unwrap();
}

#[test]
fn a_doomed_section_never_sees_two_states_mixed() {
    let group = Group::<4, 16>::new();
    let (a, b, t) = (List::<ByAge>::new(), List::<ByAge>::new(), thing(1));
    let (mut m, mut other) = (group.join().unwrap(), group.join().unwrap());
    push(&mut m, &a, &t).unwrap();
    // SAFETY: nothing is used after the sections; the lists outlive the members.
    let (mut older, mut younger) = unsafe { (m.begin(), other.begin()) };
    assert!(younger.front(&a).unwrap().is_some());
    // SAFETY: as above.
    unsafe { older.move_to_back(&b, &t).unwrap() };
    // SAFETY: as above.
    assert!(unsafe { older.end(true) }.is_ok());
    // It has seen the thing on list a. On list b it must not see it as well.
    assert!(matches!(younger.front(&b), Err(Error::Retry)));
    // SAFETY: as above.
    assert_eq!(unsafe { younger.end(true) }, Ok(olf::End::Again));
    assert!(younger.front(&a).unwrap().is_none());
    assert!(younger.front(&b).unwrap().is_some());
    younger.remove(&b, &t).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { younger.end(true) }, Ok(olf::End::Done(6)));
    drop((older, younger));
    assert!(ids(&mut m, &b).is_empty());
}

#[test]
fn writers_wait_for_a_long_reader_and_go_on() {
    let group = Group::<4, 16>::new();
    let (list, t) = (List::<ByAge>::new(), thing(1));
    let mut reader = group.join().unwrap();
    let mut m = group.join().unwrap();
    push(&mut m, &list, &t).unwrap();
    let view = reader.read();
    std::thread::scope(|s| {
        let (m, list, t) = (&mut m, &list, &t);
        let writer = s.spawn(move || {
            // More versions than a node holds: the last ones need the slot that the view reads.
            for _ in 0..10 {
                // SAFETY: as in `push`.
                m.write(|w| unsafe { w.move_to_back(list, t) }).unwrap();
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!writer.is_finished(), "a slot was taken from under a reader");
        assert_eq!(view.iter(list).map(|t| t.id).collect::<Vec<_>>(), [1]);
        drop(view);
        writer.join().unwrap();
    });
    assert_eq!(group.committed(), 2 + 20);
    m.write(|w| w.remove(&list, &t)).unwrap();
}

#[test]
fn reads_beyond_the_log_still_commit() {
    let group = Group::<2, 8>::new();
    let (list, things) = (List::<ByAge>::new(), (0..40).map(thing).collect::<Vec<_>>());
    let mut m = group.join().unwrap();
    things.iter().for_each(|t| push(&mut m, &list, t).unwrap());
    let n = m
        .write(|w| {
            let n = w.iter(&list).collect::<Result<Vec<_>, _>>()?.len();
            w.remove(&list, &things[39])?;
            Ok::<_, Error>(n)
        })
        .unwrap();
    assert_eq!((n, ids(&mut m, &list).len()), (40, 39));
    things[..39].iter().for_each(|t| m.write(|w| w.remove(&list, t)).unwrap());
}

#[test]
fn memory_is_kept_for_those_who_see_it() {
    let group = Group::<4, 16>::new();
    let (list, t) = (List::<ByAge>::new(), thing(1));
    let (mut reader, mut m) = (group.join().unwrap(), group.join().unwrap());
    push(&mut m, &list, &t).unwrap();
    let view = reader.read();
    let epoch = m
        .write(|w| {
            w.remove(&list, &t)?;
            Ok::<_, Error>(w.epoch())
        })
        .unwrap();
    assert!(!m.may_free(epoch));
    assert_eq!(view.iter(&list).count(), 1);
    drop(view);
    assert!(m.may_free(epoch));
    let view = reader.read();
    assert!(m.may_free(epoch), "a view that is newer than the removal holds nothing back");
    drop(view);
}

#[test]
fn a_node_can_move_to_another_group_after_reset() {
    let mut t = thing(1);
    let list = List::<ByAge>::new();
    let group = Group::<2, 8>::new();
    let (other, fresh) = (Group::<2, 8>::new(), List::<ByAge>::new());
    let mut m = group.join().unwrap();
    push(&mut m, &list, &t).unwrap();
    m.write(|w| w.remove(&list, &t)).unwrap();
    drop(m);
    t.by_age.reset();
    let mut o = other.join().unwrap();
    push(&mut o, &fresh, &t).unwrap();
    o.write(|w| w.remove(&fresh, &t)).unwrap();
}

#[test]
fn bare_nodes() {
    let group = Group::<2, 8>::new();
    let (head, a, b) = (Node::<3>::new(), Node::<3>::new(), Node::<3>::new());
    let mut m = group.join().unwrap();
    m.write(|w| {
        // SAFETY: the nodes outlive the member.
        unsafe {
            w.link_after(Place::from(&head), Place::from(&b))?;
            w.link_after(Place::from(&head), Place::from(&a))?;
            assert_eq!(w.next(Place::from(&a))?, Place::from(&b));
            assert_eq!(w.prev(Place::from(&a))?, Place::from(&head));
        }
        Ok::<_, Error>(())
    })
    .unwrap();
    let r = m.read();
    // SAFETY: as above.
    unsafe {
        assert_eq!(r.next(Place::from(&head)), Place::from(&a));
        assert_eq!(r.prev(Place::from(&head)), Place::from(&b));
    }
    drop(r);
    m.write(|w| [&a, &b].into_iter().try_for_each(|n| w.unlink(Place::from(n)))).unwrap();
}
