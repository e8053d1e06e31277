//! From a delta to a commit: the sequence, and what may fail where.
//!
//! ```text
//! stage           contents are where one rename puts them in place       may be refused
//! flush           what is staged survives a power cut                    may be refused
//! validate        without the pause: most conflicts are found here       may conflict
//! pause           the domain stands still
//! validate        what changed since, and every object that is written   may conflict
//! commit record   from here on the transaction is committed
//! apply           every operation was tried or examined before           finished by recovery
//! resume
//! checkpoint      targets are flushed, the record is dropped, space is reclaimed
//! ```

use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use txos_core::{Conflict, Stamp, TxId, contention};

use crate::{
    Delta, ExclusiveLock, Result, StateDir, StoreError, TxDir,
    apply::{Applier, Held, Kept, Pass, flush_targets},
    journal::{self, Journal, Turn, Written, frame::Kind, plan as codec},
    keep,
    plan::Plan,
    recover_locked, small, stage, sys,
    verify::{Expectation, verify, verify_content, verify_metadata},
    written::written,
};

/// What stands still while a commit validates and applies.
pub trait Domain {
    /// Stops all processes of the domain, and returns when they have stopped.
    ///
    /// # Errors
    /// If that fails; the commit then does not take place.
    fn pause(&mut self) -> Result<()>;

    /// Called after the last validation, before anything that cannot be taken back: from here on they
    /// stand still until `resume`, however long it takes.
    ///
    /// # Errors
    /// If they do not stand still any more; the commit then does not take place.
    fn decide(&mut self) -> Result<()> {
        Ok(())
    }

    /// Lets them go on. Called once after each successful `pause`, whatever happened in between.
    fn resume(&mut self);
}

/// A domain without processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDomain;

impl Domain for NoDomain {
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    fn resume(&mut self) {}
}

/// When a validation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the pause: the whole workset.
    Early,
    /// Inside the pause: what may have changed since.
    Paused,
}

/// Compares a workset with the stable system; gives what changed.
pub type Validate<'a> = dyn FnMut(Phase) -> std::result::Result<(), Vec<Conflict>> + 'a;

/// What a commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// How many operations it took.
    pub operations: u64,
    /// Where someone outside was faster, and what became of the transaction's version.
    pub kept: Vec<Kept>,
    /// How long outsiders could see a part of the changes only.
    pub apply: Duration,
    /// How long the domain stood still.
    pub paused: Duration,
    /// How long flushing took, in all.
    pub flush: Duration,
    /// The commit is decided and applied, but flushing or cleaning up afterwards failed for this
    /// reason; recovery will do it.
    pub unfinished: Option<String>,
}

/// A transaction that is ready to commit: all of it is staged, nothing of it is visible.
#[derive(Debug)]
pub struct Prepared<'s> {
    state: &'s StateDir,
    tx: TxDir,
    plan: Plan,
    held: Vec<Held>,
    expectations: Vec<Expectation>,
    fresh: usize,
    flushed: bool,
    /// Whether a commit only sets the directory aside.
    leaves: bool,
    /// What was read, and what people were shown, as the keeper wrote it.
    workset: Vec<u8>,
    report: Vec<u8>,
}

impl<'s> Prepared<'s> {
    /// Stages `delta`, whose layers are those of `tx`. The layers are used up: contents are moved
    /// where they are on the target's mount.
    ///
    /// # Errors
    /// [`StoreError::Refused`] or [`StoreError::NoSpace`] if an operation would fail;
    /// [`StoreError::Conflict`] if an object that is written is gone. Nothing is visible then, and
    /// `tx` is given up with all it holds.
    pub fn stage(state: &'s StateDir, mut tx: TxDir, delta: Delta) -> Result<Prepared<'s>> {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let made = Stamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() };
        let staged = match stage::stage(&mut tx, &delta, made) {
            Ok(staged) => staged,
            Err(error) => return Err(given_up(state, tx, error)),
        };
        let expectations = delta.drafts.into_iter().filter(|draft| !draft.is_empty());
        let expectations = expectations.map(|draft| draft.expectation).collect();
        Ok(Prepared {
            state,
            tx,
            plan: staged.plan,
            held: staged.held,
            expectations,
            fresh: staged.fresh,
            flushed: false,
            leaves: false,
            workset: Vec::new(),
            report: Vec::new(),
        })
    }

