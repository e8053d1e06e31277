use std::sync::{Mutex, MutexGuard, PoisonError};

use txos_core::{Conflict, Facet, NodeId, Seen, blind_to, workset::Finding};

use super::Mirror;
use crate::OnDoom;

/// Whether the transaction has lost, and to what.
pub(crate) struct Doom {
    conflict: Mutex<Option<Conflict>>,
    tell: Option<OnDoom>,
}

impl Doom {
    pub(crate) fn new(tell: Option<OnDoom>) -> Self {
        Doom { conflict: Mutex::default(), tell }
    }

    /// The first conflict that was met.
    pub(crate) fn conflict(&self) -> Option<Conflict> {
        self.held().clone()
    }

    /// Another transaction has lost nothing yet.
    pub(crate) fn renew(&self) {
        *self.held() = None;
    }

    fn held(&self) -> MutexGuard<'_, Option<Conflict>> {
        self.conflict.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self, conflict: Conflict) {
        if blind_to(conflict.facet) {
            return;
        }
        let mut held = self.held();
        if held.is_some() {
            return;
        }
        tracing::debug!(%conflict, "doomed");
        *held = Some(conflict.clone());
        drop(held);
        if let Some(tell) = &self.tell {
            tell(&conflict);
        }
    }
}

impl Mirror {
    /// Dooms the transaction by what happened to an object. No lock may be held.
    pub(crate) fn doom_node(&self, node: NodeId, facet: Facet, seen: Seen) {
        let path = self.known().workset.path(node);
        let detail = "met while running".into();
        self.doom.strike(Conflict { path, facet, seen, detail });
    }

    /// Dooms the transaction by what happened to a name. No lock may be held.
    pub(crate) fn doom_name(&self, dir: NodeId, name: &[u8], finding: Finding) {
        let path = self.known().workset.path_in(dir, name);
        let detail = "met while running".into();
        self.doom.strike(Conflict { path, facet: finding.facet, seen: finding.seen, detail });
    }
}
