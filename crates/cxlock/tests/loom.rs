//! Every interleaving (up to a number of preemptions) of small programs, under loom.
//!
//! `crates/cxlock/check.sh loom`; `CXLOCK_LOOM_PREEMPTIONS` caps the number.
//!
//! Opacity is what most of these bodies assert: also an attempt that will restart may only see
//! states that hold the invariant.
#![cfg(loom)]

use cxlock::machine::Mode;
use cxlock::{CommitError, CxLock, CxMutex, Plain, Policy, Stm, TCell, Transaction, atomically};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

fn explore(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let most = std::env::var("CXLOCK_LOOM_PREEMPTIONS").ok();
    let most = most.map(|n| n.parse().expect("CXLOCK_LOOM_PREEMPTIONS is a number"));
    let preemptions = most.map_or(preemptions, |most| preemptions.min(most));
    let f = std::sync::Arc::new(f);
    for strong in [true, false] {
        cxlock::model::set_strong_loads(strong);
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.max_branches = 5_000;
        let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let (counted, f) = (std::sync::Arc::clone(&runs), std::sync::Arc::clone(&f));
        model.check(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            f();
        });
        let runs = runs.load(Ordering::Relaxed);
        println!("{runs} interleavings with {} loads", if strong { "strong" } else { "weak" });
        // A model that was explored in a handful of runs has not been explored.
        assert!(!strong || runs > 20, "only {runs} interleavings");
    }
}

struct Shared {
    lock: CxLock<Stm>,
    cells: [TCell<u32, Stm>; 2],
}

impl Shared {
    fn new(policy: Policy) -> Arc<Self> {
        let cells = [TCell::new(0), TCell::new(0)];
        Arc::new(Self { lock: CxLock::with_policy(policy), cells })
    }

    /// Adds one to both cells; whoever runs sees them equal.
    fn increment_both(&self) {
        self.lock.optimistic(|s| {
            let first = s.read(&self.cells[0])?;
            let second = s.read(&self.cells[1])?;
            assert_eq!(first, second);
            s.write(&self.cells[0], first + 1)?;
            s.write(&self.cells[1], second + 1)
        });
    }

    fn increment_exclusively(&self) {
        let guard = self.lock.exclusive();
        let (first, second) = (guard.read(&self.cells[0]), guard.read(&self.cells[1]));
        assert_eq!(first, second);
        guard.write(&self.cells[0], first + 1);
        guard.write(&self.cells[1], second + 1);
    }

    fn check_equal(&self) -> u32 {
        self.lock.optimistic(|s| {
            let first = s.read(&self.cells[0])?;
            let second = s.read(&self.cells[1])?;
            assert_eq!(first, second);
            Ok(first)
        })
    }
}

fn two(
    shared: Arc<Shared>,
    one: impl FnOnce(&Shared) + Send + 'static,
    other: impl FnOnce(&Shared),
) -> Arc<Shared> {
    let thread = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || one(&shared))
    };
    other(&shared);
    thread.join().expect("no panic");
    shared
}

#[test]
fn increments_are_not_lost() {
    explore(5, || {
        let shared = Shared::new(Policy::ExclusiveFirst);
        let shared = two(shared, Shared::increment_both, Shared::increment_both);
        assert_eq!(shared.check_equal(), 2);
    });
}

#[test]
fn readers_see_one_state() {
    explore(5, || {
        let shared = Shared::new(Policy::ExclusiveFirst);
        let shared = two(shared, Shared::increment_both, |shared| {
            shared.check_equal();
        });
        assert_eq!(shared.check_equal(), 1);
    });
}

#[test]
fn exclusive_sections_are_not_seen_half_done() {
    explore(5, || {
        let shared = Shared::new(Policy::ExclusiveFirst);
        two(shared, Shared::increment_exclusively, |shared| {
            shared.check_equal();
        });
    });
}

#[test]
fn exclusive_and_optimistic_increments_add_up() {
    explore(4, || {
        let shared = Shared::new(Policy::ExclusiveFirst);
        let shared = two(shared, Shared::increment_exclusively, Shared::increment_both);
        assert_eq!(shared.cells[0].peek(), 2);
        assert_eq!(shared.cells[1].peek(), 2);
    });
}

