//! Copies of stable objects that are no directories: which object each stands for, what became of
//! its names, and what changed in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use txos_core::{FileKind, ObjectId};
use txos_host::{Tree, attrs_at, read_listing, read_xattrs_at};

use super::{
    change::ChangeKind,
    draft::DraftWrite,
    fid::OriginMark,
    inplace::{self, ShadowView},
    marks::part,
    resolve::Resolver,
    walk::{Fate, Node, Walk},
};
use crate::{
    Result, StoreError,
    plan::{Link, Move},
};

/// The copies of one stable object that is no directory.
pub(super) struct Group<'n> {
    /// Its names in the layer, sorted.
    names: Vec<&'n Node>,
    id: ObjectId,
    /// Stable names of it that are gone and that a name of the layer takes up.
    sources: Vec<PathBuf>,
}

impl Resolver<'_> {
    /// All copies of stable objects that are no directories, each object once, with the names
    /// that they lose: a name that comes for one that goes is a rename.
    pub(super) fn pair<'n>(&mut self, walk: &'n Walk) -> Vec<Group<'n>> {
        let mut objects: BTreeMap<(u64, u64), Vec<&Node>> = BTreeMap::new();
        for node in walk.nodes.iter().filter(|node| node.fate == Fate::Copy) {
            objects.entry((node.attrs.id.dev, node.attrs.id.ino)).or_default().push(node);
        }
        // Names are given in the order of the tree, not of inode numbers.
        let mut objects: Vec<Vec<&Node>> = objects.into_values().collect();
        objects.sort_by(|one, other| one[0].rel.cmp(&other[0].rel));
        objects.into_iter().filter_map(|names| self.group(names)).collect()
    }

    fn group<'n>(&mut self, names: Vec<&'n Node>) -> Option<Group<'n>> {
        let id = names[0].origin.as_ref()?.attrs.id;
        let added: BTreeSet<&Path> = (names.iter().filter(|node| node.kept().is_none()))
            .map(|node| node.rel.as_path())
            .collect();
        let mut sources = Vec::new();
        if let Some(gone) = self.by_id.get_mut(&id) {
            // A name that comes again, in another directory, is one of those: as a name that goes it
            // would be taken for the one that comes.
            gone.sort_by_key(|name| added.contains(name.as_path()));
            let first = gone.len().saturating_sub(added.len());
            sources = gone.split_off(first);
        }
        for source in &sources {
            self.gone.remove(source);
        }
        Some(Group { names, id, sources })
    }

    /// Without privilege the overlay has no index: each name of a file with several gets a copy of
    /// its own when something is written under it, and the others show the old content. Two such
    /// copies cannot be made one file again; and what was written to a copy that is gone, while
    /// the file lives on under other names, is lost.
    pub(super) fn refuse_split(&self, groups: &[Group<'_>]) -> Result<()> {
        let mut told = BTreeSet::new();
        let twice = groups.iter().find(|group| !told.insert(group.id));
        let origins = self.reader.origins;
        let lost = self.by_id.iter().find(|(id, names)| {
            let now = names.first().and_then(|name| self.gone.get(name));
            !told.contains(id)
                && origins.copied(id).is_some()
                && now.is_some_and(|now| now.nlink as usize > names.len())
        });
        let lost = lost.and_then(|(_, names)| names.first());
        let Some(path) = twice.map(|group| &group.names[0].rel).or(lost) else { return Ok(()) };
        let reason = "a file with several names (hard links) was changed under one name and changed, \
                      replaced or removed under another, which the view of an ordinary user cannot \
                      keep together";
        Err(StoreError::refused(
            self.path(path),
            reason,
            "run as root, or change it under one name",
        ))
    }

    pub(super) fn copy(&mut self, group: Group<'_>) -> Result<()> {
        let Group { names, id, mut sources } = group;
        let first = names[0];
        let kept = names.iter().copied().find(|node| node.kept().is_some());
        let anchor = match (kept.and_then(Node::kept), sources.first()) {
            (Some(kept), _) => kept.to_owned(),
            (None, Some(source)) => source.clone(),
            (None, None) => self.other_name(first, id)?,
        };
        let reader = self.reader;
        self.in_place(&anchor, first, (reader.upper, &first.rel), Some(&first.rel))?;
        let mut name = kept.map(|node| node.rel.clone());
        let mut added: Vec<&Node> =
            names.into_iter().filter(|node| node.kept().is_none()).collect();
        added.sort_by_key(|node| !sources.contains(&node.rel));
        for node in added {
            let again = sources.iter().position(|source| *source == node.rel);
            match again.map(|at| sources.remove(at)).or_else(|| sources.pop()) {
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
        shadow: (&Tree, &Path),
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
        // What was copied up is not what is there now: writing would undo what someone else wrote,
        // also where reads are not validated.
        if spec.is_some() && (seen.mtime, seen.size) != (now.mtime, now.size) {
            return Err(super::written_outside(&self.path(anchor)));
        }
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
                source: shadow.0.at().join(shadow.1),
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

    pub(super) fn refuse_protection(&self, node: &Node, anchor: &Path) -> Result<()> {
        if node.marks.protected.is_empty() {
            return Ok(());
        }
        let reason = "the transaction made it immutable or append-only (chattr)";
        Err(StoreError::refused(self.path(anchor), reason, "run chattr outside a transaction"))
    }

    /// Objects with several names whose written names are all gone: only the overlay's index
    /// still holds the copy.
    pub(super) fn index_copies(&mut self, walk: &Walk) -> Result<()> {
        let index = self.layer.work.join("index");
        let Ok(tree) = Tree::open(&index) else { return Ok(()) };
        let failed = |errno| StoreError::io("read", &index, errno);
        let fd = tree.open_at(Path::new(""), OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
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
            self.in_place(&anchor, &node, (&tree, Path::new(&entry.name)), None)?;
        }
        Ok(())
    }
}
