//! From shadow objects to operations on stable ones.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::CStr,
    path::{Path, PathBuf},
};

use txos_core::{Attrs, FileKind, ObjectId};

use super::{
    Delta, anonymous,
    change::{Change, ChangeKind},
    draft::{Draft, DraftPut, Shadow},
    expand::{Gone, expand},
    inplace::{self, ShadowView},
    walk::{Fate, Node, Reader, Walk},
};
use crate::{
    Layer, Privilege, Result, StoreError,
    plan::{Ident, Move, Remove},
    sys::Object,
};

/// Adds what `walk` found to `delta`.
pub(super) fn resolve(
    reader: &Reader<'_>,
    layer: &Layer,
    mut walk: Walk,
    delta: &mut Delta,
) -> Result<()> {
    let moved: BTreeMap<PathBuf, PathBuf> = walk
        .nodes
        .iter()
        .filter_map(|node| match &node.fate {
            Fate::Moved(from) => Some((from.clone(), node.rel.clone())),
            _ => None,
        })
        .collect();
    let (mut gone, emptied) = expand(reader, &walk.hidden, &moved)?;
    anonymous::tell(reader, &mut walk, &mut gone)?;
    let mut by_id: HashMap<ObjectId, Vec<PathBuf>> = HashMap::new();
    for (path, attrs) in gone.iter().filter(|(_, attrs)| attrs.kind != FileKind::Dir) {
        by_id.entry(attrs.id).or_default().push(path.clone());
    }
    let touched = touched_directories(&walk);
    let made = walk.nodes.iter().filter(|node| node.fate == Fate::New && !node.in_new);
    let filled = made.filter_map(|node| node.rel.parent().map(Path::to_owned)).collect();
    let mut draft = Draft::new(reader.point, reader.host.at(), &layer.upper);
    draft.expectation.names = expected_names(&walk, &gone);
    draft.expectation.removed = emptied;
    let mut resolver =
        Resolver { reader, layer, gone, by_id, touched, filled, moved: &moved, draft, delta };
    // All sources of renames are known before anything counts as displaced: in an exchange each
    // name is both.
    let groups = resolver.pair(&walk);
    if reader.options.privilege == Privilege::User {
        resolver.refuse_split(&groups)?;
    }
    resolver.index_copies(&walk)?;
    for (from, to) in &moved {
        resolver.move_directory(from, to, &walk)?;
    }
    for group in groups {
        resolver.copy(group)?;
    }
    for node in &walk.nodes {
        resolver.node(node)?;
    }
    resolver.draft.closed = walk.closed;
    resolver.finish(walk.dropped);
    Ok(())
}

pub(super) struct Resolver<'a> {
    pub(super) reader: &'a Reader<'a>,
    pub(super) layer: &'a Layer,
    /// Stable names still to be removed.
    pub(super) gone: Gone,
    /// Of those, the names of each object.
    pub(super) by_id: HashMap<ObjectId, Vec<PathBuf>>,
    /// Directories of the layer in which names were made or removed.
    pub(super) touched: BTreeSet<PathBuf>,
    /// Of those, the ones in which objects were made.
    filled: BTreeSet<PathBuf>,
    /// Renamed directories, final paths by original ones.
    pub(super) moved: &'a BTreeMap<PathBuf, PathBuf>,
    pub(super) draft: Draft,
    pub(super) delta: &'a mut Delta,
}

/// The directories of the layer, by final path, whose names changed.
fn touched_directories(walk: &Walk) -> BTreeSet<PathBuf> {
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let shows: HashMap<&Path, &Path> = walk
        .nodes
        .iter()
        .filter_map(|node| match &node.fate {
            Fate::Stay => Some((node.base.as_deref()?, node.rel.as_path())),
            Fate::Moved(from) => Some((from.as_path(), node.rel.as_path())),
            _ => None,
        })
        .collect();
    let hidden = walk
        .hidden
        .iter()
        .filter_map(|(base, _)| shows.get(base.parent()?).map(|rel| rel.to_path_buf()));
    let added = walk
        .nodes
        .iter()
        .filter(|node| match node.fate {
            Fate::New | Fate::Moved(_) => true,
            Fate::Copy => node.kept().is_none(),
            Fate::Stay => false,
        })
        .filter_map(|node| parent(&node.rel));
    hidden.chain(added).collect()
}

