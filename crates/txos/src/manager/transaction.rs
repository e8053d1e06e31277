use std::{
    rc::Rc,
    sync::mpsc::{Receiver, Sender},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use txos_core::{Conflict, Stamp};
use txos_effects::{
    streams::{Outcome as StreamsOutcome, Outer, Streams, StreamsSpec},
    supervisor::Locks,
};
use txos_host::Tree;
use txos_store::{ExclusiveLock, LogEntry, Outcome, StateDir, StoreError, TxDir};
use txos_view::Credentials;

use super::{
    Options, Report,
    attempt::{Attempt, Cause, Ended, Event},
    lock_and_recover,
    report::print_conflicts,
    services::Plants,
    signals::Interrupts,
};
use crate::{exit::Exit, state, text::say};

/// Held output and recorded input beyond this many bytes go to a file.
const SPILL_AFTER: usize = txos_effects::streams::DEFAULT_LIMIT;

/// First wait before a retry; doubled with each one, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A transaction from its beginning to its end.
pub(super) struct Transaction {
    pub(super) options: Options,
    pub(super) state: Rc<StateDir>,
    pub(super) lock: ExclusiveLock,
    /// Its directory, but while a prepared commit holds it.
    pub(super) dir: Option<TxDir>,
    /// When it began; kept across retries.
    pub(super) started: Stamp,
    pub(super) tree: Tree,
    pub(super) credentials: Credentials,
    pub(super) interrupts: Interrupts,
    pub(super) streams: Streams,
    pub(super) report: Report,
    sender: Sender<Event>,
    events: Receiver<Event>,
    began: Instant,
    /// The locks that members took, held outside until the transaction has ended.
    locks: Locks,
    /// The helpers in the view of the last attempt.
    pub(super) plants: Plants,
    /// Whether entries may be handed out before they are asked for: not again after a conflict on
    /// nothing but such an entry.
    pub(super) prefetch: bool,
}

/// What is to happen after an attempt.
pub(super) enum Next {
    /// The transaction is over.
    End(Exit),
    /// Someone changed what it read: run it again, if that is allowed.
    Retry(Vec<Conflict>),
}

impl Transaction {
    /// Begins: locks the state directory, recovers, and makes the transaction's own directory.
    ///
    /// # Errors
    /// If that fails, or was interrupted by a signal.
    pub(super) fn begin(
        options: Options,
        interrupts: Interrupts,
        (sender, events): (Sender<Event>, Receiver<Event>),
    ) -> Result<Transaction> {
        let state = state::open()?;
        let command = options.command_line();
        let cancelled = || interrupts.pending().is_some();
        let mut lock = lock_and_recover(&state, &command, &cancelled)?;
        let id = state.next_id(&lock)?;
        lock.set_transaction(Some(id))?;
        let dir = TxDir::create(&state, &lock, id, &command)?;
        let started = dir.meta.started;
        let streams = Streams::new(
            StreamsSpec {
                output: options.output,
                retries: options.retries > 0,
                scratch: dir.spill(),
                spill_after: SPILL_AFTER,
            },
            Outer::inherited()?,
        )?;
        let report = Report::new(id, &options);
        Ok(Transaction {
            credentials: state::credentials(),
            tree: Tree::open("/")?,
            began: Instant::now(),
            prefetch: true,
            plants: Plants::default(),
            locks: Locks::default(),
            options,
            state: Rc::new(state),
            lock,
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
        let result = match (self.attempts(), self.interrupts.pending()) {
            // What fails because everything is being ended is not what the user should hear of.
            (Err(error), Some(signal)) if !is_committed(&error) => {
                tracing::debug!(%error, "failed after a signal");
                Ok(self.abort_for_signal(signal))
            }
            (result, _) => result,
        };
        let exit = match &result {
            Ok(exit) => *exit,
            Err(error) => {
                self.streams.finish(StreamsOutcome::Failed);
                self.report.outcome = "failed".to_owned();
                self.report.reason = format!("{error:#}");
                Exit::of_error(error)
            }
        };
        self.report.exit_status = exit.code();
        let logged = if self.report.outcome == "kept" { Ok(()) } else { self.log() };
        let removed = match self.dir.take() {
            Some(dir) => dir.remove(&self.state),
            None => Ok(()),
        };
        if let Some(file) = &mut self.options.report {
            file.write(&self.report)?;
        }
        let exit = result?;
        // A commit that happened stays one: what fails from here on is told, not returned.
        for failed in
            [logged, removed.map_err(anyhow::Error::from)].into_iter().filter_map(Result::err)
        {
            say(format!("{failed:#}"));
        }
        Ok(exit)
    }

    fn attempts(&mut self) -> Result<Exit> {
        let deadline = self.options.timeout.map(|limit| (self.began + limit, limit));
        for number in 0.. {
            self.report.attempts = number + 1;
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
                sender: &self.sender,
                events: &self.events,
            }
            .run()?;
            self.report.time("run", phase.elapsed());
            let conflicts = match self.decide(ended)? {
                Next::End(exit) => return Ok(exit),
                Next::Retry(conflicts) => conflicts,
            };
            if let Some(exit) = self.give_up(number, conflicts) {
                return Ok(exit);
            }
            self.streams.finish(StreamsOutcome::Retry);
            self.renew_dir(number + 1)?;
            std::thread::sleep(pause(number));
        }
        unreachable!("the attempts have no end but by a decision")
    }

    /// After a conflict: the exit if there is to be no further attempt.
    fn give_up(&mut self, number: u32, conflicts: Vec<Conflict>) -> Option<Exit> {
        if let Some(signal) = self.interrupts.pending() {
            return Some(self.abort_for_signal(signal));
        }
        let last = number >= self.options.retries;
        if !self.options.quiet || last {
            let what = if last {
                "changed meanwhile; the retries are used up, nothing was changed:".to_owned()
            } else {
                format!(
                    "changed meanwhile; running again ({} of {}):",
                    number + 1,
                    self.options.retries
                )
            };
            say(format!("what the transaction had read was {what}"));
            print_conflicts(&conflicts);
        }
        self.prefetch &= !conflicts.iter().all(|conflict| conflict.detail.contains("speculative"));
        self.report.conflicts.push(conflicts);
        if !last {
            return None;
        }
        self.streams.finish(StreamsOutcome::Discard);
        self.report.outcome = "conflict".to_owned();
        self.report.reason = "what it had read was changed, and the retries are used up".to_owned();
        Some(Exit::Conflict)
    }

    /// What follows from the end of an attempt.
    fn decide(&mut self, ended: Ended) -> Result<Next> {
        if let Some(captured) = &ended.captured {
            self.report.captured(captured);
        }
        self.report.effects = ended.effects;
        let (exit, reason) = match ended.cause {
            Cause::Exited(0) => {
                let captured =
                    ended.captured.context("the command ran in a view that was never made")?;
                return self.finish(captured);
            }
            Cause::Doomed(conflict) => return Ok(Next::Retry(vec![conflict])),
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
            Cause::Timeout(limit) => {
                (Exit::Failure, format!("the time limit of {limit:?} is over (--timeout)"))
            }
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
        }
        self.report.outcome = "aborted".to_owned();
        self.report.reason = reason;
        exit
    }

    pub(super) fn abort_for_signal(&mut self, signal: i32) -> Exit {
        self.abort(Exit::Signal(signal), format!("signal {signal} to txos"))
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
            None => TxDir::create(&self.state, &self.lock, self.report.id, &command)?,
        };
        dir.meta.started = self.started;
        dir.meta.retries = retries;
        dir.save()?;
        self.dir = Some(dir);
        Ok(())
    }

    fn log(&self) -> Result<()> {
        let outcome = match self.report.outcome.as_str() {
            "committed" => Outcome::Committed,
            "conflict" => Outcome::Conflicted,
            "failed" => Outcome::Failed,
            _ => Outcome::Aborted,
        };
        let started = self.started;
        Ok(self.state.log(&LogEntry {
            id: self.report.id,
            outcome,
            command: self.options.command_line(),
            started_ms: started.sec.max(0) as u64 * 1000 + u64::from(started.nsec) / 1_000_000,
            ended_ms: now_ms(),
            status: Some(i32::from(self.report.exit_status)),
            retries: self.report.attempts.saturating_sub(1),
            changes: self.report.changes.len() as u64,
            note: self.report.reason.clone(),
        })?)
    }
}

/// Whether an error tells of a transaction that is committed all the same.
fn is_committed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(StoreError::Unfinished { .. }))
}

fn pause(number: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << number.min(10)).min(LONGEST_PAUSE)
}

/// Now, in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