#[test]
fn polite_exclusive_sections_too() {
    explore(4, || {
        let shared = Shared::new(Policy::TransactionsFirst { patience: 1 });
        let shared = two(shared, Shared::increment_exclusively, Shared::increment_both);
        assert_eq!(shared.cells[0].peek(), 2);
    });
}

#[test]
fn input_and_output_run_alone() {
    explore(4, || {
        let shared = Shared::new(Policy::ExclusiveFirst);
        let inside = Arc::new(AtomicBool::new(false));
        let section = move |shared: &Shared| {
            shared.lock.optimistic(|s| {
                let n = s.read(&shared.cells[0])?;
                s.write(&shared.cells[0], n + 1)?;
                s.io()?;
                assert_eq!(s.mode(), Mode::Exclusive);
                assert!(!inside.swap(true, Ordering::SeqCst), "two threads do I/O at once");
                inside.store(false, Ordering::SeqCst);
                Ok(())
            });
        };
        let shared = two(shared, section.clone(), section);
        assert_eq!(shared.cells[0].peek(), 2);
    });
}

/// Sleepers are woken: loom reports a lost wake-up as a deadlock.
#[test]
fn no_wake_up_is_lost() {
    explore(5, || {
        let mutex = Arc::new(CxMutex::new(0));
        let thread = {
            let mutex = Arc::clone(&mutex);
            thread::spawn(move || *mutex.lock() += 1)
        };
        *mutex.lock() += 1;
        thread.join().expect("no panic");
        assert_eq!(*mutex.lock(), 2);
    });
}

#[test]
fn three_threads_at_a_plain_lock() {
    explore(4, || {
        let shared = Arc::new((CxLock::<Plain>::new(), TCell::<u32, Plain>::new(0)));
        let add = |shared: &(CxLock<Plain>, TCell<u32, Plain>)| {
            shared.0.optimistic(|s| {
                let n = s.read(&shared.1)?;
                s.write(&shared.1, n + 1)
            });
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || add(&shared))
            })
            .collect();
        add(&shared);
        threads.into_iter().for_each(|t| t.join().expect("no panic"));
        assert_eq!(shared.1.peek(), 3);
    });
}

/// Two transactions, each reading in memory what the other writes, each with a decision that reads
/// and writes in another system, crosswise: at most one order may be seen in both.
#[test]
fn decisions_and_memory_agree_on_one_order() {
    explore(5, || {
        // memory.0 is written by the first and read by the second; `system` the other way round.
        let memory = Arc::new((TCell::<u32, Stm>::new(0), AtomicBool::new(false)));
        let second = {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let mut tx = Transaction::begin();
                let memory_seen = tx.read(&memory.0).ok()?;
                tx.commit_with(|| {
                    memory.1.store(true, Ordering::SeqCst);
                    Ok::<_, ()>(())
                })
                .is_ok()
                .then_some(memory_seen)
            })
        };
        let first = (|| {
            let mut tx = Transaction::begin();
            tx.write(&memory.0, 1).ok()?;
            let mut system_seen = false;
            tx.commit_with(|| {
                system_seen = memory.1.load(Ordering::SeqCst);
                Ok::<_, ()>(())
            })
            .is_ok()
            .then_some(system_seen)
        })();
        let second = second.join().expect("no panic");
        if let (Some(first_saw_second), Some(second_saw_first)) = (first, second) {
            // Seen by neither: then each is before the other.
            assert!(first_saw_second || second_saw_first == 1, "write skew");
            assert!(!(first_saw_second && second_saw_first == 1));
        }
    });
}

#[test]
fn refused_commits_are_invisible() {
    explore(5, || {
        let cells = Arc::new([TCell::<u32, Stm>::new(0), TCell::new(0)]);
        let thread = {
            let cells = Arc::clone(&cells);
            thread::spawn(move || {
                let mut tx = Transaction::begin();
                tx.write(&cells[0], 1).expect("nothing read");
                tx.write(&cells[1], 1).expect("nothing read");
                match tx.commit_with(|| Err("no")) {
                    Err(CommitError::Refused("no") | CommitError::Restart(_)) => {}
                    other => panic!("{other:?}"),
                }
            })
        };
        let seen = atomically(|tx| Ok((tx.read(&cells[0])?, tx.read(&cells[1])?)));
        assert_eq!(seen, (0, 0));
        thread.join().expect("no panic");
    });
}
