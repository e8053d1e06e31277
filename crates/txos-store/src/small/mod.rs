//! Small commits: a few changes from memory, without a view and without anything staged.
//!
//! All of such a commit is in its record. So a durable one costs one flush, which it shares with
//! whoever commits at the same time; what it changes is flushed later, many commits at once.
//!
//! # The sequence
//!
//! ```text
//! lock             nobody else, in this process or another, decides meanwhile
//! draft            what the operations come to; all that could refuse them is tried
//! wait             for commits that touch the same and are between record and apply
//! validate         the caller compares what it has read
//! record           written; from its flush on the transaction is committed
//! unlock           (a durable commit only: the next one may write its record behind this one)
//! flush            shared
//! apply
//! release          whoever waited goes on
//! ```
//!
//! # Invariants
//!
//! - Between record and apply a commit holds a seat with the keys of all it changes; who reads or
//!   writes one of them waits (`journal::control`).
//! - A record stays until what it changed is flushed. Of records that are not flushed yet no two
//!   change the same thing, but for the content of a file whose size stays or only grows: such are
//!   folded by recovery (`apply::fold`). What does not fit is flushed first.
//! - A commit that moves a directory has no record before it that is not flushed: paths below it
//!   lead nowhere afterwards. It, and one that removes a directory, is under way alone.
//! - There are never more than [`PENDING`] records to flush, nor more than half a segment of them;
//!   closing the store flushes the rest.

mod areas;
mod compile;
mod content;
mod draft;
mod keys;
mod ops;
mod pending;

use std::{
    sync::{Mutex, PoisonError, atomic::Ordering::SeqCst},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::io::Errno;
use txos_core::{Conflict, Stamp, contention::Written};
use txos_host::Tree;

pub(crate) use compile::{Fresh, dress};
pub(crate) use content::hash_at;
pub use keys::Key;
pub(crate) use keys::of_plan;
pub use ops::SmallOp;

use self::{areas::Mounts, draft::Draft, pending::Pending};
use crate::{
    Result, StateDir, StoreError,
    apply::{Applier, Kept, Pass, flush_targets},
    journal::{Journal, Turn, UnderWay, frame::Kind, plan as codec},
    plan::{Plan, Shape},
    written::written,
};

/// So many records wait for being flushed at most.
const PENDING: usize = 512;

/// A state directory opened for commits without a view. Threads share one; several processes of
/// one user may have one each.
pub struct Store {
    state: StateDir,
    journal: Journal,
    root: Tree,
    mounts: Mounts,
    pending: Mutex<Pending>,
}

/// How a small commit is made.
#[derive(Clone, Copy, Debug)]
pub struct SmallOptions<'a> {
    /// Whether it survives a power cut once the call has returned.
    pub durable: bool,
    /// What `validate` will compare; `None` if that is not known, and then the commit waits for all
    /// others that are under way.
    pub reads: Option<&'a [Key]>,
    /// Whether symbolic links among the parents of a path are followed, as by a system call. Who
    /// has followed them already, and compares in `validate` what it met, must not have them
    /// followed again: somebody may put a link in the way for just that moment. One there is
    /// then `ELOOP`.
    pub follow: bool,
}

/// What a small commit did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmallCommitted {
    /// Where someone outside was faster, between validation and apply.
    pub kept: Vec<Kept>,
}

/// How far commits are. What was read while `started == ended` before and `started` stayed the same
/// until after was read between two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commits {
    /// Commits whose changes begin to be visible.
    pub started: u64,
    /// Commits whose changes are all visible.
    pub ended: u64,
    /// Transactions that run in a view.
    pub views: u32,
}

/// Says, while it lives, that a transaction runs in a view.
#[derive(Debug)]
pub struct ViewCount<'s>(&'s Store);

impl Drop for ViewCount<'_> {
    fn drop(&mut self) {
        self.0.journal.control().views.fetch_sub(1, SeqCst);
    }
}

/// Compares what was read with the stable system.
pub type ValidateSmall<'a> = dyn FnMut() -> std::result::Result<(), Vec<Conflict>> + 'a;

