use std::{
    path::Path,
    rc::Rc,
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use txos_capture::read_ahead_only;
use txos_core::{Conflict, Facet, Stamp};
use txos_effects::{
    streams::{Inherited, Outcome as StreamsOutcome, Outer, Streams, StreamsSpec},
    supervisor::{Contact, Locks, Tapes},
};
use txos_host::Tree;
use txos_store::{LogEntry, Loss, Outcome, StateDir, StoreError, TxDir};
use txos_view::Credentials;

use super::{
    Deferred, Finish, Options, Report,
    attempt::{self, Attempt, Cause, Event},
    beside::Beside,
    culprit, recover_if_free,
    report::{Reported, print_conflicts},
    services::Plants,
    signals::Interrupts,
};
use crate::{
    contention::{self, Ended, Ending, Link, Lost, Verdict},
    exit::Exit,
    state,
    text::say,
};

/// Held output and recorded input beyond this many bytes go to a file.
const SPILL_AFTER: usize = txos_effects::streams::DEFAULT_LIMIT;

/// First wait before a retry; doubled with each one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A transaction from its beginning to its end.
pub(super) struct Transaction {
    pub(super) options: Options,
    pub(super) state: Rc<StateDir>,
    /// Its directory, but while a prepared commit holds it.
    pub(super) dir: Option<TxDir>,
    /// When it began; kept across retries.
    pub(super) started: Stamp,
    pub(super) tree: Tree,
    /// The connection to the contention manager.
    pub(super) link: Link,
    /// How often it lost to others than transactions, and to transactions.
    lost_outside: u32,
    lost_to_others: u32,
    /// Why it lost the last time.
    loss: Option<Loss>,
    pub(super) credentials: Credentials,
    pub(super) interrupts: Interrupts,
    pub(super) streams: Streams,
    pub(super) report: Report,
    sender: Sender<Event>,
    pub(super) events: Receiver<Event>,
    pub(super) began: Instant,
    /// The locks that members took, held outside until the transaction has ended.
    locks: Locks,
    /// What of the last attempt waits for the commit.
    pub(super) deferred: Deferred,
    /// What came over the network (`--net record`).
    tapes: Tapes,
    /// Everybody else.
    pub(super) beside: Beside,
    /// The helpers in the view of the last attempt.
    pub(super) plants: Plants,
    /// What the end of this attempt has taken up to now.
    pub(super) spent: Spent,
    /// Whether entries may be handed out before they are asked for: not again after a conflict on
    /// nothing but such an entry.
    pub(super) prefetch: bool,
}

/// What the end of an attempt has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// How long it waited, ready, for its turn.
    pub(super) waited: Duration,
    /// How long the domain stood still, if it did.
    pub(super) paused: Option<Duration>,
}

/// What is to happen after an attempt.
pub(super) enum Next {
    /// The transaction is over.
    End(Exit),
    /// Someone changed what it read: run it again, if that is allowed.
    Retry(Vec<Conflict>),
    /// Another transaction won: run it again when that has ended, if it is allowed.
    Lost(Lost),
}

impl Transaction {
    /// Begins: recovers, and makes the transaction's own directory.
    ///
    /// # Errors
    /// If that fails, or was interrupted by a signal.
    pub(super) fn begin(
        options: Options,
        interrupts: Interrupts,
        (sender, events): (Sender<Event>, Receiver<Event>),
    ) -> Result<Transaction> {
        // Before anything is started that could inherit them too.
        let inherited = Inherited::take(&options.pass_fds)?;
        let state = state::open()?;
        let command = options.command_line();
        recover_if_free(&state)?;
        let beside = Beside::begin(options.beside.clone(), &state)?;
        let id = state.next_id()?;
        let dir = TxDir::create(&state, id, &command)?;
        let started = dir.meta.started;
        let meek = matches!(options.finish, Finish::Keep | Finish::Review);
        let standing = contention::standing(id, started, options.priority, meek);
        let tell = verdicts(sender.clone());
        let link = Link::join(state.path(), standing, &command, tell)?;
        let mut streams = Streams::new(
            StreamsSpec {
                output: options.output,
                retries: options.retries > 0,
                scratch: dir.spill(),
                spill_after: SPILL_AFTER,
            },
            Outer::inherited()?,
        )?;
        streams.carry(inherited);
        let mut report = Report::new(id, &options);
        report.descriptors = streams.missing().to_vec();
        report.isolation = beside.isolation();
        Ok(Transaction {
            credentials: state::credentials(),
            tree: Tree::open("/")?,
            lost_outside: 0,
            lost_to_others: 0,
            loss: None,
            began: Instant::now(),
            spent: Spent::default(),
            prefetch: true,
            beside,
            plants: Plants::default(),
            locks: Locks::telling(link.on_wait()),
            link,
            tapes: Tapes::default(),
            deferred: Deferred::default(),
            options,
            state: Rc::new(state),
            dir: Some(dir),
            started,
            interrupts,
            streams,
            report,
            sender,
            events,
        })
    }

