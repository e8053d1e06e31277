//! Calls that read: what they look at becomes part of what the transaction rests on.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use txos_core::{FileKind, Stamp};
use txos_host::read_listing;

use crate::{
    Result,
    seen::{Range, hash, read_range},
    shadow::{Binding, Body, Ix},
    transaction::Transaction,
    walk::Place,
};

/// What [`Transaction::stat`] shows of an object, as `stat(2)` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u64,
    /// Size in bytes.
    pub size: u64,
    /// Inode number; 0 for an object that the transaction has made.
    pub ino: u64,
    /// Last change of the content; for what the transaction has written, when it did.
    pub mtime: Stamp,
}

impl Transaction {
    /// Reads a whole file, following symbolic links.
    ///
    /// # Errors
    /// As `open(2)` and `read(2)`; `EINVAL` for what is no regular file or directory.
    pub fn read(&mut self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.call("read", path.as_ref(), |tx, path| {
            let (ix, _) = tx.regular(path)?;
            tx.bytes(ix, 0, u64::MAX)
        })
    }

    /// Reads at most `len` bytes of a file from `offset` on: fewer where the file ends before.
    /// Other parts of the file may change meanwhile without a conflict.
    ///
    /// # Errors
    /// As [`Transaction::read`].
    pub fn read_range(
        &mut self,
        path: impl AsRef<Path>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>> {
        self.call("read", path.as_ref(), |tx, path| {
            let (ix, _) = tx.regular(path)?;
            tx.bytes(ix, offset, offset.saturating_add(len as u64))
        })
    }

    /// The attributes of an object, following symbolic links.
    ///
    /// # Errors
    /// As `stat(2)`.
    pub fn stat(&mut self, path: impl AsRef<Path>) -> Result<Stat> {
        self.call("examine", path.as_ref(), |tx, path| {
            let ix = tx.object(path, true)?;
            tx.shown(ix)
        })
    }

    /// The attributes of an object; of a symbolic link itself.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn lstat(&mut self, path: impl AsRef<Path>) -> Result<Stat> {
        self.call("examine", path.as_ref(), |tx, path| {
            let ix = tx.object(path, false)?;
            tx.shown(ix)
        })
    }

    /// Whether `path` leads to an object. A path that leads nowhere is remembered: its creation by
    /// someone else is a conflict.
    ///
    /// # Errors
    /// As `access(2)`, but for `ENOENT` and `ENOTDIR`.
    pub fn exists(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        self.call("look up", path.as_ref(), |tx, path| match tx.walk(path, true) {
            Ok(place) => Ok(place.object.is_some()),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        })
    }

