//! The threads that answer.
//!
//! One worker, the leader, takes all requests as long as each is answered quickly: the kernel wakes
//! blocked readers in turns, and with several of them every request would find the coldest thread.
//! The others stand by. They join when an answer is slow (a disk, a remote file system, a large
//! read), so that others need not wait behind it, and leave when answers have been quick for a
//! while. One of them looks after the leader at intervals, since a leader that hangs in a call
//! cannot say so.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    CaptureError, Result,
    awake::Awake,
    device::{BUFFER, Device, Received},
    mirror::Mirror,
    nudge,
    proto::{Reply, Request},
};

/// An answer that took longer has waited for something, and calls the others.
const SLOW: Duration = Duration::from_micros(300);
/// The same for answers that are long: listings and contents.
const SLOW_AND_LONG: Duration = Duration::from_millis(3);
/// So many quick answers in a row send them back.
const QUICK_IN_A_ROW: u32 = 512;
/// How often the leader is looked after.
const WATCH: Duration = Duration::from_millis(10);
/// How long an answer may take when all is to end.
pub(crate) const LAST_ANSWER: Duration = Duration::from_secs(10);
/// How often a worker looks for the mount that is about to be made.
const MOUNT_POLL: Duration = Duration::from_micros(50);

/// What the workers share.
struct Crew {
    device: Device,
    mirror: Arc<Mirror>,
    size: usize,
    stopping: AtomicBool,
    failed: AtomicBool,
    /// How many workers take requests, from the leader on.
    active: Mutex<usize>,
    changed: Condvar,
    quick: AtomicU32,
    /// When the leader took the request that it is answering, in microseconds since `start` and
    /// one; 0 while it waits.
    leader_since: AtomicU64,
    start: Instant,
}

/// The running threads of a capture.
pub(crate) struct Workers {
    crew: Arc<Crew>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    pub(crate) fn start(device: Device, mirror: Arc<Mirror>, size: usize) -> Result<Self> {
        nudge::install();
        let crew = Arc::new(Crew {
            device,
            mirror,
            size,
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            active: Mutex::new(1),
            changed: Condvar::new(),
            quick: AtomicU32::new(0),
            leader_since: AtomicU64::new(0),
            start: Instant::now(),
        });
        let mut workers = Workers { crew, threads: Vec::new() };
        for number in 0..size {
            let crew = Arc::clone(&workers.crew);
            let builder = thread::Builder::new().name(format!("capture-{number}"));
            let thread = builder.spawn(move || crew.work(number)).map_err(CaptureError::Thread)?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Makes the kernel forget what it was told.
    ///
    /// # Errors
    /// If it can't.
    pub(crate) fn forget_entries(&self) -> Result<()> {
        self.crew.device.forget_entries().map_err(CaptureError::Forget)
    }

    /// Ends all workers. A worker that is in the middle of an answer finishes it; one that does not
    /// come back from a call is left behind.
    ///
    /// # Errors
    /// If one panicked or was left behind.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.crew.stop_all();
        // All at once: the wait for one is a wait for all.
        self.threads.iter().for_each(nudge::nudge);
        let deadline = Instant::now() + LAST_ANSWER;
        let mut stuck = 0;
        for thread in self.threads.drain(..) {
            match nudge::until_ended(thread, deadline) {
                Ok(Ok(())) => {}
                Ok(Err(_)) => self.crew.failed.store(true, Ordering::Release),
                Err(_) => stuck += 1,
            }
        }
        if stuck > 0 {
            return Err(CaptureError::Stuck { threads: stuck, seconds: LAST_ANSWER.as_secs() });
        }
        if self.crew.failed.load(Ordering::Acquire) { Err(CaptureError::Panicked) } else { Ok(()) }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The failure was the capture's, which is being dropped.
        let _ = self.stop();
    }
}

impl Crew {
    fn work(&self, number: usize) {
        nudge::allow();
        let awake = (number == 0).then(Awake::new);
        let mut hand = Hand { buffer: vec![0; BUFFER], reply: Reply::default(), awake };
        while !self.stopping() {
            if !self.is_active(number) {
                self.stand_by(number);
                continue;
            }
            match self.device.receive(&mut hand.buffer) {
                Received::Request(length) => self.answer(number, &mut hand, length),
                Received::Interrupted => {}
                Received::NotMounted => thread::sleep(MOUNT_POLL),
                Received::Ended => return self.stop_all(),
            }
        }
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The connection has ended, or is to: nobody need stand by any more.
    fn stop_all(&self) {
        // Under the lock: who has seen that nobody stops, and is about to wait, waits first.
        let _active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopping.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    fn answer(&self, number: usize, hand: &mut Hand, length: usize) {
        let began = Instant::now();
        let mut long = false;
        if number == 0 {
            let since = (began - self.start).as_micros() as u64 + 1;
            self.leader_since.store(since, Ordering::Relaxed);
        }
        if let Some(request) = Request::parse(&hand.buffer[..length]) {
            long = request.opcode.is_long();
            if let Some(awake) = &mut hand.awake {
                awake.request(request.pid, began, &self.mirror.callers);
            }
            let reply = &mut hand.reply;
            let answered = catch_unwind(AssertUnwindSafe(|| self.mirror.answer(&request, reply)));
            let expected = answered.unwrap_or_else(|_| {
                self.failed.store(true, Ordering::Release);
                reply.finish(request.unique, Err(rustix::io::Errno::IO));
                true
            });
            if expected {
                self.device.send(reply.as_bytes());
            }
        }
        if number == 0 {
            self.leader_since.store(0, Ordering::Relaxed);
        }
        self.judge(began.elapsed(), long);
    }

    /// Calls the others after a slow answer, sends them back after many quick ones.
    fn judge(&self, took: Duration, long: bool) {
        if took >= if long { SLOW_AND_LONG } else { SLOW } {
            self.quick.store(0, Ordering::Relaxed);
            self.set_active(self.size);
        } else if self.quick.fetch_add(1, Ordering::Relaxed) == QUICK_IN_A_ROW {
            self.set_active(1);
        }
    }

    fn set_active(&self, count: usize) {
        let mut active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if *active != count {
            *active = count;
            self.changed.notify_all();
        }
    }

    fn is_active(&self, number: usize) -> bool {
        number == 0 || number < *self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until called. The first to stand by looks after the leader meanwhile.
    fn stand_by(&self, number: usize) {
        let active = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if number < *active || self.stopping() {
            return;
        }
        if number > 1 {
            drop(self.changed.wait(active));
            return;
        }
        drop(self.changed.wait_timeout(active, WATCH));
        let since = self.leader_since.load(Ordering::Relaxed);
        let now = self.start.elapsed().as_micros() as u64 + 1;
        if since != 0 && Duration::from_micros(now.saturating_sub(since)) > WATCH / 2 {
            self.quick.store(0, Ordering::Relaxed);
            self.set_active(self.size);
        }
    }
}

/// What one worker works with.
struct Hand {
    buffer: Vec<u8>,
    reply: Reply,
    awake: Option<Awake>,
}
