//! Random histories on real threads, checked for strict serializability.
//!
//! `OLF_STRESS_SECONDS=600 cargo test -p olf --release --test histories -- --ignored --nocapture`
//! runs them for ten minutes.

#![cfg(not(any(loom, shuttle)))]

mod support;

use std::time::{Duration, Instant};
use support::history::{Shape, run};

const SMALL: Shape =
    Shape { items: 5, lists: 3, writers: 3, readers: 1, sections: 150, enter_tries: 64 };

fn rounds(n: u64) -> std::ops::Range<u64> {
    0..if cfg!(miri) { 1 } else { n }
}

/// Miri interprets: a few threads and sections there.
fn sized(shape: Shape) -> Shape {
    if !cfg!(miri) {
        return shape;
    }
    let (writers, readers) = (shape.writers.min(3), shape.readers.min(1));
    Shape { items: shape.items.min(5), writers, readers, sections: 2, ..shape }
}

#[test]
fn two_slots() {
    rounds(12).for_each(|seed| run::<2>(sized(SMALL), seed));
}

#[test]
fn three_slots() {
    rounds(12).for_each(|seed| run::<3>(sized(SMALL), seed));
}

#[test]
fn four_slots() {
    rounds(12).for_each(|seed| run::<4>(sized(SMALL), seed));
}

#[test]
#[cfg_attr(miri, ignore = "more of the same, and slow")]
fn more_writers_than_slots_and_processors() {
    let shape = Shape { writers: 8, readers: 3, sections: 60, ..SMALL };
    rounds(6).for_each(|seed| run::<2>(sized(shape), seed));
    rounds(6).for_each(|seed| run::<4>(sized(shape), seed));
}

#[test]
#[cfg_attr(miri, ignore = "more of the same, and slow")]
fn readers_that_always_queue() {
    let shape = Shape { enter_tries: 0, readers: 3, ..SMALL };
    rounds(6).for_each(|seed| run::<4>(sized(shape), seed));
}

#[test]
#[cfg_attr(miri, ignore = "more of the same, and slow")]
fn little_contention() {
    let shape = Shape { items: 60, lists: 6, writers: 4, ..SMALL };
    rounds(6).for_each(|seed| run::<4>(sized(shape), seed));
}

#[test]
#[ignore = "runs for OLF_STRESS_SECONDS, 600 by default"]
fn stress() {
    let seconds =
        std::env::var("OLF_STRESS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(600);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 1000;
    while Instant::now() < end {
        let n = seed as usize;
        let shape = Shape {
            items: 2 + n % 40,
            lists: 1 + n % 5,
            writers: 1 + n % 9,
            readers: n % 4,
            sections: 400,
            enter_tries: [64, 1, 0][n % 3],
        };
        run::<2>(shape, seed);
        run::<3>(shape, seed);
        run::<4>(shape, seed);
        seed += 1;
    }
    println!("{} histories checked", (seed - 1000) * 3);
}
