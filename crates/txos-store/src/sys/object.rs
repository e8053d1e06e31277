use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, OFlags, StatxAttributes, StatxFlags, Timespec, Timestamps, UTIME_OMIT, statx},
    io::Errno,
};
use txos_core::{Attrs, FileKind, Stamp};
use txos_host::{Tree, XattrSet, attrs_of, sized};

use super::disk::{Disk, disk};
use crate::{Result, StoreError};

/// One object, held by an `O_PATH` descriptor: what is examined is what is changed, whatever its
/// names do meanwhile.
pub(crate) struct Object {
    fd: OwnedFd,
    shown: PathBuf,
    pub attrs: Attrs,
}

impl Object {
    /// Opens what is at `path`, a last symbolic link itself; `None` if the name is absent, or a
    /// parent of it is absent or no directory.
    pub(crate) fn open(tree: &Tree, path: &Path) -> Result<Option<Object>> {
        let shown = tree.at().join(path);
        match tree.open_at(path, OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => Self::from_fd(fd, shown).map(Some),
            // A link in the way is not followed: nothing can be there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(StoreError::io("open", shown, errno)),
        }
    }

    /// Takes an open object.
    pub(crate) fn from_fd(fd: OwnedFd, shown: PathBuf) -> Result<Object> {
        let attrs = attrs_of(&fd)
            .map_err(|errno| StoreError::io("read the attributes of", &shown, errno))?;
        Ok(Object { fd, shown, attrs })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The magic link that leads to the object itself for calls that take only paths.
    fn magic(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }

    /// All extended attributes.
    pub(crate) fn xattrs(&self) -> Result<XattrSet> {
        // A trailing "." would be wrong for anything but a directory; the magic link itself must
        // be followed, and then the object, if a symbolic link, must not.
        read_xattrs_followed(&self.magic())
            .map_err(|errno| StoreError::io("read the extended attributes of", &self.shown, errno))
    }

    /// Whether the object is immutable or may only be appended to (`chattr(1)`).
    pub(crate) fn locked_by_attribute(&self) -> Result<Option<&'static str>> {
        let stat = statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())
            .map_err(|errno| StoreError::io("read the attributes of", &self.shown, errno))?;
        Ok(if stat.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
            Some("immutable")
        } else if stat.stx_attributes.contains(StatxAttributes::APPEND) {
            Some("append-only")
        } else {
            None
        })
    }

    pub(crate) fn chown(&self, uid: u32, gid: u32) -> Result<()> {
        disk()
            .chown(self.fd(), uid, gid)
            .map_err(|errno| StoreError::io("change the owner of", &self.shown, errno))
    }

    pub(crate) fn chmod(&self, perm: u32) -> Result<()> {
        if self.attrs.kind == FileKind::Symlink {
            return Ok(());
        }
        disk()
            .chmod(self.fd(), perm)
            .map_err(|errno| StoreError::io("change the mode of", &self.shown, errno))
    }

    pub(crate) fn set_xattr(&self, name: &CStr, value: Option<&[u8]>) -> Result<()> {
        disk()
            .set_xattr(self.fd(), name, value)
            .map_err(|errno| StoreError::io("change an extended attribute of", &self.shown, errno))
    }

    /// Sets the times that are given.
    pub(crate) fn set_times(&self, atime: Option<Stamp>, mtime: Option<Stamp>) -> Result<()> {
        let Some(times) = timestamps(atime, mtime) else { return Ok(()) };
        disk()
            .set_times(self.fd(), &times)
            .map_err(|errno| StoreError::io("set the times of", &self.shown, errno))
    }
}

/// Times as `utimensat(2)` takes them; `None` if neither is given.
pub(crate) fn timestamps(atime: Option<Stamp>, mtime: Option<Stamp>) -> Option<Timestamps> {
    (atime.is_some() || mtime.is_some()).then(|| Timestamps {
        last_access: atime.map_or(omit(), stamp_to_timespec),
        last_modification: mtime.map_or(omit(), stamp_to_timespec),
    })
}

fn omit() -> Timespec {
    Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }
}

/// A stamp as the kernel takes it.
pub(crate) fn stamp_to_timespec(stamp: Stamp) -> Timespec {
    Timespec { tv_sec: stamp.sec, tv_nsec: stamp.nsec.into() }
}

fn read_xattrs_followed(magic: &Path) -> Result<XattrSet, Errno> {
    use rustix::fs::{getxattr, listxattr};
    let list = match sized(|buffer| listxattr(magic, buffer)) {
        Err(Errno::NOTSUP) => return Ok(XattrSet::new()),
        other => other?,
    };
    let mut set = XattrSet::new();
    for key in list.split_inclusive(|byte| *byte == 0) {
        let Ok(key) = CStr::from_bytes_with_nul(key) else { continue };
        match sized(|buffer| getxattr(magic, key, buffer)) {
            Ok(value) => {
                set.insert(key.to_owned(), value);
            }
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(set)
}
