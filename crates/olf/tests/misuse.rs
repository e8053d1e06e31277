//! What is done wrong is answered by a clear panic in debug builds, and by something defined in release
//! builds: `cargo test --release --test misuse` shows the other half.

#![cfg(not(any(loom, shuttle)))]
#![allow(unsafe_code)] // The intrusive operations, some of them used against their contract.
#![allow(clippy::unwrap_used)] // A test; its helpers too.

use olf::{Error, Group, List, Member, Node, Read};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Thing {
    id: u32,
    node: Node,
}

olf::link!(Things: Double<4> of Thing => node);

fn thing(id: u32) -> Thing {
    Thing { id, node: Node::new() }
}

fn push<'g>(member: &mut Member<'g>, list: &'g List<Things>, t: &'g Thing) -> Result<(), Error> {
    // SAFETY: groups, lists and things of these tests stay where they are, and are emptied in the end.
    member.write(|w| unsafe { w.push_back(list, t) })
}

fn see(member: &mut Member<'_>, list: &List<Things>) -> Vec<u32> {
    member.read().iter(list).map(|t| t.id).collect()
}

/// The message of a panic.
fn message<T>(f: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(f)).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
}

/// `f` answers with the error in release builds, and panics with its text in debug builds.
fn assert_misuse(error: Error, f: impl FnOnce() -> Result<(), Error>) {
    let mut answer = None;
    match message(|| answer = Some(f())) {
        Some(text) => {
            assert!(cfg!(debug_assertions) && text.contains(&error.to_string()), "{text}")
        }
        None => assert_eq!((answer, cfg!(debug_assertions)), (Some(Err(error)), false)),
    }
}

#[test]
fn a_node_on_two_lists_of_one_kind() {
    let group = Group::<2, 8>::new();
    let (list, other, t) = (List::<Things>::new(), List::<Things>::new(), thing(1));
    let mut m = group.join().unwrap();
    push(&mut m, &list, &t).unwrap();
    assert_misuse(Error::AlreadyLinked, || push(&mut m, &other, &t));
    // Nothing has changed, and all goes on.
    assert_eq!((see(&mut m, &list), see(&mut m, &other)), (vec![1], vec![]));
    // Whoever does not know can ask.
    let pushed = m.write(|w| {
        let listed = w.is_listed::<Things, 4>(&t)?;
        if !listed {
            // SAFETY: as in `push`.
            unsafe { w.push_back(&other, &t)? };
        }
        Ok::<_, Error>(!listed)
    });
    assert_eq!(pushed, Ok(false));
    m.write(|w| w.remove(&list, &t)).unwrap();
}

#[test]
fn a_stale_view_is_no_misuse() {
    let group = Group::<2, 8>::new();
    let (list, t) = (List::<Things>::new(), thing(1));
    let (mut m, mut other) = (group.join().unwrap(), group.join().unwrap());
    push(&mut m, &list, &t).unwrap();
    // SAFETY: nothing is used after the sections.
    let mut older = unsafe { m.begin() };
    let mut older_to_do = true;
    let done = other.write(|w| {
        // In the first attempt the thing is on the list still; by the commit it is not.
        // SAFETY: as in `push`.
        let first = unsafe { w.push_back(&list, &t) };
        if older_to_do {
            assert_eq!(first, Err(Error::AlreadyLinked));
            older.remove(&list, &t).ok();
            // SAFETY: as above.
            assert!(matches!(unsafe { older.end(true) }, Ok(olf::End::Done(_))));
            older_to_do = false;
        }
        first
    });
    assert_eq!(done, Ok(()));
    drop(older);
    m.write(|w| w.remove(&list, &t)).unwrap();
}

#[test]
fn a_node_with_two_groups() {
    let (group, strange) = (Group::<2, 8>::new(), Group::<2, 8>::new());
    let (list, t, fresh) = (List::<Things>::new(), thing(1), thing(2));
    let mut m = group.join().unwrap();
    push(&mut m, &list, &t).unwrap();
    let mut stranger = strange.join().unwrap();
    assert_misuse(Error::Foreign, || push(&mut stranger, &list, &fresh));
    // Reading answers with an empty list in release builds.
    let look = message(|| assert_eq!(see(&mut stranger, &list), []));
    assert_eq!(look.is_some_and(|t| t.contains("another group")), cfg!(debug_assertions));
    m.write(|w| w.remove(&list, &t)).unwrap();
}

