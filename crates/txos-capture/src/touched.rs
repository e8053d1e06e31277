//! What was touched, in terms of what was read.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Weak,
};

use txos_core::{
    Attrs, Conflict, Detail, NodeId, Touched, Workset,
    workset::{Binding, Bound, Facets, Finding, Judgement},
};
use txos_host::{attrs_at, attrs_of, open_dir_below};

use crate::mirror::Mirror;

/// What has to be compared again.
#[derive(Debug, Default)]
pub(crate) struct Again<'w> {
    /// The root has no name by which it could be judged.
    pub(crate) root: bool,
    /// Names, by the directory that they are in. One without names has its listing compared.
    pub(crate) directories: BTreeMap<NodeId, Vec<Binding<'w>>>,
}

impl<'w> Again<'w> {
    pub(crate) fn new<'t: 'w>(
        workset: &'w Workset,
        touched: impl Iterator<Item = &'t Touched>,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Again<'w> {
        let mut again = Again::default();
        for touched in touched {
            match touched {
                Touched::Name(dir, name) => {
                    let Some(dir) = workset.find(dir) else { continue };
                    if workset.facets(dir).contains(Facets::LISTING) {
                        again.directories.entry(dir).or_default();
                    }
                    if let Some(to) = workset.bound(dir, name) {
                        again.add(Binding { dir, name, to });
                    }
                }
                Touched::Object(id) => {
                    if let Some(node) = workset.find(id) {
                        again.node(workset, node);
                    }
                }
            }
        }
        nodes.for_each(|node| again.node(workset, node));
        again
    }

    fn node(&mut self, workset: &'w Workset, node: NodeId) {
        match workset.first_name(node) {
            None => self.root |= node == NodeId::ROOT,
            Some((dir, name)) => self.add(Binding { dir, name, to: Bound::Object(node) }),
        }
        if workset.facets(node).contains(Facets::XATTRS) {
            self.directories.entry(node).or_default();
        }
    }

    fn add(&mut self, binding: Binding<'w>) {
        let bindings = self.directories.entry(binding.dir).or_default();
        if !bindings.iter().any(|other| other.name == binding.name) {
            bindings.push(binding);
        }
    }
}

/// Holds changes by outsiders against what a running transaction has read up to now.
///
/// It lives no longer than the capture: afterwards nothing contradicts anything.
#[derive(Clone)]
pub struct Judge(pub(crate) Weak<Mirror>);

impl Judge {
    /// The conflict, if what was touched differs now from what was read. What nobody but the capture
    /// itself has read, or the user relaxed, is no conflict; nor is a listing, which validation
    /// compares.
    pub fn look(&self, touched: &Touched) -> Option<Conflict> {
        let mirror = self.0.upgrade()?;
        let look = Look::at(&mirror, touched)?;
        // No lock is held while the system is asked.
        let now = look.now(&look.open(&mirror)?)?;
        look.judge(&mirror, now.as_ref())
    }

    /// As [`Judge::look`], at whatever was read so far, for who begins to listen late: the first
    /// conflict among the first [`MOST_LOOKS`] names. Validation looks at all of them in the end.
    /// It ends early when the capture does.
    pub fn look_back(&self) -> Option<Conflict> {
        let mirror = self.0.upgrade()?;
        let mut last: Option<(NodeId, Option<OwnedFd>)> = None;
        // A piece at a time: requests wait for the same lock.
        for piece in (0..MOST_LOOKS).step_by(PIECE as usize) {
            let looks: Vec<Look> = {
                let known = mirror.known();
                known.workset.binding(piece)?;
                let names = (piece..piece + PIECE).map_while(|n| known.workset.binding(n));
                names.filter_map(|name| Look::new(&known.workset, name)).collect()
            };
            for look in looks {
                if mirror.holds.stopped() {
                    return None;
                }
                if last.as_ref().is_none_or(|(dir, _)| *dir != look.dir) {
                    last = Some((look.dir, look.open(&mirror)));
                }
                let dir = last.as_ref().and_then(|(_, dir)| dir.as_ref());
                let conflict = dir
                    .and_then(|dir| look.now(dir))
                    .and_then(|now| look.judge(&mirror, now.as_ref()));
                if conflict.is_some() {
                    return conflict;
                }
            }
        }
        None
    }
}

/// So many names are looked at again by who begins to listen.
pub const MOST_LOOKS: u32 = 20_000;
const PIECE: u32 = 500;

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Judge").field(&self.0.strong_count()).finish()
    }
}

/// A name to look at.
struct Look {
    dir: NodeId,
    path: PathBuf,
    name: Vec<u8>,
    to: Bound,
}

impl Look {
    /// `None` where nobody but the capture has read it, or the user relaxed it.
    fn new(workset: &Workset, name: Binding<'_>) -> Option<Look> {
        let passed_over =
            |node| workset.facets(node).intersects(Facets::SPECULATIVE | Facets::RELAXED);
        if matches!(name.to, Bound::Object(node) if passed_over(node)) {
            return None;
        }
        let Binding { dir, name, to } = name;
        Some(Look { dir, path: workset.path(dir), name: name.to_vec(), to })
    }

    fn at(mirror: &Mirror, touched: &Touched) -> Option<Look> {
        let known = mirror.known();
        let workset = &known.workset;
        let name = match touched {
            Touched::Name(dir, name) => {
                let dir = workset.find(dir)?;
                Binding { dir, name, to: workset.bound(dir, name)? }
            }
            Touched::Object(id) => {
                let node = workset.find(id)?;
                let (dir, name) = workset.first_name(node)?;
                Binding { dir, name, to: Bound::Object(node) }
            }
        };
        Look::new(workset, name)
    }

    /// The directory that it is in, if that still has its place: another one there is an event of its
    /// own.
    fn open(&self, mirror: &Mirror) -> Option<OwnedFd> {
        let dir: OwnedFd = open_dir_below(mirror.tree().root(), &self.path).ok()?;
        let expected = mirror.known().workset.attrs(self.dir)?.id;
        attrs_of(&dir).is_ok_and(|attrs| attrs.id == expected).then_some(dir)
    }

    /// What the name is bound to now; `None` where that cannot be said.
    fn now(&self, dir: &OwnedFd) -> Option<Option<Attrs>> {
        attrs_at(dir, OsStr::from_bytes(&self.name)).ok()
    }

    fn judge(&self, mirror: &Mirror, now: Option<&Attrs>) -> Option<Conflict> {
        let known = mirror.known();
        let binding = Binding { dir: self.dir, name: &self.name, to: self.to };
        match known.workset.judge_binding(&binding, now) {
            Judgement::Holds => None,
            Judgement::Broken(Finding { facet, seen }) => {
                let path = Path::new(&self.path).join(OsStr::from_bytes(&self.name));
                Some(Conflict { path, facet, seen, detail: Detail::None })
            }
        }
    }
}
