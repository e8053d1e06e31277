//! The transaction's side of its connection to the contention manager.

use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use txos_capture::{HoldAnswer, Holds, OnTouch};
use txos_core::{
    Conflict, Detail, Facet, Seen, Stamp, TxId,
    contention::{Hold, LockWait, Standing, Written},
};
use txos_view::Channel;

use crate::text::shortened;

use super::{
    Ended,
    memory::{memory_file, read_all},
    message::{Met, Rival, ToManager, ToTransaction, Word},
    socket::Place,
};

/// How long the manager may be silent where it owes an answer. It waits itself for those that it asks
/// (`super::server::PATIENCE`).
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How often it may end just when it is connected to.
const RECONNECTS: u32 = 100;

/// What the manager decides about an attempt, in the middle of it.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Ready, it waits for this transaction.
    Waits(Rival),
    /// Ready, it may validate and apply.
    Granted,
    /// It has lost.
    Lost(Lost),
    /// The manager has ended.
    Gone,
}

/// To whom an attempt lost, and why.
#[derive(Clone, Debug)]
pub struct Lost {
    /// The winner.
    pub winner: Rival,
    met: Option<Met>,
    /// The file on which it had a lock that the winner waits for.
    lock: Option<String>,
}

impl Lost {
    /// The same as a conflict.
    pub fn conflict(&self) -> Conflict {
        if let Some(path) = &self.lock {
            let detail =
                format!("{} waits for it, and holds a lock that was waited for", self.winner);
            let (path, facet) = (path.as_str().into(), Facet::Content);
            return Conflict { path, facet, seen: Seen::Locked, detail: Detail::Rival(detail) };
        }
        let (path, facet) = match &self.met {
            Some(met) => (met.path.as_str().into(), met.facet),
            // It was read after the winner was ready, and before the policy changed.
            None => ("/".into(), Facet::Content),
        };
        Conflict {
            path,
            facet,
            seen: Seen::Changed,
            detail: Detail::Rival(format!("{} writes it", self.winner)),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.winner.fmt(f)
    }
}

/// Told for which file locks members wait.
pub type OnWait = Box<dyn Fn(LockWait) + Send + Sync>;

type Tell = Box<dyn Fn(u32, Verdict) + Send>;

/// A transaction's connection to the manager, for all of its attempts.
pub struct Link {
    shared: Arc<Shared>,
    holds: Arc<Holds>,
    standing: Standing,
    command: String,
}

struct Shared {
    place: Place,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    channel: Arc<Channel>,
    /// What was sent first, for another connection if this one ends before it is answered.
    first: Option<ToManager>,
    attempt: u32,
    /// What is said when the transaction reads for the first time.
    entering: Option<ToManager>,
    /// Whether a manager that does not read may be waited for.
    patient: bool,
    /// Whether the attempt is known to the manager and not over.
    open: bool,
    started: bool,
    /// Whether the manager has ever said anything.
    heard: bool,
    gone: bool,
    lost: Option<Lost>,
}

impl Shared {
    /// Says that the transaction has begun, unless that was said.
    fn enter(&self) {
        let mut state = self.lock();
        let Some(message) = state.entering.take() else { return };
        state.open = true;
        // Before the lock is free, so that nothing that ends it is said first.
        let _ = state.channel.send_now(&message, None);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A manager that is gone is told of by the thread that listens.
    fn send(&self, message: &ToManager, fd: Option<&OwnedFd>) {
        let (channel, patient) = {
            let state = self.lock();
            (Arc::clone(&state.channel), state.patient)
        };
        if patient {
            let _ = channel.send(message, fd.map(AsFd::as_fd));
        } else if channel.send_now(message, fd.map(AsFd::as_fd)).is_err() {
            // One that does not read is as good as none.
            let _ = rustix::net::shutdown(&*channel, rustix::net::Shutdown::Both);
        }
    }
}

impl Link {
    /// Joins the manager of the state directory at `state`, which is started if there is none, as a
    /// transaction that wants to run its first attempt. `tell` hears what is decided, with the
    /// number of the attempt.
    ///
    /// Returns without waiting for the manager's answer: see [`Link::wait_for_start`].
    ///
    /// # Errors
    /// If the manager cannot be started.
    pub fn join(state: &Path, standing: Standing, command: &str, tell: Tell) -> Result<Link> {
        let command = shortened(command);
        let first = ToManager::Begin {
            standing: standing.clone(),
            attempt: 0,
            process: std::process::id(),
            command: command.clone(),
        };
        let mut link = Link::new(state, Some(first), tell)?;
        (link.standing, link.command) = (standing, command);
        Ok(link)
    }

