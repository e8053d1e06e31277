//! What a crash left: finished where the commit was decided, else discarded.

use std::path::Path;

use serde::{Deserialize, Serialize};
use txos_core::TxId;
use txos_host::Tree;

use crate::{
    ExclusiveLock, Holder, Result, StateDir, StoreError, TxState,
    apply::{Applier, Kept},
    journal::Journal,
    plan::Plan,
    stage, sys,
};

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// Transactions that were committed and are now wholly applied.
    pub finished: Vec<Finished>,
    /// Transactions that were not committed; what they left is removed.
    pub discarded: Vec<TxId>,
    /// Transactions that are committed but cannot be finished yet.
    pub pending: Vec<Pending>,
    /// Bytes of a record that a crash cut short, which was therefore never decided.
    pub torn: u64,
    /// A live process holds the state: nothing was looked at.
    pub busy: Option<Holder>,
}

/// A transaction that recovery finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Which.
    pub id: TxId,
    /// How many operations it has.
    pub operations: u64,
    /// How many of them were done already.
    pub skipped: u64,
    /// What was left as someone outside had made it.
    pub kept: Vec<Kept>,
}

/// A transaction that waits for its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// Which.
    pub id: TxId,
    /// Why it waits, as a sentence for a person.
    pub reason: String,
}

impl RecoveryReport {
    /// Whether there was anything to do.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty() && self.discarded.is_empty() && self.pending.is_empty()
    }
}

/// Recovers, unless a live process holds the state directory.
///
/// # Errors
/// [`StoreError::Damaged`] if the journal is; otherwise what finishing gives.
pub fn recover(state: &StateDir) -> Result<RecoveryReport> {
    match state.try_lock("recovery") {
        Ok(lock) => recover_locked(state, &lock),
        Err(StoreError::Busy(holder)) => {
            Ok(RecoveryReport { busy: Some(*holder), ..RecoveryReport::default() })
        }
        Err(error) => Err(error),
    }
}

/// Recovers under a lock that the caller holds already. Costs a directory listing and the reading
/// of an empty file where there is nothing to do.
///
/// # Errors
/// As [`recover`].
pub fn recover_locked(state: &StateDir, _lock: &ExclusiveLock) -> Result<RecoveryReport> {
    let mut report = RecoveryReport::default();
    let mut journal = Journal::open(state)?;
    let replay = journal.replay()?;
    report.torn = replay.torn;
    journal.cut_torn(&replay)?;
    journal.trust_again()?;
    let mut left = replay.pending.len();
    for (id, plan) in &replay.pending {
        match finish(state, plan) {
            Ok(finished) => {
                left -= 1;
                journal.done(*id, left == 0)?;
                clean(state, *id)?;
                report.finished.push(finished);
            }
            Err(Unable::Wait(reason)) => report.pending.push(Pending { id: *id, reason }),
            Err(Unable::Failed(error)) => return Err(error),
        }
    }
    if left == 0 && replay.torn == 0 && !replay.is_clean() {
        journal.done(TxId(0), true)?;
    }
    for id in state.transaction_ids()? {
        let waits = report.pending.iter().any(|pending| pending.id == id);
        if !waits && discard_if_dead(state, id)? {
            report.discarded.push(id);
        }
    }
    Ok(report)
}

enum Unable {
    Wait(String),
    Failed(StoreError),
}

impl From<StoreError> for Unable {
    fn from(error: StoreError) -> Self {
        Unable::Failed(error)
    }
}

fn finish(state: &StateDir, plan: &Plan) -> Result<Finished, Unable> {
    // What a reboot has emptied needs no finishing: natively it would be gone, too.
    let rebooted = !same_boot(plan);
    let plan = &plan.clone().without(|area| rebooted && area.fs.is_volatile());
    if let Some(point) = missing_area(plan) {
        let shown = crate::names::shown(point);
        let reason = format!(
            "the file system that was mounted on {shown} is not; mount it and run txos recover"
        );
        return Err(Unable::Wait(reason));
    }
    let path = state.path().join(StateDir::tx_path(plan.tx));
    let tx = Tree::open(&path).map_err(|_| {
        StoreError::damaged(
            &path,
            "the journal says that it is committed, but it is gone",
            "see what of it is applied, and then remove the journal",
        )
    })?;
    let mut applier = Applier::new(plan, state, &tx, None)?;
    applier.run()?;
    applier.flush()?;
    let skipped = applier.skipped;
    Ok(Finished { id: plan.tx, operations: plan.len() as u64, skipped, kept: applier.into_kept() })
}

/// The mount point of the first file system of the plan that is not mounted there.
fn missing_area(plan: &Plan) -> Option<&Path> {
    let same_boot = same_boot(plan);
    let missing = plan.areas.iter().find(|area| {
        let tree = Tree::open(&area.point).ok();
        let found = tree.and_then(|tree| sys::identity_of(tree.root()).ok());
        !found.is_some_and(|found| area.fs.is(&found, same_boot))
    });
    missing.map(|area| area.point.as_path())
}

fn same_boot(plan: &Plan) -> bool {
    plan.boot == sys::boot_id() && plan.boot != [0; 16]
}

/// Refuses a plan whose file systems are not all mounted.
pub(crate) fn require_areas(plan: &Plan) -> Result<()> {
    match missing_area(plan) {
        None => Ok(()),
        Some(point) => {
            let reason = "the file system that was mounted there is not";
            Err(StoreError::refused(point, reason, "mount it and try again"))
        }
    }
}

/// Removes the directory of a transaction, and its stage directories elsewhere.
fn clean(state: &StateDir, id: TxId) -> Result<()> {
    if let Some(meta) = state.meta(id)? {
        meta.stages.iter().try_for_each(|path| stage::remove_stage(path))?;
    }
    state.discard(id)
}

fn discard_if_dead(state: &StateDir, id: TxId) -> Result<bool> {
    let waits = state.path().join(StateDir::tx_path(id)).join("prepared").exists();
    let dead = match state.status(id) {
        Ok(Some(status)) => !status.alive && status.meta.state == TxState::Running,
        // It died before it could say anything.
        Ok(None) => true,
        // Or a power cut took its words; what waits for a decision says it with a flush.
        Err(StoreError::Damaged { .. }) if !waits => {
            state.discard(id)?;
            return Ok(true);
        }
        Err(error) => return Err(error),
    };
    if dead {
        clean(state, id)?;
    }
    Ok(dead)
}