impl Store {
    /// Opens the store; finishes what a crash left.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the journal is; what recovery gives.
    pub fn open(state: StateDir) -> Result<Store> {
        let journal = Journal::open(&state)?;
        let root = Tree::open("/")?;
        let (mounts, pending) = (Mounts::default(), Mutex::default());
        let store = Store { state, journal, root, mounts, pending };
        if !store.journal.trusted() || store.journal.waits()? {
            crate::recover::recover_journal(&store.state, &store.journal)?;
        }
        store.bury()?;
        Ok(store)
    }

    /// The state directory.
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// How far commits are: memory is read, nobody is asked.
    pub fn commits(&self) -> Commits {
        let control = self.journal.control();
        let ended = control.ended.load(SeqCst);
        let started = control.started.load(SeqCst);
        Commits { started, ended, views: control.views.load(SeqCst) }
    }

    /// Says that a transaction runs in a view, as long as what is returned lives.
    pub fn view(&self) -> ViewCount<'_> {
        self.journal.control().views.fetch_add(1, SeqCst);
        ViewCount(self)
    }

    /// Makes all that `ops` come to, or nothing of it. `validate` is called when nobody else can
    /// commit, and what it compares is as it will be for this commit.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] from `validate`, [`StoreError::Operation`] where an operation would
    /// fail, [`StoreError::NoSpace`]: nothing was done. [`StoreError::Refused`] after a failed
    /// flush: nothing was done. [`StoreError::Undecided`] if the disk failed in such a way that only
    /// a recovery can tell. [`StoreError::Unfinished`]: it is committed, and recovery goes on.
    pub fn commit_small(
        &self,
        ops: &[SmallOp<'_>],
        options: &SmallOptions<'_>,
        validate: &mut ValidateSmall<'_>,
    ) -> Result<SmallCommitted> {
        loop {
            let turn = self.journal.take()?;
            self.journal.require_trust()?;
            let under_way = self.journal.under_way(&turn);
            if options.reads.is_none() && !under_way.is_empty() {
                self.wait(turn, None)?;
                continue;
            }
            let mut attempt = match self.attempt(ops, options) {
                Ok(attempt) => attempt,
                // It may fail for what others have decided and not made visible yet.
                Err(_) if !under_way.is_empty() => {
                    self.wait(turn, None)?;
                    continue;
                }
                Err(error) => return Err(blame(error, validate)),
            };
            if let Some(turn) = self.clear_way(turn, &under_way, &attempt, options)? {
                validate().map_err(StoreError::Conflict)?;
                attempt.reserve()?;
                return self.decide(Lock::Own(turn), &mut attempt, options.durable);
            }
        }
    }

    /// What a commit of `ops` would write, as other transactions would notice it: by now, and nobody is
    /// kept from changing what that depends on. Links among the parents of a path are not followed.
    ///
    /// # Errors
    /// As [`Store::commit_small`].
    pub fn written(&self, ops: &[SmallOp<'_>]) -> Result<Written> {
        // Nothing of it is kept, so nothing has to last.
        let options = SmallOptions { durable: false, reads: None, follow: false };
        written(&self.attempt(ops, &options)?.plan)
    }

    /// Finishes what a death left, if there is anything.
    fn bury(&self) -> Result<()> {
        match self.journal.has_dead() {
            true => crate::recover::recover_journal(&self.state, &self.journal).map(drop),
            false => Ok(()),
        }
    }

    /// Gives the lock back and waits for one that touches `keys`, if it is still under way.
    fn wait(&self, turn: Turn<'_>, keys: Option<&[u64]>) -> Result<()> {
        let wait = self.journal.in_the_way(keys);
        drop(turn);
        if let Some(wait) = wait {
            wait.wait();
            self.bury()?;
        }
        Ok(())
    }

    fn attempt(&self, ops: &[SmallOp<'_>], options: &SmallOptions<'_>) -> Result<Attempt> {
        let mut draft = Draft::new(&self.root, &self.mounts, options.follow);
        for (index, op) in ops.iter().enumerate() {
            draft.add(op).map_err(|errno| match errno {
                Errno::NOSPC | Errno::DQUOT => StoreError::io("write", op.path(), errno),
                errno => StoreError::Operation { index, path: op.path().to_owned(), errno },
            })?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made = Stamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() };
        let (plan, fresh) = compile::compile(draft, &self.root, options.durable, made)
            .map_err(|(path, errno)| StoreError::io("prepare", path, errno))?;
        let payload = codec::encode(&plan);
        if u32::try_from(payload.len()).is_err() {
            let reason = "the transaction is too large for one record";
            return Err(StoreError::refused(self.state.path(), reason, "split it"));
        }
        let keys = of_plan(&plan);
        Ok(Attempt { plan, payload, fresh, keys })
    }

    /// Keeps the lock if nothing stands in the way; else makes way, without it.
    fn clear_way<'t>(
        &'t self,
        turn: Turn<'t>,
        under_way: &UnderWay,
        attempt: &Attempt,
        options: &SmallOptions<'_>,
    ) -> Result<Option<Turn<'t>>> {
        let numbers: Vec<u64> = (attempt.keys.iter().map(|(key, _)| *key))
            .chain(options.reads.unwrap_or_default().iter().copied())
            .map(Key::number)
            .collect();
        let known = options.reads.is_some() && !attempt.leads_elsewhere();
        let met = known.then_some(numbers.as_slice());
        // What was under way when the draft was begun may have become visible half-way through it.
        if under_way.meets(met) {
            self.wait(turn, met)?;
            return Ok(None);
        }
        self.journal.require_open(&attempt.plan, &numbers)?;
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.catch_up(&self.journal, &turn)?;
        if !self.has_room(&pending, attempt)? || attempt.builds_on(&pending) {
            drop(pending);
            drop(turn);
            self.settle(attempt.payload.len())?;
            return Ok(None);
        }
        Ok(Some(turn))
    }

    fn decide(
        &self,
        lock: Lock<'_>,
        attempt: &mut Attempt,
        durable: bool,
    ) -> Result<SmallCommitted> {
        let journal = &self.journal;
        let alone = attempt.leads_elsewhere();
        let plan = &mut attempt.plan;
        if plan.len() == 0 {
            return Ok(SmallCommitted::default());
        }
        let turn = lock.turn();
        let control = journal.control();
        plan.tx = journal.number(turn);
        codec::renumber(&mut attempt.payload, plan.tx);
        let pass = Pass::First { held: &[], fresh: Some(&attempt.fresh) };
        let mut applier = Applier::new(plan, &self.state, self.state.tree(), pass)?;
        let numbers: Vec<u64> = attempt.keys.iter().map(|(key, _)| key.number()).collect();
        let seat = journal.hold(turn, (!alone).then_some(numbers.as_slice()))?;
        let written = journal.append(turn, Kind::Commit, plan.tx, &attempt.payload)?;
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.add(&attempt.keys, written.end);
        drop(pending);
        let lock = if durable { lock.release() } else { Some(lock) };
        if durable {
            journal.make_lasting(&written)?;
        }
        control.started.fetch_add(1, SeqCst);
        let applied = applier.run();
        if let Err(cause) = applied {
            // The seat stays held: nobody goes on before a recovery has finished this.
            seat.abandon();
            return Err(StoreError::Unfinished { cause: Box::new(cause) });
        }
        control.ended.fetch_add(1, SeqCst);
        drop(seat);
        drop(lock);
        Ok(SmallCommitted { kept: applier.into_kept() })
    }

    /// Keeps all others from committing, small or from a view, until what is returned is dropped:
    /// for a transaction that has lost too often.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub fn exclusive(&self) -> Result<Exclusive<'_>> {
        self.bury()?;
        Ok(Exclusive { store: self, turn: self.journal.enter(None)? })
    }

    /// Flushes all that was committed and applied, and forgets its records.
    ///
    /// # Errors
    /// If a flush fails; the store takes no commits from then on.
    pub fn checkpoint(&self) -> Result<()> {
        self.bury()?;
        let turn = self.journal.enter(None)?;
        checkpoint(&self.journal, &turn)
    }

    fn has_room(&self, pending: &Pending, attempt: &Attempt) -> Result<bool> {
        let few = pending.len() < PENDING && self.journal.fill() <= 0.5;
        Ok(few && self.journal.has_room(attempt.payload.len())?)
    }

    /// The same, and makes room for a record with so much payload.
    fn settle(&self, payload: usize) -> Result<()> {
        self.bury()?;
        let turn = self.journal.enter(None)?;
        self.settle_under(&turn, payload)
    }

    fn settle_under(&self, turn: &Turn<'_>, payload: usize) -> Result<()> {
        checkpoint(&self.journal, turn)?;
        if self.journal.fill() > 0.5 || !self.journal.has_room(payload)? {
            self.journal.rotate(turn, payload)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        #[cfg(test)]
        if crate::sys::watch::dead() {
            return;
        }
        // What is not flushed now, recovery flushes.
        let _ = self.checkpoint();
    }
}