    /// One that waited for a decision.
    pub(crate) fn resumed(
        state: &'s StateDir,
        tx: TxDir,
        kept: keep::Kept,
        held: Vec<Held>,
    ) -> Prepared<'s> {
        let keep::Kept { plan, expectations, workset, report } = kept;
        let (fresh, flushed, leaves) = (0, true, false);
        Prepared { state, tx, plan, held, expectations, fresh, flushed, leaves, workset, report }
    }

    /// Lets the transaction wait for a decision, also across reboots: all of it is flushed, with
    /// `workset` (what was read, to be validated later) and `report` (for people). Afterwards
    /// [`StateDir::prepared`] opens it again.
    ///
    /// # Errors
    /// If it cannot be written and flushed; the transaction is given up then with all it holds.
    pub fn keep(mut self, workset: &[u8], report: &[u8]) -> Result<()> {
        let kept = keep::Kept {
            plan: self.plan,
            expectations: self.expectations,
            workset: workset.to_vec(),
            report: report.to_vec(),
        };
        let Err(error) = keep::write(&mut self.tx, &kept) else { return Ok(()) };
        Err(match stage::unstage(&mut self.tx) {
            Ok(()) => given_up(self.state, self.tx, error),
            // What lies elsewhere is found by the directory, and by the next recovery.
            Err(_) => error,
        })
    }

    /// Lets a commit return before the transaction's directory is removed, which can take milliseconds:
    /// the caller has [`StateDir::remove_aside`] do it.
    pub fn leave_directory(&mut self) {
        self.leaves = true;
    }

    /// Which transaction.
    pub fn id(&self) -> TxId {
        self.plan.tx
    }

    /// What it writes, for holding it against what others read.
    ///
    /// # Errors
    /// If an object that it writes cannot be examined.
    pub fn written(&self) -> Result<contention::Written> {
        written(&self.plan)
    }

    /// Its directory.
    pub fn tx(&self) -> &TxDir {
        &self.tx
    }

    /// Commits, in the sequence that the module describes. An empty delta validates and writes
    /// nothing. On success the transaction's directory is gone.
    ///
    /// # Errors
    /// [`StoreError::Conflict`]: nothing was done, and the call may be repeated.
    /// [`StoreError::Unfinished`]: it is committed, but applying it failed, and so did a recovery at
    /// once; a later one goes on. [`StoreError::Undecided`]: that recovery could not tell either; a later
    /// one needs all that is staged: the transaction must not be aborted.
    /// Otherwise nothing was done.
    pub fn commit(
        &mut self,
        lock: &ExclusiveLock,
        validate: &mut Validate<'_>,
        domain: &mut dyn Domain,
        durable: bool,
    ) -> Result<Committed> {
        match self.try_commit(validate, domain, durable) {
            Err(error @ (StoreError::Unfinished { .. } | StoreError::Undecided { .. })) => {
                self.settle(lock, error)
            }
            result => result,
        }
    }

    /// What became of a commit that failed behind its record: what a recovery makes of it, here and
    /// now. So whoever asked for the commit is told how it ended, and not that it may have.
    fn settle(&mut self, lock: &ExclusiveLock, error: StoreError) -> Result<Committed> {
        #[cfg(test)]
        if crate::sys::watch::dead() {
            return Err(error);
        }
        let id = self.plan.tx;
        let Ok(report) = recover_locked(self.state, lock) else { return Err(error) };
        if let Some(finished) = report.finished.into_iter().find(|finished| finished.id == id) {
            let operations = self.plan.len() as u64;
            return Ok(Committed { operations, kept: finished.kept, ..Committed::default() });
        }
        match error {
            StoreError::Undecided { path, errno }
                if !report.pending.iter().any(|pending| pending.id == id) =>
            {
                stage::unstage(&mut self.tx)?;
                Err(StoreError::io("flush", path, errno))
            }
            error => Err(error),
        }
    }

    fn try_commit(
        &mut self,
        validate: &mut Validate<'_>,
        domain: &mut dyn Domain,
        durable: bool,
    ) -> Result<Committed> {
        let mut report = Committed { operations: self.plan.len() as u64, ..Committed::default() };
        if self.plan.len() == 0 {
            validate(Phase::Early).map_err(StoreError::Conflict)?;
            self.state.discard(self.plan.tx)?;
            return Ok(report);
        }
        let journal = Journal::open(self.state)?;
        if durable && !self.flushed {
            let start = Instant::now();
            self.flush_staged()?;
            report.flush += start.elapsed();
        }
        validate(Phase::Early).map_err(StoreError::Conflict)?;
        // Nobody else decides from here on, and all that was decided is applied. Waiting for that
        // comes before the pause: who is paused may be who is waited for.
        let turn = journal.enter(None)?;
        journal.require_open(&self.plan, &[])?;
        small::checkpoint(&journal, &turn)?;
        let paused = Instant::now();
        domain.pause()?;
        let unstaged = self.plan.clone();
        let ready = self.ready(validate, durable).and_then(|()| domain.decide());
        let decided = ready.and_then(|()| self.decide(&journal, &turn, durable));
        let (applied, seat) = match decided {
            Ok((mut applier, seat)) => {
                let control = journal.control();
                control.started.fetch_add(1, SeqCst);
                let start = Instant::now();
                let applied = applier.run();
                report.apply = start.elapsed();
                if applied.is_ok() {
                    control.ended.fetch_add(1, SeqCst);
                }
                domain.resume();
                (applied.map(|()| applier), seat)
            }
            Err(error) => {
                domain.resume();
                // Where there may be a commit record, recovery needs what is staged.
                if !matches!(error, StoreError::Undecided { .. }) {
                    self.plan = unstaged;
                    stage::unstage(&mut self.tx)?;
                }
                return Err(error);
            }
        };
        report.paused = paused.elapsed();
        let applier = match applied {
            Ok(applier) => applier,
            Err(cause) => {
                // Nobody goes on before a recovery has finished this.
                seat.abandon();
                return Err(StoreError::Unfinished { cause: Box::new(cause) });
            }
        };
        let start = Instant::now();
        let finished = self.checkpoint(&journal, &turn, durable);
        drop(seat);
        report.flush += start.elapsed();
        report.unfinished = finished.err().map(|error| error.to_string());
        report.kept = applier.into_kept();
        Ok(report)
    }

    /// Validates inside the pause, and stages what must be staged after that.
    fn ready(&mut self, validate: &mut Validate<'_>, durable: bool) -> Result<()> {
        validate(Phase::Paused).map_err(StoreError::Conflict)?;
        stage::stage_foreign(&mut self.tx, &mut self.plan, durable)
    }

    /// Looks once more at all that is written, and writes the commit record. Whatever applying
    /// needs is open before that.
    fn decide<'j>(
        &self,
        journal: &'j Journal,
        turn: &Turn<'_>,
        durable: bool,
    ) -> Result<(Applier<'_>, journal::Held<'j>)> {
        let pass = Pass::First { held: &self.held, fresh: None };
        let applier = Applier::new(&self.plan, self.state, self.tx.tree(), pass)?;
        let mut conflicts = verify(&self.expectations)?;
        conflicts.extend(verify_content(&self.plan, &self.held)?);
        conflicts.extend(verify_metadata(&self.plan)?);
        if !conflicts.is_empty() {
            return Err(StoreError::Conflict(conflicts));
        }
        let payload = codec::encode(&self.plan);
        if u32::try_from(payload.len()).is_err() {
            let reason = "the transaction is too large for one record";
            return Err(StoreError::refused(self.state.path(), reason, "split it"));
        }
        if !journal.has_room(payload.len())? {
            journal.rotate(turn, payload.len())?;
        }
        let seat = journal.hold(turn, None)?;
        let written: Written = journal.append(turn, Kind::Commit, self.plan.tx, &payload)?;
        if durable {
            journal.make_lasting(&written)?;
        }
        Ok((applier, seat))
    }

    fn checkpoint(&self, journal: &Journal, turn: &Turn<'_>, durable: bool) -> Result<()> {
        if durable && let Err(error) = flush_targets(std::iter::once(&self.plan)) {
            journal.poison();
            return Err(error);
        }
        journal.write_checkpoint(turn, durable)?;
        stage::remove_stages(self.tx.path(), &mut self.tx.meta.clone())?;
        match self.leaves {
            true => self.state.set_aside(self.plan.tx).map(drop),
            false => self.state.discard(self.plan.tx),
        }
    }

    /// Flushes what is staged. Few objects are flushed by themselves where the file system takes
    /// their names along (as ext4, xfs, btrfs and f2fs do with a file that is new); else all.
    fn flush_staged(&mut self) -> Result<()> {
        const FEW: usize = 8;
        let tree = self.tx.tree();
        let staged = (self.plan.puts.iter().map(|put| &put.staged))
            .chain(self.plan.writes.iter().map(|write| &write.source));
        let few = self.fresh <= FEW && sys::flush_takes_names(tree)?;
        let mut each = staged.map(|path| sys::flush_tree(tree, path));
        match few.then(|| each.try_for_each(|flushed| flushed)) {
            Some(Ok(())) => {}
            // A file that its mode keeps its owner, this user, from opening.
            None | Some(Err(StoreError::Io { errno: Errno::ACCESS, .. })) => {
                sys::flush_file_system(tree)?;
            }
            Some(Err(error)) => return Err(error),
        }
        self.flushed = true;
        Ok(())
    }

    /// Gives the transaction up: nothing of it was visible, and nothing of it is left.
    ///
    /// # Errors
    /// If something that is staged cannot be removed.
    pub fn abort(mut self) -> Result<()> {
        stage::unstage(&mut self.tx)?;
        self.tx.remove(self.state)
    }

    /// The workset that was kept with [`Prepared::keep`]; else empty.
    pub fn workset(&self) -> &[u8] {
        &self.workset
    }

    /// The report that was kept with [`Prepared::keep`]; else empty.
    pub fn report(&self) -> &[u8] {
        &self.report
    }
}

/// Removes the directory of a transaction that cannot be prepared because of `error`, which it gives
/// back. What cannot be removed now waits for the next recovery.
fn given_up(state: &StateDir, tx: TxDir, error: StoreError) -> StoreError {
    let _ = tx.remove(state);
    error
}
