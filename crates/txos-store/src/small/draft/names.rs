//! Names made, moved and removed.

use std::{collections::HashMap, ffi::OsStr, os::fd::OwnedFd, path::Path, sync::Arc};

use rustix::{fd::AsFd, fs::OFlags, io::Errno};
use txos_core::FileKind;
use txos_host::read_listing;

use super::{At, Base, Draft, Io, Object, Origin, What};
use crate::{
    plan::Make,
    sys::{Disk, disk},
};

impl Draft<'_> {
    pub(super) fn create(&mut self, path: &Path, bytes: &[u8], mode: u32) -> Io<()> {
        let (number, at) = self.make(path, What::File(Vec::new()), mode)?;
        let dir = self.existing_above(at.dir)?;
        // Not all file systems make files without a name: there it is made from the record alone.
        let file = match disk().unnamed(dir.as_fd(), mode & 0o777) {
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => None,
            other => Some(other?),
        };
        let object = &mut self.objects[number];
        if let Origin::New(make) = &mut object.origin {
            make.what = What::File(bytes.to_vec());
        }
        object.open.file = file;
        Ok(())
    }

    /// The nearest directory at or above `dir` that is there already.
    fn existing_above(&mut self, mut dir: Base) -> Io<Arc<OwnedFd>> {
        loop {
            match dir {
                Base::Stable(path) => return Ok(self.open_parent(&path)?.dir.clone()),
                Base::New(object) => {
                    dir = self.objects[object].at.clone().ok_or(Errno::NOENT)?.dir;
                }
            }
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path, mode: u32) -> Io<()> {
        let (number, at) = self.make(path, What::Dir, mode)?;
        self.objects[number].at = Some(at);
        Ok(())
    }

    /// A path through a name that is bound anew to this object, or not any more, must be walked.
    fn leads_on(&mut self, object: usize) {
        let kind = self.objects[object].kind();
        self.walk |= matches!(kind, FileKind::Dir | FileKind::Symlink);
    }

    pub(super) fn make(&mut self, path: &Path, what: What, mode: u32) -> Io<(usize, At)> {
        let (at, now) = self.slot(path)?;
        if now.is_some() {
            return Err(Errno::EXIST);
        }
        self.may_change(&at, None)?;
        let number = self.objects.len();
        let make = Make {
            what,
            perm: mode & 0o7777,
            owner: None,
            xattrs: Vec::new(),
            atime: None,
            mtime: None,
        };
        let mount = self.mount_in(&at.dir)?;
        self.objects.push(Object::new(Origin::New(make), mount));
        self.bind(&at, Some(number));
        self.leads_on(number);
        Ok((number, at))
    }

    fn bind(&mut self, at: &At, object: Option<usize>) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.now = object;
        }
        // A time of the directory that was set before is not the time of this change.
        let dir = match &at.dir {
            Base::New(object) => Some(*object),
            Base::Stable(path) => {
                At::of(path).and_then(|at| self.slots.get(&at)).and_then(|slot| slot.before)
            }
        };
        if let Some(dir) = dir {
            self.objects[dir].mtime = None;
        }
        if !self.changed.contains(&at.dir) {
            self.changed.insert(at.dir.clone());
        }
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Io<()> {
        let (_, object) = self.slot(from)?;
        let number = object.ok_or(Errno::NOENT)?;
        if self.objects[number].kind() == FileKind::Dir {
            return Err(Errno::PERM);
        }
        let (to, there) = self.slot(to)?;
        if there.is_some() {
            return Err(Errno::EXIST);
        }
        self.same_mount(number, &to)?;
        self.may_change(&to, None)?;
        self.bind(&to, Some(number));
        self.leads_on(number);
        Ok(())
    }

    fn same_mount(&mut self, object: usize, to: &At) -> Io<()> {
        let (one, other) = (self.objects[object].mount.clone(), self.mount_in(&to.dir)?);
        if Arc::ptr_eq(&one, &other) || one.point == other.point {
            return Ok(());
        }
        Err(Errno::XDEV)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> Io<()> {
        let (from, object) = self.slot(from)?;
        let number = object.ok_or(Errno::NOENT)?;
        let dir = self.objects[number].kind() == FileKind::Dir;
        let (to, there) = self.slot(to)?;
        self.same_mount(number, &to)?;
        if there == Some(number) {
            return Ok(());
        }
        if dir && self.lies_in(&to.dir, number) {
            return Err(Errno::INVAL);
        }
        if let Some(there) = there {
            if !replace {
                return Err(Errno::EXIST);
            }
            match (dir, self.objects[there].kind() == FileKind::Dir) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) => self.must_be_empty(there)?,
                (false, false) => {}
            }
        }
        self.may_change(&from, Some(number))?;
        self.may_change(&to, there)?;
        if dir && from.dir != to.dir {
            self.may_hang_elsewhere(number)?;
        }
        self.bind(&from, None);
        if let Some(there) = there {
            self.objects[there].at = None;
        }
        self.bind(&to, Some(number));
        if dir {
            self.objects[number].at = Some(to);
        }
        self.leads_on(number);
        Ok(())
    }

    /// Whether `dir` is the directory `object` or lies below it.
    fn lies_in(&self, dir: &Base, object: usize) -> bool {
        let above = self.base(object);
        let mut at = Some(dir.clone());
        while let Some(dir) = at {
            if dir == above {
                return true;
            }
            at = self.hangs(&dir).map(|at| at.dir);
        }
        false
    }

    fn must_be_empty(&mut self, object: usize) -> Io<()> {
        let base = self.base(object);
        let touched: HashMap<&OsStr, bool> = (self.slots.iter())
            .filter(|(at, _)| at.dir == base)
            .map(|(at, slot)| (at.name.as_os_str(), slot.now.is_some()))
            .collect();
        if touched.values().any(|bound| *bound) {
            return Err(Errno::NOTEMPTY);
        }
        let Base::Stable(path) = &base else { return Ok(()) };
        let dir = self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let listing = read_listing(&dir)?;
        match listing.entries.iter().any(|entry| !touched.contains_key(&*entry.name)) {
            true => Err(Errno::NOTEMPTY),
            false => Ok(()),
        }
    }

    pub(super) fn remove(&mut self, path: &Path, dir: bool) -> Io<()> {
        let (at, object) = self.slot(path)?;
        let number = object.ok_or(Errno::NOENT)?;
        match (self.objects[number].kind() == FileKind::Dir, dir) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        if dir {
            self.must_be_empty(number)?;
        }
        self.may_change(&at, Some(number))?;
        self.bind(&at, None);
        self.objects[number].at = None;
        self.leads_on(number);
        Ok(())
    }
}
