//! Names: what they are bound to, recorded at first touch.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use rustix::io::Errno;
use txos_core::{
    Attrs, FileKind, NodeId,
    contention::Hold,
    workset::{Binding, Bound, Facets, Finding, Judgement},
};
use txos_host::attrs_at;

use super::{Known, Mirror};
use crate::proto::NodeReply;

/// What the kernel is told about a name.
pub(crate) enum Answer {
    Absent,
    Present(NodeReply),
}

impl Mirror {
    /// What `name` in `dir` is bound to: the first answer if it was asked before, else what is
    /// stable now.
    ///
    /// # Errors
    /// What looking it up gives, such as `EACCES`; nothing is recorded then but what led there.
    pub(crate) fn look_up(&self, dir: NodeId, name: &[u8]) -> Result<Answer, Errno> {
        if self.known().hidden.is_point(dir, name) {
            return Ok(Answer::Absent);
        }
        let (mut known, now) = loop {
            let now = attrs_at(self.dir(dir)?, OsStr::from_bytes(name))?;
            let known = self.known();
            match self.held(&known, dir, name, now.as_ref())? {
                None => break (known, now),
                Some(hold) => {
                    drop(known);
                    self.holds.wait(hold)?;
                }
            }
        };
        known.workset.unmark(dir, Facets::SPECULATIVE);
        let (bound, broken) = known.settle(dir, name, now.as_ref());
        let answer = match bound {
            Bound::Absent => Answer::Absent,
            Bound::Object(node) => Answer::Present(self.node_reply(&known.workset, node)?),
        };
        drop(known);
        if let Some(finding) = broken {
            self.doom_name(dir, name, finding);
        }
        Ok(answer)
    }

    /// The object that a listed name is bound to, to be given to a client that has not asked for
    /// it yet. `None` if there is nothing to give.
    pub(crate) fn look_ahead(&self, dir: NodeId, name: &[u8]) -> Option<NodeReply> {
        let fd = self.dir(dir).ok()?;
        let now = attrs_at(fd, OsStr::from_bytes(name)).ok()??;
        let mut known = self.known();
        // Nobody has asked for it yet, so there is nothing to wait for.
        if self.held(&known, dir, name, Some(&now)).ok()?.is_some() {
            return None;
        }
        let new = known.workset.bound(dir, name).is_none() && known.workset.find(&now.id).is_none();
        let (bound, broken) = known.settle(dir, name, Some(&now));
        let Bound::Object(node) = bound else { return None };
        if new {
            known.workset.mark(node, Facets::SPECULATIVE);
        }
        let reply = self.node_reply(&known.workset, node).ok();
        drop(known);
        if let Some(finding) = broken {
            self.doom_name(dir, name, finding);
        }
        reply
    }

    /// The hold that the first lookup of a name has to wait for, `now` being what it found.
    fn held(
        &self,
        known: &Known,
        dir: NodeId,
        name: &[u8],
        now: Option<&Attrs>,
    ) -> Result<Option<Hold>, Errno> {
        if known.workset.bound(dir, name).is_some()
            || known.workset.facets(dir).contains(Facets::RELAXED)
        {
            return Ok(None);
        }
        let id = known.workset.attrs(dir).ok_or(Errno::STALE)?.id;
        self.holds.met(|written| written.meets_lookup(&id, name, now))
    }

    /// Whether a name is kept from the view.
    pub(crate) fn is_hidden(&self, dir: NodeId, name: &[u8]) -> bool {
        self.known().hidden.is_point(dir, name)
    }
}

impl Known {
    /// Records what a name is bound to, or holds it against what was recorded before. Gives the
    /// binding that stands, and what contradicts it.
    pub(super) fn settle(
        &mut self,
        dir: NodeId,
        name: &[u8],
        now: Option<&Attrs>,
    ) -> (Bound, Option<Finding>) {
        if let Some(to) = self.workset.bound(dir, name) {
            let finding = broken(self.workset.judge_binding(&Binding { dir, name, to }, now));
            return (to, finding);
        }
        let (to, finding) = match now {
            None => (Bound::Absent, None),
            Some(attrs) => {
                let (node, finding) = self.meet(attrs);
                (Bound::Object(node), finding)
            }
        };
        // Just seen to be unbound, under the same lock.
        let _ = self.workset.bind(dir, name, to);
        if let Bound::Object(node) = to {
            self.hidden.discovered(dir, name, node);
            self.relaxed.discovered(dir, name, node);
            self.relax(dir, name, node);
        }
        (to, finding)
    }

    /// The node of an object, with the facets read that a lookup reads.
    fn meet(&mut self, attrs: &Attrs) -> (NodeId, Option<Finding>) {
        let walked = if attrs.kind == FileKind::Dir { Facets::PERMS } else { Facets::empty() };
        let (node, new) = self.workset.learn(attrs);
        let finding = if new { None } else { broken(self.workset.judge_object(node, attrs)) };
        self.workset.mark(node, Facets::ATTRS | walked);
        (node, finding)
    }

    /// Marks what lies at or below a relaxed path, and takes the mark from what is reached from
    /// elsewhere too.
    fn relax(&mut self, dir: NodeId, name: &[u8], node: NodeId) {
        let below = self.workset.facets(dir).contains(Facets::RELAXED);
        let first = self.workset.first_name(node) == Some((dir, name));
        if self.relaxed.is_point(dir, name) || below && first {
            self.workset.mark(node, Facets::RELAXED);
        } else if !below {
            self.workset.unmark(node, Facets::RELAXED);
        }
    }
}

fn broken(judgement: Judgement) -> Option<Finding> {
    match judgement {
        Judgement::Holds => None,
        Judgement::Broken(finding) => Some(finding),
    }
}