    /// Connects to the manager of the state directory at `state`, which is started if there is none,
    /// for transactions that use one view, one after the other: see [`Link::enter`].
    ///
    /// # Errors
    /// If the manager cannot be started.
    pub fn connect(state: &Path, tell: Tell) -> Result<Link> {
        Link::new(state, None, tell)
    }

    fn new(state: &Path, first: Option<ToManager>, tell: Tell) -> Result<Link> {
        let place = Place::of(state)?;
        let channel = Arc::new(place.connect_or_start()?);
        let state = State {
            channel,
            attempt: 0,
            entering: None,
            patient: first.is_some(),
            open: first.is_some(),
            first: first.clone(),
            started: false,
            heard: false,
            gone: false,
            lost: None,
        };
        let waits = first.is_some();
        let shared = Arc::new(Shared { place, state: Mutex::new(state), changed: Condvar::new() });
        let touched = Arc::downgrade(&shared);
        let holds = Arc::new_cyclic(|weak: &std::sync::Weak<Holds>| {
            let weak = weak.clone();
            let began = touched.clone();
            let on_touch: OnTouch = Box::new(move |hold| {
                let Some(shared) = touched.upgrade() else { return };
                if !waits {
                    // Whoever touches has the workset locked, and does not wait.
                    return shared.send(&ToManager::Saw { hold, read: 0 }, None);
                }
                if let Some(holds) = weak.upgrade() {
                    shared.send(&ToManager::Touch { hold, read: holds.size() }, None);
                }
            });
            match waits {
                true => Holds::new(on_touch),
                false => Holds::telling_only(
                    on_touch,
                    Box::new(move || {
                        if let Some(shared) = began.upgrade() {
                            shared.enter();
                        }
                    }),
                ),
            }
        });
        if let Some(first) = first {
            shared.send(&first, None);
        }
        let listener = Listener { shared: Arc::clone(&shared), holds: Arc::clone(&holds), tell };
        thread::Builder::new()
            .name("txos-manager".into())
            .spawn(move || listener.listen())
            .context("cannot start a thread for the contention manager")?;
        let (standing, command) = (nobody(), String::new());
        Ok(Link { shared, holds, standing, command })
    }

    /// A transaction begins, at once and without a word of the manager, which hears of it when it reads
    /// for the first time or is ready: one that does nothing costs nothing. `process` is whose it is.
    /// Gives the number by which its verdicts are told; `None` if the manager has ended, and nobody
    /// decides for it but its validation.
    pub fn enter(&mut self, standing: Standing, process: u32, command: &str) -> Option<u32> {
        let mut state = self.shared.lock();
        if state.gone {
            return None;
        }
        state.attempt += 1;
        (state.open, state.started, state.lost) = (false, false, None);
        let (attempt, command) = (state.attempt, command.to_owned());
        self.standing = standing.clone();
        state.entering = Some(ToManager::Begin { standing, attempt, process, command });
        drop(state);
        self.holds.begin();
        Some(attempt)
    }

    /// The transaction that entered is over.
    pub fn leave(&self, ended: Ended) {
        self.holds.finish();
        let mut state = self.shared.lock();
        state.entering = None;
        let open = std::mem::replace(&mut state.open, false);
        drop(state);
        if open {
            self.shared.send(&ToManager::Leave(Some(ended)), None);
        }
    }

    /// The transaction that entered is over, and has lost: waits until those have ended to whom it lost,
    /// or `cancelled` ends the wait.
    pub fn leave_and_rest(&self, ended: Ended, cancelled: impl FnMut() -> bool) {
        self.holds.finish();
        if !self.shared.lock().open {
            return;
        }
        self.shared.send(&ToManager::End(ended), None);
        self.shared.lock().started = false;
        self.shared.send(&ToManager::Rest(self.standing.clone()), None);
        // A manager that has ended keeps nobody.
        let _ = self.wait_for_start(cancelled);
        self.shared.lock().open = false;
        self.shared.send(&ToManager::Leave(None), None);
    }

