//! Owned entries: counts are kept and given back exactly once, whatever happens.

#![cfg(all(feature = "alloc", not(any(loom, shuttle))))]

use olf::{Entry, Error, ListId, Shelf};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const A: ListId = ListId::new(0, 0);
const B: ListId = ListId::new(0, 1);
const OTHER: ListId = ListId::new(1, 0);

/// Counts its living instances.
struct Counted(usize, Arc<AtomicUsize>);

impl Counted {
    fn new(id: usize, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(id, Arc::clone(alive))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn entries_outlive_their_handles_and_die_with_their_lists() {
    let alive = Arc::new(AtomicUsize::new(0));
    let shelf = Shelf::<Counted, 2>::new([2, 1]);
    let mut handle = shelf.join().unwrap();
    for id in 0..4 {
        let entry = Entry::new(Counted::new(id, &alive));
        handle
            .write(|w| {
                w.push_back(A, &entry)?;
                w.push_front(OTHER, &entry)
            })
            .unwrap();
    }
    let view = handle.read();
    assert_eq!(view.iter(A).unwrap().map(|i| i.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(view.iter_rev(A).unwrap().map(|i| i.0).collect::<Vec<_>>(), [3, 2, 1, 0]);
    assert_eq!(view.iter(OTHER).unwrap().map(|i| i.0).collect::<Vec<_>>(), [3, 2, 1, 0]);
    drop(view);
    let kept = handle.write(|w| w.pop_front(A)).unwrap().unwrap();
    handle.write(|w| w.remove(OTHER_KIND, &kept)).unwrap();
    assert_eq!(handle.collect(), 0);
    assert_eq!(alive.load(Ordering::SeqCst), 4);
    drop(kept);
    assert_eq!(alive.load(Ordering::SeqCst), 3);
    handle.write(|w| w.pop_front(A).map(drop)).unwrap();
    handle.collect();
    assert_eq!(alive.load(Ordering::SeqCst), 3, "it still is on the other list");
    drop(handle);
    let survivor =
        shelf.join().unwrap().write(|w| w.front(A).map(|i| i.map(|i| i.entry()))).unwrap();
    drop(shelf);
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(survivor);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

const OTHER_KIND: usize = 1;

#[test]
fn a_value_lives_while_a_view_shows_it() {
    let alive = Arc::new(AtomicUsize::new(0));
    let shelf = Shelf::<Counted>::new([1]);
    let (mut reader, mut writer) = (shelf.join().unwrap(), shelf.join().unwrap());
    writer.write(|w| w.push_back(A, &Entry::new(Counted::new(7, &alive)))).unwrap();
    let view = reader.read();
    let item = view.iter(A).unwrap().next().unwrap();
    writer.write(|w| w.pop_front(A).map(drop)).unwrap();
    assert_eq!(writer.collect(), 1);
    assert_eq!((item.0, alive.load(Ordering::SeqCst)), (7, 1));
    drop(view);
    assert_eq!(writer.collect(), 0);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn what_a_leaving_handle_kept_is_freed_by_another() {
    let alive = Arc::new(AtomicUsize::new(0));
    let shelf = Shelf::<Counted>::new([1]);
    let (mut reader, mut writer) = (shelf.join().unwrap(), shelf.join().unwrap());
    writer.write(|w| w.push_back(A, &Entry::new(Counted::new(7, &alive)))).unwrap();
    let view = reader.read();
    writer.write(|w| w.pop_front(A).map(drop)).unwrap();
    drop(writer);
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    drop(view);
    assert_eq!(reader.collect(), 0);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn dropped_in_the_closure_aborted_panicked_refused() {
    let alive = Arc::new(AtomicUsize::new(0));
    let shelf = Shelf::<Counted>::new([2]);
    let mut handle = shelf.join().unwrap();
    let fresh = || Entry::new(Counted::new(1, &alive));
    assert_eq!(
        handle.write(|w| {
            w.push_back(A, &fresh())?;
            Err::<(), _>(Error::Aborted)
        }),
        Err(Error::Aborted)
    );
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        handle.write(|w| -> Result<(), Error> {
            w.push_back(A, &fresh())?;
            panic!("in the middle")
        })
    }));
    assert!(panicked.is_err());
    // A refusal is swallowed: no count may be lost or kept by that.
    let refused = handle.write(|w| Ok::<_, Error>(w.remove(0, &fresh())));
    assert_eq!(refused, Ok(Err(Error::NotLinked)));
    let on = fresh();
    handle.write(|w| w.push_back(A, &on)).unwrap();
    let twice =
        catch_unwind(AssertUnwindSafe(|| handle.write(|w| Ok::<_, Error>(w.push_back(B, &on)))));
    assert_eq!(twice.is_err(), cfg!(debug_assertions), "a panic in debug builds");
    assert!(twice.is_err() || matches!(twice, Ok(Ok(Err(Error::AlreadyLinked)))));
    assert_eq!(handle.write(|w| w.push_back(ListId::new(0, 2), &on)), Err(Error::NoSuchList));
    assert_eq!(handle.write(|w| w.push_back(OTHER, &on)), Err(Error::NoSuchList));
    assert_eq!(handle.write(|w| w.remove(3, &on)), Err(Error::NoSuchList));
    handle.write(|w| w.move_to_back(B, &on)).unwrap();
    handle.write(|w| w.insert_before(0, &on, &fresh())).unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    handle.write(|w| w.find(B, |c| c.0 == 9).map(|i| assert!(i.is_none()))).unwrap();
    handle.write(|w| w.remove(0, &on)).unwrap();
    drop((on, handle));
    drop(shelf);
    assert_eq!(alive.load(Ordering::SeqCst), 0);
}

#[test]
fn an_entry_that_outlives_its_shelf_is_of_no_use_to_another() {
    let entry = Entry::<u32>::new(1);
    let first = Shelf::<u32>::new([1]);
    first.join().unwrap().write(|w| w.push_back(A, &entry)).unwrap();
    drop(first);
    let second = Shelf::<u32>::new([1]);
    let mut handle = second.join().unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| handle.write(|w| w.push_back(A, &entry))));
    assert_eq!(refused.is_err(), cfg!(debug_assertions), "a panic in debug builds");
    assert!(refused.is_err() || matches!(refused, Ok(Err(Error::Foreign))));
    assert_eq!(*entry, 1);
}

#[test]
fn threads_move_entries_and_none_is_lost() {
    const ENTRIES: usize = 6;
    let alive = Arc::new(AtomicUsize::new(0));
    let shelf = Shelf::<Counted>::new([2]);
    let sections = if cfg!(miri) { 10 } else { 400 };
    shelf
        .join()
        .unwrap()
        .write(|w| {
            (0..ENTRIES).try_for_each(|id| w.push_back(A, &Entry::new(Counted::new(id, &alive))))
        })
        .unwrap();
    // The first write may have run more than once, and made entries each time.
    std::thread::scope(|s| {
        for n in 0..3 {
            let (shelf, alive) = (&shelf, &alive);
            s.spawn(move || {
                let mut handle = shelf.join().unwrap();
                for i in 0..sections {
                    let (from, to) = if (i + n) % 2 == 0 { (A, B) } else { (B, A) };
                    handle
                        .write(|w| match w.pop_front(from)? {
                            // One in two goes on as a new entry with the same number.
                            Some(e) if i % 2 == 0 => {
                                w.push_back(to, &Entry::new(Counted::new(e.0, alive)))
                            }
                            Some(e) => w.push_back(to, &e),
                            None => Ok(()),
                        })
                        .unwrap();
                    let view = handle.read();
                    let mut all: Vec<usize> = [A, B]
                        .into_iter()
                        .flat_map(|l| view.iter(l).unwrap().map(|i| i.0).collect::<Vec<_>>())
                        .collect();
                    all.sort_unstable();
                    assert_eq!(all, (0..ENTRIES).collect::<Vec<_>>());
                }
            });
        }
    });
    drop(shelf);
    assert_eq!(alive.load(Ordering::SeqCst), 0, "leaked");
}
