//! From a path to a name, through what the commit has made of the directories on the way.

use std::{
    collections::{VecDeque, hash_map},
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{OFlags, readlinkat},
    io::Errno,
};
use txos_core::{Attrs, FileKind};
use txos_host::attrs_at;

use super::{At, Base, Draft, Io, Mount, Object, Origin, Slot, What};
use crate::plan::Make;

/// As many links as the kernel follows in one path (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// A stable directory that is open.
pub(super) struct Parent {
    pub dir: Arc<OwnedFd>,
    pub mount: Arc<Mount>,
    /// Whether names in it may be changed.
    pub writable: Option<Io<()>>,
}

/// What a name on the way is.
enum Step {
    Into(Base),
    Link(PathBuf),
}

impl Draft<'_> {
    /// The name that `path` means: links among its parents followed.
    fn find(&mut self, path: &Path) -> Io<At> {
        let name = path.file_name().ok_or(Errno::BUSY)?.to_owned();
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            return Err(Errno::INVAL);
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if !self.walk {
            // The usual case: no link on the way, which opening the parent tells.
            match self.open_parent(parent).map(drop) {
                Err(Errno::LOOP) if self.follow => {}
                Err(errno) => return Err(errno),
                Ok(()) => return Ok(At { dir: Base::Stable(parent.to_owned()), name }),
            }
        }
        Ok(At { dir: self.walk(parent)?, name })
    }

    pub(super) fn open_parent(&mut self, path: &Path) -> Io<&mut Parent> {
        if !self.parents.contains_key(path) {
            let dir = self.root.open_at(path, OFlags::PATH | OFlags::DIRECTORY)?;
            let mount = self.mounts.of(self.root, &dir, path)?;
            let parent = Parent { dir: Arc::new(dir), mount, writable: None };
            self.parents.insert(path.to_owned(), parent);
        }
        self.parents.get_mut(path).ok_or(Errno::NOENT)
    }

    fn walk(&mut self, path: &Path) -> Io<Base> {
        let root = || Base::Stable(PathBuf::from("/"));
        let names = |path: &Path| path.iter().map(OsStr::to_owned).collect::<Vec<OsString>>();
        let mut left: VecDeque<OsString> = names(path).into();
        let (mut at, mut links) = (root(), 0);
        while let Some(name) = left.pop_front() {
            match name.as_encoded_bytes() {
                b"/" => at = root(),
                b"." => {}
                b".." => at = self.hangs(&at).map_or_else(root, |at| at.dir),
                _ => match self.step(At { dir: at.clone(), name })? {
                    Step::Into(dir) => at = dir,
                    Step::Link(target) => {
                        links += 1;
                        if links > MOST_LINKS || !self.follow {
                            return Err(Errno::LOOP);
                        }
                        names(&target).into_iter().rev().for_each(|name| left.push_front(name));
                    }
                },
            }
        }
        Ok(at)
    }

    fn step(&mut self, at: At) -> Io<Step> {
        if let Some(slot) = self.slots.get(&at) {
            let object = slot.now.ok_or(Errno::NOENT)?;
            return match (self.objects[object].kind(), &self.objects[object].origin) {
                (FileKind::Dir, _) => Ok(Step::Into(self.base(object))),
                (_, Origin::New(Make { what: What::Symlink(target), .. })) => {
                    Ok(Step::Link(OsString::from_vec(target.to_bytes().to_vec()).into()))
                }
                (FileKind::Symlink, Origin::Stable { path, .. }) => {
                    let path = path.clone();
                    self.target(&path)
                }
                _ => Err(Errno::NOTDIR),
            };
        }
        // Not touched by this commit: as the stable system has it.
        let path = at.stable().ok_or(Errno::NOENT)?;
        match self.open_parent(&path) {
            Ok(_) => Ok(Step::Into(Base::Stable(path))),
            Err(Errno::LOOP) => self.target(&path),
            Err(errno) => Err(errno),
        }
    }

    /// Where a stable symbolic link leads.
    fn target(&mut self, path: &Path) -> Io<Step> {
        let (above, name) = split(path)?;
        let target = readlinkat(&*self.open_parent(above)?.dir, name, Vec::new())?;
        Ok(Step::Link(OsString::from_vec(target.into_bytes()).into()))
    }

    /// The slot of the name that `path` means, and what it is bound to; its parent exists.
    pub(super) fn slot(&mut self, path: &Path) -> Io<(At, Option<usize>)> {
        let at = self.find(path)?;
        if let Some(slot) = self.slots.get(&at) {
            return Ok((at, slot.now));
        }
        let before = match &at.dir {
            Base::New(_) => None,
            Base::Stable(dir) => {
                let parent = self.open_parent(dir)?;
                let (dir, mount) = (parent.dir.clone(), parent.mount.clone());
                let found = attrs_at(&*dir, &at.name)?;
                found.map(|attrs| self.object_of(attrs, &at, mount))
            }
        };
        self.slots.insert(at.clone(), Slot { before, now: before });
        Ok((at, before))
    }

    fn object_of(&mut self, attrs: Attrs, at: &At, mount: Arc<Mount>) -> usize {
        let number = self.objects.len();
        match self.by_id.entry(attrs.id) {
            hash_map::Entry::Occupied(entry) => *entry.get(),
            hash_map::Entry::Vacant(entry) => {
                entry.insert(number);
                let path = at.stable().unwrap_or_default();
                let mut object = Object::new(Origin::Stable { attrs, path }, mount);
                object.at = (attrs.kind == FileKind::Dir).then(|| at.clone());
                self.objects.push(object);
                number
            }
        }
    }

    /// The mount that names in a directory are on.
    pub(super) fn mount_in(&mut self, dir: &Base) -> Io<Arc<Mount>> {
        match dir {
            Base::New(object) => Ok(self.objects[*object].mount.clone()),
            Base::Stable(path) => Ok(self.open_parent(path)?.mount.clone()),
        }
    }
}

/// An absolute path as parent and name; the root has none.
pub(super) fn split(path: &Path) -> Io<(&Path, &OsStr)> {
    Ok((path.parent().ok_or(Errno::BUSY)?, path.file_name().ok_or(Errno::BUSY)?))
}
