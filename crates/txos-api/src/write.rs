//! Calls that change contents and make files: nothing is stable before the commit.
//!
//! Whether the caller may do it is asked of the kernel at once, so that a transaction fails where
//! a plain call would, and not at its end.

use std::path::Path;

use rustix::{
    fs::{Access, AtFlags, accessat},
    io::Errno,
};

use crate::{
    Result,
    edits::Edits,
    log::Deed,
    names::{ends_in_slash, without_slash},
    shadow::{Body, Ix},
    transaction::{Transaction, now},
    walk::Place,
};

impl Transaction {
    /// Writes a whole file, following symbolic links: an existing one keeps its inode, mode and
    /// other names, a new one gets mode 0666 less the umask.
    ///
    /// # Errors
    /// As `open(2)` with `O_CREAT | O_TRUNC`, and `write(2)`.
    pub fn write(&mut self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        self.call("write", path.as_ref(), |tx, path| {
            let (ix, place) = tx.open_or_make(path, 0o666)?;
            let data = data.as_ref();
            tx.note(&place, Deed::Replace { bytes: data.to_vec() })?;
            tx.edit(ix, |edits| {
                edits.truncate(0);
                edits.write(0, data);
            })
        })
    }

    /// Writes `data` into an existing file at `offset`; a hole before it reads as zeros. Who reads
    /// or writes other parts of the file meets no conflict.
    ///
    /// # Errors
    /// As `open(2)` and `pwrite(2)`; `EFBIG` past the largest offset.
    pub fn write_range(
        &mut self,
        path: impl AsRef<Path>,
        offset: u64,
        data: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.call("write", path.as_ref(), |tx, path| {
            let data = data.as_ref();
            let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
            if i64::try_from(end).is_err() {
                return Err(Errno::FBIG);
            }
            let (ix, place) = tx.writable(path)?;
            if data.is_empty() {
                return Ok(());
            }
            tx.settle(ix);
            tx.note(&place, Deed::Write { offset, bytes: data.to_vec() })?;
            tx.edit(ix, |edits| edits.write(offset, data))
        })
    }

    /// Appends `data` to a file, which is made if it is absent. Two transactions that append to one
    /// file without reading it both commit, one after the other.
    ///
    /// # Errors
    /// As `open(2)` with `O_CREAT | O_APPEND`, and `write(2)`.
    pub fn append(&mut self, path: impl AsRef<Path>, data: impl AsRef<[u8]>) -> Result<()> {
        self.call("append to", path.as_ref(), |tx, path| {
            let (ix, place) = tx.open_or_make(path, 0o666)?;
            let data = data.as_ref();
            if data.is_empty() {
                return Ok(());
            }
            tx.note(&place, Deed::Append { bytes: data.to_vec() })?;
            tx.edit(ix, |edits| edits.append(data))
        })
    }

    /// Sets the size of an existing file; its modification time moves also if the size stays.
    ///
    /// # Errors
    /// As `open(2)` and `ftruncate(2)`.
    pub fn truncate(&mut self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.call("truncate", path.as_ref(), |tx, path| {
            if i64::try_from(size).is_err() {
                return Err(Errno::FBIG);
            }
            let (ix, place) = tx.writable(path)?;
            if size > 0 {
                tx.settle(ix);
            }
            tx.note(&place, Deed::Truncate { size })?;
            tx.edit(ix, |edits| edits.truncate(size))
        })
    }

