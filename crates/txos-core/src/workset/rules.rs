//! The rules that say whether what is stable now contradicts what was read.

use super::{Binding, Bound, Facets, NodeId, Workset};
use crate::{Attrs, Facet, FileKind, Seen, blind_to};

/// A contradiction, without the path, which the caller adds when it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The facet.
    pub facet: Facet,
    /// What happened.
    pub seen: Seen,
}

/// What a name found now means for the workset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing that was read has changed.
    Holds,
    /// Something has.
    Broken(Finding),
}

impl Judgement {
    fn broken(facet: Facet, seen: Seen) -> Self {
        match blind_to(facet) {
            true => Judgement::Holds,
            false => Judgement::Broken(Finding { facet, seen }),
        }
    }
}

impl Workset {
    /// Holds a recorded binding against what the name is bound to now.
    ///
    /// Below a relaxed directory everything holds.
    pub fn judge_binding(&self, binding: &Binding<'_>, now: Option<&Attrs>) -> Judgement {
        if self.facets(binding.dir).contains(Facets::RELAXED) {
            return Judgement::Holds;
        }
        match (binding.to, now) {
            (Bound::Absent, None) => Judgement::Holds,
            (Bound::Absent, Some(_)) => Judgement::broken(Facet::Binding, Seen::Created),
            (Bound::Object(node), None) => Judgement::broken(self.bound_facet(node), Seen::Removed),
            (Bound::Object(node), Some(now)) => self.judge_object(node, now),
        }
    }

    /// The facet by which somebody knows what a name is bound to: whoever read where a symbolic link
    /// leads wants to hear of that, and another target is another link.
    pub(crate) fn bound_facet(&self, node: NodeId) -> Facet {
        match self.facets(node).contains(Facets::LINK) {
            true => Facet::Link,
            false => Facet::Binding,
        }
    }

    /// Holds the recorded attributes and permissions of an object against those of what is in
    /// its place now.
    pub fn judge_object(&self, node: NodeId, now: &Attrs) -> Judgement {
        let Some(then) = self.attrs(node) else { return Judgement::Holds };
        let facets = self.facets(node);
        if then.id != now.id || then.kind != now.kind {
            return Judgement::broken(self.bound_facet(node), Seen::Replaced);
        }
        if facets.contains(Facets::RELAXED) {
            return Judgement::Holds;
        }
        if facets.contains(Facets::PERMS) && !then.same_perms(now) {
            return Judgement::broken(Facet::Perms, Seen::Changed);
        }
        if facets.contains(Facets::ATTRS) && !then.same_shown(now) {
            // Whoever read a file wants to hear of its content.
            let content = facets.contains(Facets::CONTENT)
                && (then.mtime, then.size) != (now.mtime, now.size);
            let facet = if content { Facet::Content } else { Facet::Attrs };
            return Judgement::broken(facet, Seen::Changed);
        }
        Judgement::Holds
    }

    /// Whether the times of a directory prove that the listing read is still the listing.
    pub fn listing_unmoved(&self, dir: NodeId, now: &Attrs) -> bool {
        let proof = self.listing(dir).and_then(|version| version.proof);
        now.kind == FileKind::Dir && proof == Some((now.ctime, now.mtime))
    }
}
