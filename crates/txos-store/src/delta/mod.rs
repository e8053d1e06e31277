//! The delta: what a transaction would change, found out from the upper layers of its view.
//!
//! # Invariants
//!
//! - The delta is about stable objects, not about paths: a shadow object that was copied up stands
//!   for the stable object of its origin, whatever names either has. So a file changed in place
//!   keeps its inode and its other names, and a renamed one is renamed.
//! - Absence of an origin alone proves that an object is new; `opaque` proves nothing.
//! - What the transaction did not change is not in the delta, even where the stable system has
//!   changed since: attributes are compared with what the transaction saw.
//! - Nothing is guessed: where the layer does not prove what happened, the transaction is refused.

mod anonymous;
mod change;
mod closed;
pub(crate) mod content;
mod copies;
mod draft;
mod expand;
pub(crate) mod fid;
mod inplace;
pub(crate) mod marks;
mod resolve;
mod text;
mod unified;
mod walk;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use txos_core::{Conflict, Facet, Origins, Seen, Stamp};
use txos_host::{Tree, mounts};

pub use change::{AttrChange, Change, ChangeKind};
pub(crate) use draft::{Draft, DraftPut, DraftWrite, Shadow};

use crate::{Layer, Privilege, Result, StoreError};

/// How a delta is extracted.
#[derive(Clone, Debug)]
pub struct ExtractOptions {
    /// Which overlay attributes the layers use.
    pub privilege: Privilege,
    /// When the transaction began: times from then on count as having come about by themselves.
    pub started: Stamp,
    /// Device number (`dev_t`) by which the capture shows a real character device 0:0, which the
    /// overlay would take for a removed name; 0 for none.
    pub null_device_alias: u64,
    /// Paths of the stable system at and below which changes are left out: what the view itself
    /// put there.
    pub ignore: Vec<PathBuf>,
    /// Paths of the stable system at, below and above which nothing may be changed, such as the
    /// state directory.
    pub protect: Vec<PathBuf>,
}

impl ExtractOptions {
    /// Options for a transaction that began at `started`, without exceptions.
    pub fn new(privilege: Privilege, started: Stamp) -> Self {
        ExtractOptions {
            privilege,
            started,
            null_device_alias: 0,
            ignore: Vec::new(),
            protect: Vec::new(),
        }
    }

    fn ignores(&self, path: &Path) -> bool {
        self.ignore.iter().any(|ignored| path.starts_with(ignored))
    }
}

/// What a transaction would change.
#[derive(Debug)]
pub struct Delta {
    /// The changes, sorted by path, for people.
    pub changes: Vec<Change>,
    pub(crate) drafts: Vec<Draft>,
}

impl Delta {
    /// Finds out what the upper directories of `layers` change in the stable system `tree`.
    ///
    /// No process may use the view any more. The layers are not changed. `origins` says which
    /// stable object a node id of the capture stands for. Costs what the layers hold, and what the
    /// removed directories hold; never what the tree holds.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if a directory that was changed is gone or another now;
    /// [`StoreError::Refused`] if a protected path or a mount point would be removed or renamed;
    /// otherwise what reading gives.
    pub fn extract(
        layers: &[Layer],
        tree: &Tree,
        origins: &dyn Origins,
        options: &ExtractOptions,
    ) -> Result<Delta> {
        let mounts: HashSet<PathBuf> =
            mounts::visible()?.into_iter().map(|mount| mount.point).collect();
        let mut delta = Delta { changes: Vec::new(), drafts: Vec::new() };
        for layer in layers {
            let upper = Tree::open(&layer.upper)?;
            let host = match relative(&layer.point) {
                top if top.as_os_str().is_empty() => Tree::open(tree.at())?,
                below => Tree::open(tree.at().join(below))?,
            };
            let reader = walk::Reader {
                upper: &upper,
                host: &host,
                point: &layer.point,
                origins,
                options,
                mounts: &mounts,
            };
            let walk = reader.walk(&layer.root)?;
            let closed = walk.closed.clone();
            let resolved = resolve::resolve(&reader, layer, walk, &mut delta);
            closed.iter().rev().try_for_each(|closed| closed.close(&upper, &closed.rel))?;
            resolved?;
        }
        delta.changes.sort_by(|one, other| one.path.cmp(&other.path));
        for change in &delta.changes {
            protect(options, &change.path)?;
        }
        Ok(delta)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.drafts.iter().all(Draft::is_empty)
    }
}

fn protect(options: &ExtractOptions, path: &Path) -> Result<()> {
    let Some(protected) = options.protect.iter().find(|protected| path.starts_with(protected))
    else {
        return Ok(());
    };
    let reason = format!("the transaction would change {}, which txos needs", protected.display());
    Err(StoreError::refused(path, reason, "abort the transaction"))
}

/// A conflict about a file that both the transaction and someone else wrote.
fn written_outside(path: &Path) -> StoreError {
    StoreError::Conflict(vec![Conflict {
        path: path.to_owned(),
        facet: Facet::Content,
        seen: Seen::Changed,
        detail: "the transaction writes it, too".into(),
    }])
}

/// A conflict about an object that is not as the transaction left it.
pub(crate) fn changed_outside(path: &Path, detail: &str) -> StoreError {
    StoreError::Conflict(vec![Conflict {
        path: path.to_owned(),
        facet: Facet::Binding,
        seen: Seen::Replaced,
        detail: detail.into(),
    }])
}

/// The error of `action` on an object of the stable system that was there a moment ago: a conflict if
/// somebody outside took it away, or put another in its place, meanwhile.
pub(crate) fn failed_outside(action: &'static str, path: &Path, errno: Errno) -> StoreError {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => changed_outside(path, "it is gone"),
        _ => StoreError::io(action, path, errno),
    }
}

/// An absolute path as one relative to the root.
pub(crate) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
