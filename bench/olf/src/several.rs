//! Several lists: moves (figure 8.13), and a structure like the dcache (in place of figure 8.14).

use crate::THREADS;
use crate::arena::{Arena, ArenaSession, MutexArena, OlfArena, RwArena, SpinArena};
use crate::clock::{self, Pace};
use crate::report::Report;
use crate::rng::Rng;
use std::time::Duration;

/// Nodes for each thread: the input grows with the threads, as in the original.
const NODES: usize = 100;

/// Two lists; a thread moves nodes of its own to the other list.
fn moves<A: Arena>(threads: usize, time: Duration) -> f64 {
    let arena = A::new(NODES * threads, 2);
    let all: Vec<_> = (0..NODES * threads).map(|n| (n, n % 2)).collect();
    all.chunks(16).for_each(|some| arena.session().link(some));
    clock::run(threads, time, |n| {
        let mut session = arena.session();
        let mut rng = Rng::new(n as u64);
        let mut on: Vec<usize> = (0..NODES).map(|i| (n * NODES + i) % 2).collect();
        move || {
            for _ in 0..16 {
                let i = rng.below(NODES as u64) as usize;
                on[i] = 1 - on[i];
                session.move_to(n * NODES + i, on[i]);
            }
            16
        }
    })
}

/// Moves between two sorted lists of so many nodes in all: one search for the node, one for its new place.
fn searching_moves<A: Arena>(threads: usize, nodes: usize, time: Duration) -> f64 {
    let arena = A::new(nodes, 2);
    let all: Vec<_> = (0..nodes).map(|n| (n, n % 2)).collect();
    all.chunks(16).for_each(|some| arena.session().link(some));
    clock::run(threads, time, |n| {
        let mut session = arena.session();
        let mut rng = Rng::new(n as u64);
        move || {
            for _ in 0..16 {
                let node = rng.below(nodes as u64) as usize;
                let from = rng.below(2) as usize;
                session.find_and_move(node, from, 1 - from);
            }
            16
        }
    })
}

/// Names that a thread links and unlinks.
const NAMES: usize = 64;
const BUCKETS: usize = 64;

/// Four lists for each name, as a directory entry has: its hash bucket, its directory's children (one
/// directory for each thread), its inode's names (four to an inode), and the one list of the least
/// recently used. `lookups` of 100 operations walk a bucket; the others link or unlink a name.
fn dcache<A: Arena>(threads: usize, lookups: u64, time: Duration) -> f64 {
    let names = NAMES * threads;
    let (children, inodes, lru) = (BUCKETS, BUCKETS + threads, BUCKETS + threads + names / 4);
    let arena = A::new(4 * names, lru + 1);
    let places = |name: usize| {
        let thread = name / NAMES;
        [
            (4 * name, name.wrapping_mul(0x9E37_79B1) % BUCKETS),
            (4 * name + 1, children + thread),
            (4 * name + 2, inodes + name / 4),
            (4 * name + 3, lru),
        ]
    };
    (0..names).step_by(2).for_each(|name| arena.session().link(&places(name)));
    clock::run(threads, time, |n| {
        let mut session = arena.session();
        let mut rng = Rng::new(n as u64);
        let mut linked: Vec<bool> = (0..NAMES).map(|i| (n * NAMES + i).is_multiple_of(2)).collect();
        move || {
            for _ in 0..16 {
                let i = rng.below(NAMES as u64) as usize;
                let places = places(n * NAMES + i);
                if rng.below(100) < lookups {
                    std::hint::black_box(session.lookup(places[0].1, places[0].0));
                } else if linked[i] {
                    session.unlink(&places.map(|(node, _)| node));
                    linked[i] = false;
                } else {
                    session.link(&places);
                    linked[i] = true;
                }
            }
            16
        }
    })
}

type Measure = fn(usize, Duration) -> f64;

/// The implementations of one experiment, by name.
fn contenders(pick: fn(usize) -> Measure) -> [(&'static str, Measure); 4] {
    [("olf", pick(0)), ("spinlock", pick(1)), ("mutex", pick(2)), ("rwlock", pick(3))]
}

macro_rules! each_arena {
    (|$a:ident| $f:expr) => {
        contenders(|i| {
            fn f0(threads: usize, time: Duration) -> f64 {
                type $a = OlfArena;
                $f(threads, time)
            }
            fn f1(threads: usize, time: Duration) -> f64 {
                type $a = SpinArena;
                $f(threads, time)
            }
            fn f2(threads: usize, time: Duration) -> f64 {
                type $a = MutexArena;
                $f(threads, time)
            }
            fn f3(threads: usize, time: Duration) -> f64 {
                type $a = RwArena;
                $f(threads, time)
            }
            [f0 as Measure, f1, f2, f3][i]
        })
    };
}

/// Runs all experiments of this file.
pub fn run(report: &mut Report, pace: Pace) {
    let experiments: [(&str, [(&str, Measure); 4]); 5] = [
        ("move", each_arena!(|A| moves::<A>)),
        ("find and move", each_arena!(|A| |n, t| searching_moves::<A>(n, NODES, t))),
        ("find and move grown", each_arena!(|A| |n, t| searching_moves::<A>(n, NODES * n, t))),
        ("dcache link", each_arena!(|A| |n, t| dcache::<A>(n, 0, t))),
        ("dcache 90% lookup", each_arena!(|A| |n, t| dcache::<A>(n, 90, t))),
    ];
    for (experiment, contenders) in experiments {
        for threads in THREADS {
            for (name, f) in contenders {
                report.measure(experiment, name, threads, || {
                    clock::best(pace, |time| f(threads, time))
                });
            }
        }
    }
}
