//! Keeping two processors awake while requests are frequent.
//!
//! A program that touches one thing after the other waits for each answer, and the leader for each
//! request: by turns each of their processors falls asleep, and waking it costs more than the
//! request does, above all in a virtual machine. While requests follow each other closely, a thread
//! of the class `SCHED_IDLE` spins on each of the two. The scheduler takes such a processor for
//! idle: nobody else is kept from it, and whoever is woken there runs at once.
//!
//! Measured on two processors of a virtual machine (`find /usr -xdev -size +0`, 150,000 files,
//! first time in a view): 2.7 s without, 1.95 s with it; 1.7 s with the program and the leader held
//! on one processor, which a program would notice. Reading the device without blocking instead of
//! sleeping gave nothing (2.6 s): what costs is the waking of the program. Spinners of the normal
//! class at nice 19, which keep both threads on one processor, gave 1.9 s.

use std::{
    hint, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};

use crate::caller::Callers;

/// Requests are frequent when so many came within [`WINDOW`].
const FREQUENT: u32 = 32;
const WINDOW: Duration = Duration::from_millis(3);
/// The spinners stop after so much quiet.
const QUIET: Duration = Duration::from_millis(1);
/// After so many requests it is looked where the asking thread runs.
const LOOK: u32 = 512;
/// Turns between two looks at the clock; about a microsecond.
const TURNS: u32 = 32;
const NOWHERE: usize = usize::MAX;

/// Two spinners and what they are told.
pub(crate) struct Awake {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// How many are to be started.
    wanted: usize,
    /// The leader's own count.
    window: Instant,
    in_window: u32,
    until_look: u32,
}

struct Shared {
    start: Instant,
    /// Time of the last request, in nanoseconds since `start`.
    last: AtomicU64,
    spinning: AtomicUsize,
    stop: AtomicBool,
    /// On which processor each one is wanted.
    places: [AtomicUsize; 2],
}

impl Awake {
    /// With no threads yet: they are started when requests are frequent for the first time.
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            last: AtomicU64::new(0),
            spinning: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            places: [AtomicUsize::new(NOWHERE), AtomicUsize::new(NOWHERE)],
        });
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Awake {
            shared,
            threads: Vec::new(),
            wanted: if processors > 1 { 2 } else { 0 },
            window: Instant::now(),
            in_window: 0,
            until_look: 0,
        }
    }

    /// Starts what is wanted. What cannot be started is done without.
    fn start(&mut self) {
        for number in 0..mem::take(&mut self.wanted) {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(format!("awake-{number}"));
            self.threads.extend(builder.spawn(move || shared.run(number)));
        }
    }

    /// Takes note of a request of thread `client`, at `now`.
    pub(crate) fn request(&mut self, client: u32, now: Instant, callers: &Callers) {
        self.shared.last.store(self.shared.since_start(now), Ordering::Relaxed);
        self.in_window += 1;
        if self.in_window < FREQUENT {
            return;
        }
        let frequent = now - self.window < WINDOW;
        self.window = now;
        self.in_window = 0;
        if !frequent {
            self.until_look = 0;
            return;
        }
        self.start();
        self.until_look = self.until_look.saturating_sub(FREQUENT);
        if self.until_look == 0 {
            self.until_look = LOOK;
            self.shared.places[0].store(sched_getcpu(), Ordering::Relaxed);
            let place = callers.processor(client).unwrap_or(NOWHERE);
            self.shared.places[1].store(place, Ordering::Relaxed);
        }
        if self.shared.spinning.load(Ordering::Relaxed) < self.threads.len() {
            self.threads.iter().for_each(|thread| thread.thread().unpark());
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A spinner has nothing to say.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn since_start(&self, now: Instant) -> u64 {
        (now - self.start).as_nanos() as u64
    }

    fn run(&self, number: usize) {
        if !become_idle_class() {
            return;
        }
        let mut here = NOWHERE;
        while !self.stop.load(Ordering::Acquire) {
            thread::park();
            self.spinning.fetch_add(1, Ordering::Relaxed);
            while self.is_loud() {
                let place = self.places[number].load(Ordering::Relaxed);
                let twice = number == 1 && place == self.places[0].load(Ordering::Relaxed);
                if place == NOWHERE || twice {
                    break;
                }
                if place != here && move_to(place) {
                    here = place;
                }
                for _ in 0..TURNS {
                    hint::spin_loop();
                }
            }
            self.spinning.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn is_loud(&self) -> bool {
        let quiet = self.since_start(Instant::now()) - self.last.load(Ordering::Relaxed);
        !self.stop.load(Ordering::Relaxed) && Duration::from_nanos(quiet) < QUIET
    }
}

fn move_to(place: usize) -> bool {
    if place >= CpuSet::MAX_CPU {
        return false;
    }
    let mut only = CpuSet::new();
    only.set(place);
    sched_setaffinity(None, &only).is_ok()
}

/// Puts the calling thread into `SCHED_IDLE` (`sched(7)`), which everybody may.
#[allow(unsafe_code)] // rustix has no scheduling classes
fn become_idle_class() -> bool {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives through the call, and 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_while_requests_come_and_then_stops() {
        let mut awake = Awake::new();
        let callers = Callers::new(None).unwrap();
        let spinning = |awake: &Awake| awake.shared.spinning.load(Ordering::Relaxed);
        assert_eq!(spinning(&awake), 0);
        let began = Instant::now();
        let mut seen = 0;
        let wanted = awake.wanted;
        while wanted > 0 && seen == 0 && began.elapsed() < Duration::from_secs(5) {
            awake.request(std::process::id(), Instant::now(), &callers);
            seen = seen.max(spinning(&awake));
        }
        assert_eq!(seen == 0, wanted == 0);
        while spinning(&awake) > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "quiet stops them");
            thread::yield_now();
        }
    }
}
