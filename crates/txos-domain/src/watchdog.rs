//! The watchdog: a process of its own that ends what txos cannot end any more.
//!
//! ```text
//!  txos ──Arm, Decide, Done──▶ watchdog ──what it knows──▶ second
//!       ◀─Armed, Go, Expired──    │                          │
//!   (end of this connection:      └── (end of this one: the ─┘
//!    txos has died)                    watchdog has died: the second serves txos in its place)
//! ```
//!
//! | what happens | before Go | after Go |
//! |---|---|---|
//! | the limit is over | thaw; Decide will be answered Expired | nothing: the limit does not bind |
//! | txos dies | thaw | finish the apply (recovery), then thaw |
//! | the watchdog dies | the second takes its place | the same |
//! | the second dies | a new one is started with the next Arm | the same |
//! | the apply lasts beyond [`APPLY_LIMIT`] | – | thaw, and say so |
//!
//! The last row is for what nobody can help: a device that does not answer. Isolation is given up
//! there, since a machine that stands still for ever is worse.

use std::{
    collections::BTreeMap,
    io::Write,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    DomainError, Result, hold,
    ledger::{Claim, Ledger},
    wire::{Answer, Ask, Watch, What, Wire},
};

/// So long an apply may last with the domain frozen.
pub const APPLY_LIMIT: Duration = Duration::from_secs(60);
/// So long the watchdog has for an answer while nothing is frozen, before it counts as dead. One that
/// has died is known at once, by the end of the connection.
const ANSWER: Duration = Duration::from_secs(10);
/// Starting a process may take longer on a busy machine.
const START: Duration = Duration::from_secs(60);

/// Finishes the apply of transactions whose txos has died; called by the watchdog.
pub type Finish = Arc<dyn Fn() + Send + Sync>;

/// txos's side: the connection to a running watchdog.
///
/// When this is dropped the watchdog ends, after it has ended what was left.
#[derive(Debug)]
pub struct Watchdog {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    wire: Option<Wire>,
    child: Child,
    next: u64,
    answered: bool,
}

