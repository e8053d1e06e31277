//! After the command ended well: what it changed is committed, kept, shown, or dropped.

use std::{
    io::IsTerminal,
    path::PathBuf,
    rc::Rc,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::termios::isatty;
use txos_capture::{Captured, ValidateOptions, WHITEOUT_STAND_IN, validate};
use txos_core::{Conflict, Workset, contention::Written};
use txos_effects::{
    services::{ServiceOutcome, read_requests, run_deferred},
    streams::Outcome as StreamsOutcome,
};
use txos_host::Tree;
use txos_store::{
    ChangeKind, Committed, Delta, ExtractOptions, Phase, Prepared, StateDir, StoreError,
};

use super::{
    Finish, Report,
    answer::Answer,
    attempt::Event,
    kept, lock_and_recover,
    report::{Reported, print_changes, summary},
    transaction::{Next, Transaction},
};
use crate::{
    contention::{self, Ending, Verdict},
    exit::Exit,
    text::{count, printable, say},
};

/// So many conflicts are enough to know.
const CONFLICTS: usize = 100;

/// How often a review looks for signals and at the time while it waits for an answer.
const ANSWER_TICK: Duration = Duration::from_millis(50);

impl Transaction {
    /// Decides what becomes of an attempt whose command ended well.
    pub(super) fn finish(&mut self, captured: Captured) -> Result<Next> {
        let begin = Instant::now();
        let planted = self.plants.untouched()?;
        let delta = match self.extract(&captured, planted) {
            Ok(delta) => delta,
            Err(StoreError::Conflict(conflicts)) => return Ok(Next::Retry(conflicts)),
            Err(error) => return Err(error.into()),
        };
        self.report.time("extract", begin.elapsed());
        self.report.changes.clone_from(&delta.changes);
        self.report.notes.clear();
        if let Some(next) = self.too_much() {
            return Ok(next);
        }
        if self.options.finish != Finish::Commit {
            self.note_what_waits()?;
        }
        match self.options.finish {
            Finish::DryRun => {
                self.over(Ending::DryRun, Vec::new());
                self.show_changes();
                self.finish_streams();
                self.report.outcome = Reported::DryRun;
                self.say_end(&format!("dry run, nothing was changed: {}", self.summary()));
                return Ok(Next::End(Exit::Success));
            }
            Finish::Review if !on_terminal() => return self.keep(delta, &captured),
            Finish::Keep => return self.keep(delta, &captured),
            Finish::Review => {
                // What the command said belongs to what is reviewed; and the terminal is needed.
                self.finish_streams();
                self.show_changes();
                if let Some(exit) = self.review()? {
                    return Ok(Next::End(exit));
                }
            }
            Finish::Commit => {}
        }
        self.commit(delta, &captured)
    }

    fn extract(&mut self, captured: &Captured, planted: Vec<PathBuf>) -> Result<Delta, StoreError> {
        let options = ExtractOptions {
            null_device_alias: WHITEOUT_STAND_IN,
            ignore: planted,
            protect: vec![self.state.path().to_owned()],
            ..ExtractOptions::new(self.state.privilege(), self.started)
        };
        let dir = self.dir.as_ref().expect("an attempt leaves its directory");
        Delta::extract(&dir.meta.layers, &self.tree, captured, &options)
    }

    /// Notes what a commit does beside the changes: it is to be seen before the decision.
    fn note_what_waits(&mut self) -> Result<()> {
        let requests = self.dir().path().join("requests");
        let (requests, _) =
            read_requests(&requests).context("cannot read the recorded service requests")?;
        let requests = requests.iter().map(|request| {
            let words = format!("{} {}", request.action, request.operands.join(" "));
            format!("a commit makes the service request: {}", words.trim_end())
        });
        self.report.notes.extend(requests);
        let gone = self.report.effects.left.iter();
        let gone =
            gone.map(|what| format!("gone with the transaction: {what}")).collect::<Vec<_>>();
        self.report.notes.extend(gone);
        let objects = self.deferred.objects.iter().map(|object| format!("a commit makes {object}"));
        self.report.notes.extend(objects);
        let signals = self.report.effects.signals.iter();
        let signals = signals.map(|signal| format!("a commit sends {signal}")).collect::<Vec<_>>();
        self.report.notes.extend(signals);
        Ok(())
    }

    /// The limit of objects again, now that all changes are known: directories, too. The space that
    /// they take was counted when the last process had ended.
    fn too_much(&mut self) -> Option<Next> {
        let objects = self.report.changes.len() as u64;
        let reason = self.options.limits.of_written(0, objects)?;
        Some(Next::End(self.abort(Exit::Failure, reason)))
    }

    fn commit(&mut self, delta: Delta, captured: &Captured) -> Result<Next> {
        if let Some(reason) = self.deferred.in_the_way() {
            return Ok(Next::End(self.abort(Exit::Failure, reason)));
        }
        let requests = self.dir().path().join("requests");
        let (requests, skipped) =
            read_requests(&requests).context("cannot read the recorded service requests")?;
        if skipped > 0 {
            self.report.notes.push(format!(
                "{} to services that txos does not understand: not made",
                count(skipped as u64, "request")
            ));
        }
        let begin = Instant::now();
        let delta_is_empty = delta.is_empty();
        let (state, dir) = (Rc::clone(&self.state), self.take_dir());
        self.beside.give_back(self.report.changes.iter().map(|change| match &change.kind {
            ChangeKind::Renamed { from } => from.as_path(),
            _ => change.path.as_path(),
        }));
        let mut prepared = match Prepared::stage(&state, dir, delta) {
            Ok(prepared) => prepared,
            Err(StoreError::Conflict(conflicts)) => return Ok(Next::Retry(conflicts)),
            Err(error) => return Err(error.into()),
        };
        self.report.time("stage", begin.elapsed());
        // Who writes nothing meets nobody; what it has read is validated below.
        if !delta_is_empty {
            let begin = Instant::now();
            let turn = prepared.written().map_err(anyhow::Error::from);
            match turn.and_then(|written| self.turn(&written, captured)) {
                Ok(None) => {}
                Ok(Some(next)) => {
                    give_up(prepared);
                    return Ok(next);
                }
                Err(error) => {
                    give_up(prepared);
                    return Err(error);
                }
            }
            self.report.time("turn", begin.elapsed());
        }
        let begin = Instant::now();
        let interrupts = self.interrupts.clone();
        let cancelled = || interrupts.pending().is_some();
        let mut lock = match lock_and_recover(&state, &self.options.command_line(), &cancelled) {
            Ok(lock) => lock,
            Err(error) => {
                give_up(prepared);
                return Err(error);
            }
        };
        lock.set_transaction(Some(self.report.id))?;
        let mut pausing = match self.beside.pausing() {
            Ok(pausing) => pausing,
            Err(error) => {
                give_up(prepared);
                return Err(error);
            }
        };
        let mut interrupted = false;
        let mut validated = Ok(());
        let mut validate = |phase: Phase| -> Result<(), Vec<Conflict>> {
            if interrupts.pending().is_some() {
                interrupted = true;
                return Err(Vec::new());
            }
            // Without a domain nothing is paused, and an early look would only look twice.
            if phase == Phase::Early && !delta_is_empty && !self.beside.pauses() {
                return Ok(());
            }
            match self.beside.validate(phase, &self.state, &captured.workset) {
                Ok(conflicts) if conflicts.is_empty() => Ok(()),
                Ok(conflicts) => Err(conflicts),
                Err(error) => {
                    validated = Err(error);
                    Err(Vec::new())
                }
            }
        };
        let durable = self.options.durable;
        let mut result = prepared.commit(&lock, &mut validate, &mut pausing, durable);
        // Nothing was done; the machine may be less busy the next time.
        while matches!(result, Err(StoreError::Domain(_))) && pausing.may_try_again() {
            result = prepared.commit(&lock, &mut validate, &mut pausing, durable);
        }
        drop(lock);
        self.beside.committed();
        let stood = pausing.stood();
        drop(pausing);
        self.spent.paused = stood;
        if let Some(stood) = stood {
            self.report.time("pause", stood);
        }
        self.report.time("commit", begin.elapsed());
        match result {
            Ok(committed) => {
                self.over(Ending::Committed, Vec::new());
                self.committed(&committed, run_deferred(&requests));
                Ok(Next::End(Exit::Success))
            }
            Err(StoreError::Conflict(conflicts)) => {
                give_up(prepared);
                if interrupted {
                    let signal = self.interrupts.pending().unwrap_or(libc::SIGTERM);
                    return Ok(Next::End(self.abort_for_signal(signal)));
                }
                validated?;
                Ok(Next::Retry(conflicts))
            }
            Err(error) => {
                // Recovery needs what is staged, where there is or may be a commit record.
                if !matches!(error, StoreError::Unfinished { .. } | StoreError::Undecided { .. }) {
                    give_up(prepared);
                }
                Err(error.into())
            }
        }
    }

    /// Waits until it is this transaction's turn to validate and apply; what happens instead if it
    /// is not going to be.
    fn turn(&mut self, written: &Written, captured: &Captured) -> Result<Option<Next>> {
        const LONG: Duration = Duration::from_millis(500);
        let (began, attempt) = (Instant::now(), self.report.attempts.saturating_sub(1));
        self.link.ready(written, captured.workset.len())?;
        let (mut rival, mut said) = (None, None);
        let mut waiting: Option<Instant> = None;
        loop {
            if let Some(signal) = self.interrupts.pending() {
                return Ok(Some(Next::End(self.abort_for_signal(signal))));
            }
            if let Some(limit) = self.options.timeout.filter(|limit| self.began.elapsed() > *limit)
            {
                return Ok(Some(Next::End(self.abort_for_time(limit))));
            }
            let event = self.events.recv_timeout(Duration::from_millis(50));
            self.spent.waited = waiting.map(|since| since.elapsed()).unwrap_or_default();
            match event {
                Ok(Event::Verdict(number, verdict)) if number == attempt => match verdict {
                    Verdict::Granted => return Ok(None),
                    Verdict::Waits(winner) => {
                        waiting.get_or_insert_with(Instant::now);
                        rival = Some(winner);
                    }
                    Verdict::Lost(lost) => return Ok(Some(Next::Lost(lost))),
                    Verdict::Gone => bail!(contention::GONE),
                },
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!(contention::GONE),
            }
            ensure!(
                rival.is_some() || began.elapsed() < contention::PATIENCE,
                "the contention manager does not answer"
            );
            if began.elapsed() > LONG && said != rival && !self.options.quiet {
                if let Some(rival) = &rival {
                    say(format!("ready, and waiting for {rival}"));
                }
                said.clone_from(&rival);
            }
        }
    }

    fn committed(&mut self, committed: &Committed, services: Vec<ServiceOutcome>) {
        self.finish_streams();
        self.report.outcome = Reported::Committed;
        self.report.time("apply", committed.apply);
        self.report.time("flush", committed.flush);
        for kept in &committed.kept {
            let line = kept.to_string();
            say(&line);
            self.report.notes.push(line);
        }
        if let Some(line) = unfinished(committed) {
            say(line);
        }
        for line in self.deferred.release() {
            say(printable(&line));
            self.report.notes.push(line);
        }
        let objects = self.deferred.objects.iter();
        self.report.effects.published = objects.map(ToString::to_string).collect();
        if !self.report.effects.left.is_empty() {
            let left = printable(&self.report.effects.left.join(", "));
            let line =
                format!("gone with the transaction, since it is no part of a commit: {left}");
            say(&line);
            self.report.notes.push(line);
        }
        tell_services(&services);
        self.report.services = services;
        if self.report.changes.is_empty() {
            return;
        }
        self.say_end(&format!("committed: {}", self.summary()));
    }

    /// Lets out what the command said, and tells what could not be.
    fn finish_streams(&mut self) {
        let streams = self.streams.finish(StreamsOutcome::Commit);
        for error in &streams.errors {
            say(error);
        }
        self.report.stream_errors.extend(streams.errors);
    }

    fn keep(&mut self, delta: Delta, captured: &Captured) -> Result<Next> {
        let id = self.report.id;
        if self.beside.pauses() {
            let line = "the commit of what is kept pauses no domain".to_owned();
            self.report.notes.push(line);
        }
        self.report.outcome = Reported::Kept;
        self.report.text = delta.unified(&self.tree);
        let report = kept::encode(&self.report, &self.deferred)?;
        let (state, dir) = (Rc::clone(&self.state), self.take_dir());
        let prepared = match Prepared::stage(&state, dir, delta) {
            Ok(prepared) => prepared,
            Err(StoreError::Conflict(conflicts)) => return Ok(Next::Retry(conflicts)),
            Err(error) => return Err(error.into()),
        };
        prepared.keep(&captured.workset.encode(), &report)?;
        self.over(Ending::Kept, Vec::new());
        self.finish_streams();
        self.show_changes();
        say(format!(
            "transaction {id} is kept: {}; `txos commit {id}` or `txos abort {id}`",
            self.summary()
        ));
        Ok(Next::End(Exit::Success))
    }

    /// Asks on the terminal; the exit where the answer is anything but a clear yes, or a signal or
    /// the time limit comes before it.
    fn review(&mut self) -> Result<Option<Exit>> {
        eprint!("txos: commit these changes? [y/N] ");
        let mut answer = Answer::default();
        loop {
            let read = answer.read(ANSWER_TICK).context("cannot read the answer")?;
            if self.interrupts.take_stop() {
                txos_view::stop_as_by_key(false).context("cannot stop")?;
            }
            let late = self.options.timeout.filter(|limit| self.began.elapsed() > *limit);
            let exit = match (self.interrupts.pending(), late) {
                (Some(signal), _) => self.abort_for_signal(signal),
                (None, Some(limit)) => self.abort_for_time(limit),
                (None, None) if !read => continue,
                (None, None) if answer.is_yes() => return Ok(None),
                (None, None) => {
                    return Ok(Some(self.abort(Exit::Success, "the review said no".to_owned())));
                }
            };
            return Ok(Some(exit));
        }
    }

    fn show_changes(&self) {
        print_changes(&self.report.changes, &self.report.notes);
    }

    fn summary(&self) -> String {
        summary(&self.report.changes)
    }

    fn say_end(&self, line: &str) {
        if self.options.quiet {
            return;
        }
        let seconds: f64 = ["run", "extract", "stage", "commit"]
            .iter()
            .filter_map(|phase| self.report.seconds.get(*phase))
            .sum();
        say(format!("transaction {} {line}, {seconds:.2} s", self.report.id));
    }
}

/// Gives up what is staged. Why the transaction ends is what its user has to hear; what cannot be
/// removed is told beside it.
fn give_up(prepared: Prepared<'_>) {
    if let Err(error) = prepared.abort() {
        say(format!("cannot remove what was staged: {error} (`txos recover` does it)"));
    }
}

/// Compares what a transaction has read with what is stable now.
///
/// # Errors
/// If the comparison itself fails.
pub fn validate_workset(state: &StateDir, workset: &Workset) -> Result<Vec<Conflict>> {
    let options = ValidateOptions {
        hidden: vec![state.path().to_owned()],
        limit: CONFLICTS,
        ..ValidateOptions::default()
    };
    Ok(validate(workset, &Tree::open("/")?, &options)?)
}

/// What to say of a commit that left something to a recovery.
pub fn unfinished(committed: &Committed) -> Option<String> {
    let reason = committed.unfinished.as_ref()?;
    Some(format!("committed, but not cleaned up: {reason} (`txos recover` does it)"))
}

/// Tells of service requests that did not work out; the others need no words.
pub fn tell_services(services: &[ServiceOutcome]) {
    for outcome in services {
        if outcome.status != Some(0) {
            let note = printable(&outcome.note);
            let request = &outcome.request;
            let words = format!("{} {}", request.action, request.operands.join(" "));
            say(format!("service request {}: {note}", printable(&words)));
        }
    }
}

fn on_terminal() -> bool {
    std::io::stdin().is_terminal() && isatty(std::io::stderr())
}

impl Report {
    /// Takes over what the capture counted.
    pub(super) fn captured(&mut self, captured: &Captured) {
        let stats = captured.workset.stats();
        self.read_objects = stats.objects;
        self.relaxed = stats.relaxed;
        self.workset_bytes = stats.bytes;
    }
}
