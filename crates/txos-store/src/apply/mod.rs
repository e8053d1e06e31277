//! Making a plan real, at once or again after a crash.
//!
//! # Invariants
//!
//! - Applying is idempotent: an operation that was done is recognised by the identity of what is
//!   there and skipped, so a crash at any point is mended by applying again.
//! - What someone outside did is never undone: what is neither as before nor as after stays, ours
//!   is saved in `conflicts/`, and the report says so.
//! - Nobody can lead an operation elsewhere: names are reached from the pinned mount point, beneath
//!   it, through no symbolic link.

pub(crate) mod decide;
mod locate;
mod metadata;
mod names;
mod rescue;
mod write;

pub(crate) use write::unchanged;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use txos_core::Attrs;
use txos_host::Tree;

use self::locate::Locator;
use crate::{
    Result, StateDir, StoreError,
    plan::{Ident, Plan},
    sys,
};

/// Something of a committed delta that was not applied, since someone outside had been there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The object, as an absolute path.
    #[serde(with = "crate::names::path")]
    pub path: PathBuf,
    /// What was found.
    pub reason: String,
    /// Where the transaction's version is kept, if it has one.
    #[serde(with = "crate::names::optional_path")]
    pub saved: Option<PathBuf>,
}

/// An in-place target, opened before the commit was decided.
#[derive(Debug)]
pub(crate) struct Held {
    pub file: Option<OwnedFd>,
    /// How it was when its content was compared.
    pub attrs: Attrs,
}

/// One mount of the plan, open.
struct Opened {
    host: Tree,
    stage: Tree,
}

/// A plan being applied.
pub(crate) struct Applier<'a> {
    plan: &'a Plan,
    state: &'a StateDir,
    /// Directory of the transaction.
    tx: &'a Tree,
    areas: Vec<Opened>,
    /// In-place targets, as `plan.writes`; empty in a recovery.
    held: &'a [Held],
    /// Whether this is a recovery: an earlier attempt may have got anywhere.
    again: bool,
    /// What a name will be bound to, by area and final path: a removal must not take it for a
    /// stranger's.
    ours: HashMap<(u32, PathBuf), Ident>,
    /// Names that go, by area and original path: of an object that is changed under such a name
    /// recovery may not find another.
    vanishing: HashSet<(u32, PathBuf)>,
    locator: Locator,
    kept: Vec<Kept>,
    /// How many operations were found done already.
    pub skipped: u64,
    saved: u32,
}

impl<'a> Applier<'a> {
    /// Opens what the plan needs. `held` is `None` in a recovery.
    pub(crate) fn new(
        plan: &'a Plan,
        state: &'a StateDir,
        tx: &'a Tree,
        held: Option<&'a [Held]>,
    ) -> Result<Self> {
        let areas = plan
            .areas
            .iter()
            .map(|area| {
                Ok(Opened { host: Tree::open(&area.point)?, stage: Tree::open(&area.stage)? })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut ours = HashMap::new();
        ours.extend(plan.puts.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        ours.extend(plan.moves.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        ours.extend(plan.links.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        let locator = Locator::new(plan, held.is_none());
        let removed = plan.removes.iter().map(|op| (op.area, op.path.clone()));
        let displaced = (plan.puts.iter().filter(|op| op.replaces.is_some()))
            .map(|op| (op.area, op.to.clone()))
            .chain(
                (plan.moves.iter().filter(|op| op.replaces.is_some()))
                    .map(|op| (op.area, op.to.clone())),
            )
            .chain(
                (plan.links.iter().filter(|op| op.replaces.is_some()))
                    .map(|op| (op.area, op.to.clone())),
            );
        Ok(Applier {
            plan,
            state,
            tx,
            areas,
            held: held.unwrap_or_default(),
            again: held.is_none(),
            ours,
            vanishing: removed.chain(displaced).collect(),
            locator,
            kept: Vec::new(),
            skipped: 0,
            saved: 0,
        })
    }

    /// Applies all of it, in the order that the plan's module describes.
    ///
    /// # Errors
    /// What the file system gives; applying again later goes on from there.
    pub(crate) fn run(&mut self) -> Result<()> {
        self.writes()?;
        self.file_metadata()?;
        self.detach()?;
        self.place()?;
        self.link()?;
        self.directory_metadata()
    }

    /// What was left as someone outside had made it.
    pub(crate) fn into_kept(self) -> Vec<Kept> {
        self.kept
    }

    fn host(&self, area: u32) -> &Tree {
        &self.areas[area as usize].host
    }

    fn stage(&self, area: u32) -> &Tree {
        &self.areas[area as usize].stage
    }

    fn shown(&self, area: u32, path: &Path) -> PathBuf {
        self.host(area).at().join(path)
    }

    fn keep(&mut self, area: u32, path: &Path, reason: &str, saved: Option<PathBuf>) {
        let path = self.shown(area, path);
        self.kept.push(Kept { path, reason: reason.to_owned(), saved });
    }

    /// Whether an object was changed under a name that is gone by now. What was changed was
    /// flushed before the name was removed, so there is nothing left to do.
    fn vanished(&self, area: u32, path: &Path) -> bool {
        self.again && self.vanishing.contains(&(area, path.to_owned()))
    }

    /// Flushes all that was changed.
    ///
    /// # Errors
    /// What flushing gives: the disk may have lost something, and the plan must stay in the
    /// journal.
    pub(crate) fn flush(&self) -> Result<()> {
        const FEW: usize = 8;
        if self.plan.len() > FEW {
            return (0..self.areas.len()).try_for_each(|area| self.flush_all(area as u32));
        }
        let mut dirs: BTreeSet<(u32, PathBuf)> = BTreeSet::new();
        let mut add = |area, path: &Path| {
            dirs.insert((area, path.parent().unwrap_or(Path::new("")).to_owned()));
        };
        for op in &self.plan.removes {
            add(op.area, &op.path);
        }
        for op in &self.plan.moves {
            add(op.area, &op.from);
            add(op.area, &op.to);
        }
        for op in &self.plan.puts {
            add(op.area, &op.to);
        }
        for op in &self.plan.links {
            add(op.area, &op.to);
        }
        let metas = self.plan.file_meta.iter().chain(&self.plan.dir_meta);
        let files: BTreeSet<(u32, PathBuf)> = (metas.map(|op| (op.area, op.path.clone())))
            .chain(self.plan.writes.iter().map(|op| (op.area, op.path.clone())))
            .collect();
        for (area, path) in dirs.iter().chain(&files) {
            match sys::flush(sys::place(self.host(*area), path)) {
                Ok(()) => {}
                // Moved, removed, a link or a device: nothing of its own to flush by this name.
                Err(StoreError::Io {
                    errno:
                        rustix::io::Errno::NOENT
                        | rustix::io::Errno::NOTDIR
                        | rustix::io::Errno::LOOP
                        | rustix::io::Errno::NXIO
                        | rustix::io::Errno::INVAL
                        | rustix::io::Errno::ACCESS,
                    ..
                }) => self.flush_all(*area)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn flush_all(&self, area: u32) -> Result<()> {
        sys::flush_file_system(self.host(area))
    }
}
