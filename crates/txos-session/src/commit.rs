//! The end of a transaction: what it changed becomes real, or is forgotten.

use txos_capture::{Captured, ValidateOptions, WHITEOUT_STAND_IN, validate};
use txos_contention::Lost;
use txos_core::{Conflict, Stamp, TxId};
use txos_store::{
    self as store, Delta, ExtractOptions, LogEntry, NoDomain, Phase, Prepared, StoreError, TxDir,
};

use crate::{
    Result,
    contender::{Contender, Turn},
    view::{Host, Used, View, now},
};

/// So many conflicts are enough to know.
const CONFLICTS: usize = 8;

/// How a commit came out.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// All of it is visible.
    Committed,
    /// None of it is: what was read had changed.
    Conflict(Vec<Conflict>),
    /// None of it is: another transaction comes first.
    Lost(Lost),
    /// None of it is: nobody waits for it any more.
    Cancelled,
}

/// What a commit that waits for others asks.
pub(crate) struct Asked<'a> {
    /// Whether somebody still waits for it.
    pub(crate) wanted: &'a dyn Fn() -> bool,
    /// Whether another transaction is of the same process.
    pub(crate) own: &'a dyn Fn(TxId) -> bool,
}

/// Who still has or had to do with a view that no process is in any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Something of it is open somewhere.
    Open,
    /// Nothing is.
    Clean,
    /// And nobody but the thread that began was ever in it.
    Alone,
}

impl Host {
    /// Commits what was done in `view`, which no process uses any more. Gives back what is left of the
    /// view.
    pub(crate) fn commit(
        &self,
        view: View,
        durable: bool,
        reach: Reach,
        asked: &Asked<'_>,
    ) -> (Result<Outcome>, Used) {
        let clean = reach != Reach::Open;
        if let Some(conflict) = view.base.capture.doomed() {
            return (Ok(Outcome::Conflict(vec![conflict])), view.used(clean));
        }
        let captured = view.base.capture.captured();
        if reach == Reach::Alone && view.is_untouched() {
            return (self.only_read(&captured), view.used_alone(clean));
        }
        let options = ExtractOptions {
            null_device_alias: WHITEOUT_STAND_IN,
            protect: vec![self.state.path().to_owned()],
            ..ExtractOptions::new(self.state.privilege(), view.started)
        };
        match Delta::extract(&view.dir.meta.layers, &self.tree, &captured, &options) {
            Ok(delta) if delta.is_empty() => (self.only_read(&captured), view.used(clean)),
            Ok(delta) => {
                let (dir, used) = view.split(clean);
                (self.apply(dir, delta, &captured, durable, used.contender(), asked), used)
            }
            Err(StoreError::Conflict(conflicts)) => {
                (Ok(Outcome::Conflict(conflicts)), view.used(clean))
            }
            Err(error) => (Err(error.into()), view.used(clean)),
        }
    }

    /// A transaction that changed nothing has to have read what was there all at one time.
    fn only_read(&self, captured: &Captured) -> Result<Outcome> {
        let _locked = self.lock()?;
        let conflicts = self.validate(captured)?;
        Ok(match conflicts.is_empty() {
            true => Outcome::Committed,
            false => Outcome::Conflict(conflicts),
        })
    }

    fn apply(
        &self,
        dir: TxDir,
        delta: Delta,
        captured: &Captured,
        durable: bool,
        contender: &Contender,
        asked: &Asked<'_>,
    ) -> Result<Outcome> {
        let mut prepared = match Prepared::stage(&self.state, dir, delta) {
            Ok(prepared) => prepared,
            Err(StoreError::Conflict(conflicts)) => return Ok(Outcome::Conflict(conflicts)),
            Err(error) => return Err(error.into()),
        };
        let turn = prepared.written().map(|written| {
            contender.turn(&written, captured.workset.len(), asked.wanted, asked.own)
        });
        match turn {
            Ok(Turn::Granted) => {}
            Ok(Turn::Lost(lost)) => {
                give_up(prepared);
                return Ok(Outcome::Lost(lost));
            }
            Ok(Turn::Cancelled) => {
                give_up(prepared);
                return Ok(Outcome::Cancelled);
            }
            Err(error) => {
                give_up(prepared);
                return Err(error.into());
            }
        }
        let mut failed = None;
        let mut check = |phase: Phase| match phase {
            // Without a domain nothing is paused, and an early look would only look twice.
            Phase::Early => Ok(()),
            Phase::Paused => match self.validate(captured) {
                Ok(conflicts) if conflicts.is_empty() => Ok(()),
                Ok(conflicts) => Err(conflicts),
                Err(error) => {
                    failed = Some(error);
                    Err(Vec::new())
                }
            },
        };
        let locked = match self.lock() {
            Ok(locked) => locked,
            Err(error) => {
                give_up(prepared);
                return Err(error);
            }
        };
        let result = prepared.commit(&locked.lock, &mut check, &mut NoDomain, durable);
        drop(locked);
        match (result, failed) {
            (Ok(committed), _) => {
                let mut lines: Vec<String> =
                    committed.kept.iter().map(ToString::to_string).collect();
                lines.extend(committed.unfinished.map(|why| format!("not cleaned up: {why}")));
                self.note(prepared.tx(), committed.operations, &lines);
                Ok(Outcome::Committed)
            }
            (Err(StoreError::Conflict(_)), Some(error)) => {
                give_up(prepared);
                Err(error)
            }
            (Err(StoreError::Conflict(conflicts)), None) => {
                give_up(prepared);
                Ok(Outcome::Conflict(conflicts))
            }
            // It is committed, and recovery finishes it.
            (Err(StoreError::Unfinished { cause }), _) => {
                let line = format!("not wholly applied yet: {cause} (`txos recover` does it)");
                self.note(prepared.tx(), 0, &[line]);
                Ok(Outcome::Committed)
            }
            // Recovery needs what is staged, where there may be a commit record.
            (Err(error @ StoreError::Undecided { .. }), _) => Err(error.into()),
            (Err(error), _) => {
                give_up(prepared);
                Err(error.into())
            }
        }
    }

    /// Says in the log what else there is to say of a commit; of most there is nothing. A session has no
    /// terminal, and its program hears a number.
    fn note(&self, tx: &TxDir, changes: u64, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        let meta = &tx.meta;
        let entry = LogEntry {
            id: meta.id,
            outcome: store::Outcome::Committed,
            command: meta.command.clone(),
            started_ms: milliseconds(meta.started),
            ended_ms: milliseconds(now()),
            status: None,
            retries: meta.retries,
            changes,
            note: lines.join("; "),
            loss: None,
        };
        if let Err(error) = self.state.log(&entry) {
            tracing::error!(%error, note = entry.note, "cannot be logged");
        }
    }

    /// Compares what was read with what is stable now.
    pub(crate) fn validate(&self, captured: &Captured) -> Result<Vec<Conflict>> {
        let options = ValidateOptions {
            hidden: vec![self.state.path().to_owned()],
            limit: CONFLICTS,
            ..ValidateOptions::default()
        };
        Ok(validate(&captured.workset, &self.tree, &options)?)
    }
}

/// Gives up what is staged. Why the transaction ends is what its program has to hear; what cannot be
/// removed now, a recovery removes.
fn give_up(prepared: Prepared<'_>) {
    if let Err(error) = prepared.abort() {
        tracing::error!(%error, "cannot remove what was staged");
    }
}

/// Since 1970.
fn milliseconds(time: Stamp) -> u64 {
    u64::try_from(time.sec).unwrap_or(0) * 1000 + u64::from(time.nsec) / 1_000_000
}