    /// Ready, it has waited long enough for those who only come first by their rank.
    pub fn impatient(&self) {
        self.shared.send(&ToManager::Impatient, None);
    }

    /// Whether the manager has ended.
    pub fn is_gone(&self) -> bool {
        self.shared.lock().gone
    }

    /// What others hold, for the capture.
    pub fn holds(&self) -> Arc<Holds> {
        Arc::clone(&self.holds)
    }

    /// Tells the manager for which file locks members wait: such a transaction is no reason for others
    /// to wait, and those who wait for each other's are found.
    pub fn on_wait(&self) -> OnWait {
        let shared = Arc::downgrade(&self.shared);
        Box::new(move |hangs| {
            if let Some(shared) = shared.upgrade() {
                shared.send(&ToManager::Hangs(hangs), None);
            }
        })
    }

    /// Whether it waits for something outside the order: then it is no reason for others to wait.
    pub fn stuck(&self, stuck: bool) {
        self.shared.send(&ToManager::Stuck(stuck), None);
    }

    /// Wants to run attempt number `attempt`, having lost `losses` times.
    pub fn begin(&mut self, attempt: u32, losses: u32) {
        self.standing.losses = losses;
        self.holds.begin();
        let message = ToManager::Begin {
            standing: self.standing.clone(),
            attempt,
            process: std::process::id(),
            command: self.command.clone(),
        };
        let mut state = self.shared.lock();
        (state.attempt, state.open, state.started) = (attempt, true, false);
        state.lost = None;
        drop(state);
        self.shared.send(&message, None);
    }

    /// Waits until the first attempt may run, which is at once.
    ///
    /// # Errors
    /// If the manager does not answer, or has ended.
    pub fn wait_for_first_start(&self) -> Result<()> {
        let began = Instant::now();
        let started = self.wait_for_start(|| began.elapsed() > PATIENCE)?;
        ensure!(started, SILENT);
        Ok(())
    }

    /// Waits until the attempt may run; `Ok(false)` if `cancelled` ended the wait. It is asked some
    /// twenty times a second.
    ///
    /// # Errors
    /// If the manager does not answer, or has ended.
    pub fn wait_for_start(&self, mut cancelled: impl FnMut() -> bool) -> Result<bool> {
        let began = Instant::now();
        let mut state = self.shared.lock();
        while !state.started {
            if state.gone {
                bail!(GONE);
            }
            if !state.heard && began.elapsed() > PATIENCE {
                bail!(SILENT);
            }
            if cancelled() {
                return Ok(false);
            }
            let wait = self.shared.changed.wait_timeout(state, Duration::from_millis(50));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(true)
    }

    /// The command has ended, and would write this, having read `read` objects. What is decided
    /// comes by `tell`.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn ready(&self, written: &Written, read: u64) -> Result<()> {
        self.shared.enter();
        let file = memory_file(&written.encode())?;
        let message = ToManager::Ready { read, written: written.len() as u64 };
        self.shared.send(&message, Some(&file));
        Ok(())
    }

    /// To whom this attempt has lost, if it has.
    pub fn lost(&self) -> Option<Lost> {
        self.shared.lock().lost.clone()
    }

