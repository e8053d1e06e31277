//! After the command ended well: what it changed is committed, kept, shown, or dropped.

use std::{io::IsTerminal, path::PathBuf, rc::Rc, time::Instant};

use anyhow::{Context, Result};
use rustix::termios::isatty;
use txos_capture::{Captured, ValidateOptions, WHITEOUT_STAND_IN, validate};
use txos_core::{Conflict, Workset};
use txos_effects::{
    services::{ServiceOutcome, read_requests, run_deferred},
    streams::Outcome as StreamsOutcome,
    syslog,
};
use txos_host::Tree;
use txos_store::{
    Committed, Delta, ExtractOptions, Kept, NoDomain, Phase, Prepared, StateDir, StoreError,
    names::shown,
};

use super::{
    Finish, Report,
    report::{print_changes, summary},
    transaction::{Next, Transaction},
};
use crate::{
    exit::Exit,
    text::{count, printable, say},
};

/// So many conflicts are enough to know.
const CONFLICTS: usize = 100;

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
        self.report.notes.clone_from(&delta.notes);
        if let Some(next) = self.too_much() {
            return Ok(next);
        }
        match self.options.finish {
            Finish::DryRun => {
                self.show_changes();
                self.streams.finish(StreamsOutcome::Commit);
                self.report.outcome = "dry-run".to_owned();
                self.say_end(&format!("dry run, nothing was changed: {}", self.summary()));
                return Ok(Next::End(Exit::Success));
            }
            Finish::Review if !on_terminal() => return self.keep(delta, &captured),
            Finish::Keep => return self.keep(delta, &captured),
            Finish::Review => {
                // What the command said belongs to what is reviewed; and the terminal is needed.
                let streams = self.streams.finish(StreamsOutcome::Commit);
                self.report.stream_errors.extend(streams.errors);
                self.show_changes();
                if !confirm()? {
                    let reason = "the review said no".to_owned();
                    return Ok(Next::End(self.abort(Exit::Success, reason)));
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

    /// The limits again, now that all is known.
    fn too_much(&mut self) -> Option<Next> {
        let written = self.report.changes.iter().filter_map(|change| change.size_after).sum();
        let objects = self.report.changes.len() as u64;
        let reason = self.options.limits.of_written(written, objects)?;
        Some(Next::End(self.abort(Exit::Failure, reason)))
    }

    fn commit(&mut self, delta: Delta, captured: &Captured) -> Result<Next> {
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
        let mut prepared = match Prepared::stage(&state, dir, delta) {
            Ok(prepared) => prepared,
            Err(StoreError::Conflict(conflicts)) => return Ok(Next::Retry(conflicts)),
            Err(error) => return Err(error.into()),
        };
        self.report.time("stage", begin.elapsed());
        let begin = Instant::now();
        let interrupts = self.interrupts.clone();
        let mut interrupted = false;
        let mut validated = Ok(());
        let mut validate = |phase: Phase| -> Result<(), Vec<Conflict>> {
            if interrupts.pending().is_some() {
                interrupted = true;
                return Err(Vec::new());
            }
            // Without a domain nothing is paused, and an early look would only look twice.
            if phase == Phase::Early && !delta_is_empty {
                return Ok(());
            }
            match validate_workset(&self.state, &captured.workset) {
                Ok(conflicts) if conflicts.is_empty() => Ok(()),
                Ok(conflicts) => Err(conflicts),
                Err(error) => {
                    validated = Err(error);
                    Err(Vec::new())
                }
            }
        };
        let result =
            prepared.commit(&self.lock, &mut validate, &mut NoDomain, self.options.durable);
        self.report.time("commit", begin.elapsed());
        match result {
            Ok(committed) => {
                self.committed(&committed, run_deferred(&requests));
                Ok(Next::End(Exit::Success))
            }
            Err(StoreError::Conflict(conflicts)) => {
                prepared.abort()?;
                if interrupted {
                    let signal = self.interrupts.pending().unwrap_or(libc::SIGTERM);
                    return Ok(Next::End(self.abort_for_signal(signal)));
                }
                validated?;
                Ok(Next::Retry(conflicts))
            }
            Err(error) => {
                if !matches!(error, StoreError::Unfinished { .. }) {
                    prepared.abort()?;
                }
                Err(error.into())
            }
        }
    }

    fn committed(&mut self, committed: &Committed, services: Vec<ServiceOutcome>) {
        let streams = self.streams.finish(StreamsOutcome::Commit);
        for error in &streams.errors {
            say(error);
        }
        self.report.stream_errors.extend(streams.errors);
        self.report.outcome = "committed".to_owned();
        self.report.time("apply", committed.apply);
        self.report.time("flush", committed.flush);
        for kept in &committed.kept {
            let line = told(kept);
            say(&line);
            self.report.notes.push(line);
        }
        if let Some(reason) = &committed.unfinished {
            say(format!("committed, but not cleaned up: {reason} (`txos recover` does it)"));
        }
        syslog::deliver(&self.report.effects.messages);
        if !self.report.effects.left.is_empty() {
            let left = printable(&self.report.effects.left.join(", "));
            let line = format!("gone with the transaction, since it cannot be published: {left}");
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

    fn keep(&mut self, delta: Delta, captured: &Captured) -> Result<Next> {
        let id = self.report.id;
        self.report.outcome = "kept".to_owned();
        self.report.text = delta.unified(&self.tree);
        let report = serde_json::to_vec(&self.report)?;
        let (state, dir) = (Rc::clone(&self.state), self.take_dir());
        let prepared = Prepared::stage(&state, dir, delta)?;
        prepared.keep(&captured.workset.encode(), &report)?;
        self.streams.finish(StreamsOutcome::Commit);
        self.show_changes();
        say(format!(
            "transaction {id} is kept: {}; `txos commit {id}` or `txos abort {id}`",
            self.summary()
        ));
        Ok(Next::End(Exit::Success))
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

/// What became of an object that someone outside changed between validation and apply.
pub fn told(kept: &Kept) -> String {
    let path = shown(&kept.path);
    match &kept.saved {
        Some(saved) => format!("{path}: {}; the other version is in {}", kept.reason, shown(saved)),
        None => format!("{path}: {}", kept.reason),
    }
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

/// Asks on the terminal; everything but a clear yes is a no.
fn confirm() -> Result<bool> {
    eprint!("txos: commit these changes? [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
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
