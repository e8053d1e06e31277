//! Table 8.4: one list of 100 nodes, a mix of searches and changes, 1 thread to many.

use crate::rng::Rng;
use crate::set::{Session, Set};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nodes on the list, on average.
pub const LENGTH: u64 = 100;
const KEYS: u64 = 2 * LENGTH;

/// Average time of an operation times the number of threads, in ns: the same at every number of
/// threads if each had a processor to itself and nobody disturbed anybody.
pub fn measure<S: Set>(threads: usize, write_percent: u64, time: Duration) -> f64 {
    let set = S::new(KEYS);
    {
        // Every other key, in an order that does not follow memory.
        let mut session = set.session();
        let mut rng = Rng::new(1);
        let mut n = 0;
        while n < LENGTH {
            n += u64::from(session.insert(rng.below(KEYS)));
        }
    }
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let mut began = Instant::now();
    let operations: u64 = std::thread::scope(|s| {
        let work = |n: usize| {
            let (set, stop, start) = (&set, &stop, &start);
            s.spawn(move || {
                let mut session = set.session();
                let mut rng = Rng::new(100 + n as u64);
                start.wait();
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..16 {
                        let key = rng.below(KEYS);
                        let dice = rng.below(200);
                        if dice >= 2 * write_percent {
                            session.contains(key);
                        } else if dice % 2 == 0 {
                            session.insert(key);
                        } else {
                            session.remove(key);
                        }
                    }
                    done += 16;
                }
                done
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        start.wait();
        began = Instant::now();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|h| h.join().expect("a worker panicked")).sum()
    });
    began.elapsed().as_nanos() as f64 * threads as f64 / operations as f64
}

/// Quick look.
pub fn run() {
    let time = Duration::from_millis(25);
    fn best<S: Set>(w: u64, time: Duration) -> f64 {
        (0..12).map(|_| measure::<S>(1, w, time)).fold(f64::MAX, f64::min)
    }
    for write in [0, 10, 100] {
        println!(
            "{write:3}% olf {:.0} epoch {:.0} spin {:.0}",
            best::<crate::olf_set::OlfSet>(write, time),
            best::<crate::hm_epoch::EpochSet>(write, time),
            best::<crate::locked::SpinSet>(write, time),
        );
    }
}
