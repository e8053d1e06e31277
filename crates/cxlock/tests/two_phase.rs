//! The commit in two phases: prepare, decision, publish or roll back.
#![cfg(not(loom))]

use cxlock::{CommitError, CxLock, Reason, Stm, TCell, Transaction, atomically};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Cell = TCell<u32, Stm>;

const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2_000 };

fn fails_with_conflict(outcome: &Result<(), CommitError<&str>>) -> bool {
    outcome.as_ref().err().and_then(CommitError::reason) == Some(Reason::Conflict)
}

#[test]
fn a_refused_commit_never_happened() {
    let (read, written) = (Cell::new(1), Cell::new(2));
    let mut tx = Transaction::begin();
    let seen = tx.read(&read).expect("nobody else");
    tx.write(&written, seen + 10).expect("nobody else");
    let outcome = tx.commit_with(|| Err("no space on device"));
    assert_eq!(outcome, Err(CommitError::Refused("no space on device")));
    let text = outcome.map_err(|e| e.to_string()).expect_err("refused");
    assert!(text.contains("no space on device") && text.contains("nothing was changed"));
    assert_eq!((read.peek(), written.peek()), (1, 2));
    // Nothing is held: both can be changed.
    atomically(|tx| tx.write(&read, 5).and_then(|()| tx.write(&written, 6)));
    assert_eq!((read.peek(), written.peek()), (5, 6));
}

/// A version that did not change must not restart those who have read it.
#[test]
fn a_refusal_disturbs_no_reader() {
    let (cell, other) = (Cell::new(1), Cell::new(0));
    let mut reader = Transaction::begin();
    reader.read(&cell).expect("nobody else");
    let mut tx = Transaction::begin();
    tx.write(&cell, 2).expect("nobody else");
    assert_eq!(tx.commit_with(|| Err(())), Err(CommitError::Refused(())));
    reader.write(&other, 1).expect("still alive");
    reader.commit().expect("what it read has not changed");
}

#[test]
fn the_decision_is_not_asked_by_a_loser() {
    let (cell, other) = (Cell::new(0), Cell::new(0));
    let mut tx = Transaction::begin();
    let seen = tx.read(&cell).expect("nobody else");
    tx.write(&other, seen + 1).expect("nobody else");
    atomically(|tx| tx.write(&cell, 7));
    let outcome = tx.commit_with(|| -> Result<(), &str> { panic!("asked although it has lost") });
    assert!(fails_with_conflict(&outcome));
    assert_eq!(other.peek(), 0);
}

/// While the decision runs, what was read and what was written is out of reach for everyone, and
/// nobody waits for it for long.
#[test]
fn everything_is_held_while_the_decision_runs() {
    let (read, written) = (Cell::new(0), Cell::new(0));
    let mut tx = Transaction::begin();
    tx.read(&read).expect("nobody else");
    tx.write(&written, 1).expect("nobody else");
    tx.commit_with(|| {
        thread::scope(|t| {
            t.spawn(|| {
                let begun = Instant::now();
                for cell in [&read, &written] {
                    assert!(Transaction::begin().read(cell).is_err());
                    let mut tx = Transaction::begin();
                    tx.write(cell, 9).expect("only the commit holds words");
                    assert!(tx.commit().is_err());
                }
                // Under load some seconds can pass; a wait for the decision has no end.
                assert!(begun.elapsed() < Duration::from_secs(60));
            });
        });
        Ok::<_, ()>(())
    })
    .expect("it wins every conflict");
    assert_eq!((read.peek(), written.peek()), (0, 1));
}

/// The same for a transaction that wrote nothing but makes system calls.
#[test]
fn a_read_only_transaction_holds_what_it_read() {
    let cell = Cell::new(0);
    let mut tx = Transaction::begin();
    tx.read(&cell).expect("nobody else");
    tx.commit_with(|| {
        let mut writer = Transaction::begin();
        writer.write(&cell, 1).expect("only the commit holds words");
        assert!(writer.commit().is_err(), "a writer slipped in under the decision");
        Ok::<_, ()>(())
    })
    .expect("it wins every conflict");
    atomically(|tx| tx.write(&cell, 2));
    assert_eq!(cell.peek(), 2);
}

/// The other system: a store whose transactions are proven when they commit, like system
/// transactions are.
#[derive(Default)]
struct System {
    /// Value and version.
    file: Mutex<(u32, u32)>,
}

struct SystemTransaction<'s> {
    system: &'s System,
    version: u32,
    value: Option<u32>,
}

impl System {
    fn begin(&self) -> (SystemTransaction<'_>, u32) {
        let (value, version) = *self.file.lock().expect("no panic under it");
        (SystemTransaction { system: self, version, value: None }, value)
    }
}

impl SystemTransaction<'_> {
    fn xend(self) -> Result<(), &'static str> {
        let mut file = self.system.file.lock().expect("no panic under it");
        if file.1 != self.version {
            return Err("conflict in the system");
        }
        if let Some(value) = self.value {
            *file = (value, self.version + 1);
        }
        Ok(())
    }
}