impl Watchdog {
    /// Starts a watchdog: `program` with `arguments` and the word `first`, which has to call
    /// [`serve`]. Returns at once; the process must not be in any domain.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Path, arguments: &[&std::ffi::OsStr]) -> Result<Watchdog> {
        let failed =
            |error: std::io::Error| DomainError::Watchdog(format!("cannot start: {error}"));
        let (ours, theirs) = Wire::pair().map_err(|errno| failed(errno.into()))?;
        let theirs = theirs.as_fd().try_clone_to_owned().map_err(failed)?;
        let child = Command::new(program)
            .args(arguments)
            .arg("first")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            // A Ctrl-C on the terminal is not meant for it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let inner = Inner { wire: Some(ours), child, next: 0, answered: false };
        Ok(Watchdog { inner: Mutex::new(inner) })
    }

    /// Has it watch over something; gives the number by which it is known.
    pub(crate) fn arm(
        &self,
        limit: Duration,
        what: What,
        fds: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<u64> {
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        let patience = if inner.answered { ANSWER } else { START };
        let answer = inner.ask(&Ask::Arm(Watch { id, limit, what }), fds, id, patience)?;
        inner.answered = true;
        match answer {
            Answer::Armed(_) => Ok(id),
            _ => Err(DomainError::Watchdog("answers what was not asked".to_owned())),
        }
    }

    /// Asks whether the commit may be decided; `false` if the limit is over, at `until`. A watchdog
    /// that does not run (it was stopped) keeps no limit, and no answer by then is a no.
    pub(crate) fn decide(&self, id: u64, until: Instant) -> Result<bool> {
        let patience = until.saturating_duration_since(Instant::now());
        let answer = self.lock().ask(&Ask::Decide(id), &[], id, patience);
        match answer {
            Ok(answer) => Ok(answer == Answer::Go(id)),
            Err(_) if Instant::now() >= until => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells it that something is over. If it has died, there is nothing to tell.
    pub(crate) fn done(&self, id: u64) {
        if let Some(wire) = &self.lock().wire {
            let _ = wire.send(&Ask::Done(id), &[]);
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.lock().child.id()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Asks and waits for the answer to just that.
    fn ask(
        &mut self,
        ask: &Ask,
        fds: &[std::os::fd::BorrowedFd<'_>],
        id: u64,
        patience: Duration,
    ) -> Result<Answer> {
        let gone = |why: &str| DomainError::Watchdog(why.to_owned());
        let wire = self.wire.as_ref().ok_or_else(|| gone("has ended"))?;
        wire.send(ask, fds).map_err(|errno| gone(&format!("cannot be reached: {errno}")))?;
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match wire.wait(Some(left)) {
                Ok(false) if Instant::now() >= deadline => return Err(gone("does not answer")),
                Ok(false) => continue,
                Ok(true) => {}
                Err(errno) => return Err(gone(&format!("cannot be heard: {errno}"))),
            }
            match wire.receive::<Answer>() {
                // An answer that came too late for an earlier question is passed over.
                Ok(Some((answer, _))) if answer.id() == id => return Ok(answer),
                Ok(Some(_)) => {}
                Ok(None) => return Err(gone("has died")),
                Err(errno) => return Err(gone(&format!("is not understood: {errno}"))),
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The end of the connection is what it waits for.
        self.wire = None;
        let _ = self.child.wait();
    }
}

impl Answer {
    fn id(self) -> u64 {
        match self {
            Answer::Armed(id) | Answer::Go(id) | Answer::Expired(id) => id,
        }
    }
}

/// What a watchdog knows of one thing that it watches.
struct Watched {
    until: Instant,
    decided: bool,
    items: Items,
}

enum Items {
    Pause(Vec<(OwnedFd, Claim)>),
    Hold(Vec<PathBuf>),
}

impl Watched {
    fn new(watch: &Watch, fds: Vec<OwnedFd>) -> Watched {
        let items = match &watch.what {
            What::Hold(paths) => Items::Hold(paths.clone()),
            What::Pause => {
                let mut fds = fds.into_iter();
                let mut pairs = Vec::new();
                while let (Some(freeze), Some(claim)) = (fds.next(), fds.next()) {
                    pairs.push((freeze, Claim::shared(claim)));
                }
                Items::Pause(pairs)
            }
        };
        Watched { until: Instant::now() + watch.limit, decided: false, items }
    }

    fn watch(&self, id: u64) -> Watch {
        let what = match &self.items {
            Items::Pause(_) => What::Pause,
            Items::Hold(paths) => What::Hold(paths.clone()),
        };
        Watch { id, limit: self.until.saturating_duration_since(Instant::now()), what }
    }

    fn fds(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        match &self.items {
            Items::Hold(_) => Vec::new(),
            Items::Pause(pairs) => {
                pairs.iter().flat_map(|(freeze, claim)| [freeze.as_fd(), claim.fd()]).collect()
            }
        }
    }

    fn end(&self, ledger: &Ledger) {
        match &self.items {
            Items::Pause(pairs) => {
                pairs.iter().for_each(|(freeze, claim)| ledger.leave(claim, freeze));
            }
            Items::Hold(paths) => paths.iter().for_each(|path| hold::release(path)),
        }
    }
}

/// The watchdog's process: serves until txos has ended, and returns then.
///
/// `role` is the last argument that the process was started with; standard input is the connection
/// to txos, or to the watchdog whose second it is, and standard output then the one to txos.
/// `again` starts the same program once more, as [`Watchdog::start`] did.
///
/// # Errors
/// If it was not started by txos, or has no ledger.
pub fn serve(role: &str, again: (&Path, &[&std::ffi::OsStr]), finish: Finish) -> Result<()> {
    let inherited = |fd: std::io::Result<OwnedFd>| {
        fd.map(Wire::from_fd).map_err(|error| DomainError::Watchdog(format!("has no {error}")))
    };
    let ledger = Ledger::open_own()?;
    let first = inherited(std::io::stdin().as_fd().try_clone_to_owned())?;
    let mut server = match role {
        "first" => Server::new(first, ledger, again, finish),
        "second" => {
            let control = inherited(std::io::stdout().as_fd().try_clone_to_owned())?;
            let mut server = Server::new(control, ledger, again, finish);
            if server.stand_by(&first) {
                return Ok(());
            }
            server
        }
        _ => return Err(DomainError::Watchdog("is started by txos alone".to_owned())),
    };
    server.serve();
    Ok(())
}

struct Server<'a> {
    control: Wire,
    ledger: Ledger,
    again: (&'a Path, &'a [&'a std::ffi::OsStr]),
    finish: Finish,
    watched: BTreeMap<u64, Watched>,
    /// What was ended because its limit was over, until txos knows it.
    expired: BTreeMap<u64, Watched>,
    second: Option<(Wire, Child)>,
}

impl<'a> Server<'a> {
    fn new(
        control: Wire,
        ledger: Ledger,
        again: (&'a Path, &'a [&'a std::ffi::OsStr]),
        finish: Finish,
    ) -> Server<'a> {
        Server {
            control,
            ledger,
            again,
            finish,
            watched: BTreeMap::new(),
            expired: BTreeMap::new(),
            second: None,
        }
    }

    /// As the second: learns what the watchdog does. `true` when all was ended in order, `false`
    /// when the watchdog has died.
    fn stand_by(&mut self, notes: &Wire) -> bool {
        loop {
            match notes.receive::<Ask>() {
                Ok(Some((Ask::Arm(watch), fds))) => {
                    self.watched.insert(watch.id, Watched::new(&watch, fds));
                }
                Ok(Some((Ask::Decide(id), _))) => self.decided(id),
                Ok(Some((Ask::Done(id), _))) => drop(self.watched.remove(&id)),
                Ok(Some((Ask::Quit, _))) => return true,
                Err(Errno::BADMSG) => {}
                Ok(None) | Err(_) => return false,
            }
        }
    }

    fn decided(&mut self, id: u64) {
        if let Some(watched) = self.watched.get_mut(&id) {
            watched.decided = true;
            watched.until = Instant::now() + APPLY_LIMIT;
        }
    }

    fn serve(&mut self) {
        if !self.watched.is_empty() {
            self.start_second();
        }
        loop {
            let next = self.watched.values().map(|watched| watched.until).min();
            let patience = next.map(|at| at.saturating_duration_since(Instant::now()));
            match self.control.wait(patience) {
                Ok(true) => match self.control.receive::<Ask>() {
                    Ok(Some((ask, fds))) => self.answer(ask, fds),
                    Err(Errno::BADMSG) => {}
                    Ok(None) | Err(_) => break,
                },
                Ok(false) => {}
                Err(_) => break,
            }
            self.expire();
        }
        self.bereaved();
    }

    fn answer(&mut self, ask: Ask, fds: Vec<OwnedFd>) {
        match ask {
            Ask::Arm(watch) => {
                let id = watch.id;
                let watched = Watched::new(&watch, fds);
                self.watched.insert(id, watched);
                if self.note_arm(id).is_err() {
                    self.start_second();
                }
                // Without a second nothing is promised: txos will not freeze.
                if self.second.is_some() {
                    let _ = self.control.send(&Answer::Armed(id), &[]);
                }
            }
            Ask::Decide(id) => {
                let in_time = self.watched.get(&id).is_some_and(|w| w.until > Instant::now());
                let answer = if in_time {
                    self.decided(id);
                    self.note(&Ask::Decide(id));
                    Answer::Go(id)
                } else {
                    Answer::Expired(id)
                };
                let _ = self.control.send(&answer, &[]);
            }
            Ask::Done(id) => {
                self.watched.remove(&id);
                self.expired.remove(&id);
                self.note(&Ask::Done(id));
            }
            Ask::Quit => {}
        }
    }

    /// Ends what is over its limit.
    fn expire(&mut self) {
        let now = Instant::now();
        let over: Vec<u64> =
            self.watched.iter().filter(|(_, w)| w.until <= now).map(|(id, _)| *id).collect();
        for id in over {
            if let Some(watched) = self.watched.remove(&id) {
                watched.end(&self.ledger);
                if watched.decided {
                    say("an apply lasts too long: the domain runs again before its end");
                }
                self.expired.insert(id, watched);
            }
            self.note(&Ask::Done(id));
        }
    }

    /// txos has gone: ends all that it left.
    fn bereaved(&mut self) {
        let (decided, undecided): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.watched).into_iter().partition(|(_, w)| w.decided);
        for (id, watched) in undecided {
            watched.end(&self.ledger);
            self.note(&Ask::Done(id));
        }
        for expired in std::mem::take(&mut self.expired).into_values() {
            if let Items::Pause(pairs) = &expired.items {
                pairs.iter().for_each(|(freeze, claim)| self.ledger.make_sure(claim, freeze));
            }
        }
        if !decided.is_empty() {
            self.finish_apply();
        }
        for (_, watched) in decided {
            watched.end(&self.ledger);
        }
        self.note(&Ask::Quit);
        if let Some((wire, mut child)) = self.second.take() {
            drop(wire);
            let _ = child.wait();
        }
    }

    fn finish_apply(&self) {
        let (sender, ended) = mpsc::channel();
        let finish = Arc::clone(&self.finish);
        let work = move || {
            finish();
            let _ = sender.send(());
        };
        let started = thread::Builder::new().name("recovery".to_owned()).spawn(work);
        if started.is_err() || ended.recv_timeout(APPLY_LIMIT).is_err() {
            say("the apply of a transaction whose txos died could not be finished; txos recover");
        }
    }

    fn note(&self, ask: &Ask) {
        if let Some((wire, _)) = &self.second {
            let _ = wire.send(ask, &[]);
        }
    }

    fn note_arm(&self, id: u64) -> Result<(), Errno> {
        let (Some((wire, _)), Some(watched)) = (&self.second, self.watched.get(&id)) else {
            return Err(Errno::PIPE);
        };
        wire.send(&Ask::Arm(watched.watch(id)), &watched.fds())?;
        if watched.decided { wire.send(&Ask::Decide(id), &[]) } else { Ok(()) }
    }

    /// Starts a second and tells it all; there is none if that fails.
    fn start_second(&mut self) {
        self.second = self.try_second().ok();
        let told = self.watched.keys().try_for_each(|id| self.note_arm(*id));
        if told.is_err() {
            self.second = None;
        }
    }

    fn try_second(&self) -> std::io::Result<(Wire, Child)> {
        let (ours, theirs) = Wire::pair()?;
        let child = Command::new(self.again.0)
            .args(self.again.1)
            .arg("second")
            .stdin(Stdio::from(theirs.as_fd().try_clone_to_owned()?))
            .stdout(Stdio::from(self.control.as_fd().try_clone_to_owned()?))
            .process_group(0)
            .spawn()?;
        Ok((ours, child))
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "txos: watchdog: {line}");
}
