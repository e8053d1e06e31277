//! From handles in events to objects.
//!
//! A handle is opened relative to a mount of its file system. No mount is held open for that: nobody
//! else could unmount it. Each is opened when it is first needed, and closed when the events
//! that were read together are dealt with.

use std::{
    collections::{HashMap, hash_map::Entry},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use txos_core::ObjectId;
use txos_host::attrs_of;

use crate::{event::Handle, sys};

/// So many handles are remembered; a handle names the same object for ever.
const MOST: usize = 16_384;

/// What a handle leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This object.
    Object(ObjectId),
    /// It is gone.
    Gone,
    /// It is on a file system that is not watched by us.
    Elsewhere,
}

/// Resolves handles by the file systems that carry our marks.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// Where each is mounted.
    file_systems: HashMap<[u8; 8], PathBuf>,
    open: HashMap<[u8; 8], OwnedFd>,
    known: HashMap<Handle, ObjectId>,
}

impl Resolver {
    pub(crate) fn new(file_systems: HashMap<[u8; 8], PathBuf>) -> Self {
        Resolver { file_systems, open: HashMap::new(), known: HashMap::new() }
    }

    /// Closes all mounts.
    pub(crate) fn rest(&mut self) {
        self.open.clear();
    }

    /// The object behind a handle.
    ///
    /// # Errors
    /// What the kernel gives where it does not say that the object is gone.
    pub(crate) fn resolve(&mut self, handle: &Handle) -> Result<Found, Errno> {
        if let Some(id) = self.known.get(handle) {
            return Ok(Found::Object(*id));
        }
        let Some(point) = self.file_systems.get(&handle.fsid) else { return Ok(Found::Elsewhere) };
        let mount = match self.open.entry(handle.fsid) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(open_mount(point, handle.fsid)?),
        };
        let id = match sys::open_by_handle(mount, handle.kind, &handle.bytes).and_then(attrs_of) {
            Ok(attrs) => attrs.id,
            Err(Errno::STALE | Errno::NOENT) => return Ok(Found::Gone),
            Err(errno) => return Err(errno),
        };
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(handle.clone(), id);
        Ok(Found::Object(id))
    }
}

/// Opens what is mounted at `point`, if it is still the same file system.
pub(crate) fn open_mount(point: &Path, fsid: [u8; 8]) -> Result<OwnedFd, Errno> {
    let mount = open_point(point)?;
    if sys::fsid(&mount)? == fsid { Ok(mount) } else { Err(Errno::NODEV) }
}

/// Opens a mount point for [`sys::open_by_handle`], which takes no `O_PATH`.
pub(crate) fn open_point(point: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(CWD, point, flags, Mode::empty())
}