/// Each thread reads in memory what the other writes, and in the system the other way round, and
/// only where both are unset it sets its own: both set would be write skew.
#[test]
fn no_skew_between_memory_and_system() {
    let both_committed = AtomicU32::new(0);
    for _ in 0..ROUNDS {
        let (memory, system) = (Cell::new(0), System::default());
        thread::scope(|t| {
            t.spawn(|| {
                // Reads the system, writes memory.
                loop {
                    let (xtx, file) = system.begin();
                    if file == 1 {
                        return;
                    }
                    let mut tx = Transaction::begin();
                    if tx.write(&memory, 1).is_ok() && tx.commit_with(|| xtx.xend()).is_ok() {
                        both_committed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
            t.spawn(|| {
                // Reads memory, writes the system; in memory it is read-only.
                loop {
                    let (mut xtx, _) = system.begin();
                    let mut tx = Transaction::begin();
                    match tx.read(&memory) {
                        Ok(1) => return,
                        Ok(_) => {}
                        Err(_) => continue,
                    }
                    xtx.value = Some(1);
                    if tx.commit_with(|| xtx.xend()).is_ok() {
                        both_committed.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                }
            });
        });
        let set = memory.peek() + system.file.lock().expect("no panic under it").0;
        assert_eq!(set, 1, "both saw the other's absence, and both committed");
    }
    assert_eq!(both_committed.into_inner(), ROUNDS);
}

#[test]
fn a_panic_in_the_decision_is_a_refusal() {
    let (read, written) = (Cell::new(1), Cell::new(2));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut tx = Transaction::begin();
        tx.read(&read).expect("nobody else");
        tx.write(&written, 3).expect("nobody else");
        tx.commit_with(|| -> Result<(), ()> { panic!("thrown by the decision") })
    }));
    assert!(outcome.is_err());
    assert_eq!((read.peek(), written.peek()), (1, 2));
    atomically(|tx| tx.write(&read, 4).and_then(|()| tx.write(&written, 4)));
    assert_eq!((read.peek(), written.peek()), (4, 4));
}

/// With the two phases in the caller's hands: whoever dies between them has not committed, and
/// holds nothing any more.
#[test]
fn a_thread_that_dies_between_decision_and_publication_frees_its_words() {
    let cells = [Cell::new(0), Cell::new(0)];
    let decided = AtomicBool::new(false);
    let death = thread::scope(|t| {
        t.spawn(|| {
            let mut tx = Transaction::begin();
            tx.write(&cells[0], 1).expect("nobody else");
            tx.write(&cells[1], 1).expect("nobody else");
            let prepared = tx.prepare().expect("nobody else");
            decided.store(true, Ordering::SeqCst);
            if decided.load(Ordering::SeqCst) {
                panic!("between decision and publication");
            }
            prepared.publish();
        })
        .join()
    });
    assert!(death.is_err() && decided.into_inner());
    assert_eq!(atomically(|tx| Ok((tx.read(&cells[0])?, tx.read(&cells[1])?))), (0, 0));
    atomically(|tx| tx.write(&cells[0], 2));
    assert_eq!(cells[0].peek(), 2);
}

#[test]
fn prepared_transactions_publish_and_roll_back() {
    let cell = Cell::new(0);
    let prepare = |value| {
        let mut tx = Transaction::begin();
        tx.write(&cell, value).expect("nobody else");
        tx.prepare().expect("nobody else")
    };
    prepare(1).publish();
    assert_eq!(cell.peek(), 1);
    prepare(2).roll_back();
    assert_eq!(cell.peek(), 1);
    drop(prepare(3));
    assert_eq!(cell.peek(), 1);
}

/// Words are held in one order, whatever the order of access: opposite orders neither deadlock nor
/// lose for ever, though each decision takes a lock of its own in between.
#[test]
fn opposite_orders_of_access_do_not_deadlock() {
    let cells: Vec<Cell> = (0..8).map(|_| Cell::new(0)).collect();
    let system = Mutex::new(0_u32);
    thread::scope(|t| {
        for thread in 0..4 {
            let (cells, system) = (&cells, &system);
            t.spawn(move || {
                for _ in 0..ROUNDS / 4 {
                    loop {
                        let mut tx = Transaction::begin();
                        let mut order: Vec<usize> = (0..cells.len()).collect();
                        if thread % 2 == 0 {
                            order.reverse();
                        }
                        let body = order.iter().try_for_each(|&i| {
                            let n = tx.read(&cells[i])?;
                            tx.write(&cells[i], n + 1)
                        });
                        let decision = || {
                            *system.lock().expect("no panic under it") += 1;
                            Ok::<_, ()>(())
                        };
                        if body.is_ok() && tx.commit_with(decision).is_ok() {
                            break;
                        }
                    }
                }
            });
        }
    });
    let commits = ROUNDS / 4 * 4;
    assert!(cells.iter().all(|cell| cell.peek() == commits));
    assert_eq!(*system.lock().expect("no panic under it"), commits, "one decision a commit");
}

/// An exclusive section waits for the words of a decision; the decision's transaction wins.
#[test]
fn exclusive_sections_wait_for_a_decision() {
    let (lock, cell) = (CxLock::<Stm>::new(), Cell::new(0));
    let (holding, done) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|t| {
        t.spawn(|| {
            let mut tx = Transaction::begin();
            tx.write(&cell, 1).expect("nobody else");
            tx.commit_with(|| {
                holding.store(true, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(10));
                done.store(true, Ordering::SeqCst);
                Ok::<_, ()>(())
            })
            .expect("it wins every conflict");
        });
        while !holding.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let guard = lock.exclusive();
        assert_eq!(guard.read(&cell), 1);
        assert!(done.load(Ordering::SeqCst));
    });
}
