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

mod ahead;
pub(crate) mod decide;
mod flush;
mod fold;
mod locate;
mod make;
mod metadata;
mod names;
mod patch;
mod rescue;
mod write;

pub(crate) use ahead::Ahead;
pub(crate) use flush::flush_targets;
pub(crate) use fold::{Folds, fold};
pub(crate) use metadata::ACL;
pub(crate) use write::unchanged;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use txos_core::Attrs;
use txos_host::Tree;

use self::locate::Locator;
use crate::{
    Result, StateDir,
    names::shown,
    plan::{Ident, Plan},
    small::Fresh,
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

/// For people: what became of it, and where the other version is.
impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.reason)?;
        match &self.saved {
            Some(saved) => write!(f, "; the other version is in {}", shown(saved)),
            None => Ok(()),
        }
    }
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
    /// `None`: the mount point itself, where nothing is staged.
    stage: Option<Tree>,
}

impl Opened {
    fn stage(&self) -> &Tree {
        self.stage.as_ref().unwrap_or(&self.host)
    }
}

/// A plan being applied.
pub(crate) struct Applier<'a> {
    plan: &'a Plan,
    state: &'a StateDir,
    /// Directory of the transaction.
    tx: &'a Tree,
    areas: Vec<Opened>,
    pass: Pass<'a>,
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

/// Whether a plan is applied for the first time.
#[derive(Clone, Copy)]
pub(crate) enum Pass<'a> {
    /// All is as it was when the plan was made, and what is written is open.
    First {
        /// As `plan.writes`.
        held: &'a [Held],
        /// As `plan.patches` and `plan.puts`, where there are such from the record.
        fresh: Option<&'a Fresh>,
    },
    /// A recovery: an earlier attempt may have got anywhere, and so may plans after this one.
    Again {
        folds: &'a Folds,
        /// New files of all its plans.
        ahead: &'a Ahead<'a>,
        /// Which of them this one is.
        number: usize,
    },
}

impl<'a> Applier<'a> {
    /// Opens what the plan needs.
    pub(crate) fn new(
        plan: &'a Plan,
        state: &'a StateDir,
        tx: &'a Tree,
        pass: Pass<'a>,
    ) -> Result<Self> {
        let areas = plan
            .areas
            .iter()
            .map(|area| {
                let stage = (area.stage != area.point).then(|| Tree::open(&area.stage));
                Ok(Opened { host: Tree::open(&area.point)?, stage: stage.transpose()? })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut ours = HashMap::new();
        ours.extend(plan.puts.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        ours.extend(plan.moves.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        ours.extend(plan.links.iter().map(|op| ((op.area, op.to.clone()), op.id)));
        let locator = Locator::new(plan, matches!(pass, Pass::Again { .. }));
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
            pass,
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
        self.open_closed()?;
        self.writes()?;
        self.patches()?;
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
        self.areas[area as usize].stage()
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
        matches!(self.pass, Pass::Again { .. }) && self.vanishing.contains(&(area, path.to_owned()))
    }

    /// Whether what is displaced lies beside its old place, not in a stage directory that goes.
    fn clears(&self, area: u32) -> bool {
        let area = &self.plan.areas[area as usize];
        area.stage == area.point
    }
}
