//! What a crash left: finished where the commit was decided, else discarded.
//!
//! Transactions run beside it: whoever holds `tx/ID/lock` is alive and is left alone. What the
//! journal has decided is finished all the same, for its process has let go of the lock of the
//! commit and will not do it any more.

use std::path::{Path, PathBuf};

use rustix::{fs::RenameFlags, io::Errno};
use serde::{Deserialize, Serialize};
use txos_core::TxId;
use txos_host::Tree;

use crate::{
    ExclusiveLock, Holder, Result, StateDir, StoreError, TxState,
    apply::{Ahead, Applier, Kept, Pass, flush_targets, fold},
    journal::Journal,
    plan::{Area, Plan},
    small, stage, sys,
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
    recover_but(state, None)
}

/// Gives up what transaction `id`, which waits ([`RecoveryReport::pending`]), changed on file systems that are
/// not mounted any more, or in directories that are gone. What it changed elsewhere is finished;
/// [`Finished::kept`] names the rest, and where its record and what it had staged are kept.
///
/// # Errors
/// [`StoreError::Refused`] if it does not wait: then nothing was done. Otherwise as [`recover`].
pub fn give_up(state: &StateDir, _lock: &ExclusiveLock, id: TxId) -> Result<RecoveryReport> {
    let waits = Journal::open(state)?.waiting()?.iter().any(|plan| plan.tx == id);
    let report = if waits { recover_but(state, Some(id))? } else { RecoveryReport::default() };
    if report.finished.iter().any(|finished| finished.id == id) {
        return Ok(report);
    }
    let reason = format!("transaction {id} does not wait for a file system or a directory");
    Err(StoreError::refused(state.path(), reason, "see txos recover, which names those that do"))
}

fn recover_but(state: &StateDir, given_up: Option<TxId>) -> Result<RecoveryReport> {
    let journal = Journal::open(state)?;
    let mut report = recover_plans(state, &journal, given_up)?;
    let _table = state.table()?;
    state.sweep()?;
    for id in state.transaction_ids()? {
        let waits = report.pending.iter().any(|pending| pending.id == id);
        if !waits && discard_if_dead(state, id)? {
            report.discarded.push(id);
        }
    }
    Ok(report)
}

/// Finishes what the journal says is committed and not wholly applied: after a reboot, or a failed
/// flush, all records that are not checkpointed; else those whose commit died.
///
/// # Errors
/// [`StoreError::Damaged`] if the journal is; otherwise what finishing gives.
pub(crate) fn recover_journal(state: &StateDir, journal: &Journal) -> Result<RecoveryReport> {
    recover_plans(state, journal, None)
}

fn recover_plans(
    state: &StateDir,
    journal: &Journal,
    given_up: Option<TxId>,
) -> Result<RecoveryReport> {
    let mut report = RecoveryReport::default();
    let turn = journal.enter_for_recovery()?;
    let dead = journal.dead_records(&turn);
    let waiting = journal.waiting()?;
    let all = !journal.trusted();
    if !all && dead.is_empty() && waiting.is_empty() {
        return Ok(report);
    }
    let replay = journal.replay(&turn)?;
    report.torn = replay.torn;
    let chosen = replay.pending.into_iter().filter(|(at, _)| all || dead.contains(at));
    let waited = waiting.len();
    let mut plans: Vec<Plan> = waiting.into_iter().chain(chosen.map(|(_, plan)| plan)).collect();
    let mut folds = fold(&mut plans);
    folds.rewrite = journal.is_poisoned();
    let (mut mounted, mut lost) = (Vec::new(), Vec::new());
    for (number, plan) in plans.into_iter().enumerate() {
        // What a reboot has emptied needs no finishing: natively it would be gone, too.
        let rebooted = !same_boot(&plan);
        let mut plan = plan.without(|area| rebooted && area.fs.is_volatile());
        if given_up == Some(plan.tx) {
            let saved = saved_of(state, plan.tx);
            (plan, lost) = without_missing(plan, &saved);
        }
        if let Some(area) = missing_area(&plan) {
            let reason = why_missing(area, &plan);
            if number >= waited {
                journal.put_aside(&turn, &plan)?;
            }
            report.pending.push(Pending { id: plan.tx, reason });
            continue;
        }
        mounted.push(plan);
    }
    let ahead = Ahead::new(&mounted);
    for (number, plan) in mounted.iter().enumerate() {
        let pass = Pass::Again { folds: &folds, ahead: &ahead, number };
        let mut finished = finish(state, plan, pass)?;
        if given_up == Some(plan.tx) {
            finished.kept.append(&mut lost);
        }
        report.finished.push(finished);
    }
    // Only when all is lasting are the records done.
    flush_targets(mounted.iter())?;
    if all {
        // A segment that a crash may have torn is not written to again.
        journal.rotate(&turn, 0)?;
        journal.forget_legacy()?;
    } else if !dead.is_empty() {
        small::checkpoint(journal, &turn)?;
    }
    for plan in &mounted {
        if given_up == Some(plan.tx) {
            save_given_up(state, journal, plan.tx)?;
        }
        journal.waited(plan.tx)?;
        unstage(state, plan.tx)?;
        // The record names its stage directories, whatever else is lost.
        for area in plan.areas.iter().filter(|area| area.stage != area.point) {
            stage::remove_stage(&area.stage, None, &mut |_| {})?;
        }
        state.discard(plan.tx)?;
    }
    journal.trust_again(&turn);
    Ok(report)
}

/// What is committed and waits for a file system that is not mounted, as absolute paths: nothing of
/// it is applied, so a transaction that reads one of these paths must not commit.
///
/// # Errors
/// [`StoreError::Damaged`] if a record that waits is.
pub fn closed_paths(state: &StateDir) -> Result<Vec<std::path::PathBuf>> {
    let mut paths = Vec::new();
    for plan in Journal::open(state)?.waiting()? {
        paths.extend(plan.paths());
    }
    Ok(paths)
}

