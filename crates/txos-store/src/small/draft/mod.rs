//! From operations, one after the other, to what they come to in all.
//!
//! # Coordinates
//!
//! A name is known by the directory it is in and by what it is called there ([`At`]), and a
//! directory by what it *is*, not by where it hangs ([`Base`]): one of the stable system by the path
//! that it has there, one that this commit makes by its number. So a directory that the commit
//! moves keeps all that is known of its names, and one that takes its old place shares nothing with
//! it. What the operations mean by a path is looked up name by name once a directory or a symbolic
//! link was made, renamed or removed ([`walk`]); where a name is in the end, [`Draft::last`] tells.
//!
//! # Invariants
//!
//! - Nothing is visible before the record; files are made without a name.
//! - Whatever could refuse an operation is examined here: the kernel opens files for writing and
//!   reserves their blocks, and permissions on directories and attributes are asked for.
//! - Names that are bound before the commit lie in stable directories; a new directory holds only
//!   what the commit puts there.

mod edit;
mod names;
mod permits;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{CString, OsString},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::io::Errno;
use txos_core::{Attrs, FileKind, ObjectId, Stamp};
use txos_host::{Tree, attrs_of};

use self::{edit::Edit, walk::Parent};
use super::{
    SmallOp,
    areas::{Mount, Mounts},
    content::Content,
};
use crate::plan::{Make, What};