    /// Runs attempts until the transaction is over.
    pub(super) fn run(mut self) -> Result<Exit> {
        let attempts = self.attempts().map_err(|error| match is_decided(&error) {
            true => error,
            false => error.context("aborted, nothing was changed"),
        });
        let result = match (attempts, self.interrupts.pending()) {
            // What fails because everything is being ended is not what the user should hear of.
            (Err(error), Some(signal)) if !is_decided(&error) => {
                tracing::debug!(%error, "failed after a signal");
                Ok(self.abort_for_signal(signal))
            }
            (result, _) => result,
        };
        let exit = match &result {
            Ok(exit) => *exit,
            Err(error) => {
                self.streams.finish(StreamsOutcome::Failed);
                self.report.outcome = Reported::Failed;
                self.report.reason = format!("{error:#}");
                Exit::of_error(error)
            }
        };
        self.report.exit_status = exit.code();
        let logged = if self.report.outcome == Reported::Kept { Ok(()) } else { self.log() };
        let removed = match self.dir.take() {
            Some(dir) => dir.remove(&self.state),
            None => Ok(()),
        };
        let report = self.options.report.as_mut();
        let reported = report.map_or(Ok(()), |file| file.write(&self.report));
        // How the transaction ended stays as it is: what fails from here on is told, not returned.
        for failed in [logged, removed.map_err(anyhow::Error::from), reported]
            .into_iter()
            .filter_map(Result::err)
        {
            say(format!("{failed:#}"));
        }
        result
    }

    fn attempts(&mut self) -> Result<Exit> {
        let deadline = self.options.timeout.map(|limit| (self.began + limit, limit));
        for number in 0.. {
            self.report.attempts = number + 1;
            let _held = self.beside.hold()?;
            self.tapes.rewind();
            let view = self.view()?;
            let phase = Instant::now();
            let ended = Attempt {
                number,
                view,
                policy: self.policy(),
                capture: self.capture(),
                streams: &mut self.streams,
                plants: &mut self.plants,
                deadline,
                limits: self.options.limits,
                linger: self.options.linger,
                locks: self.locks.clone(),
                tapes: self.tapes.clone(),
                beside: &self.beside,
                link: &self.link,
                sender: &self.sender,
                events: &self.events,
                interrupts: &self.interrupts,
            }
            .run()?;
            self.report.time("run", phase.elapsed());
            let pause = match self.decide(ended)? {
                Next::End(exit) => return Ok(exit),
                Next::Retry(conflicts) => {
                    let facets = conflicts.iter().map(|conflict| conflict.facet);
                    self.over(Ending::Aborted, facets.collect());
                    let pause = pause(self.lost_outside);
                    self.beside.lost(&conflicts);
                    if let Some(exit) = self.give_up(conflicts) {
                        return Ok(exit);
                    }
                    pause
                }
                Next::Lost(lost) => {
                    self.over(Ending::Aborted, Vec::new());
                    if let Some(exit) = self.give_up_to(&lost) {
                        return Ok(exit);
                    }
                    Duration::ZERO
                }
            };
            self.streams.finish(StreamsOutcome::Retry);
            // Whoever is waited for before the next attempt may wait for one of them.
            self.locks.give_back();
            self.renew_dir(number + 1)?;
            std::thread::sleep(pause);
            if let Some(exit) = self.begin_again(number + 1, deadline)? {
                return Ok(exit);
            }
        }
        unreachable!("the attempts have no end but by a decision")
    }

    /// Tells the contention manager that the attempt is over, and what it has taken.
    pub(super) fn over(&mut self, ending: Ending, outside: Vec<Facet>) {
        let Spent { waited, paused } = std::mem::take(&mut self.spent);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (waited_us, paused_us) = (micros(waited), paused.map(micros));
        self.link.end(Ended { ending, outside, waited_us, paused_us });
    }

