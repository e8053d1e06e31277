//! What the sections do, and how long so many of them take.

use crate::subject::{Access, Subject};
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Counters that a lock protects.
pub const COUNTERS: usize = 1024;

/// A kind of section.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub threads: usize,
    /// Counters that a section reads.
    reads: usize,
    /// One section in so many writes.
    write_every: u64,
    /// Every thread begins its sections at the same counter, else at one of its own range.
    same_place: bool,
    work: u32,
    /// Sections of each thread in a round.
    sections: u64,
}

pub const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "uncontended",
        what: "1 thread, reads 1 counter, writes it",
        threads: 1,
        reads: 1,
        write_every: 1,
        same_place: true,
        work: 0,
        sections: 2_000_000,
    },
    Workload {
        name: "uncontended, read",
        what: "1 thread, reads 8 counters",
        threads: 1,
        reads: 8,
        write_every: u64::MAX,
        same_place: true,
        work: 0,
        sections: 2_000_000,
    },
    Workload {
        name: "read-mostly",
        what: "2 threads, reads 8 counters, 1 in 100 writes one",
        threads: 2,
        reads: 8,
        write_every: 100,
        same_place: true,
        work: 0,
        sections: 1_000_000,
    },
    Workload {
        name: "read-mostly, long",
        what: "2 threads, reads 64 counters and works about 0.75 µs, 1 in 100 writes",
        threads: 2,
        reads: 64,
        write_every: 100,
        same_place: true,
        work: 800,
        sections: 50_000,
    },
    Workload {
        name: "disjoint, long",
        what: "2 threads, each its own counters, works about 0.75 µs, always writes",
        threads: 2,
        reads: 4,
        write_every: 1,
        same_place: false,
        work: 800,
        sections: 50_000,
    },
    Workload {
        name: "contended",
        what: "2 threads write the same counter",
        threads: 2,
        reads: 1,
        write_every: 1,
        same_place: true,
        work: 0,
        sections: 1_000_000,
    },
    Workload {
        name: "contended, 8 threads",
        what: "8 threads write the same counter",
        threads: 8,
        reads: 1,
        write_every: 1,
        same_place: true,
        work: 0,
        sections: 250_000,
    },
];

/// Of one round.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Wall time for each section, all threads together.
    pub wall: f64,
    /// Processor time for each section, ns.
    pub processor: f64,
}

impl Workload {
    pub fn sections(&self) -> u64 {
        self.sections * self.threads as u64
    }

    /// Writes that a round makes.
    pub fn writes(&self) -> u64 {
        (0..self.threads as u64)
            .map(|t| (0..self.sections).filter(|i| self.writes_in(*i, t)).count() as u64)
            .sum()
    }

    fn writes_in(&self, section: u64, thread: u64) -> bool {
        (section + thread * 37).is_multiple_of(self.write_every) && self.write_every != u64::MAX
    }

    /// All threads start together; the time from the first start to the last end. Taken by the
    /// threads themselves: the one that waits for them may be woken late.
    pub fn round(&self, subject: &dyn Subject) -> Sample {
        let barrier = Barrier::new(self.threads);
        let spans: Vec<Span> = thread::scope(|t| {
            let spawn = |thread| {
                let barrier = &barrier;
                t.spawn(move || {
                    pin(thread);
                    barrier.wait();
                    self.work(subject, thread)
                })
            };
            let threads: Vec<_> = (0..self.threads).map(spawn).collect();
            // A panic of a section is a fault of this program; it goes on in this thread.
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        let begun = spans.iter().map(|s| s.begun).min();
        let ended = spans.iter().map(|s| s.ended).max();
        let wall = ended.zip(begun).map_or(Duration::ZERO, |(ended, begun)| ended - begun);
        let each = |time: Duration| time.as_nanos() as f64 / self.sections() as f64;
        Sample { wall: each(wall), processor: each(spans.iter().map(|s| s.processor).sum()) }
    }

    fn work(&self, subject: &dyn Subject, thread: usize) -> Span {
        let own = if self.same_place { 0 } else { thread * COUNTERS / self.threads };
        let (begun, used) = (Instant::now(), processor_time());
        for section in 0..self.sections {
            subject.run(Access {
                from: own,
                reads: self.reads,
                write: self.writes_in(section, thread as u64),
                work: self.work,
            });
        }
        Span { begun, ended: Instant::now(), processor: processor_time() - used }
    }
}

/// Of one thread.
struct Span {
    begun: Instant,
    ended: Instant,
    processor: Duration,
}

/// Keeps threads apart: the scheduler would start them all on one processor, and short rounds end
/// before it moves them. Where that is not permitted the round is run as it comes.
fn pin(thread: usize) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut set = rustix::thread::CpuSet::new();
    set.set(thread % processors);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}
