//! The end of a transaction: what it changed becomes real, or is forgotten.

use txos_capture::{Captured, ValidateOptions, WHITEOUT_STAND_IN, validate};
use txos_contention::Lost;
use txos_core::{Conflict, Stamp, TxId};
use txos_store::{
    self as store, Delta, ExtractOptions, LogEntry, Loss, NoDomain, Phase, Prepared, StoreError,
    TxDir,
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
    Committed(Done),
    /// None of it is: what was read had changed.
    Conflict(Vec<Conflict>),
    /// None of it is: another transaction comes first.
    Lost(Lost),
    /// None of it is: nobody waits for it any more.
    Cancelled,
}

/// What there is to say of a commit.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// How many objects it changed.
    pub(crate) changes: u64,
    /// Whether it has cost a flush anyway.
    pub(crate) durable: bool,
    /// What it displaced or could not finish.
    pub(crate) notes: Vec<String>,
}

/// How a transaction ended, for the log.
pub(crate) struct Ended<'a> {
    pub(crate) id: TxId,
    pub(crate) outcome: store::Outcome,
    /// What its program runs.
    pub(crate) command: &'a str,
    /// When its first attempt began, and how many lost.
    pub(crate) started: Stamp,
    pub(crate) times: u32,
    /// The last loss.
    pub(crate) loss: Option<Loss>,
    pub(crate) done: Done,
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
            let outcome = self.only_read(&captured);
            // What has changed of what it was shown is wrong for the next one, too.
            return match outcome {
                Ok(Outcome::Committed(_)) => (outcome, view.used_alone(clean)),
                _ => (outcome, view.used(clean)),
            };
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
            true => Outcome::Committed(Done::default()),
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
        // The builder removes it, while the program goes on already.
        prepared.leave_directory();
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
                let mut notes: Vec<String> =
                    committed.kept.iter().map(ToString::to_string).collect();
                notes.extend(committed.unfinished.map(|why| format!("not cleaned up: {why}")));
                Ok(Outcome::Committed(Done { changes: committed.operations, durable, notes }))
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
                Ok(Outcome::Committed(Done { changes: 0, durable, notes: vec![line] }))
            }
            // Recovery needs what is staged, where there may be a commit record.
            (Err(error @ StoreError::Undecided { .. }), _) => Err(error.into()),
            (Err(error), _) => {
                give_up(prepared);
                Err(error.into())
            }
        }
    }

    /// Says in the log how a transaction ended that changed something durably, or of which there is more to
    /// say: a session has no terminal, and its program hears a number.
    pub(crate) fn note(&self, ended: Ended<'_>) {
        let Done { changes, durable, notes } = &ended.done;
        let lasting = *durable && *changes > 0;
        if !lasting && notes.is_empty() && ended.loss.is_none() {
            return;
        }
        let entry = LogEntry {
            id: ended.id,
            outcome: ended.outcome,
            command: ended.command.to_owned(),
            started_ms: LogEntry::milliseconds(ended.started),
            ended_ms: LogEntry::milliseconds(now()),
            status: None,
            retries: ended.times,
            changes: ended.done.changes,
            note: ended.done.notes.join("; "),
            loss: ended.loss,
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
