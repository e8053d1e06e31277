//! Table 8.4: one list of 100 nodes, a mix of searches and changes.

use crate::clock::{self, Pace};
use crate::report::Report;
use crate::rng::Rng;
use crate::set::{Session, Set};
use crate::{THREADS, hm_epoch, hm_hazard, locked, olf_set, skip};
use std::time::Duration;

/// Nodes on the list, on average: half of the keys.
const LENGTH: u64 = 100;
const KEYS: u64 = 2 * LENGTH;

fn measure<S: Set>(threads: usize, write_percent: u64, time: Duration) -> f64 {
    let set = S::new(KEYS);
    {
        // In an order that does not follow memory.
        let mut session = set.session();
        let mut rng = Rng::new(1);
        let mut n = 0;
        while n < LENGTH {
            n += u64::from(session.insert(rng.below(KEYS)));
        }
    }
    clock::run(threads, time, |n| {
        let mut session = set.session();
        let mut rng = Rng::new(100 + n as u64);
        move || {
            for _ in 0..16 {
                let key = rng.below(KEYS);
                let dice = rng.below(200);
                if dice >= 2 * write_percent {
                    std::hint::black_box(session.contains(key));
                } else if dice.is_multiple_of(2) {
                    session.insert(key);
                } else {
                    session.remove(key);
                }
            }
            16
        }
    })
}

/// Fills in the table's Rust rows.
pub fn run(report: &mut Report, pace: Pace) {
    for write in [0, 10, 100] {
        for threads in THREADS {
            let experiment = format!("list {write}");
            let mut row = |name: &str, f: fn(usize, u64, Duration) -> f64| {
                report.measure(&experiment, name, threads, || {
                    clock::best(pace, |time| f(threads, write, time))
                });
            };
            row("olf", measure::<olf_set::OlfSet>);
            row("spinlock", measure::<locked::SpinSet>);
            row("mutex", measure::<locked::MutexSet>);
            row("rwlock", measure::<locked::RwSet>);
            row("HM hazard pointers", measure::<hm_hazard::HazardSet>);
            row("HM quiescence", measure::<hm_epoch::EpochSet>);
            row("skip list", measure::<skip::SkipSet>);
        }
    }
}