    /// Makes a new, empty file with `mode` less the umask.
    ///
    /// # Errors
    /// As `open(2)` with `O_CREAT | O_EXCL`.
    pub fn create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.call("create", path.as_ref(), |tx, path| {
            let place = tx.place_for_file(path, false)?;
            let mode = mode & 0o7777 & !tx.umask()?;
            let deed = Deed::Create { mode, bytes: Vec::new() };
            tx.make(&place, Body::File(Edits::of_new()), mode, deed).map(drop)
        })
    }

    /// An existing regular file that the caller may write.
    fn writable(&mut self, path: &Path) -> Result<(Ix, Place), Errno> {
        let (ix, place) = self.regular(path)?;
        self.may_write(ix)?;
        Ok((ix, place))
    }

    /// A regular file that the caller may write, made if it is absent.
    fn open_or_make(&mut self, path: &Path, mode: u32) -> Result<(Ix, Place), Errno> {
        let place = self.place_for_file(path, true)?;
        if place.object.is_some() {
            return self.writable(path);
        }
        let mode = mode & !self.umask()?;
        let deed = Deed::Create { mode, bytes: Vec::new() };
        let ix = self.make(&place, Body::File(Edits::of_new()), mode, deed)?;
        Ok((ix, place))
    }

    /// Where a file may be made: a path with a slash at its end can't name one.
    fn place_for_file(&mut self, path: &Path, follow: bool) -> Result<Place, Errno> {
        let place = self.walk(without_slash(path), follow)?;
        if ends_in_slash(path) { Err(Errno::ISDIR) } else { Ok(place) }
    }

    fn edit(&mut self, ix: Ix, edit: impl FnOnce(&mut Edits)) -> Result<(), Errno> {
        let now = now();
        let node = self.shadow.node_mut(ix);
        let Body::File(edits) = &mut node.body else { return Err(Errno::ISDIR) };
        edit(edits);
        node.touched = Some(now);
        // A time that was set before is not the time of this change.
        node.meta.mtime = None;
        Ok(())
    }

    /// Makes a new object at a place where nothing is; `deed` says how.
    pub(crate) fn make(
        &mut self,
        place: &Place,
        body: Body,
        perm: u32,
        deed: Deed,
    ) -> Result<Ix, Errno> {
        let (None, Some((dir, name))) = (place.object, &place.name) else {
            return Err(Errno::EXIST);
        };
        self.may_change(*dir)?;
        let owner = self.owner_in(*dir);
        let dev = self.shadow.node(*dir).dev;
        // A directory hands its set-group-id bit on to directories made in it.
        let handed = matches!(body, Body::Dir(_)).then(|| self.perm_of(*dir) & 0o2000);
        let now = now();
        self.note(place, deed)?;
        let ix = self.shadow.fresh(body, dev, perm | handed.unwrap_or(0), owner, now);
        self.shadow.bind(*dir, name, Some(ix));
        self.touch(*dir);
        Ok(ix)
    }

    /// Owner and group of what is made in `dir`.
    fn owner_in(&self, dir: Ix) -> (u32, u32) {
        let node = self.shadow.node(dir);
        let (_, group) = node.meta.owner.unwrap_or(node.owner);
        let (uid, gid) = self.caller;
        if self.perm_of(dir) & 0o2000 != 0 { (uid, group) } else { (uid, gid) }
    }

    pub(crate) fn perm_of(&self, ix: Ix) -> u32 {
        let node = self.shadow.node(ix);
        node.meta.perm.unwrap_or(node.perm)
    }

    /// Whether the caller may write an object.
    pub(crate) fn may_write(&mut self, ix: Ix) -> Result<(), Errno> {
        let Some(stable) = &self.shadow.node(ix).stable else { return Ok(()) };
        let (dir, name) = stable.home.clone().unwrap_or((ix, ".".into()));
        let handle = self.handle(dir)?;
        accessat(&*handle, &*name, Access::WRITE_OK, AtFlags::EACCESS)
    }

    /// Whether the caller may make and remove names in a directory.
    pub(crate) fn may_change(&mut self, dir: Ix) -> Result<(), Errno> {
        if self.shadow.dir(dir).is_none() {
            return Err(Errno::NOTDIR);
        }
        if self.shadow.node(dir).stable.is_none() {
            return Ok(());
        }
        let handle = self.handle(dir)?;
        accessat(&*handle, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
    }

    /// Whether the caller may take a name of `object` out of `dir`, also by the sticky bit.
    pub(crate) fn may_take(&mut self, dir: Ix, object: Ix) -> Result<(), Errno> {
        self.may_change(dir)?;
        let owner = |ix| {
            let node = self.shadow.node(ix);
            node.meta.owner.unwrap_or(node.owner).0
        };
        let (uid, _) = self.caller;
        let sticky = self.perm_of(dir) & 0o1000 != 0;
        if sticky && uid != 0 && owner(object) != uid && owner(dir) != uid {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// A name was made or removed in `dir`.
    pub(crate) fn touch(&mut self, dir: Ix) {
        let now = now();
        let node = self.shadow.node_mut(dir);
        node.touched = Some(now);
        node.meta.mtime = None;
    }
}
