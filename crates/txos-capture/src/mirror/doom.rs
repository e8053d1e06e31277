use std::sync::OnceLock;

use txos_core::{Conflict, Facet, NodeId, Seen, workset::Finding};

use super::Mirror;
use crate::OnDoom;

/// Whether the transaction has lost, and to what.
pub(crate) struct Doom {
    conflict: OnceLock<Conflict>,
    tell: Option<OnDoom>,
}

impl Doom {
    pub(crate) fn new(tell: Option<OnDoom>) -> Self {
        Doom { conflict: OnceLock::new(), tell }
    }

    /// The first conflict that was met.
    pub(crate) fn conflict(&self) -> Option<&Conflict> {
        self.conflict.get()
    }

    fn strike(&self, conflict: Conflict) {
        if self.conflict.set(conflict).is_ok()
            && let (Some(tell), Some(conflict)) = (&self.tell, self.conflict.get())
        {
            tracing::debug!(%conflict, "doomed");
            tell(conflict);
        }
    }
}

impl Mirror {
    /// Dooms the transaction by what happened to an object. No lock may be held.
    pub(crate) fn doom_node(&self, node: NodeId, facet: Facet, seen: Seen) {
        let path = self.known().workset.path(node);
        let detail = "met while running".to_owned();
        self.doom.strike(Conflict { path, facet, seen, detail });
    }

    /// Dooms the transaction by what happened to a name. No lock may be held.
    pub(crate) fn doom_name(&self, dir: NodeId, name: &[u8], finding: Finding) {
        let path = self.known().workset.path_in(dir, name);
        let detail = "met while running".to_owned();
        self.doom.strike(Conflict { path, facet: finding.facet, seen: finding.seen, detail });
    }
}