type Io<T> = Result<T, Errno>;

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Base {
    /// One of the stable system, by its absolute path there.
    Stable(PathBuf),
    /// One that this commit makes, by its place in [`Draft::objects`].
    New(usize),
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct At {
    pub dir: Base,
    pub name: OsString,
}

impl At {
    /// The name of a stable directory; the root has none.
    fn of(path: &Path) -> Option<At> {
        let dir = Base::Stable(path.parent()?.to_owned());
        Some(At { dir, name: path.file_name()?.to_owned() })
    }

    /// The path that the name has in the stable system; of one in a new directory, nothing.
    pub(super) fn stable(&self) -> Option<PathBuf> {
        match &self.dir {
            Base::Stable(path) => Some(path.join(&self.name)),
            Base::New(_) => None,
        }
    }
}

/// An object that the operations touch.
pub(super) struct Object {
    pub origin: Origin,
    /// The mount that it is on, and stays on.
    pub mount: Arc<Mount>,
    /// Of a directory: the name that it has now.
    at: Option<At>,
    /// Permission bits, owner, attributes and times that it gets.
    pub perm: Option<u32>,
    pub owner: Option<(u32, u32)>,
    pub xattrs: BTreeMap<CString, Option<Vec<u8>>>,
    pub atime: Option<Stamp>,
    pub mtime: Option<Stamp>,
    pub open: Open,
}

/// What is open of an object.
#[derive(Default)]
pub(super) struct Open {
    pub content: Option<Content>,
    /// Open for writing, or for a new file, without a name.
    pub file: Option<OwnedFd>,
}

/// Where an object comes from.
pub(super) enum Origin {
    /// The stable system; under which path it was met first.
    Stable { attrs: Attrs, path: PathBuf },
    /// This commit.
    New(Make),
}

impl Object {
    fn new(origin: Origin, mount: Arc<Mount>) -> Object {
        Object {
            origin,
            mount,
            at: None,
            perm: None,
            owner: None,
            xattrs: BTreeMap::new(),
            atime: None,
            mtime: None,
            open: Open::default(),
        }
    }

    pub(super) fn take_open(&mut self) -> Open {
        std::mem::take(&mut self.open)
    }

    pub(super) fn kind(&self) -> FileKind {
        match &self.origin {
            Origin::Stable { attrs, .. } => attrs.kind,
            Origin::New(make) => match make.what {
                What::File(_) => FileKind::File,
                What::Dir => FileKind::Dir,
                What::Symlink(_) => FileKind::Symlink,
            },
        }
    }
}

/// A name that the operations touch: what it is bound to.
pub(super) struct Slot {
    pub before: Option<usize>,
    pub now: Option<usize>,
}

/// Operations put together.
pub(super) struct Draft<'a> {
    root: &'a Tree,
    mounts: &'a Mounts,
    pub objects: Vec<Object>,
    pub slots: BTreeMap<At, Slot>,
    /// Directories in which a name was bound or freed, be it only for a while.
    pub changed: BTreeSet<Base>,
    by_id: HashMap<ObjectId, usize>,
    parents: HashMap<PathBuf, Parent>,
    /// Whether symbolic links are followed on the way.
    follow: bool,
    /// Whether a directory or a symbolic link was made, renamed or removed: paths must be walked
    /// then.
    walk: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(root: &'a Tree, mounts: &'a Mounts, follow: bool) -> Self {
        Draft {
            root,
            mounts,
            objects: Vec::new(),
            slots: BTreeMap::new(),
            changed: BTreeSet::new(),
            by_id: HashMap::new(),
            parents: HashMap::new(),
            follow,
            walk: false,
        }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// What the system call of its kind would give.
    pub(super) fn add(&mut self, op: &SmallOp<'_>) -> Io<()> {
        match *op {
            SmallOp::Write { path, offset, bytes } => self.edit(path, &Edit::At(offset, bytes)),
            SmallOp::Append { path, bytes } => self.edit(path, &Edit::End(bytes)),
            SmallOp::Replace { path, bytes } => self.edit(path, &Edit::All(bytes)),
            SmallOp::Truncate { path, size } => self.edit(path, &Edit::Size(size)),
            SmallOp::Create { path, bytes, mode } => self.create(path, bytes, mode),
            SmallOp::CreateDir { path, mode } => self.create_dir(path, mode),
            SmallOp::Symlink { path, target } => {
                let target = CString::new(target.as_os_str().as_encoded_bytes())
                    .map_err(|_| Errno::INVAL)?;
                if target.is_empty() {
                    return Err(Errno::NOENT);
                }
                self.make(path, What::Symlink(target), 0o777).map(drop)
            }
            SmallOp::Link { from, to } => self.link(from, to),
            SmallOp::Rename { from, to, replace } => self.rename(from, to, replace),
            SmallOp::Remove { path } => self.remove(path, false),
            SmallOp::RemoveDir { path } => self.remove(path, true),
            SmallOp::SetMode { path, mode } => {
                let object = self.changed(path)?;
                if object.kind() == FileKind::Symlink {
                    return Err(Errno::OPNOTSUPP);
                }
                object.perm = Some(mode & 0o7777);
                Ok(())
            }
            SmallOp::SetOwner { path, uid, gid } => {
                let me = rustix::process::geteuid();
                let object = self.changed(path)?;
                let now = match (&object.owner, &object.origin) {
                    (Some(owner), _) => *owner,
                    (None, Origin::Stable { attrs, .. }) => (attrs.uid, attrs.gid),
                    (None, Origin::New(_)) => (me.as_raw(), rustix::process::getegid().as_raw()),
                };
                let want = (uid.unwrap_or(now.0), gid.unwrap_or(now.1));
                if !me.is_root() && want != now {
                    return Err(Errno::PERM);
                }
                object.owner = Some(want);
                Ok(())
            }
            SmallOp::SetXattr { path, name, value } => {
                let object = self.changed(path)?;
                if object.kind() == FileKind::Symlink {
                    return Err(Errno::PERM);
                }
                object.xattrs.insert(name.to_owned(), value.map(<[u8]>::to_vec));
                Ok(())
            }
            SmallOp::SetTimes { path, atime, mtime } => {
                let object = self.changed(path)?;
                object.atime = atime.or(object.atime);
                object.mtime = mtime.or(object.mtime);
                Ok(())
            }
        }
    }

    fn is_new(&self, object: usize) -> bool {
        matches!(self.objects[object].origin, Origin::New(_))
    }

    /// The directory `object`, as names in it know it.
    fn base(&self, object: usize) -> Base {
        match &self.objects[object].origin {
            Origin::Stable { path, .. } => Base::Stable(path.clone()),
            Origin::New(_) => Base::New(object),
        }
    }

    /// The name that a directory has now: of one that no operation has named, the one it has in the
    /// stable system. The root and what was removed have none.
    fn hangs(&self, dir: &Base) -> Option<At> {
        match dir {
            Base::New(object) => self.objects[*object].at.clone(),
            Base::Stable(path) => {
                let at = At::of(path)?;
                match self.slots.get(&at).and_then(|slot| slot.before) {
                    Some(object) => self.objects[object].at.clone(),
                    None => Some(at),
                }
            }
        }
    }

    /// Whether a directory is a stable one that stays where it is on its mount.
    pub(super) fn stays(&self, dir: &Base, mount: &Mount) -> bool {
        let Base::Stable(path) = dir else { return false };
        !self.walk || self.unmoved(path, mount) == path
    }

    /// The nearest directory at or above a stable one that stays where it is on its mount. Where
    /// that is not the directory itself, this commit frees a name in it, so it may change names
    /// there.
    pub(super) fn unmoved<'p>(&self, path: &'p Path, mount: &Mount) -> &'p Path {
        let mut nearest = path;
        for above in path.ancestors().take_while(|above| *above != mount.point) {
            if self.hangs(&Base::Stable(above.to_owned())) != At::of(above) {
                nearest = above.parent().unwrap_or(above);
            }
        }
        nearest
    }

    /// Where a name will be when all is done, beneath the mount point of its mount.
    pub(super) fn last(&self, at: &At, mount: &Mount) -> PathBuf {
        self.last_dir(&at.dir, mount).unwrap_or_default().join(&at.name)
    }

    /// The same for a directory; `None` if it goes.
    pub(super) fn last_dir(&self, dir: &Base, mount: &Mount) -> Option<PathBuf> {
        match dir {
            Base::Stable(path) if !self.walk => Some(beneath(path, mount)),
            Base::Stable(path) if *path == mount.point => Some(PathBuf::new()),
            dir => {
                let at = self.hangs(dir)?;
                Some(self.last_dir(&at.dir, mount)?.join(&at.name))
            }
        }
    }

    /// Where the directory `object` will be, beneath its mount point; `None` if it goes.
    pub(super) fn last_of(&self, object: usize) -> Option<PathBuf> {
        self.last_dir(&self.base(object), &self.objects[object].mount)
    }

    /// A stable directory in which names were changed: its mount and its attributes.
    pub(super) fn parent(&mut self, path: &Path) -> Io<(Arc<Mount>, Attrs)> {
        let parent = self.open_parent(path)?;
        Ok((parent.mount.clone(), attrs_of(&*parent.dir)?))
    }
}

/// A path beneath the mount point, relative to it.
pub(super) fn beneath(path: &Path, mount: &Mount) -> PathBuf {
    path.strip_prefix(&mount.point).unwrap_or(path).to_owned()
}