    /// The attempt is over. Said twice, it counts once.
    pub fn end(&self, ended: Ended) {
        // No answer about what this attempt has read comes after this.
        self.holds.finish();
        let mut state = self.shared.lock();
        let open = std::mem::replace(&mut state.open, false);
        drop(state);
        if open {
            self.shared.send(&ToManager::End(ended), None);
        }
    }
}

/// What stands before a transaction has entered.
fn nobody() -> Standing {
    let (id, started) = (TxId(0), Stamp::default());
    Standing { id, priority: 0, scheduling: 0, started, size: 0, losses: 0, meek: false }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end(Ended::default());
        // Ends the thread that listens, too.
        let channel = Arc::clone(&self.shared.lock().channel);
        let _ = rustix::net::shutdown(&*channel, rustix::net::Shutdown::Both);
    }
}

/// What is said when the manager has ended.
pub const GONE: &str = "the contention manager of the state directory ended unexpectedly; run the \
                        transaction again";

const SILENT: &str = "the contention manager does not answer: what listens at the socket `manager` \
                      of the state directory is another program, or it is stopped; end it";

struct Listener {
    shared: Arc<Shared>,
    holds: Arc<Holds>,
    tell: Tell,
}

impl Listener {
    fn listen(self) {
        let mut reconnects = 0;
        loop {
            let channel = Arc::clone(&self.shared.lock().channel);
            match channel.receive::<ToTransaction>() {
                Ok(Some((message, fd))) => {
                    self.shared.lock().heard = true;
                    self.handle(message, fd);
                }
                Ok(None) | Err(_) => {
                    reconnects += 1;
                    if reconnects > RECONNECTS || !self.reconnect() {
                        return self.gone();
                    }
                }
            }
        }
    }

    /// A manager that was just ending when it was connected to has heard nothing: the next one is
    /// told the same.
    fn reconnect(&self) -> bool {
        let heard = {
            let state = self.shared.lock();
            state.heard || !state.open
        };
        if heard {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
        let Ok(channel) = self.shared.place.connect_or_start() else { return false };
        let mut state = self.shared.lock();
        state.channel = Arc::new(channel);
        state.first.as_ref().is_some_and(|first| state.channel.send(first, None).is_ok())
    }

    fn gone(&self) {
        let mut state = self.shared.lock();
        state.gone = true;
        let (attempt, open) = (state.attempt, state.open);
        drop(state);
        self.shared.changed.notify_all();
        if open {
            // Who waits for a hold would wait for ever.
            self.holds.stop();
            (self.tell)(attempt, Verdict::Gone);
        }
    }

    fn handle(&self, message: ToTransaction, fd: Option<OwnedFd>) {
        match message {
            ToTransaction::Ask { hold } => self.set_up(hold, fd),
            ToTransaction::Release { hold } => self.holds.release(hold),
            ToTransaction::Pass { hold } => self.holds.pass(hold),
            ToTransaction::Count => {
                self.shared.send(&ToManager::Count { read: self.holds.size() }, None);
            }
            ToTransaction::Attempt(attempt, word) => self.word(attempt, word),
            ToTransaction::Table | ToTransaction::Stats(_) | ToTransaction::Policy(_) => {}
        }
    }

    fn set_up(&self, hold: Hold, fd: Option<OwnedFd>) {
        // Of what cannot be understood nothing is held; the validation at the commit finds it.
        let written = fd.and_then(read_all).and_then(|bytes| Written::decode(&bytes).ok());
        self.holds.set_up(hold, written.unwrap_or_default(), |HoldAnswer { meeting, size }| {
            let met = meeting.map(|meeting| Met {
                path: meeting.path.to_string_lossy().into_owned(),
                facet: meeting.facet,
            });
            self.shared.send(&ToManager::Answer { hold, met, read: size }, None);
        });
    }

    fn word(&self, attempt: u32, word: Word) {
        let mut state = self.shared.lock();
        // What is said of an attempt that is over is late.
        if state.attempt != attempt || !state.open {
            return;
        }
        match word {
            Word::Start => {
                state.started = true;
                drop(state);
                self.shared.changed.notify_all();
            }
            Word::Wait(rival) => (self.tell)(attempt, Verdict::Waits(rival)),
            Word::Grant => (self.tell)(attempt, Verdict::Granted),
            Word::Doom(..) | Word::Locked(..) => {
                // Known before the first touch fails, so that its failure is taken for what it is.
                let lost = match word {
                    Word::Doom(winner, met) => Lost { winner, met, lock: None },
                    Word::Locked(winner, path) => Lost { winner, met: None, lock: Some(path) },
                    _ => return,
                };
                state.lost = Some(lost.clone());
                self.holds.stop();
                drop(state);
                self.shared.send(&ToManager::Stopped, None);
                (self.tell)(attempt, Verdict::Lost(lost));
            }
        }
    }
}
