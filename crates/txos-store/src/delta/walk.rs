//! Reading an upper layer: which shadow objects there are, and which stable name each stands for.
//!
//! The upper layer has the shape of the final tree. A shadow object's *base* is the stable name
//! that it covers: its own name in the stable directory that its parent directory shows, which is
//! another directory than the one at the same path if a parent was renamed (`redirect`).

use std::{
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::{fd::OwnedFd, fs::OFlags};
use txos_core::{Attrs, FileKind, ObjectId, Origin, Origins, Stamp};
use txos_host::{Tree, XattrSet, attrs_at, read_listing, read_xattrs_at};

use super::{
    ExtractOptions, closed,
    fid::OriginMark,
    marks::{Marks, part},
};
use crate::{Result, StoreError};

/// What became of the object that a shadow object stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Made in the transaction.
    New,
    /// A stable directory under its own name.
    Stay,
    /// A stable directory that was renamed; its stable path.
    Moved(PathBuf),
    /// Copied up from a stable object that is no directory.
    Copy,
}

/// A shadow object.
#[derive(Debug)]
pub(super) struct Node {
    /// Final path beneath the mount point, and path in the upper layer.
    pub rel: PathBuf,
    pub attrs: Attrs,
    pub marks: Marks,
    /// What the view shows.
    pub xattrs: XattrSet,
    /// The stable name that it covers, beneath the mount point.
    pub base: Option<PathBuf>,
    /// What is bound to that name.
    pub host: Option<Attrs>,
    /// Where it was copied up from.
    pub origin: Option<Origin>,
    pub fate: Fate,
    /// All directories above it are stable ones under their own names.
    pub plain: bool,
    /// The directory that holds it is new.
    pub in_new: bool,
}

/// All of one upper layer.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Shadow objects, sorted by final path; the first is the root.
    pub nodes: Vec<Node>,
    /// Stable names that are no longer bound to their objects, with what is bound to them now.
    pub hidden: Vec<(PathBuf, Attrs)>,
    /// Shadow objects in new directories that the caller wants left out.
    pub dropped: Vec<PathBuf>,
    /// Shadow objects that were opened up to be read.
    pub closed: Vec<closed::Closed>,
}

/// What is needed to read a layer.
pub(super) struct Reader<'a> {
    pub upper: &'a Tree,
    pub host: &'a Tree,
    pub point: &'a Path,
    pub origins: &'a dyn Origins,
    pub options: &'a ExtractOptions,
    /// Mount points of the host.
    pub mounts: &'a HashSet<PathBuf>,
}

struct Pending {
    rel: PathBuf,
    base: Option<PathBuf>,
    plain: bool,
}