    /// Waits until it is this transaction's turn again; the exit if something ends that.
    fn begin_again(
        &mut self,
        attempt: u32,
        deadline: Option<(Instant, Duration)>,
    ) -> Result<Option<Exit>> {
        self.link.begin(attempt, self.lost_outside + self.lost_to_others);
        let over = || deadline.filter(|(at, _)| *at <= Instant::now());
        let interrupts = self.interrupts.clone();
        if self.link.wait_for_start(|| interrupts.pending().is_some() || over().is_some())? {
            return Ok(None);
        }
        Ok(Some(match (self.interrupts.pending(), over()) {
            (None, Some((_, limit))) => self.abort_for_time(limit),
            (signal, _) => self.abort_for_signal(signal.unwrap_or(libc::SIGTERM)),
        }))
    }

    /// After a conflict that another transaction won: the exit if there is to be no further
    /// attempt. These don't count: whoever loses to others is older one day.
    fn give_up_to(&mut self, lost: &Lost) -> Option<Exit> {
        if let Some(signal) = self.interrupts.pending() {
            return Some(self.abort_for_signal(signal));
        }
        self.lost_to_others += 1;
        let last = self.options.retries == 0;
        let conflict = lost.conflict();
        if !self.options.quiet || last {
            let then = if last { "nothing was changed" } else { "running again when it has ended" };
            say(format!("lost to {lost}; {then}:"));
            print_conflicts(std::slice::from_ref(&conflict));
        }
        self.loss = Some(Loss::new(
            self.report.attempts,
            lost.to_string(),
            std::slice::from_ref(&conflict),
        ));
        self.report.conflicts.push(vec![conflict]);
        last.then(|| self.conflict("another transaction won a conflict"))
    }

    /// After a conflict: the exit if there is to be no further attempt.
    fn give_up(&mut self, conflicts: Vec<Conflict>) -> Option<Exit> {
        if let Some(signal) = self.interrupts.pending() {
            return Some(self.abort_for_signal(signal));
        }
        self.lost_outside += 1;
        let last = self.lost_outside > self.options.retries;
        if !self.options.quiet || last {
            let what = if last {
                "changed meanwhile; the retries are used up, nothing was changed:".to_owned()
            } else {
                format!(
                    "changed meanwhile; running again ({} of {}):",
                    self.lost_outside, self.options.retries
                )
            };
            say(format!("what the transaction had read was {what}"));
            print_conflicts(&conflicts);
        }
        self.prefetch &= !conflicts.iter().all(read_ahead_only);
        let by = culprit::named(&conflicts);
        self.loss = Some(Loss::new(self.report.attempts, by, &conflicts));
        self.report.conflicts.push(conflicts);
        last.then(|| self.conflict("what it had read was changed, and the retries are used up"))
    }

    fn conflict(&mut self, reason: &str) -> Exit {
        self.streams.finish(StreamsOutcome::Discard);
        self.report.outcome = Reported::Conflict;
        self.report.reason = reason.to_owned();
        Exit::Conflict
    }