    /// All names in a directory but `.` and `..`, sorted. Any name made or removed in it by
    /// someone else is then a conflict.
    ///
    /// # Errors
    /// As `opendir(3)`.
    pub fn list(&mut self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.call("list", path.as_ref(), |tx, path| {
            let ix = tx.object(path, true)?;
            tx.names(ix)
        })
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub fn read_link(&mut self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.call("read the link", path.as_ref(), |tx, path| {
            let ix = tx.object(path, false)?;
            match tx.shadow.node(ix).body {
                Body::Symlink(_) => tx.target(ix).map(PathBuf::from),
                _ => Err(Errno::INVAL),
            }
        })
    }

    /// What is at `path`.
    pub(crate) fn object(&mut self, path: &Path, follow: bool) -> Result<Ix, Errno> {
        self.walk(path, follow)?.object.ok_or(Errno::NOENT)
    }

    /// The regular file at `path`, and where the path ends after all symbolic links.
    pub(crate) fn regular(&mut self, path: &Path) -> Result<(Ix, Place), Errno> {
        let place = self.walk(path, true)?;
        let ix = place.object.ok_or(Errno::NOENT)?;
        match self.shadow.node(ix).body {
            Body::File(_) => Ok((ix, place)),
            Body::Dir(_) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// The bytes of a file between `from` and `to`, as the transaction sees them.
    pub(crate) fn bytes(&mut self, ix: Ix, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
        let node = self.shadow.node(ix);
        let Body::File(edits) = &node.body else { return Err(Errno::ISDIR) };
        if !edits.any() {
            return self.stable_bytes(ix, from, to);
        }
        let base = match edits.own_size() {
            Some(_) => node.stable.as_ref().map_or(0, |stable| stable.attrs.size),
            None => self.base_size(ix),
        };
        self.settle(ix);
        let Body::File(edits) = &self.shadow.node(ix).body else { return Err(Errno::ISDIR) };
        let to = to.min(edits.size(base));
        if from >= to {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; (to - from) as usize];
        for (begin, end) in edits.gaps(from, to.min(base)) {
            let stable = self.stable_bytes(ix, begin, end)?;
            bytes[(begin - from) as usize..][..stable.len()].copy_from_slice(&stable);
        }
        if let Body::File(edits) = &self.shadow.node(ix).body {
            edits.overlay(from, &mut bytes);
        }
        Ok(bytes)
    }

    fn stable_bytes(&mut self, ix: Ix, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
        let file = self.file(ix)?;
        let bytes = read_range(&*file, from, to)?;
        let range = Range { from, to, hash: hash(&bytes) };
        let Some(stable) = &mut self.shadow.node_mut(ix).stable else { return Ok(bytes) };
        let ranges = &mut stable.seen.ranges;
        match ranges.iter().find(|known| (known.from, known.to) == (from, to)) {
            Some(known) if *known != range => {
                self.doom(ix);
                return Err(Errno::STALE);
            }
            Some(_) => {}
            None => ranges.push(range),
        }
        Ok(bytes)
    }

    /// The stable size of a file, which is read by this.
    pub(crate) fn base_size(&mut self, ix: Ix) -> u64 {
        match &mut self.shadow.node_mut(ix).stable {
            Some(stable) => {
                stable.seen.size = true;
                stable.attrs.size
            }
            None => 0,
        }
    }

    /// Makes sure that it is known where appended bytes lie.
    pub(crate) fn settle(&mut self, ix: Ix) {
        let unsettled = match &self.shadow.node(ix).body {
            Body::File(edits) => edits.unsettled(),
            _ => false,
        };
        if unsettled {
            let base = self.base_size(ix);
            if let Body::File(edits) = &mut self.shadow.node_mut(ix).body {
                edits.settle(base);
            }
        }
    }

    pub(crate) fn names(&mut self, dir: Ix) -> Result<Vec<OsString>, Errno> {
        let body = self.shadow.dir(dir).ok_or(Errno::NOTDIR)?;
        if !body.complete && self.shadow.node(dir).stable.is_some() {
            self.fill(dir)?;
        }
        let body = self.shadow.dir(dir).ok_or(Errno::NOTDIR)?;
        let bound = body.names.iter().filter(|(_, binding)| binding.now.is_some());
        let mut names: Vec<OsString> = bound.map(|(name, _)| name.clone()).collect();
        if let Some(stable) = &self.shadow.node(dir).stable {
            // Names that were listed and never looked up are bound as they were.
            let listed = stable.seen.listing.iter().flatten();
            names.extend(listed.filter(|name| !body.names.contains_key(*name)).cloned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Reads all names of a stable directory.
    fn fill(&mut self, dir: Ix) -> Result<(), Errno> {
        let handle = self.handle(dir)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = openat(&*handle, ".", flags, Mode::empty())?;
        let listing = read_listing(&open)?;
        let names: Vec<OsString> = listing.entries.into_iter().map(|entry| entry.name).collect();
        let body = self.shadow.dir_mut(dir).ok_or(Errno::NOTDIR)?;
        // What was looked up before must be what is listed now.
        let contradicts = body.names.iter().any(|(name, Binding { stable, .. })| {
            stable.is_some() != names.binary_search(name).is_ok()
        });
        body.complete = true;
        if let Some(stable) = &mut self.shadow.node_mut(dir).stable {
            stable.seen.listing = Some(names);
        }
        if contradicts {
            self.doom(dir);
            return Err(Errno::STALE);
        }
        Ok(())
    }

    fn shown(&mut self, ix: Ix) -> Result<Stat, Errno> {
        let links = self.shadow.node(ix).links;
        let node = self.shadow.node_mut(ix);
        let mut stat = match &mut node.stable {
            Some(stable) => {
                stable.seen.attrs = true;
                let attrs = &stable.attrs;
                Stat {
                    kind: node.kind,
                    mode: attrs.perm,
                    uid: attrs.uid,
                    gid: attrs.gid,
                    nlink: u64::from(attrs.nlink).saturating_add_signed(links),
                    size: attrs.size,
                    ino: attrs.id.ino,
                    mtime: attrs.mtime,
                }
            }
            None => Stat {
                kind: node.kind,
                mode: node.perm,
                uid: node.owner.0,
                gid: node.owner.1,
                nlink: links.unsigned_abs(),
                size: 0,
                ino: 0,
                mtime: Stamp::default(),
            },
        };
        match &node.body {
            Body::File(edits) if edits.any() => stat.size = edits.size(stat.size),
            Body::Symlink(Some(target)) => stat.size = target.len() as u64,
            _ => {}
        }
        stat.mtime = node.meta.mtime.or(node.touched).unwrap_or(stat.mtime);
        stat.mode = node.meta.perm.unwrap_or(stat.mode);
        (stat.uid, stat.gid) = node.meta.owner.unwrap_or((stat.uid, stat.gid));
        Ok(stat)
    }
}