/// The store while nobody else commits ([`Store::exclusive`]).
pub struct Exclusive<'s> {
    store: &'s Store,
    turn: Turn<'s>,
}

impl std::fmt::Debug for Exclusive<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exclusive").field("store", self.store).finish_non_exhaustive()
    }
}

impl Exclusive<'_> {
    /// As [`Store::commit_small`].
    ///
    /// # Errors
    /// As [`Store::commit_small`].
    pub fn commit_small(
        &mut self,
        ops: &[SmallOp<'_>],
        options: &SmallOptions<'_>,
        validate: &mut ValidateSmall<'_>,
    ) -> Result<SmallCommitted> {
        let store = self.store;
        store.journal.require_trust()?;
        let mut attempt = store.attempt(ops, options).map_err(|error| blame(error, validate))?;
        let reads: Vec<u64> =
            options.reads.unwrap_or_default().iter().map(|key| key.number()).collect();
        store.journal.require_open(&attempt.plan, &reads)?;
        let mut pending = store.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.catch_up(&store.journal, &self.turn)?;
        let flush = !store.has_room(&pending, &attempt)? || attempt.builds_on(&pending);
        drop(pending);
        if flush {
            store.settle_under(&self.turn, attempt.payload.len())?;
        }
        validate().map_err(StoreError::Conflict)?;
        attempt.reserve()?;
        store.decide(Lock::Kept(&self.turn), &mut attempt, options.durable)
    }
}