fn finish(state: &StateDir, plan: &Plan, pass: Pass<'_>) -> Result<Finished> {
    let path = state.path().join(StateDir::tx_path(plan.tx));
    let staged = !plan.writes.is_empty() || plan.puts.iter().any(|put| put.make.is_none());
    if !staged && plan.areas.iter().any(|area| area.stage == path) {
        // Nothing was staged, so its directory was not flushed; what is renamed may wait there.
        sys::make_dirs(state.tree(), &StateDir::tx_path(plan.tx).join("stage"))?;
    }
    let own = if staged {
        Some(Tree::open(&path).map_err(|_| {
            StoreError::damaged(
                &path,
                "the journal says that it is committed, but it is gone",
                "see what of it is applied, and then remove the journal",
            )
        })?)
    } else {
        None
    };
    let tx = own.as_ref().unwrap_or(state.tree());
    let mut applier = Applier::new(plan, state, tx, pass)?;
    applier.run()?;
    let skipped = applier.skipped;
    Ok(Finished { id: plan.tx, operations: plan.len() as u64, skipped, kept: applier.into_kept() })
}

/// The first area of the plan whose file system is not mounted there.
fn missing_area(plan: &Plan) -> Option<&Area> {
    let same_boot = same_boot(plan);
    plan.areas.iter().find(|area| is_missing(area, same_boot))
}

fn is_missing(area: &Area, same_boot: bool) -> bool {
    let tree = Tree::open(&area.point).ok();
    let found = tree.and_then(|tree| sys::identity_of(tree.root()).ok());
    !found.is_some_and(|found| area.fs.is(&found, same_boot))
}

/// As a sentence for a person, with what can be done.
fn why_missing(area: &Area, plan: &Plan) -> String {
    let near = area.point.ancestors().find_map(|path| Tree::open(path).ok());
    let found = near.and_then(|tree| sys::identity_of(tree.root()).ok());
    let there = found.is_some_and(|found| area.fs.is_same_file_system(&found, same_boot(plan)));
    let shown = crate::names::shown(&area.point);
    let what = match there {
        true => format!("{shown} is not the directory that it was"),
        false => format!("the file system that was mounted on {shown} is not"),
    };
    let id = plan.tx;
    format!(
        "{what}; mount it and run txos recover, or, if it never comes back, finish the rest with txos \
         recover --give-up {id}"
    )
}

/// The plan without what it does where nothing is any more, and what that is; it is kept at `saved`.
fn without_missing(plan: Plan, saved: &Path) -> (Plan, Vec<Kept>) {
    let same_boot = same_boot(&plan);
    let areas = (0u32..).zip(&plan.areas);
    let missing: Vec<(u32, Area)> = areas
        .filter(|(_, area)| is_missing(area, same_boot))
        .map(|(number, area)| (number, area.clone()))
        .collect();
    let lost = missing.iter().map(|(number, area)| {
        let what = match plan.operations_in(*number) {
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        let mut reason = format!("it is not there any more: {what} below it given up");
        if !area.stage.starts_with(saved.parent().and_then(Path::parent).unwrap_or(saved)) {
            let stage = crate::names::shown(&area.stage);
            reason = format!("{reason}; if it comes back, remove {stage}");
        }
        Kept { path: area.point.clone(), reason, saved: Some(saved.to_owned()) }
    });
    let lost = lost.collect();
    (plan.without(|area| missing.iter().any(|(_, gone)| gone == area)), lost)
}

/// Where what is given up of a transaction is kept.
fn saved_of(state: &StateDir, id: TxId) -> PathBuf {
    state.path().join("conflicts").join(id.to_string())
}

/// Keeps the record of a transaction, and what is left of what it had staged.
fn save_given_up(state: &StateDir, journal: &Journal, id: TxId) -> Result<()> {
    let saved = saved_of(state, id);
    sys::make_dirs(state.tree(), &Path::new("conflicts").join(id.to_string()))?;
    journal.keep_waiting(id, &saved.join("record"))?;
    let staged = Path::new("conflicts").join(id.to_string()).join("staged");
    let left = StateDir::tx_path(id);
    let from = sys::place(state.tree(), &left);
    match sys::rename(from, sys::place(state.tree(), &staged), RenameFlags::NOREPLACE) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(StoreError::io("save", state.path().join(&staged), errno)),
    }
}

fn same_boot(plan: &Plan) -> bool {
    plan.boot == sys::boot_id() && plan.boot != [0; 16]
}

/// Refuses a plan whose file systems are not all mounted.
pub(crate) fn require_areas(plan: &Plan) -> Result<()> {
    match missing_area(plan) {
        None => Ok(()),
        Some(area) => {
            let reason = "the file system that was mounted there is not";
            Err(StoreError::refused(&area.point, reason, "mount it and try again"))
        }
    }
}

/// Removes the stage directories that a transaction has elsewhere.
fn unstage(state: &StateDir, id: TxId) -> Result<()> {
    match state.meta(id)? {
        Some(mut meta) => {
            stage::remove_stages(&state.path().join(StateDir::tx_path(id)), &mut meta)
        }
        None => Ok(()),
    }
}

/// Removes what transaction `id` left if no process holds it. The caller holds the table, so that
/// none is just about to begin.
fn discard_if_dead(state: &StateDir, id: TxId) -> Result<bool> {
    if state.is_alive(id) {
        return Ok(false);
    }
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
        unstage(state, id)?;
        state.discard(id)?;
    }
    Ok(dead)
}
