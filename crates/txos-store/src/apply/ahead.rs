//! New files of a recovery, made ahead of their names.
//!
//! A file that the record holds whole gets its name when its content is on disk (`make`). At the first
//! application it is open from before the record, and its name may come first, since the record knows
//! which object it is. A recovery makes it anew: another object, which no record knows, and whose
//! name must not outlive a power cut without its content. Flushed one by one, thousands of them wait
//! thousands of times for the disk. So a recovery makes the next ones of all its plans at once, without
//! names, flushes their file systems, and applying finds them here.
//!
//! # Invariants
//!
//! - What is taken from here is flushed: whole file systems through a descriptor that was opened before
//!   anything was written, so that a write that failed since is told (`syncfs(2)`).
//! - They are made in the order in which they are applied, and no more at once than [`room`] says: the
//!   program whose library recovers needs descriptors, too.
//! - Nothing depends on it that a file is here. What can't be made ahead is made in its place, flushed
//!   alone, and what is wrong with it is told there.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{Resource, getrlimit},
};
use txos_host::{Tree, attrs_of};

use super::{flush::FEW, make::fill};
use crate::{
    Result, StoreError,
    plan::{Make, Plan, Put, What},
    sys::{Disk, Flush, disk, flush_open},
};

/// A file of a plan: the number of the plan, and of the operation in its `puts`.
type File = (usize, usize);

/// The new files of the plans that a recovery applies.
pub(crate) struct Ahead<'p> {
    plans: &'p [Plan],
    /// In the order in which they are applied.
    order: Vec<File>,
    /// Where each stands in that order.
    at: HashMap<File, usize>,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// Up to where in the order files were made, or found to be made otherwise.
    upto: usize,
    /// Those that nobody has taken, by their places in the order.
    ready: BTreeMap<usize, OwnedFd>,
    /// Mount points.
    trees: HashMap<PathBuf, Tree>,
}

/// So many files wait at the most.
fn room() -> usize {
    if cfg!(test) {
        return 3 * FEW;
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / 4).unwrap_or(usize::MAX).clamp(FEW, 4096)
}

impl<'p> Ahead<'p> {
    /// Of these plans, in their order; nothing is made yet.
    pub(crate) fn new(plans: &'p [Plan]) -> Ahead<'p> {
        let mut order = Vec::new();
        for (number, plan) in plans.iter().enumerate() {
            let files = plan.puts.iter().enumerate().filter(|(_, op)| content(op).is_some());
            let mut files: Vec<(usize, &Put)> = files.collect();
            files.sort_by_key(|(_, op)| (op.area, &op.to));
            order.extend(files.into_iter().map(|(put, _)| (number, put)));
        }
        let at = order.iter().enumerate().map(|(index, file)| (*file, index)).collect();
        Ahead { plans, order, at, state: RefCell::default() }
    }

    /// All of them.
    pub(crate) fn plans(&self) -> &'p [Plan] {
        self.plans
    }

    /// The file of operation `put` of plan `plan`, flushed and without a name; `None` if it has to be made
    /// in its place.
    ///
    /// # Errors
    /// If a flush fails.
    pub(super) fn take(&self, plan: usize, put: usize) -> Result<Option<OwnedFd>> {
        let Some(wanted) = self.at.get(&(plan, put)).copied() else { return Ok(None) };
        let mut state = self.state.borrow_mut();
        if wanted >= state.upto {
            state.ready.clear();
            state.upto = wanted;
            self.make_next(&mut state)?;
        }
        Ok(state.ready.remove(&wanted))
    }

    /// Makes the next files, and flushes them.
    fn make_next(&self, state: &mut State) -> Result<()> {
        let room = room();
        let State { upto, ready, trees } = state;
        // By device, of which each is flushed once.
        let mut made: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        while let Some((plan, put)) = self.order.get(*upto).copied()
            && ready.len() < room
        {
            let (plan, index) = (&self.plans[plan], *upto);
            let op = &plan.puts[put];
            let point = &plan.areas[op.area as usize].point;
            match make_unnamed(tree(trees, point)?, op) {
                Ok(Some(file)) => {
                    let device = attrs_of(&file).map_or(0, |attrs| attrs.id.dev);
                    made.entry(device).or_default().push(index);
                    ready.insert(index, file);
                }
                // The rest comes when these are bound.
                Err(Errno::MFILE | Errno::NFILE) if !ready.is_empty() => break,
                Ok(None) | Err(_) => {}
            }
            *upto += 1;
        }
        for indexes in made.values() {
            let files: Vec<&OwnedFd> = indexes.iter().filter_map(|at| ready.get(at)).collect();
            flush_all(&files).map_err(|errno| {
                let (plan, put) = self.order[indexes[0]];
                let plan = &self.plans[plan];
                let op = &plan.puts[put];
                let shown = plan.areas[op.area as usize].point.join(&op.to);
                StoreError::io("flush", shown, errno)
            })?;
        }
        Ok(())
    }
}

fn tree<'t>(trees: &'t mut HashMap<PathBuf, Tree>, point: &Path) -> Result<&'t Tree> {
    match trees.entry(point.to_owned()) {
        std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
        std::collections::hash_map::Entry::Vacant(entry) => Ok(entry.insert(Tree::open(point)?)),
    }
}

fn content(op: &Put) -> Option<(&Make, &[u8])> {
    match op.make.as_ref() {
        Some(make) => match &make.what {
            What::File(bytes) => Some((make, bytes)),
            _ => None,
        },
        None => None,
    }
}

/// Makes a file, unless something has its name; in the nearest directory above it that is there.
fn make_unnamed(tree: &Tree, op: &Put) -> Result<Option<OwnedFd>, Errno> {
    let there = tree.attrs(&op.to).map_err(|error| error.errno().unwrap_or(Errno::IO))?;
    let (None, Some((make, bytes))) = (there, content(op)) else { return Ok(None) };
    let above = op.to.ancestors().skip(1).find_map(|path| tree.dir(path).ok());
    let Some(dir) = above else { return Ok(None) };
    let file = disk().unnamed(dir.as_fd(), 0o600)?;
    fill(&file, make, bytes)?;
    Ok(Some(file))
}

/// Flushes files of one file system; the first of them was opened before anything was written to any.
fn flush_all(files: &[&OwnedFd]) -> Result<(), Errno> {
    match files {
        [first, ..] if files.len() > FEW => retry_on_intr(|| disk().flush_fs(first.as_fd())),
        _ => files.iter().try_for_each(|file| flush_open(file, Flush::All)),
    }
}
