//! Keeping a program and the leader close while requests are frequent.
//!
//! A program that touches one thing after the other waits for each answer, and the leader for each
//! request. Left to itself the scheduler puts them on two processors; by turns each of these falls
//! asleep, and waking it costs more than the request does, above all in a virtual machine, and on a
//! busy one also the wait for its turn.
//!
//! On a machine with few processors, while one thread asks for all, the leader follows it to its
//! processor: then each request is two switches of one processor, and no waking. The scheduler
//! would move the program, whenever it is woken, to a processor with nothing to do; so on each
//! other one a thread spins at the lowest weight (nice 19), to which whoever else has work there
//! loses 1.5 % at most. With more processors, that would be too many; there a thread of the class
//! `SCHED_IDLE` spins on each of the two that are concerned, so that they don't fall asleep: the
//! scheduler takes such a processor for idle.
//!
//! The program's own affinity, which it can see, is never touched. The spinners end when there has
//! been no request for a millisecond.
//!
//! Measured on two processors of a virtual machine (`find /usr -xdev -size +0`, 150,000 files,
//! first time in a view): see docs/capture.md.

use std::{
    hint, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    process::setpriority_process,
    thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity},
};

use crate::caller::Callers;

/// Requests are frequent when so many came within [`WINDOW`].
const FREQUENT: u32 = 32;
const WINDOW: Duration = Duration::from_millis(3);
/// The spinners stop after so much quiet.
const QUIET: Duration = Duration::from_millis(1);
/// After so many frequent requests it is looked where the asking thread runs.
const LOOK: u32 = 128;
/// Most processors on which all others are kept busy.
const FEW: usize = 4;
/// Turns between two looks at the clock; about a microsecond.
const TURNS: u32 = 32;
const NOWHERE: usize = usize::MAX;

/// The spinners and what they are told. Belongs to the leader.
pub(crate) struct Awake {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The processors that this process may use.
    allowed: CpuSet,
    /// The one that the leader is held on, if it is.
    held: usize,
    /// The thread that asked last, and how many times in a row.
    client: u32,
    in_a_row: u32,
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
    /// On few processors, where the leader is held where the program is.
    together: bool,
    /// On which processor each spinner is wanted.
    places: Vec<AtomicUsize>,
}

impl Awake {
    /// With no threads yet: they are started when requests are frequent for the first time.
    pub(crate) fn new() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let processors = allowed.count() as usize;
        let spinners = match processors {
            0 | 1 => 0,
            2..=FEW => processors - 1,
            _ => 2,
        };
        let shared = Arc::new(Shared {
            start: Instant::now(),
            last: AtomicU64::new(0),
            spinning: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            together: processors <= FEW,
            places: (0..spinners).map(|_| AtomicUsize::new(NOWHERE)).collect(),
        });
        Awake {
            shared,
            threads: Vec::new(),
            allowed,
            held: NOWHERE,
            client: 0,
            in_a_row: 0,
            window: Instant::now(),
            in_window: 0,
            until_look: 0,
        }
    }

    /// Starts what is wanted. What cannot be started is done without.
    fn start(&mut self) {
        for number in self.threads.len()..self.shared.places.len() {
            let shared = Arc::clone(&self.shared);
            let builder = thread::Builder::new().name(format!("awake-{number}"));
            self.threads.extend(builder.spawn(move || shared.run(number)));
        }
    }

    /// Takes note of a request of thread `client`, at `now`.
    pub(crate) fn request(&mut self, client: u32, now: Instant, callers: &Callers) {
        self.shared.last.store(self.shared.since_start(now), Ordering::Relaxed);
        self.in_a_row = if client == self.client { self.in_a_row.saturating_add(1) } else { 0 };
        self.client = client;
        self.in_window += 1;
        if self.in_window < FREQUENT || self.shared.places.is_empty() {
            return;
        }
        let frequent = now - self.window < WINDOW;
        self.window = now;
        self.in_window = 0;
        if !frequent || (self.shared.together && self.in_a_row < FREQUENT) {
            self.until_look = 0;
            return self.apart();
        }
        self.start();
        self.until_look = self.until_look.saturating_sub(FREQUENT);
        if self.until_look == 0 {
            self.until_look = LOOK;
            self.look(client, callers);
        }
        if self.shared.spinning.load(Ordering::Relaxed) < self.threads.len() {
            self.threads.iter().for_each(|thread| thread.thread().unpark());
        }
    }

    /// Sees where the asking thread runs, and says where the leader and the spinners are wanted.
    fn look(&mut self, client: u32, callers: &Callers) {
        let theirs = callers.processor(client).unwrap_or(NOWHERE);
        let places = &self.shared.places;
        if !self.shared.together {
            for (place, wanted) in places.iter().zip([sched_getcpu(), theirs]) {
                place.store(wanted, Ordering::Relaxed);
            }
            return;
        }
        if theirs == self.held || theirs >= CpuSet::MAX_CPU || !self.allowed.is_set(theirs) {
            return;
        }
        if move_to(theirs) {
            self.held = theirs;
            let others = (0..CpuSet::MAX_CPU).filter(|n| *n != theirs && self.allowed.is_set(*n));
            for (place, wanted) in places.iter().zip(others) {
                place.store(wanted, Ordering::Relaxed);
            }
        }
    }

    /// The leader may run anywhere again, and the spinners stop.
    fn apart(&mut self) {
        if mem::replace(&mut self.held, NOWHERE) != NOWHERE {
            for place in &self.shared.places {
                place.store(NOWHERE, Ordering::Relaxed);
            }
            // The set is what the kernel gave.
            let _ = sched_setaffinity(None, &self.allowed);
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
        let humble =
            if self.together { setpriority_process(None, 19).is_ok() } else { become_idle_class() };
        if !humble {
            return;
        }
        let mut here = NOWHERE;
        while !self.stop.load(Ordering::Acquire) {
            thread::park();
            self.spinning.fetch_add(1, Ordering::Relaxed);
            while self.is_loud() {
                let place = self.places[number].load(Ordering::Relaxed);
                let first = &self.places[..number];
                let twice = first.iter().any(|other| other.load(Ordering::Relaxed) == place);
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
        let now = self.since_start(Instant::now());
        let quiet = now.saturating_sub(self.last.load(Ordering::Relaxed));
        !self.stop.load(Ordering::Relaxed) && Duration::from_nanos(quiet) < QUIET
    }
}

/// Holds the calling thread on one processor.
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
        let wanted = awake.shared.places.len();
        while wanted > 0 && seen == 0 && began.elapsed() < Duration::from_secs(60) {
            awake.request(std::process::id(), Instant::now(), &callers);
            seen = seen.max(spinning(&awake));
        }
        assert_eq!(seen == 0, wanted == 0);
        while spinning(&awake) > 0 {
            assert!(began.elapsed() < Duration::from_secs(120), "quiet stops them");
            thread::yield_now();
        }
    }

    #[test]
    fn several_askers_set_the_leader_free_again() {
        let mut awake = Awake::new();
        let (callers, me) = (Callers::new(None).unwrap(), std::process::id());
        let free = awake.allowed.count();
        let now = Instant::now();
        (0..LOOK).for_each(|_| awake.request(me, now, &callers));
        let held = awake.held;
        assert_eq!(held != NOWHERE, (2..=FEW).contains(&(free as usize)));
        (0..LOOK).for_each(|number| awake.request(number % 2, now, &callers));
        assert_eq!(awake.held, NOWHERE);
        assert_eq!(sched_getaffinity(None).unwrap().count(), free);
    }
}
