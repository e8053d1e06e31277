//! Transactions that wait for a decision.

use std::{
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use txos_core::{TxId, Workset};
use txos_effects::services::{ServiceRequest, read_requests};
use txos_store::{LogEntry, Outcome, Prepared, StateDir, TxState};

use super::{Deferred, Report, deferred::Record, transaction::now_ms};
use crate::{
    contention::{self, Ended, Link, Lost, Verdict},
    text::say,
};

/// A transaction that was kept, opened for its end.
pub struct Kept<'s> {
    /// What the store has of it.
    pub prepared: Prepared<'s>,
    /// What it said of itself.
    pub report: Report,
    /// What waits for its commit, beside the changes.
    waiting: Record,
}

/// What is stored of a kept transaction beside what the store itself needs.
#[derive(Serialize)]
struct ToStore<'r> {
    #[serde(flatten)]
    report: &'r Report,
    waiting: Record,
}

/// The same when it is read again. The report is read for itself: it passes over what it does not know.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    waiting: Record,
}

/// What is stored of a transaction that is going to be kept.
///
/// # Errors
/// If that cannot be written as text.
pub fn encode(report: &Report, deferred: &Deferred) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&ToStore { report, waiting: deferred.record() })?)
}

impl<'s> Kept<'s> {
    /// Opens transaction `id`.
    ///
    /// # Errors
    /// If it is not kept, or damaged.
    pub fn open(state: &'s StateDir, id: TxId) -> Result<Kept<'s>> {
        let prepared = match state.prepared(id) {
            Ok(prepared) => prepared,
            Err(error) => {
                let ended = state.history().unwrap_or_default();
                let Some(entry) = ended.iter().rev().find(|entry| entry.id == id) else {
                    return Err(error.into());
                };
                bail!(
                    "transaction {id} is not kept: it has ended, {} (see `txos show {id}`)",
                    crate::verbs::log::word(entry.outcome)
                );
            }
        };
        let text = state.prepared_report(id)?;
        let stored = |text| -> Result<(Report, Stored)> {
            Ok((serde_json::from_slice(text)?, serde_json::from_slice(text)?))
        };
        let (report, Stored { waiting }) = stored(&text)
            .with_context(|| format!("cannot understand the report of transaction {id}"))?;
        Ok(Kept { prepared, report, waiting })
    }

    /// What waits for its commit, beside the changes: its receivers are looked for now. Gives a line for
    /// each that can't be found from here.
    pub fn deferred(&mut self) -> (Deferred, Vec<String>) {
        Deferred::of(std::mem::take(&mut self.waiting))
    }

    /// What it has read.
    ///
    /// # Errors
    /// If that is damaged.
    pub fn workset(&self) -> Result<Workset> {
        Workset::decode(self.prepared.workset()).with_context(|| {
            format!("cannot understand the workset of transaction {}", self.report.id)
        })
    }

    /// What it asked of services.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn requests(&self) -> Result<Vec<ServiceRequest>> {
        let path = self.prepared.tx().path().join("requests");
        Ok(read_requests(&path).context("cannot read the recorded service requests")?.0)
    }

    /// The line of the log for its end.
    pub fn log_entry(&self, outcome: Outcome) -> LogEntry {
        let meta = &self.prepared.tx().meta;
        LogEntry {
            id: self.report.id,
            outcome,
            command: meta.command.clone(),
            started_ms: LogEntry::milliseconds(meta.started),
            ended_ms: now_ms(),
            status: Some(0),
            retries: meta.retries,
            changes: self.report.changes.len() as u64,
            note: "after it was kept".to_owned(),
            loss: meta.loss.clone(),
        }
    }
}

/// What became of the wait for a turn.
pub enum Waited {
    /// It has come.
    Turn(Turn),
    /// It will not: the transaction has lost.
    Lost(Lost),
    /// Nobody waits for it any more.
    Cancelled,
}

/// The turn of a kept transaction to validate and apply. It waits for all that run, and never wins
/// against one.
pub struct Turn {
    link: Link,
}

impl Turn {
    /// Waits for it, telling for whom. `cancelled` ends the wait.
    ///
    /// # Errors
    /// If the contention manager cannot be started, or ends.
    pub fn wait_for(
        state: &StateDir,
        kept: &Kept<'_>,
        workset: Arc<Workset>,
        command: &str,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Waited> {
        let (sender, verdicts) = channel();
        let tell = Box::new(move |_, verdict| {
            let _ = sender.send(verdict);
        });
        let standing =
            contention::standing(kept.report.id, kept.prepared.tx().meta.started, 0, true);
        let link = Link::join(state.path(), standing, command, tell)?;
        let read = workset.len();
        link.holds().read_before(workset);
        link.wait_for_first_start()?;
        link.ready(&kept.prepared.written()?, read)?;
        let began = Instant::now();
        let mut rival = None;
        loop {
            if cancelled() {
                return Ok(Waited::Cancelled);
            }
            match verdicts.recv_timeout(Duration::from_millis(100)) {
                Ok(Verdict::Granted) => return Ok(Waited::Turn(Turn { link })),
                Ok(Verdict::Lost(lost)) => return Ok(Waited::Lost(lost)),
                Ok(Verdict::Waits(winner)) => {
                    say(format!("waiting for {winner}"));
                    rival = Some(winner);
                }
                Err(RecvTimeoutError::Timeout) => ensure!(
                    rival.is_some() || began.elapsed() < contention::PATIENCE,
                    "the contention manager does not answer"
                ),
                Ok(Verdict::Gone) | Err(RecvTimeoutError::Disconnected) => bail!(contention::GONE),
            }
        }
    }

    /// The transaction is committed.
    pub fn committed(self) {
        self.link.end(Ended { ending: contention::Ending::Committed, ..Ended::default() });
    }
}

/// The report of transaction `id`, if it is kept.
///
/// # Errors
/// If it cannot be read.
pub fn report(state: &StateDir, id: TxId) -> Result<Option<Report>> {
    let kept = |tx: &txos_store::TxStatus| tx.meta.id == id && tx.meta.state == TxState::Prepared;
    if !state.transactions()?.iter().any(kept) {
        return Ok(None);
    }
    let report = serde_json::from_slice(&state.prepared_report(id)?)
        .with_context(|| format!("cannot understand the report of transaction {id}"))?;
    Ok(Some(report))
}