#[test]
fn a_section_left_by_panic() {
    let group = Group::<2, 8>::new();
    let (list, t) = (List::<Things>::new(), thing(1));
    let mut m = group.join().unwrap();
    let text = message(|| {
        m.write(|w| -> Result<(), Error> {
            // SAFETY: as in `push`.
            unsafe { w.push_back(&list, &t)? };
            panic!("in the middle")
        })
    });
    assert_eq!(text.as_deref(), Some("in the middle"));
    assert_eq!(see(&mut m, &list), []);
    push(&mut m, &list, &t).unwrap();
    m.write(|w| w.remove(&list, &t)).unwrap();
}

#[test]
fn a_section_that_is_leaked() {
    let group = Group::<2, 8>::new();
    let (list, t) = (List::<Things>::new(), thing(1));
    let mut m = group.join().unwrap();
    // SAFETY: nothing is used after the section.
    let mut w = unsafe { m.begin() };
    // SAFETY: as in `push`.
    unsafe { w.push_back(&list, &t).unwrap() };
    std::mem::forget(w);
    let next = message(|| push(&mut m, &list, &t));
    // The leaked section is void; in release builds the next one goes on at once.
    assert_eq!(next.is_some_and(|t| t.contains("leaked")), cfg!(debug_assertions));
    drop(m);
    let mut m = group.join().unwrap();
    assert_eq!(see(&mut m, &list).len(), usize::from(!cfg!(debug_assertions)));
    m.read().leave_open();
    let next = message(|| m.write(|w| w.is_listed::<Things, 4>(&t)));
    assert_eq!(next.is_some_and(|t| t.contains("leaked")), cfg!(debug_assertions));
    drop(m);
    let mut m = group.join().unwrap();
    if !cfg!(debug_assertions) {
        m.write(|w| w.remove(&list, &t)).unwrap();
    }
    m.read().leave_open();
    let next = message(|| drop(m.read()));
    assert_eq!(next.is_some_and(|t| t.contains("leaked")), cfg!(debug_assertions));
}

#[test]
fn more_writers_than_slots_wait_for_their_turn() {
    let group = Group::<8, 8>::new();
    let (head, nodes) = (Node::<2>::new(), [const { Node::<2>::new() }; 4]);
    std::thread::scope(|s| {
        for node in &nodes {
            let (group, head) = (&group, &head);
            s.spawn(move || {
                let mut m = group.join().unwrap();
                for _ in 0..if cfg!(miri) { 2 } else { 200 } {
                    m.write(|w| {
                        // SAFETY: the nodes outlive the threads.
                        unsafe { w.link_after(olf::Place::from(head), olf::Place::from(node)) }
                    })
                    .unwrap();
                    m.write(|w| w.unlink(olf::Place::from(node))).unwrap();
                }
            });
        }
    });
}

/// A thing whose memory is managed by hand, as by a kernel's allocator.
fn by_hand<'a>(id: u32) -> (&'a Thing, impl FnOnce() + 'static) {
    let raw = Box::into_raw(Box::new(thing(id)));
    // SAFETY: the tests free it too early on purpose, but do not look at it after that.
    unsafe { (&*raw, move || drop(Box::from_raw(raw))) }
}

/// Passes on what frees a thing that is on a list.
fn while_linked(test: impl FnOnce(Box<dyn FnOnce()>)) {
    let group = Group::<2, 8>::new();
    // Never dropped: its head will lead to a node that is gone.
    let list = ManuallyDrop::new(List::<Things>::new());
    let mut m = group.join().unwrap();
    let (t, free) = by_hand(1);
    push(&mut m, &list, t).unwrap();
    test(Box::new(free));
}

