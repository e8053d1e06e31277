//! What a section, a guard and their nesting do, on each engine that this machine can run.
#![cfg(not(loom))]

use cxlock::machine::Mode;
use cxlock::{CxLock, CxMutex, Engine, Plain, Policy, Reason, Rtm, Stm, TCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Runs a generic test on every engine. `Rtm` is plain locking where the machine has none.
macro_rules! on_each_engine {
    ($($name:ident),* $(,)?) => {
        mod stm { $(#[test] fn $name() { super::$name::<cxlock::Stm>(); })* }
        mod rtm { $(#[test] fn $name() { super::$name::<cxlock::Rtm>(); })* }
        mod plain { $(#[test] fn $name() { super::$name::<cxlock::Plain>(); })* }
    };
}

on_each_engine!(
    reads_its_own_writes,
    io_runs_once_and_exclusively,
    nested_exclusive_restarts_the_outermost,
    optimistic_within_exclusive,
    release_out_of_order,
    a_panic_leaves_a_usable_lock,
    swallowed_restarts_do_not_commit,
    holding_excludes,
    a_section_may_enter_a_lock_again,
    misuse_is_named,
);

fn reads_its_own_writes<E: Engine>() {
    let (lock, cell) = (CxLock::<E>::new(), TCell::<u32, E>::new(1));
    let seen = lock.optimistic(|s| {
        s.write(&cell, 2)?;
        let seen = s.read(&cell)?;
        s.write(&cell, seen + 1)?;
        s.read(&cell)
    });
    assert_eq!((seen, cell.peek()), (3, 3));
}

fn io_runs_once_and_exclusively<E: Engine>() {
    let lock = CxLock::<E>::new().with_stats();
    let cell = TCell::<u32, E>::new(0);
    let (mut runs, mut effects) = (0, 0);
    lock.optimistic(|s| {
        runs += 1;
        let n = s.read(&cell)?;
        s.write(&cell, n + 1)?;
        s.io()?;
        assert_eq!(s.mode(), Mode::Exclusive);
        effects += 1;
        Ok(())
    });
    assert_eq!((effects, cell.peek()), (1, 1));
    assert_eq!(runs, if E::available() { 2 } else { 1 });
    let stats = lock.stats().expect("made with counters");
    assert_eq!((stats.commits, stats.exclusive), (0, 1));
    assert_eq!(stats.escapes, u64::from(E::available()));
}

fn nested_exclusive_restarts_the_outermost<E: Engine>() {
    let (a, b) = (CxLock::<E>::new(), CxLock::<E>::new());
    let cell = TCell::<u32, E>::new(0);
    let mut modes = Vec::new();
    a.optimistic(|s| {
        modes.push(s.mode());
        s.write(&cell, 7)?;
        let guard = s.exclusive(&b)?;
        assert_eq!(guard.read(&cell), 7);
        guard.write(&cell, 8);
        Ok(())
    });
    assert_eq!(cell.peek(), 8);
    assert_eq!(modes.last(), Some(&Mode::Exclusive));
    assert_eq!(modes.len(), if E::available() { 2 } else { 1 });
    assert!(a.try_exclusive().is_some() && b.try_exclusive().is_some());
}

fn optimistic_within_exclusive<E: Engine>() {
    let (a, b) = (CxLock::<E>::new(), CxLock::<E>::new());
    let cell = TCell::<u32, E>::new(0);
    let inner = a.optimistic(|s| {
        s.io()?;
        s.optimistic(&b, |s| {
            s.write(&cell, 5)?;
            Ok(s.mode())
        })
    });
    assert_eq!(cell.peek(), 5);
    assert_eq!(inner, if E::available() { Mode::Optimistic } else { Mode::Exclusive });
}

/// The paper's `cx_end(A)` would end B's transaction and leave A locked.
fn release_out_of_order<E: Engine>() {
    let (a, b) = (CxLock::<E>::new(), CxLock::<E>::new());
    let cell = TCell::<u32, E>::new(0);
    let guard = a.exclusive();
    b.optimistic(|s| {
        s.write(&cell, 1)?;
        s.end(&guard);
        if s.mode() == Mode::Optimistic {
            // Not earlier than the write that it may protect.
            assert!(thread::scope(|t| t
                .spawn(|| a.try_exclusive().is_none())
                .join()
                .expect("no panic")));
        }
        s.write(&cell, 2)
    });
    assert_eq!(cell.peek(), 2);
    assert!(a.try_exclusive().is_some(), "the commit gave the lock back");
    drop(guard);
    assert!(a.try_exclusive().is_some());

    // Guards alone, in the order of taking.
    let (first, second) = (a.exclusive(), b.exclusive());
    drop(first);
    assert!(a.try_exclusive().is_some() && b.try_exclusive().is_none());
    drop(second);
    assert!(b.try_exclusive().is_some());
}

fn a_panic_leaves_a_usable_lock<E: Engine>() {
    let (lock, cell) = (CxLock::<E>::new(), TCell::<u32, E>::new(0));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        lock.optimistic(|s| {
            s.write(&cell, 9)?;
            panic!("thrown by the section");
            #[allow(unreachable_code)]
            Ok(())
        })
    }));
    assert!(outcome.is_err());
    // A software transaction never happened; under the lock the write is what the panic left.
    assert_eq!(cell.peek(), if E::NAME == "stm" { 0 } else { 9 });
    lock.optimistic(|s| s.write(&cell, 3));
    assert_eq!(cell.peek(), 3);
    assert!(lock.try_exclusive().is_some());
}

fn swallowed_restarts_do_not_commit<E: Engine>() {
    let (lock, cell) = (CxLock::<E>::new(), TCell::<u32, E>::new(0));
    let mut modes = Vec::new();
    lock.optimistic(|s| {
        modes.push(s.mode());
        s.write(&cell, 1)?;
        let _ignored = s.io();
        let _ignored = s.write(&cell, 2);
        Ok(())
    });
    assert_eq!(modes.last(), Some(&Mode::Exclusive));
    assert_eq!(cell.peek(), 2);
}

fn holding_excludes<E: Engine>() {
    let (lock, cell) = (CxLock::<E>::new(), TCell::<u64, E>::new(0));
    let guard = lock.exclusive();
    let (started, starts) = mpsc::channel();
    thread::scope(|t| {
        let reader = t.spawn(|| {
            started.send(()).expect("the receiver lives");
            lock.optimistic(|s| s.read(&cell))
        });
        starts.recv().expect("the thread starts");
        for value in 1..=100 {
            guard.write(&cell, value);
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(5)); // long enough for the reader to fall asleep
        assert!(!reader.is_finished());
        drop(guard);
        assert_eq!(reader.join().expect("no panic"), 100);
    });
}

/// Also after it became exclusive: code that nests must not care which of the two it is in.
fn a_section_may_enter_a_lock_again<E: Engine>() {
    let (a, b) = (CxLock::<E>::new(), CxLock::<E>::new());
    let cell = TCell::<u32, E>::new(0);
    for io in [false, true] {
        a.optimistic(|s| {
            if io {
                s.io()?;
            }
            s.optimistic(&a, |s| {
                let n = s.read(&cell)?;
                s.write(&cell, n + 1)
            })
        });
        let guard = a.exclusive();
        b.optimistic(|s| {
            if io {
                s.io()?;
            }
            s.optimistic(&a, |s| {
                let n = s.read(&cell)?;
                s.write(&cell, n + 1)
            })
        });
        drop(guard);
    }
    assert_eq!(cell.peek(), 4);
    assert!(a.try_exclusive().is_some() && b.try_exclusive().is_some());
}

fn misuse_is_named<E: Engine>() {
    let message = |outcome: thread::Result<()>| {
        let panic = outcome.expect_err("misuse panics");
        panic.downcast_ref::<String>().map(String::as_str).map_or_else(
            || (*panic.downcast_ref::<&str>().expect("a text")).to_owned(),
            str::to_owned,
        )
    };
    let (a, b) = (CxLock::<E>::new(), CxLock::<E>::new());
    let again = catch_unwind(AssertUnwindSafe(|| {
        let _guard = a.exclusive();
        drop(a.exclusive());
    }));
    assert!(message(again).contains("holds the lock exclusively already"));
    let around = catch_unwind(AssertUnwindSafe(|| {
        let _guard = a.exclusive();
        a.optimistic(|_| Ok(()));
    }));
    assert!(message(around).contains("holds the lock exclusively already"));
    if E::available() {
        let ambient = catch_unwind(AssertUnwindSafe(|| {
            a.optimistic(|_| {
                b.optimistic(|_| Ok(()));
                Ok(())
            })
        }));
        assert!(message(ambient).contains("nest through the section"));
        let early = catch_unwind(AssertUnwindSafe(|| {
            let mut guard = Some(a.exclusive());
            b.optimistic(|_| {
                drop(guard.take());
                Ok(())
            })
        }));
        assert!(message(early).contains("use `section.end`"));
    }
    // None of it left anything behind.
    assert!(a.try_exclusive().is_some() && b.try_exclusive().is_some());
}

#[test]
fn a_section_that_always_loses_ends_exclusively() {
    let (lock, cell) = (CxLock::<Stm>::new().with_stats(), TCell::<u64, Stm>::new(0));
    let other = CxLock::<Stm>::new();
    let mut attempts = 0;
    lock.optimistic(|s| {
        attempts += 1;
        let seen = s.read(&cell)?;
        if s.mode() == Mode::Optimistic {
            // Another thread changes what this attempt has read, every time.
            thread::scope(|t| {
                t.spawn(|| other.optimistic(|s| s.write(&cell, seen + 1)));
            });
        }
        s.write(&cell, seen + 1)
    });
    let stats = lock.stats().expect("made with counters");
    assert_eq!((stats.commits, stats.exclusive), (0, 1));
    assert_eq!(stats.conflicts, attempts - 1);
    assert_eq!(cell.peek(), attempts);
}

#[test]
#[cfg_attr(miri, ignore = "a million reads")]
fn a_section_too_large_is_run_exclusively() {
    let lock = CxLock::<Stm>::new().with_stats();
    let cell = TCell::<u64, Stm>::new(0);
    let mut reads = 0_u64;
    lock.optimistic(|s| {
        reads = 0;
        while s.mode() == Mode::Optimistic || reads < 10 {
            s.read(&cell)?;
            reads += 1;
        }
        Ok(())
    });
    let stats = lock.stats().expect("made with counters");
    assert_eq!((stats.overflows, stats.exclusive, reads), (1, 1, 10));
}

#[test]
fn transactions_first_waits_for_them_and_not_for_ever() {
    for (patience, transaction_wins) in [(u32::MAX, true), (3, false)] {
        let lock = CxLock::<Stm>::with_policy(Policy::TransactionsFirst { patience }).with_stats();
        let cell = TCell::<u32, Stm>::new(0);
        let (entered, taken) = (AtomicBool::new(false), AtomicBool::new(false));
        let refused = AtomicBool::new(false);
        let runs = AtomicU32::new(0);
        thread::scope(|t| {
            t.spawn(|| {
                lock.optimistic(|s| {
                    let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
                    let n = s.read(&cell)?;
                    entered.store(true, Ordering::SeqCst);
                    if first && transaction_wins {
                        while !refused.load(Ordering::SeqCst) {
                            thread::yield_now();
                        }
                        thread::sleep(Duration::from_millis(20));
                        assert!(!taken.load(Ordering::SeqCst), "the manager makes it wait");
                    }
                    while first && !transaction_wins && !taken.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    s.write(&cell, n + 1)
                });
            });
            while !entered.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            if transaction_wins {
                let tried = lock.try_exclusive().is_none();
                refused.store(true, Ordering::SeqCst);
                assert!(tried, "a transaction is inside");
            }
            let guard = lock.exclusive();
            taken.store(true, Ordering::SeqCst);
            guard.write(&cell, guard.read(&cell) + 10);
        });
        assert_eq!(cell.peek(), 11);
        let conflicts = lock.stats().expect("made with counters").conflicts;
        assert_eq!(conflicts == 0, transaction_wins, "patience {patience}");
    }
}

/// Table 3: an exclusive section restarts those inside, also if it changes nothing they have read.
#[test]
fn every_exclusive_section_restarts_transactions() {
    let (lock, cell) = (CxLock::<Stm>::new().with_stats(), TCell::<u32, Stm>::new(0));
    let mut runs = 0;
    lock.optimistic(|s| {
        runs += 1;
        if runs == 1 {
            thread::scope(|t| t.spawn(|| drop(lock.exclusive())).join().expect("no panic"));
        }
        s.write(&cell, runs)
    });
    assert_eq!((runs, cell.peek()), (2, 2));
    let stats = lock.stats().expect("made with counters");
    assert_eq!((stats.conflicts, stats.commits, stats.exclusive), (1, 1, 1));
}

/// Runs `f` on a thread of its own: a deadlock fails the test instead of stopping all of them.
fn within_a_minute(f: impl FnOnce() + Send + 'static) {
    let (done, outcome) = mpsc::channel();
    let thread = thread::spawn(move || {
        f();
        done.send(()).expect("the receiver waits");
    });
    if outcome.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("deadlock");
    }
    thread.join().expect("no panic");
}

/// Section 5.3 of the paper: t1's transaction has been in A and waits for B; t2 holds B and waits
/// for A, politely.
#[test]
fn the_deadlock_of_flat_nesting_is_resolved() {
    within_a_minute(flat_nesting);
}

fn flat_nesting() {
    let polite = Policy::TransactionsFirst { patience: u32::MAX };
    let (outer, a, b) = (
        CxLock::<Stm>::with_policy(polite),
        CxLock::<Stm>::with_policy(polite),
        CxLock::<Stm>::with_policy(polite),
    );
    let (in_a, has_b) = (AtomicBool::new(false), AtomicBool::new(false));
    let cell = TCell::<u32, Stm>::new(0);
    thread::scope(|t| {
        t.spawn(|| {
            outer.optimistic(|s| {
                s.optimistic(&a, |s| s.read(&cell))?;
                in_a.store(true, Ordering::SeqCst);
                while !has_b.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                s.optimistic(&b, |s| s.write(&cell, 1))
            });
        });
        t.spawn(|| {
            while !in_a.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            let _b = b.exclusive();
            has_b.store(true, Ordering::SeqCst);
            let a = a.exclusive();
            a.write(&cell, 2);
        });
    });
    assert_eq!(cell.peek(), 1);
}

/// A transaction that owes A waits for C, whose holder waits for A.
#[test]
fn a_lock_given_back_at_commit_cannot_deadlock() {
    within_a_minute(debtor);
}

fn debtor() {
    let (a, b, c) = (CxLock::<Stm>::new(), CxLock::<Stm>::new(), CxLock::<Stm>::new());
    let has_c = AtomicBool::new(false);
    thread::scope(|t| {
        let guard = a.exclusive();
        t.spawn(|| {
            let _c = c.exclusive();
            has_c.store(true, Ordering::SeqCst);
            drop(a.exclusive());
        });
        while !has_c.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        b.optimistic(|s| {
            s.end(&guard);
            s.optimistic(&c, |_| Ok(()))
        });
    });
}

#[test]
fn values_survive_the_word() {
    use cxlock::Value;
    fn same<T: Value + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::from_word(value.into_word()), value);
    }
    for n in [i64::MIN, -1, 0, 1, i64::MAX] {
        same(n);
        same(n as i8);
        same(n as i16);
        same(n as i32);
        same(n as u8);
        same(n as u16);
        same(n as u32);
        same(n as u64);
        same(n as usize);
        same(n as isize);
    }
    for c in ['\0', 'ß', char::MAX] {
        same(c);
    }
    same(-0.5_f32);
    same(f64::MIN_POSITIVE);
    same(true);
    same(false);
    same(None::<u32>);
    same(Some(u32::MAX));
    assert!(f64::from_word(f64::NAN.into_word()).is_nan());
}

#[test]
fn a_mutex_excludes_and_can_be_escaped_from() {
    let mutex = CxMutex::new(vec![0_u32]).with_stats();
    thread::scope(|t| {
        for _ in 0..4 {
            t.spawn(|| {
                for i in 0..200 {
                    let mut guard = mutex.lock();
                    let last = *guard.last().expect("never empty");
                    if i % 50 == 0 {
                        guard.io();
                    }
                    guard.push(last + 1);
                }
            });
        }
    });
    let stats = mutex.stats().expect("made with counters");
    assert_eq!(stats.commits + stats.exclusive, 800);
    let held = mutex.lock_exclusive();
    assert!(mutex.try_lock().is_none());
    drop(held);
    assert!(mutex.into_inner().is_sorted());
}

#[test]
fn engines_say_what_they_are() {
    assert!(Stm::available() && !Plain::available());
    assert_eq!(Rtm::available(), Rtm::support() == cxlock::RtmSupport::Works);
    assert_eq!([Stm::NAME, Rtm::NAME, Plain::NAME], ["stm", "rtm", "lock"]);
    assert!(Reason::NeedExclusive.wants_exclusion() && !Reason::Conflict.wants_exclusion());
}
