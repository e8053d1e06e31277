//! The few ways in which the store changes the disk.
//!
//! Every call that changes something the recovery relies on goes through this module, takes its
//! place by a pinned directory and a path beneath it ([`Tree`]), follows no symbolic link, and
//! reaches the kernel through the storage trait ([`disk`]).

mod disk;
mod fsid;
mod mapped;
mod object;
mod removal;
mod space;
#[cfg(test)]
pub(crate) mod watch;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use rustix::{
    fd::AsFd,
    fs::{AtFlags, Mode, RenameFlags, openat},
    io::Errno,
};
use txos_core::Attrs;
use txos_host::{Tree, attrs_at};

pub(crate) use disk::{Disk, Flush, Name, disk, flush_open, write_all};
pub(crate) use fsid::{FsIdentity, boot_id, identity_of};
pub use mapped::maps_for_itself;
pub(crate) use mapped::{Mapped, Shared};
pub(crate) use object::{Object, timestamps};
pub(crate) use removal::remove_tree;
pub(crate) use space::{free_bytes, mount_id, same_mount};

use crate::{Result, StoreError};

/// A name beneath a pinned directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub tree: &'a Tree,
    pub path: &'a Path,
}

impl Place<'_> {
    /// Its path for a message.
    pub(crate) fn shown(&self) -> PathBuf {
        self.tree.at().join(self.path)
    }

    fn parent(&self) -> Result<(rustix::fd::OwnedFd, &OsStr), Errno> {
        let name = self.path.file_name().ok_or(Errno::BUSY)?;
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
        Ok((self.tree.open_at(parent, flags)?, name))
    }

    /// What is there, or `None`; with a missing parent, or a link in its place, the name is absent.
    pub(crate) fn attrs(&self) -> Result<Option<Attrs>> {
        Ok(self.tree.attrs(self.path)?)
    }
}

/// `at` beneath `tree`.
pub(crate) fn place<'a>(tree: &'a Tree, path: &'a Path) -> Place<'a> {
    Place { tree, path }
}

/// Renames `from` to `to`.
pub(crate) fn rename(from: Place<'_>, to: Place<'_>, flags: RenameFlags) -> Result<(), Errno> {
    let (from_dir, from_name) = from.parent()?;
    let (to_dir, to_name) = to.parent()?;
    let from = Name { dir: from_dir.as_fd(), name: from_name };
    disk().rename(from, Name { dir: to_dir.as_fd(), name: to_name }, flags)
}

/// Gives the object at `from` a further name.
pub(crate) fn link(from: Place<'_>, to: Place<'_>) -> Result<(), Errno> {
    let (from_dir, from_name) = from.parent()?;
    let (to_dir, to_name) = to.parent()?;
    let from = Name { dir: from_dir.as_fd(), name: from_name };
    disk().link(from, Name { dir: to_dir.as_fd(), name: to_name })
}

/// Removes a name that is not a directory.
pub(crate) fn unlink(at: Place<'_>) -> Result<(), Errno> {
    let (dir, name) = at.parent()?;
    disk().unlink(Name { dir: dir.as_fd(), name }, AtFlags::empty())
}

/// Removes an empty directory.
pub(crate) fn rmdir(at: Place<'_>) -> Result<(), Errno> {
    let (dir, name) = at.parent()?;
    disk().unlink(Name { dir: dir.as_fd(), name }, AtFlags::REMOVEDIR)
}

/// Makes the directory `at`, and those above it as needed, private to their owner.
pub(crate) fn make_dirs(tree: &Tree, at: &Path) -> Result<()> {
    let mut done = PathBuf::new();
    for part in at.components() {
        done.push(part);
        let (dir, name) = tree.parent(&done)?;
        match disk().mkdir(dir.as_fd(), name, 0o700) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => {
                return Err(StoreError::io("create the directory", tree.at().join(&done), errno));
            }
        }
    }
    Ok(())
}

/// The attributes of `name` in the directory of `dir`, which a file system error makes `None` of
/// an absent name only.
pub(crate) fn attrs_in(
    dir: impl rustix::fd::AsFd,
    name: &OsStr,
    shown: &Path,
) -> Result<Option<Attrs>> {
    attrs_at(dir, name).map_err(|errno| StoreError::io("read the attributes of", shown, errno))
}

/// Flushes the directory or file at `at`.
pub(crate) fn flush(at: Place<'_>) -> Result<()> {
    let failed = |errno| StoreError::io("flush", at.shown(), errno);
    let flags = rustix::fs::OFlags::RDONLY
        | rustix::fs::OFlags::NOFOLLOW
        | rustix::fs::OFlags::NONBLOCK
        | rustix::fs::OFlags::CLOEXEC;
    let fd = match at.path.file_name() {
        None => at.tree.open_at(at.path, flags).map_err(failed)?,
        Some(_) => {
            let (dir, name) = at.parent().map_err(failed)?;
            openat(&dir, name, flags, Mode::empty()).map_err(failed)?
        }
    };
    flush_open(&fd, Flush::All).map_err(failed)
}

/// Flushes the whole file system on which `tree` is.
pub(crate) fn flush_file_system(tree: &Tree) -> Result<()> {
    use rustix::fs::OFlags;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let flushed = tree.open_at(Path::new(""), flags);
    match flushed.and_then(|dir| disk().flush_fs(dir.as_fd())) {
        // A directory that this user may only walk through.
        Err(Errno::ACCESS) => {
            rustix::fs::sync();
            Ok(())
        }
        other => {
            other.map_err(|errno| StoreError::io("flush the file system of", tree.at(), errno))
        }
    }
}

/// Whether flushing a new file or directory flushes its name, and the names above it, too: true of
/// the journaling file systems, whose log is flushed in order.
pub(crate) fn flush_takes_names(tree: &Tree) -> Result<bool> {
    #[cfg(test)]
    if watch::passes_for_ordered() {
        return Ok(true);
    }
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    let stat = rustix::fs::fstatfs(tree.root())
        .map_err(|errno| StoreError::io("examine the file system of", tree.at(), errno))?;
    Ok(matches!(stat.f_type as u64, EXT | XFS | BTRFS | F2FS))
}

/// Flushes what is at `path` and all files and directories below it. Where one of them may be
/// neither read nor written by its own owner, the whole file system is flushed instead: that
/// needs no access to the object.
pub(crate) fn flush_tree(tree: &Tree, path: &Path) -> Result<()> {
    match flush_each(tree, path) {
        Err(StoreError::Io { errno: Errno::ACCESS, .. }) => flush_file_system(tree),
        other => other,
    }
}

fn flush_each(tree: &Tree, path: &Path) -> Result<()> {
    use rustix::fs::OFlags;
    use txos_core::FileKind;
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        let at = place(tree, &path);
        match at.attrs()?.map(|attrs| attrs.kind) {
            Some(FileKind::File) => flush(at)?,
            Some(FileKind::Dir) => {
                let failed = |errno| StoreError::io("flush", at.shown(), errno);
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                let dir = tree.open_at(&path, flags).map_err(failed)?;
                flush_open(&dir, Flush::All).map_err(failed)?;
                let names = txos_host::read_listing(&dir).map_err(failed)?.entries;
                pending.extend(names.into_iter().map(|entry| path.join(entry.name)));
            }
            // A name: the directory that holds it is flushed.
            _ => {
                if let Some(above) = path.parent() {
                    flush(place(tree, above))?;
                }
            }
        }
    }
    Ok(())
}