/// Passes on a list, a section that sees a thing on it which is off it by now, and what frees that.
fn while_seen(test: impl FnOnce(&List<Things>, Read<'_, '_>, Box<dyn FnOnce()>)) {
    let group = Group::<2, 8>::new();
    let list = List::<Things>::new();
    let (mut m, mut reader) = (group.join().unwrap(), group.join().unwrap());
    let (t, free) = by_hand(1);
    push(&mut m, &list, t).unwrap();
    let view = reader.read();
    m.write(|w| w.remove(&list, t)).unwrap();
    test(&list, view, Box::new(free));
}

#[cfg(debug_assertions)]
#[test]
fn a_linked_node_is_freed() {
    while_linked(|free| assert!(message(free).unwrap().contains("unlink it first")));
}

#[cfg(debug_assertions)]
#[test]
fn a_node_is_freed_under_a_reader() {
    while_seen(|_, view, free| {
        assert!(message(free).unwrap().contains("may_free"));
        drop(view);
    });
}

/// The drop waits for the reader, who so never meets freed memory.
#[cfg(not(debug_assertions))]
#[test]
fn a_node_is_freed_under_a_reader() {
    use std::sync::atomic::{AtomicBool, Ordering};
    while_seen(|list, view, free| {
        let left = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert_eq!(view.iter(list).map(|t| t.id).collect::<Vec<_>>(), [1]);
                left.store(true, Ordering::Relaxed);
                drop(view);
            });
            free();
            assert!(left.load(Ordering::Relaxed), "freed while the reader was at it");
        });
    });
}

/// Runs the test of that name in a process of its own, which must end by an abort that says why.
#[cfg(not(miri))]
fn dies(test: &str, why: &str) {
    use std::os::unix::process::ExitStatusExt;
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.signal(), Some(6), "{:?}: {text}", out.status);
    assert!(text.contains(why), "{text}");
}

/// A member could follow the link. In debug builds this is about unwinding only: a second panic would hide
/// the first.
#[cfg(not(miri))]
#[test]
fn freeing_a_linked_node_ends_the_process() {
    dies("frees_a_linked_node", "freed while it is linked");
}

#[test]
#[ignore = "ends the process; run by freeing_a_linked_node_ends_the_process"]
fn frees_a_linked_node() {
    while_linked(|free| {
        let _late = Late(Some(free));
        panic!("unwinding");
    });
}

struct Late<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Late<F> {
    fn drop(&mut self) {
        (self.0.take().unwrap())();
    }
}

/// No member is there to follow the link, and none will be.
#[test]
fn freeing_a_linked_node_of_a_group_without_members_poisons_it() {
    let group = Group::<2, 8>::new();
    let list = ManuallyDrop::new(List::<Things>::new());
    let (t, free) = by_hand(1);
    // What a function gets as a reference must outlive the call, whatever it does with it.
    let t: *const Thing = t;
    let unwound = message(|| {
        let _late = Late(Some(free));
        let mut m = group.join().unwrap();
        // SAFETY: not freed yet.
        push(&mut m, &list, unsafe { &*t }).unwrap();
        panic!("unwinding");
    });
    assert_eq!(unwound.as_deref(), Some("unwinding"));
    assert!(matches!(group.join(), Err(Error::Poisoned)));
}

/// The section is this thread's own, so waiting for it is hopeless.
#[cfg(all(not(miri), not(debug_assertions)))]
#[test]
fn freeing_a_node_in_a_section_that_sees_it_ends_the_process() {
    dies("frees_a_node_that_it_sees", "may still see it");
}

#[cfg(not(debug_assertions))]
#[test]
#[ignore = "ends the process; run by the test above"]
fn frees_a_node_that_it_sees() {
    while_seen(|_, _view, free| free());
}

/// Once the group is gone nobody can follow a link, so what it linked may go in any order.
#[test]
fn nodes_outlive_their_group() {
    let (list, t) = (List::<Things>::new(), thing(1));
    let group = Group::<2, 8>::new();
    let mut m = group.join().unwrap();
    push(&mut m, &list, &t).unwrap();
}