/// An operation that fails since somebody changed what was read is a conflict.
fn blame(error: StoreError, validate: &mut ValidateSmall<'_>) -> StoreError {
    match validate() {
        Err(conflicts) => StoreError::Conflict(conflicts),
        Ok(()) => error,
    }
}

/// The journal's lock during a commit: its own, or one that stays.
enum Lock<'t> {
    Own(Turn<'t>),
    Kept(&'t Turn<'t>),
}

impl<'t> Lock<'t> {
    fn turn(&self) -> &Turn<'t> {
        match self {
            Lock::Own(turn) => turn,
            Lock::Kept(turn) => turn,
        }
    }

    /// Lets others go on, where that is for this commit to say.
    fn release(self) -> Option<Lock<'t>> {
        match self {
            Lock::Own(_) => None,
            kept @ Lock::Kept(_) => Some(kept),
        }
    }
}

/// A small commit put together.
struct Attempt {
    plan: Plan,
    payload: Vec<u8>,
    fresh: Fresh,
    keys: Vec<(Key, Shape)>,
}

impl Attempt {
    /// Whether a path may mean something else after it: a directory goes, here or elsewhere. Nobody
    /// who plans or applies by paths may be under way meanwhile.
    fn leads_elsewhere(&self) -> bool {
        let mut removes = self.plan.removes.iter();
        removes.any(|op| op.dir) || self.plan.moves.iter().any(|op| op.dir)
    }

    /// Whether a recovery could not tell its changes from those of pending records, or could not
    /// find any more what those name, since a directory above it has moved.
    fn builds_on(&self, pending: &Pending) -> bool {
        let moves = pending.len() > 0 && self.plan.moves.iter().any(|op| op.dir);
        moves || pending.overlaps(&self.keys)
    }

    fn reserve(&self) -> Result<()> {
        compile::reserve(&self.plan, &self.fresh)
            .map_err(|(path, errno)| StoreError::io("prepare", path, errno))
    }
}

/// Flushes what pending records changed, and says in the journal that they are done. Nobody is
/// between record and apply.
pub(crate) fn checkpoint(journal: &Journal, turn: &Turn<'_>) -> Result<()> {
    let control = journal.control();
    let from = control.checkpointed.load(SeqCst);
    if control.end.load(SeqCst) <= from {
        return Ok(());
    }
    let plans = journal.plans_from(turn, from)?;
    let lasting = plans.iter().map(|(_, plan)| plan).filter(|plan| plan.durable);
    let durable = lasting.clone().next().is_some();
    if let Err(error) = flush_targets(lasting) {
        journal.poison();
        return Err(error);
    }
    journal.write_checkpoint(turn, durable)
}