    /// What follows from the end of an attempt.
    fn decide(&mut self, ended: attempt::Ended) -> Result<Next> {
        if let Some(captured) = &ended.captured {
            self.report.captured(captured);
        }
        self.report.effects = ended.effects;
        self.deferred = ended.deferred;
        if let Some(lost) = self.link.lost() {
            // Whatever it came to by then, its first touches may have failed.
            return Ok(Next::Lost(lost));
        }
        let (exit, reason) = match ended.cause {
            Cause::Exited(0) => {
                let captured =
                    ended.captured.context("the command ran in a view that was never made")?;
                return self.finish(captured);
            }
            Cause::Doomed(conflict) => return Ok(Next::Retry(vec![conflict])),
            Cause::Lost(lost) => return Ok(Next::Lost(lost)),
            Cause::Signal(signal) => return Ok(Next::End(self.abort_for_signal(signal))),
            Cause::Exited(status) => {
                let exit = Exit::of_wait_status(status);
                let reason = match exit {
                    Exit::Signal(signal) => format!("the command was ended by signal {signal}"),
                    _ => format!("the command ended with status {}", exit.code()),
                };
                (exit, reason)
            }
            Cause::ExecFailed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                let name = self.options.command[0].to_string_lossy().into_owned();
                say(format!("cannot execute {name:?}: {error}"));
                (Exit::of_exec(errno), "the command cannot be executed".to_owned())
            }
            Cause::Timeout(limit) => return Ok(Next::End(self.abort_for_time(limit))),
            Cause::TooMuch(reason) => (Exit::Failure, reason),
            Cause::Unsupported(call) => (Exit::Failure, call),
            Cause::Lingering(names) => {
                let names = crate::text::printable(&names.join(", "));
                (Exit::Failure, format!("processes outlive the command: {names} (--linger)"))
            }
        };
        Ok(Next::End(self.abort(exit, reason)))
    }

    /// Aborts after the command failed: its held output is shown, for it says why.
    pub(super) fn abort(&mut self, exit: Exit, reason: String) -> Exit {
        let streams = self.streams.finish(StreamsOutcome::Failed);
        self.report.stream_errors.extend(streams.errors);
        if !self.options.quiet || exit == Exit::Failure {
            say(format!("aborted, nothing was changed: {reason}"));
            // It may be why the command failed.
            self.report.descriptors.iter().for_each(say);
            self.refused_sockets().for_each(say);
        }
        self.report.outcome = Reported::Aborted;
        self.report.reason = reason;
        exit
    }

    /// A line for each local socket of a process outside that members tried and were not let through to.
    fn refused_sockets(&self) -> impl Iterator<Item = String> {
        let let_through = |address: &str| {
            self.options.live.iter().any(|live| Path::new(address).starts_with(live))
        };
        let tried = self.report.effects.host_sockets();
        tried.filter(move |socket| !let_through(&socket.address)).map(|socket| {
            let Contact { address, first, .. } = socket;
            format!(
                "{first} connected to {address}, which nobody inside listens at: it belongs to a process \
                 outside the transaction; --allow {address} lets it through"
            )
        })
    }

    pub(super) fn abort_for_signal(&mut self, signal: i32) -> Exit {
        self.abort(Exit::Signal(signal), format!("signal {signal} to txos"))
    }

    pub(super) fn abort_for_time(&mut self, limit: Duration) -> Exit {
        let reason = format!("the time limit of {limit:?} is over (--timeout)");
        self.abort(Exit::Failure, reason)
    }

    /// The transaction's directory.
    pub(super) fn dir(&mut self) -> &mut TxDir {
        self.dir.as_mut().expect("the directory is taken only at the very end of an attempt")
    }

    /// Hands the directory over to a prepared commit.
    pub(super) fn take_dir(&mut self) -> TxDir {
        self.dir.take().expect("an attempt prepares one commit at the most")
    }

    /// Empties the directory for another attempt, or makes it anew.
    fn renew_dir(&mut self, retries: u32) -> Result<()> {
        let command = self.options.command_line();
        let mut dir = match self.dir.take() {
            Some(mut dir) => {
                dir.clear_layers()?;
                dir
            }
            None => TxDir::create(&self.state, self.report.id, &command)?,
        };
        dir.meta.started = self.started;
        dir.meta.retries = retries;
        dir.meta.loss.clone_from(&self.loss);
        dir.save()?;
        self.dir = Some(dir);
        Ok(())
    }

    fn log(&self) -> Result<()> {
        let outcome = match self.report.outcome {
            Reported::Committed => Outcome::Committed,
            Reported::Conflict => Outcome::Conflicted,
            Reported::Failed => Outcome::Failed,
            Reported::Aborted | Reported::Kept | Reported::DryRun => Outcome::Aborted,
        };
        Ok(self.state.log(&LogEntry {
            id: self.report.id,
            outcome,
            command: self.options.command_line(),
            started_ms: LogEntry::milliseconds(self.started),
            ended_ms: now_ms(),
            status: Some(i32::from(self.report.exit_status)),
            retries: self.report.attempts.saturating_sub(1),
            changes: self.report.changes.len() as u64,
            note: self.report.reason.clone(),
            loss: self.loss.clone(),
        })?)
    }
}

/// Whether an error tells of a transaction that is committed all the same, or may be.
fn is_decided(error: &anyhow::Error) -> bool {
    use StoreError::{Undecided, Unfinished};
    matches!(error.downcast_ref(), Some(Unfinished { .. } | Undecided { .. }))
}

/// Passes on what the contention manager decides.
fn verdicts(events: Sender<Event>) -> Box<dyn Fn(u32, Verdict) + Send> {
    Box::new(move |attempt, verdict| {
        let _ = events.send(Event::Verdict(attempt, verdict));
    })
}

fn pause(number: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << number.min(10)).min(LONGEST_PAUSE)
}

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
