//! Runs threads for a while and takes the time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one measurement lasts, and how many are made of each case; the best counts.
#[derive(Clone, Copy)]
pub struct Pace {
    /// Of one measurement.
    pub time: Duration,
    /// Measurements of a case.
    pub repeats: usize,
}

/// Average time of an operation times the number of threads, in ns: the same at every number of threads
/// if each had a processor to itself and nobody disturbed anybody.
///
/// `worker(n)` makes the state of thread `n`: a function that does some operations and says how many.
pub fn run<W: FnMut() -> u64>(
    threads: usize,
    time: Duration,
    worker: impl Fn(usize) -> W + Sync,
) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let (began, operations) = std::thread::scope(|s| {
        let work = |n: usize| {
            let (worker, stop, start) = (&worker, &stop, &start);
            s.spawn(move || {
                let mut work = worker(n);
                start.wait();
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    done += work();
                }
                done
            })
        };
        let handles: Vec<_> = (0..threads).map(work).collect();
        // Before the workers are let go: with more of them than processors this thread may run late,
        // and what they did meanwhile has to be timed.
        let began = Instant::now();
        start.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        let done = handles.into_iter().map(|h| h.join().expect("a worker panicked")).sum::<u64>();
        (began, done)
    });
    began.elapsed().as_nanos() as f64 * threads as f64 / operations.max(1) as f64
}

/// The best of `pace.repeats` measurements: what else runs on the machine only adds time.
pub fn best(pace: Pace, mut measure: impl FnMut(Duration) -> f64) -> f64 {
    (0..pace.repeats).map(|_| measure(pace.time)).fold(f64::MAX, f64::min)
}