/// Every stable name that a shadow object covers or that goes, with what is bound to it.
fn expected_names(walk: &Walk, gone: &Gone) -> Vec<(PathBuf, Option<Ident>)> {
    let covered = walk.nodes.iter().filter_map(|node| {
        let id = node.host.map(|host| Ident::from(host.id));
        Some((node.base.clone()?, id))
    });
    let gone = gone.iter().map(|(path, attrs)| (path.clone(), Some(Ident::from(attrs.id))));
    let mut names: Vec<_> = covered.chain(gone).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Node {
    /// For a copy of a stable object that is no directory: the stable name that still binds it.
    pub(super) fn kept(&self) -> Option<&Path> {
        let (base, host) = (self.base.as_deref()?, self.host.as_ref()?);
        let same = self.origin.as_ref().is_some_and(|origin| origin.attrs.id == host.id);
        same.then_some(base)
    }
}

impl Resolver<'_> {
    pub(super) fn path(&self, rel: &Path) -> PathBuf {
        if rel.as_os_str().is_empty() {
            self.reader.point.to_owned()
        } else {
            self.reader.point.join(rel)
        }
    }

    pub(super) fn change(&mut self, rel: &Path, kind: ChangeKind, object: FileKind) -> &mut Change {
        let path = self.path(rel);
        self.delta.changes.push(Change {
            path,
            kind,
            object,
            size_before: None,
            size_after: None,
            attrs: Vec::new(),
        });
        let last = self.delta.changes.len() - 1;
        &mut self.delta.changes[last]
    }

    /// What `node` displaces where it will be, if one exchange can do that: something that is no
    /// directory and goes nowhere else.
    pub(super) fn displaced(&mut self, node: &Node) -> Option<Attrs> {
        let (base, host) = (node.base.as_ref()?, node.host.as_ref()?);
        if host.kind == FileKind::Dir || self.gone.get(base).map(|attrs| attrs.id) != Some(host.id)
        {
            return None;
        }
        self.gone.remove(base);
        if let Some(names) = self.by_id.get_mut(&host.id) {
            names.retain(|name| name != base);
        }
        Some(*host)
    }

    fn move_directory(&mut self, from: &Path, to: &Path, walk: &Walk) -> Result<()> {
        let Ok(at) = walk.nodes.binary_search_by(|node| node.rel.as_path().cmp(to)) else {
            return Ok(());
        };
        let node = &walk.nodes[at];
        let now = self.reader.host.attrs(from)?;
        let seen = node.origin.as_ref().map(|origin| origin.attrs.id);
        let id = match (now, seen) {
            (Some(now), Some(seen)) if now.id == seen => seen,
            (Some(now), None) => now.id,
            _ => return Err(super::changed_outside(&self.path(from), "another is there now")),
        };
        let replaces = self.displaced(node);
        let direct = node.plain && node.host.is_none();
        self.draft.moves.push(Move {
            area: 0,
            from: from.to_owned(),
            to: to.to_owned(),
            id: id.into(),
            dir: true,
            slot: (!direct).then(|| self.slot()),
            replaces: replaces.map(|attrs| attrs.id.into()),
        });
        let from = self.path(from);
        self.change(to, ChangeKind::Renamed { from }, FileKind::Dir);
        Ok(())
    }

    /// A name in the stage directory for each move and link.
    pub(super) fn slot(&self) -> PathBuf {
        let number = self.draft.moves.len() + self.draft.links.len();
        Path::new("stage").join(format!("m{number}"))
    }

    /// Where an object that stays at `original` in its directory will be.
    pub(super) fn final_path(&self, original: &Path) -> PathBuf {
        original
            .ancestors()
            .find_map(|above| {
                let to = self.moved.get(above)?;
                Some(to.join(original.strip_prefix(above).ok()?))
            })
            .unwrap_or_else(|| original.to_owned())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        if node.in_new && node.fate != Fate::New {
            self.draft.evicted.push(node.rel.clone());
        }
        match &node.fate {
            Fate::New => {
                let replaced = node.host;
                self.fresh(node);
                if !node.in_new {
                    self.put(node);
                }
                let kind =
                    if replaced.is_some() { ChangeKind::Replaced } else { ChangeKind::Created };
                let file = |attrs: &Attrs| (attrs.kind == FileKind::File).then_some(attrs.size);
                let change = self.change(&node.rel, kind, node.attrs.kind);
                change.size_before = replaced.as_ref().and_then(file);
                change.size_after = file(&node.attrs);
                Ok(())
            }
            Fate::Copy => Ok(()),
            Fate::Stay => match &node.base {
                Some(base) => self.directory(node, base),
                None => Ok(()),
            },
            Fate::Moved(from) => self.directory(node, from),
        }
    }

    pub(super) fn fresh(&mut self, node: &Node) {
        let prefix = self.reader.options.privilege.xattr_prefix().as_bytes();
        let unescaped = node
            .xattrs
            .iter()
            .filter(|(name, _)| name.to_bytes().starts_with(prefix))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let device = node.attrs.kind == FileKind::CharDevice;
        self.draft.fresh.push(Shadow {
            rel: node.rel.clone(),
            attrs: node.attrs,
            own: node.marks.own.clone(),
            unescaped,
            null_device: device
                && node.attrs.rdev == 0
                && self.reader.options.null_device_alias != 0,
            protected: node.marks.protected.clone(),
        });
    }

    pub(super) fn put(&mut self, node: &Node) {
        if node.in_new {
            return;
        }
        let replaces = self.displaced(node).map(|attrs| attrs.id.into());
        self.draft.puts.push(DraftPut { rel: node.rel.clone(), kind: node.attrs.kind, replaces });
    }

    /// A directory with a default ACL gives it to what is made in it. Where the view could not
    /// show the ACL, what was made in it lacks it.
    fn refuse_default_acl(&self, node: &Node, from: &Path) -> Result<()> {
        const DEFAULT: &CStr = c"system.posix_acl_default";
        let user = self.reader.options.privilege == Privilege::User;
        if !user || !self.filled.contains(&node.rel) || node.xattrs.contains_key(DEFAULT) {
            return Ok(());
        }
        let object = Object::open(self.reader.host, from)?;
        match object.map(|object| object.xattrs()).transpose()? {
            Some(xattrs) if xattrs.contains_key(DEFAULT) => {
                let reason = "has a default ACL, which the view of an ordinary user cannot hand on";
                let remedy = "run as root, or make new files there outside a transaction";
                Err(StoreError::refused(self.path(&node.rel), reason, remedy))
            }
            _ => Ok(()),
        }
    }

    fn directory(&mut self, node: &Node, from: &Path) -> Result<()> {
        let seen = match (&node.origin, &node.host) {
            (Some(origin), _) => origin.attrs,
            (None, _) => match self.reader.host.attrs(from)? {
                Some(now) => now,
                None => return Err(super::changed_outside(&self.path(from), "it is gone")),
            },
        };
        self.refuse_default_acl(node, from)?;
        let touched = self.touched.contains(&node.rel);
        let view = ShadowView { attrs: &node.attrs, xattrs: &node.xattrs, seen: &seen };
        let (meta, attrs) = inplace::metadata(self.reader, from, &node.rel, &view, touched)?;
        self.refuse_protection(node, &node.rel)?;
        if !attrs.is_empty() {
            self.change(&node.rel, ChangeKind::Metadata, FileKind::Dir).attrs = attrs;
        }
        self.draft.dir_meta.extend(meta);
        Ok(())
    }

    /// What is still on the list of gone names is removed.
    fn finish(mut self, dropped: Vec<PathBuf>) {
        let replaced: BTreeSet<PathBuf> = self
            .delta
            .changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Replaced)
            .map(|change| change.path.clone())
            .collect();
        for (path, attrs) in std::mem::take(&mut self.gone) {
            self.draft.removes.push(Remove {
                area: 0,
                path: path.clone(),
                id: attrs.id.into(),
                dir: attrs.kind == FileKind::Dir,
            });
            if !replaced.contains(&self.path(&path)) {
                let size = (attrs.kind == FileKind::File).then_some(attrs.size);
                self.change(&path, ChangeKind::Removed, attrs.kind).size_before = size;
            }
        }
        self.draft.dropped = dropped;
        self.draft.dir_meta.reverse();
        self.delta.drafts.push(self.draft);
    }
}
