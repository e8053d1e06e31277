//! From shadow objects to operations on stable ones.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use txos_core::{Attrs, FileKind, ObjectId};
use txos_host::{attrs_at, read_listing, read_xattrs_at};

use super::{
    Delta, anonymous,
    change::{Change, ChangeKind},
    draft::{Draft, DraftPut, DraftWrite, Shadow},
    expand::{Gone, expand},
    fid::OriginMark,
    inplace::{self, ShadowView},
    marks::part,
    walk::{Fate, Node, Reader, Walk},
};
use crate::{
    Layer, Result, StoreError,
    names::shown,
    plan::{Ident, Link, Move, Remove},
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
    anonymous::tell(&mut walk, &mut gone);
    let mut by_id: HashMap<ObjectId, Vec<PathBuf>> = HashMap::new();
    for (path, attrs) in gone.iter().filter(|(_, attrs)| attrs.kind != FileKind::Dir) {
        by_id.entry(attrs.id).or_default().push(path.clone());
    }
    let touched = touched_directories(&walk);
    let mut draft = Draft::new(reader.point, reader.host.at(), &layer.upper);
    draft.expectation.names = expected_names(&walk, &gone);
    draft.expectation.removed = emptied;
    let mut resolver =
        Resolver { reader, layer, gone, by_id, touched, moved: &moved, draft, delta };
    // All sources of renames are known before anything counts as displaced: in an exchange each
    // name is both.
    let groups = resolver.pair(&walk);
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
    resolver.finish(walk.dropped);
    Ok(())
}

struct Resolver<'a> {
    reader: &'a Reader<'a>,
    layer: &'a Layer,
    /// Stable names still to be removed.
    gone: Gone,
    /// Of those, the names of each object.
    by_id: HashMap<ObjectId, Vec<PathBuf>>,
    /// Directories of the layer in which names were made or removed.
    touched: BTreeSet<PathBuf>,
    /// Renamed directories, final paths by original ones.
    moved: &'a BTreeMap<PathBuf, PathBuf>,
    draft: Draft,
    delta: &'a mut Delta,
}

/// The copies of one stable object that is no directory.
struct Group<'n> {
    /// Its names in the layer, sorted.
    names: Vec<&'n Node>,
    /// The object, where it is known.
    id: Option<ObjectId>,
    /// Stable names of it that are gone and that a name of the layer takes up.
    sources: Vec<PathBuf>,
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
    fn kept(&self) -> Option<&Path> {
        let (base, host) = (self.base.as_deref()?, self.host.as_ref()?);
        let same = self.origin.as_ref().is_some_and(|origin| origin.attrs.id == host.id);
        same.then_some(base)
    }
}