impl Reader<'_> {
    /// Reads the whole layer, whose root is the mount point itself.
    pub(super) fn walk(&self, root: &Attrs) -> Result<Walk> {
        let mut walk = Walk::default();
        let top = self.root_node(root)?;
        let mut pending =
            vec![Pending { rel: PathBuf::new(), base: Some(PathBuf::new()), plain: true }];
        walk.nodes.push(top);
        while let Some(dir) = pending.pop() {
            self.directory(dir, &mut walk, &mut pending)?;
        }
        walk.nodes.sort_by(|one, other| one.rel.cmp(&other.rel));
        Ok(walk)
    }

    fn root_node(&self, seen: &Attrs) -> Result<Node> {
        let failed = |errno| StoreError::io("read", self.upper.at(), errno);
        let raw = read_xattrs_at(self.upper.root(), OsStr::new("")).map_err(failed)?;
        let (marks, xattrs) = part(raw, self.options.privilege.xattr_prefix());
        let attrs = txos_host::attrs_of(self.upper.root()).map_err(failed)?;
        let origin = Origin { attrs: *seen, path: self.point.to_owned() };
        Ok(Node {
            rel: PathBuf::new(),
            attrs,
            marks,
            xattrs,
            base: Some(PathBuf::new()),
            host: self.host.attrs(Path::new(""))?,
            origin: Some(origin),
            fate: Fate::Stay,
            plain: true,
            in_new: false,
        })
    }

    fn directory(&self, dir: Pending, walk: &mut Walk, pending: &mut Vec<Pending>) -> Result<()> {
        let shown = self.upper.at().join(&dir.rel);
        let failed = |errno| StoreError::io("read the shadow directory", &shown, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = self.upper.open_at(&dir.rel, flags).map_err(failed)?;
        let host_dir = match &dir.base {
            Some(base) => Some(open_base(self.host, base, self.point)?),
            None => None,
        };
        for entry in read_listing(&fd).map_err(failed)?.entries {
            let rel = dir.rel.join(&entry.name);
            let Some(attrs) = attrs_at(&fd, &entry.name).map_err(failed)? else { continue };
            let base = dir.base.as_ref().map(|base| base.join(&entry.name));
            if self.options.ignores(&self.point.join(&rel)) {
                if dir.base.is_none() {
                    walk.dropped.push(rel);
                }
                continue;
            }
            let host = match &host_dir {
                Some(host_dir) => {
                    let shown = self.point.join(&rel);
                    crate::sys::attrs_in(host_dir, &entry.name, &shown)?
                }
                None => None,
            };
            if is_whiteout(&attrs) {
                if let (Some(base), Some(host)) = (base, host) {
                    walk.hidden.push((base, host));
                }
                continue;
            }
            if let Some(closed) = closed::Closed::find(&rel, &attrs) {
                closed.open(self.upper, &closed.rel)?;
                walk.closed.push(closed);
            }
            let raw = read_xattrs_at(&fd, &entry.name).map_err(failed)?;
            let node = self.node(&dir, rel, attrs, raw, base, host)?;
            if let (Some(base), Some(host)) = (&node.base, &node.host)
                && !node.covers_its_own(host)
            {
                walk.hidden.push((base.clone(), *host));
            }
            if node.attrs.kind == FileKind::Dir {
                pending.push(Pending {
                    rel: node.rel.clone(),
                    base: match &node.fate {
                        Fate::Moved(from) => Some(from.clone()),
                        Fate::Stay => node.base.clone(),
                        Fate::New | Fate::Copy => None,
                    },
                    plain: node.plain && node.fate == Fate::Stay,
                });
            }
            walk.nodes.push(node);
        }
        Ok(())
    }

    fn node(
        &self,
        dir: &Pending,
        rel: PathBuf,
        mut attrs: Attrs,
        raw: XattrSet,
        base: Option<PathBuf>,
        host: Option<Attrs>,
    ) -> Result<Node> {
        let (mut marks, xattrs) = part(raw, self.options.privilege.xattr_prefix());
        self.understand_name(&mut marks, &attrs);
        let shown = self.point.join(&rel);
        if marks.unknown_origin {
            return Err(StoreError::damaged(
                self.upper.at().join(&rel),
                "its origin is in a form that this version does not know",
                "abort the transaction and report the kernel's version",
            ));
        }
        if attrs.kind == FileKind::CharDevice && attrs.rdev == self.options.null_device_alias {
            attrs.rdev = 0;
        }
        let origin = match marks.origin {
            Some(OriginMark::Node(node)) => self.origins.origin(node),
            _ => None,
        };
        let fate = match (attrs.kind, marks.origin) {
            (FileKind::Dir, None) => Fate::New,
            (FileKind::Dir, Some(_)) => self.directory_fate(dir, &shown, &marks, &base, &host)?,
            (_, Some(_)) => Fate::Copy,
            (_, None) => Fate::New,
        };
        if let (Fate::Stay, Some(origin), Some(host)) = (&fate, &origin, &host)
            && origin.attrs.id != host.id
        {
            return Err(super::changed_outside(&shown, "another directory is there now"));
        }
        let plain = dir.plain;
        let in_new = dir.base.is_none();
        Ok(Node { rel, attrs, marks, xattrs, base, host, origin, fate, plain, in_new })
    }

    /// Whether a shadow object may be a copy of this object: that was copied up, and not before
    /// the shadow object was there.
    pub(super) fn may_be_copy(&self, shadow: &Attrs, id: &ObjectId) -> bool {
        let born = shadow.id.birth;
        self.origins.copied(id).is_some_and(|at| born == Stamp::default() || born <= at)
    }

    /// What the capture's name for an original is worth (see [`super::marks::NAMED`]).
    fn understand_name(&self, marks: &mut Marks, shadow: &Attrs) {
        if let (Some(number), None | Some(OriginMark::Anonymous)) = (marks.named, marks.origin)
            && let Some(origin) = self.origins.origin(number)
            && self.may_be_copy(shadow, &origin.attrs.id)
        {
            marks.origin = Some(OriginMark::Node(number));
        }
    }

    fn directory_fate(
        &self,
        dir: &Pending,
        shown: &Path,
        marks: &Marks,
        base: &Option<PathBuf>,
        host: &Option<Attrs>,
    ) -> Result<Fate> {
        let from = match (&marks.redirect, &dir.base) {
            (Some(redirect), _) if redirect.first() == Some(&b'/') => {
                PathBuf::from(OsStr::from_bytes(&redirect[1..]))
            }
            (Some(redirect), Some(parent)) => parent.join(OsStr::from_bytes(redirect)),
            (None, _) => match (base, host) {
                (Some(_), Some(host)) if host.kind == FileKind::Dir => return Ok(Fate::Stay),
                _ => return Err(super::changed_outside(shown, "the directory is gone")),
            },
            (Some(_), None) => {
                return Err(StoreError::damaged(
                    self.upper.at().join(shown),
                    "a directory was renamed from beside itself in a new directory",
                    "abort the transaction",
                ));
            }
        };
        if Some(&from) == base.as_ref() {
            return Ok(Fate::Stay);
        }
        match self.host.attrs(&from)? {
            Some(attrs) if attrs.kind == FileKind::Dir => Ok(Fate::Moved(from)),
            _ => Err(super::changed_outside(&self.point.join(&from), "the directory is gone")),
        }
    }
}

impl Node {
    /// Whether the stable object of its base lives on in it, under that name.
    fn covers_its_own(&self, host: &Attrs) -> bool {
        match self.fate {
            Fate::Stay => true,
            Fate::New | Fate::Moved(_) => false,
            Fate::Copy => match &self.origin {
                Some(origin) => origin.attrs.id == host.id,
                // Refused, see `anonymous`.
                None => true,
            },
        }
    }
}

/// The overlay marks a removed name by a character device 0:0.
fn is_whiteout(attrs: &Attrs) -> bool {
    attrs.kind == FileKind::CharDevice && attrs.rdev == 0
}

/// The stable directory of a shadow, which was there a moment ago; `point` is where the tree is.
fn open_base(host: &Tree, base: &Path, point: &Path) -> Result<OwnedFd> {
    host.open_at(base, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(|errno| super::failed_outside("open", &point.join(base), errno))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    /// Somebody swaps it between two looks of the walk.
    #[test]
    fn a_directory_that_goes_away_during_the_walk_is_a_conflict() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("there")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("there", dir.path().join("link")).unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        open_base(&tree, Path::new("there"), dir.path()).unwrap();
        for gone in ["absent", "absent/below", "file", "link"] {
            let opened = open_base(&tree, Path::new(gone), dir.path());
            assert!(matches!(opened, Err(StoreError::Conflict(_))), "{gone}");
        }
    }
}
