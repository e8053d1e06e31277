//! Calls that make, remove and move names.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use rustix::io::Errno;

use crate::{
    Result,
    log::Deed,
    shadow::{Body, DirBody, Ix},
    transaction::Transaction,
    walk::Place,
};

impl Transaction {
    /// Makes a directory with `mode` less the umask.
    ///
    /// # Errors
    /// As `mkdir(2)`.
    pub fn create_dir(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.call("make the directory", path.as_ref(), |tx, path| {
            let path = without_slash(path);
            let place = tx.walk(path, false)?;
            let mode = mode & 0o1777 & !tx.umask()?;
            let body = Body::Dir(DirBody::default());
            tx.make(&place, body, mode, Deed::CreateDir { mode }).map(drop)
        })
    }

    /// Makes a symbolic link at `path` that points to `target`.
    ///
    /// # Errors
    /// As `symlink(2)`.
    pub fn symlink(&mut self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.call("make the link", path.as_ref(), |tx, path| {
            let target = target.as_ref().as_os_str();
            if target.is_empty() {
                return Err(Errno::NOENT);
            }
            if target.len() > 4095 {
                return Err(Errno::NAMETOOLONG);
            }
            let place = tx.place_for_name(path)?;
            let deed = Deed::Symlink { target: target.to_owned() };
            tx.make(&place, Body::Symlink(Some(target.to_owned())), 0o777, deed).map(drop)
        })
    }

    /// Gives the object at `path`, which is no directory, a further name; a symbolic link itself.
    ///
    /// # Errors
    /// As `link(2)`.
    pub fn link(&mut self, path: impl AsRef<Path>, name: impl AsRef<Path>) -> Result<()> {
        self.call("link", path.as_ref(), |tx, path| {
            let from = tx.walk(path, false)?;
            let ix = from.object.ok_or(Errno::NOENT)?;
            let place = tx.place_for_name(name.as_ref())?;
            let (None, Some((dir, name))) = (place.object, &place.name) else {
                return Err(Errno::EXIST);
            };
            let dir = *dir;
            tx.same_device(ix, dir)?;
            tx.may_change(dir)?;
            if tx.shadow.dir(ix).is_some() {
                return Err(Errno::PERM);
            }
            let to = tx.path_of(&place)?;
            tx.note(&from, Deed::Link { to })?;
            tx.shadow.bind(dir, name, Some(ix));
            tx.touch(dir);
            Ok(())
        })
    }

    /// Removes a name that is not of a directory.
    ///
    /// # Errors
    /// As `unlink(2)`.
    pub fn remove(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.call("remove", path.as_ref(), |tx, path| {
            let place = tx.walk(without_slash(path), false)?;
            let (dir, name) = place.name.clone().ok_or(Errno::ISDIR)?;
            let object = place.object.ok_or(Errno::NOENT)?;
            if ends_in_slash(path) && tx.shadow.dir(object).is_none() {
                return Err(Errno::NOTDIR);
            }
            if tx.shadow.dir(object).is_some() {
                return Err(Errno::ISDIR);
            }
            tx.may_take(dir, object)?;
            tx.not_a_mount(object, dir)?;
            tx.note(&place, Deed::Remove)?;
            tx.shadow.bind(dir, &name, None);
            tx.touch(dir);
            Ok(())
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn remove_dir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.call("remove the directory", path.as_ref(), |tx, path| {
            let place = tx.walk(without_slash(path), false)?;
            let object = place.object.ok_or(Errno::NOENT)?;
            if tx.shadow.dir(object).is_none() {
                return Err(Errno::NOTDIR);
            }
            let (dir, name) = place.name.clone().ok_or(Errno::INVAL)?;
            tx.may_take(dir, object)?;
            tx.not_a_mount(object, dir)?;
            if !tx.names(object)?.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            tx.note(&place, Deed::RemoveDir)?;
            tx.shadow.bind(dir, &name, None);
            tx.touch(dir);
            Ok(())
        })
    }

    /// Gives the object at `from` the name `to` instead, displacing what has that name.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.call("rename", from.as_ref(), |tx, from| tx.rename_to(from, to.as_ref(), true))
    }

    /// Gives the object at `from` the name `to`, which must be free.
    ///
    /// # Errors
    /// As `renameat2(2)` with `RENAME_NOREPLACE`.
    pub fn rename_new(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.call("rename", from.as_ref(), |tx, from| tx.rename_to(from, to.as_ref(), false))
    }

    /// Where a name that is not of a directory may be made.
    fn place_for_name(&mut self, path: &Path) -> Result<Place, Errno> {
        let place = self.walk(without_slash(path), false)?;
        match place.object {
            Some(_) => Err(Errno::EXIST),
            None if ends_in_slash(path) => Err(Errno::NOENT),
            None => Ok(place),
        }
    }

    /// The checks come in the kernel's order, so that of several errors the same one is given.
    fn rename_to(&mut self, from: &Path, to: &Path, replace: bool) -> Result<(), Errno> {
        let source = self.walk(without_slash(from), false)?;
        let target = self.walk(without_slash(to), false)?;
        let (from_dir, from_name) = source.name.clone().ok_or(Errno::BUSY)?;
        let (to_dir, to_name) = target.name.clone().ok_or(Errno::BUSY)?;
        let object = source.object.ok_or(Errno::NOENT)?;
        if target.object.is_some() && !replace {
            return Err(Errno::EXIST);
        }
        let directory = self.shadow.dir(object).is_some();
        if !directory && (ends_in_slash(from) || ends_in_slash(to)) {
            return Err(Errno::NOTDIR);
        }
        if directory && self.shadow.is_below(to_dir, object) {
            return Err(Errno::INVAL);
        }
        if let Some(old) = target.object {
            if self.shadow.is_below(from_dir, old) {
                return Err(Errno::NOTEMPTY);
            }
            if old == object {
                return Ok(());
            }
        }
        self.may_take(from_dir, object)?;
        self.may_change(to_dir)?;
        self.same_device(object, to_dir)?;
        self.not_a_mount(object, from_dir)?;
        if let Some(old) = target.object {
            self.may_take(to_dir, old)?;
            match (directory, self.shadow.dir(old).is_some()) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                _ => self.not_a_mount(old, to_dir)?,
            }
        }
        // The kernel wants to write the `..` of a directory that comes to hang elsewhere.
        if directory && from_dir != to_dir {
            self.may_change(object)?;
        }
        if let Some(old) = target.object.filter(|_| directory)
            && !self.names(old)?.is_empty()
        {
            return Err(Errno::NOTEMPTY);
        }
        let to = self.path_of(&target)?;
        self.note(&source, Deed::Rename { to, replace })?;
        self.shadow.bind(from_dir, &from_name, None);
        self.shadow.bind(to_dir, &to_name, Some(object));
        self.touch(from_dir);
        self.touch(to_dir);
        Ok(())
    }

    fn same_device(&self, object: Ix, dir: Ix) -> Result<(), Errno> {
        if self.shadow.node(object).dev != self.shadow.node(dir).dev {
            return Err(Errno::XDEV);
        }
        Ok(())
    }

    /// A directory on another device than the one it hangs in has something mounted on it.
    fn not_a_mount(&self, object: Ix, dir: Ix) -> Result<(), Errno> {
        self.same_device(object, dir).map_err(|_| Errno::BUSY)
    }
}

pub(crate) fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// A name of a directory may be written with a slash at its end.
pub(crate) fn without_slash(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { path } else { Path::new(OsStr::from_bytes(&bytes[..end])) }
}