impl Resolver<'_> {
    fn path(&self, rel: &Path) -> PathBuf {
        if rel.as_os_str().is_empty() {
            self.reader.point.to_owned()
        } else {
            self.reader.point.join(rel)
        }
    }

    fn change(&mut self, rel: &Path, kind: ChangeKind, object: FileKind) -> &mut Change {
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
    fn displaced(&mut self, node: &Node) -> Option<Attrs> {
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
    fn slot(&self) -> PathBuf {
        let number = self.draft.moves.len() + self.draft.links.len();
        Path::new("stage").join(format!("m{number}"))
    }

    /// All copies of stable objects that are no directories, each object once, with the names
    /// that they lose: a name that comes for one that goes is a rename.
    fn pair<'n>(&mut self, walk: &'n Walk) -> Vec<Group<'n>> {
        let mut objects: BTreeMap<(u64, u64), Vec<&Node>> = BTreeMap::new();
        for node in walk.nodes.iter().filter(|node| node.fate == Fate::Copy) {
            objects.entry((node.attrs.id.dev, node.attrs.id.ino)).or_default().push(node);
        }
        // Names are given in the order of the tree, not of inode numbers.
        let mut objects: Vec<Vec<&Node>> = objects.into_values().collect();
        objects.sort_by(|one, other| one[0].rel.cmp(&other[0].rel));
        objects.into_iter().map(|names| self.group(names)).collect()
    }

    fn group<'n>(&mut self, names: Vec<&'n Node>) -> Group<'n> {
        let id = names[0].origin.as_ref().map(|origin| origin.attrs.id);
        let added = names.iter().filter(|node| node.kept().is_none()).count();
        let mut sources = Vec::new();
        if let Some(gone) = id.and_then(|id| self.by_id.get_mut(&id)) {
            let first = gone.len().saturating_sub(added);
            sources = gone.split_off(first);
        }
        for source in &sources {
            self.gone.remove(source);
        }
        Group { names, id, sources }
    }

    fn copy(&mut self, group: Group<'_>) -> Result<()> {
        let Group { names, id: Some(id), mut sources } = group else {
            return self.anonymous(&group.names);
        };
        let first = names[0];
        let kept = names.iter().copied().find(|node| node.kept().is_some());
        let anchor = match (kept.and_then(Node::kept), sources.first()) {
            (Some(kept), _) => kept.to_owned(),
            (None, Some(source)) => source.clone(),
            (None, None) => self.other_name(first, id)?,
        };
        self.in_place(&anchor, first, &self.layer.upper.join(&first.rel), Some(&first.rel))?;
        let mut name = kept.map(|node| node.rel.clone());
        for node in names.into_iter().filter(|node| node.kept().is_none()) {
            match sources.pop() {
                Some(from) => self.move_file(from, node, id),
                None => {
                    let from = name.clone().unwrap_or_else(|| self.final_path(&anchor));
                    self.link(from, node, id);
                }
            }
            name.get_or_insert_with(|| node.rel.clone());
        }
        Ok(())
    }

    /// Where an object that stays at `original` in its directory will be.
    fn final_path(&self, original: &Path) -> PathBuf {
        original
            .ancestors()
            .find_map(|above| {
                let to = self.moved.get(above)?;
                Some(to.join(original.strip_prefix(above).ok()?))
            })
            .unwrap_or_else(|| original.to_owned())
    }

    fn move_file(&mut self, from: PathBuf, node: &Node, id: ObjectId) {
        let replaces = self.displaced(node);
        let direct = node.plain && node.host.is_none();
        self.draft.moves.push(Move {
            area: 0,
            from: from.clone(),
            to: node.rel.clone(),
            id: id.into(),
            dir: false,
            slot: (!direct).then(|| self.slot()),
            replaces: replaces.map(|attrs| attrs.id.into()),
        });
        let from = self.path(&from);
        self.change(&node.rel, ChangeKind::Renamed { from }, node.attrs.kind);
    }

    fn link(&mut self, from: PathBuf, node: &Node, id: ObjectId) {
        let replaces = self.displaced(node);
        self.draft.links.push(Link {
            area: 0,
            from: from.clone(),
            to: node.rel.clone(),
            id: id.into(),
            slot: self.slot(),
            replaces: replaces.map(|attrs| attrs.id.into()),
        });
        let to = self.path(&from);
        self.change(&node.rel, ChangeKind::Linked { to }, node.attrs.kind);
    }

    /// A copy of which nothing tells the original takes the place itself.
    fn anonymous(&mut self, names: &[&Node]) -> Result<()> {
        for node in names {
            self.fresh(node);
            self.put(node);
        }
        let path = shown(&self.path(&names[0].rel));
        self.delta.notes.push(format!(
            "{path}: renamed or linked from a file that could not be told; \
             it becomes a file of its own"
        ));
        Ok(())
    }

    /// A stable name of a copied-up object that the layer does not mention.
    fn other_name(&self, node: &Node, id: ObjectId) -> Result<PathBuf> {
        let gone = || super::changed_outside(&self.path(&node.rel), "its original is gone");
        let origin = node.origin.as_ref().ok_or_else(gone)?;
        let rel = origin.path.strip_prefix(self.reader.point).map_err(|_| gone())?;
        match self.reader.host.attrs(rel)? {
            Some(attrs) if attrs.id == id => Ok(rel.to_owned()),
            _ => Err(gone()),
        }
    }

    /// Content and metadata of a stable object that stays the same; `anchor` is an original path
    /// of it.
    fn in_place(
        &mut self,
        anchor: &Path,
        node: &Node,
        shadow: &Path,
        rel: Option<&Path>,
    ) -> Result<()> {
        let Some(now) = self.reader.host.attrs(anchor)? else {
            return Err(super::changed_outside(&self.path(anchor), "it is gone"));
        };
        let seen = node.origin.as_ref().map_or(now, |origin| origin.attrs);
        let spec = if now.kind == FileKind::File && !node.marks.metacopy {
            inplace::content(self.reader.host, anchor, &now, shadow, &node.attrs)?
        } else {
            None
        };
        let view = ShadowView { attrs: &node.attrs, xattrs: &node.xattrs, seen: &seen };
        let written = spec.is_some();
        let (meta, attrs) = inplace::metadata(self.reader, anchor, anchor, &view, written)?;
        self.refuse_protection(node, anchor)?;
        let show = rel.filter(|_| node.kept().is_some()).unwrap_or(anchor).to_owned();
        if let Some(spec) = spec {
            let change = self.change(&show, ChangeKind::Modified, now.kind);
            (change.size_before, change.size_after) =
                (Some(spec.before_size), Some(spec.after_size));
            change.attrs = attrs;
            self.draft.writes.push(DraftWrite {
                path: anchor.to_owned(),
                id: now.id.into(),
                source: shadow.to_owned(),
                rel: rel.map(Path::to_owned),
                spec,
                attrs: now,
            });
        } else if !attrs.is_empty() {
            self.change(&show, ChangeKind::Metadata, now.kind).attrs = attrs;
        }
        self.draft.file_meta.extend(meta);
        Ok(())
    }

    fn refuse_protection(&self, node: &Node, anchor: &Path) -> Result<()> {
        if node.marks.protected.is_empty() {
            return Ok(());
        }
        let reason = "the transaction made it immutable or append-only (chattr)";
        Err(StoreError::refused(self.path(anchor), reason, "run chattr outside a transaction"))
    }

    /// Objects with several names whose written names are all gone: only the overlay's index
    /// still holds the copy.
    fn index_copies(&mut self, walk: &Walk) -> Result<()> {
        let index = self.layer.work.join("index");
        let Ok(fd) = rustix::fs::open(
            &index,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        ) else {
            return Ok(());
        };
        let failed = |errno| StoreError::io("read", &index, errno);
        let known: BTreeSet<u64> = walk.nodes.iter().map(|node| node.attrs.id.ino).collect();
        for entry in read_listing(&fd).map_err(failed)?.entries {
            let Some(attrs) = attrs_at(&fd, &entry.name).map_err(failed)? else { continue };
            if known.contains(&attrs.id.ino)
                || matches!(attrs.kind, FileKind::Dir | FileKind::CharDevice)
            {
                continue;
            }
            let raw = read_xattrs_at(&fd, &entry.name).map_err(failed)?;
            let (marks, xattrs) = part(raw, self.reader.options.privilege.xattr_prefix());
            let Some(OriginMark::Node(number)) = marks.origin else { continue };
            let Some(origin) = self.reader.origins.origin(number) else { continue };
            let names = self.by_id.get(&origin.attrs.id).map_or(0, Vec::len) as u32;
            if names >= origin.attrs.nlink {
                continue; // every name is gone, and the content with them
            }
            let node = Node {
                rel: PathBuf::new(),
                attrs,
                marks,
                xattrs,
                base: None,
                host: None,
                origin: Some(origin),
                fate: Fate::Copy,
                plain: false,
                in_new: false,
            };
            // A name that stays is better than one that goes: recovery finds the object by it.
            let Some(id) = node.origin.as_ref().map(|origin| origin.attrs.id) else { continue };
            let removed = self.by_id.get(&id).and_then(|names| names.first()).cloned();
            let anchor = match (self.other_name(&node, id), removed) {
                (Ok(other), Some(removed)) if self.gone.contains_key(&other) => removed,
                (Ok(other), _) => other,
                (Err(_), Some(removed)) => removed,
                (Err(error), None) => return Err(error),
            };
            self.in_place(&anchor, &node, &index.join(&entry.name), None)?;
        }
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        if node.in_new && node.fate != Fate::New && !self.is_anonymous(node) {
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

    fn is_anonymous(&self, node: &Node) -> bool {
        node.fate == Fate::Copy && node.origin.is_none() && node.kept().is_none()
    }

    fn fresh(&mut self, node: &Node) {
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

    fn put(&mut self, node: &Node) {
        if node.in_new {
            return;
        }
        let replaces = self.displaced(node).map(|attrs| attrs.id.into());
        self.draft.puts.push(DraftPut { rel: node.rel.clone(), kind: node.attrs.kind, replaces });
    }

    fn directory(&mut self, node: &Node, from: &Path) -> Result<()> {
        let seen = match (&node.origin, &node.host) {
            (Some(origin), _) => origin.attrs,
            (None, _) => match self.reader.host.attrs(from)? {
                Some(now) => now,
                None => return Err(super::changed_outside(&self.path(from), "it is gone")),
            },
        };
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
