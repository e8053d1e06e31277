//! Beginning anew, for another transaction over the same connection.
//!
//! # Invariants
//!
//! - The numbers of nodes are never given again on one connection: each beginning has its own epoch, and
//!   a request for a node of an earlier one is stale.
//! - Nothing that was open or known for one transaction serves another.

use std::{
    path::PathBuf,
    sync::{PoisonError, atomic::Ordering},
};

use txos_core::{NodeId, Workset, workset::Facets};
use txos_host::{HostError, Tree, attrs_of};

use super::{Ahead, DIRS, FILES, Known, LISTINGS, Mirror, lock};
use crate::{
    CaptureSpec, Result,
    objects::{Lru, PathWatch},
};

/// What each beginning needs.
pub(super) struct Again {
    root: PathBuf,
    hidden: Vec<PathBuf>,
    relax: Vec<PathBuf>,
    prefetch: bool,
}

impl Again {
    pub(super) fn of(spec: &CaptureSpec) -> Again {
        Again {
            root: spec.root.clone(),
            hidden: spec.hidden.clone(),
            relax: spec.relax.clone(),
            prefetch: spec.prefetch,
        }
    }

    /// What is known before anything was touched: the root.
    pub(super) fn nothing_known(&self, tree: &Tree) -> Result<Known> {
        let failed = |errno| HostError::object("read the attributes of", self.root.clone(), errno);
        let root = attrs_of(tree.root()).map_err(failed)?;
        let mut workset = Workset::new(&root);
        workset.mark(NodeId::ROOT, Facets::PERMS | Facets::ATTRS);
        let relaxed = PathWatch::new(&self.relax);
        if relaxed.is_root() {
            workset.mark(NodeId::ROOT, Facets::RELAXED);
        }
        Ok(Known { workset, hidden: PathWatch::new(&self.hidden), relaxed, clocks: Vec::new() })
    }
}

impl Mirror {
    /// Which beginning this is, from 0.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Forgets everything. No request may be under way.
    pub(crate) fn renew(&self) -> Result<()> {
        let known = self.again.nothing_known(&self.tree)?;
        self.recording.store(false, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        *lock(&self.dirs) = Lru::new(DIRS);
        *lock(&self.files) = Lru::new(FILES);
        *lock(&self.listings) = Lru::new(LISTINGS);
        *lock(&self.ahead) = Ahead::new(self.again.prefetch);
        self.doom.renew();
        Ok(())
    }
}
