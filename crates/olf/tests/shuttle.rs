//! The same histories under a randomized, sequentially consistent scheduler.
//!
//! `./check.sh shuttle`, or `RUSTFLAGS="--cfg shuttle" cargo test -p olf --release --test shuttle`.
//! `OLF_SHUTTLE_RUNS` sets the number of schedules for each test.

#![cfg(shuttle)]

mod support;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, MaxSteps, Runner};
use support::history::{Shape, run};

const SMALL: Shape =
    Shape { items: 3, lists: 2, writers: 3, readers: 1, sections: 3, enter_tries: 64 };

fn runs() -> usize {
    std::env::var("OLF_SHUTTLE_RUNS").ok().and_then(|s| s.parse().ok()).unwrap_or(2000)
}

fn explore<const K: usize>(shape: Shape) {
    let seed = || shuttle::rand::Rng::r#gen::<u64>(&mut shuttle::rand::thread_rng());
    let config = || {
        let mut config = Config::new();
        config.stack_size = 4 << 20;
        config.max_steps = MaxSteps::FailAfter(200_000);
        config
    };
    Runner::new(RandomScheduler::new(runs()), config()).run(move || run::<K>(shape, seed()));
    // Few preemptions, in chosen places: finds what needs one thread to stop for long.
    Runner::new(PctScheduler::new(3, runs()), config()).run(move || run::<K>(shape, seed()));
}

#[test]
fn two_slots() {
    explore::<2>(SMALL);
}

#[test]
fn three_slots() {
    explore::<3>(SMALL);
}

#[test]
fn four_slots() {
    explore::<4>(SMALL);
}

#[test]
fn more_writers_than_slots() {
    explore::<2>(Shape { writers: 5, sections: 2, ..SMALL });
    explore::<3>(Shape { writers: 5, sections: 2, ..SMALL });
}

#[test]
fn readers_that_always_queue() {
    explore::<2>(Shape { enter_tries: 0, readers: 2, sections: 2, ..SMALL });
}

#[test]
fn many_readers() {
    explore::<2>(Shape { writers: 2, readers: 4, sections: 2, ..SMALL });
}
