//! Step 3, new objects that the record holds whole.
//!
//! A file gets its content before it gets its name; a directory and a symbolic link are there with
//! one call. So a name shows nothing or all of it, and after a power cut, which may leave the name
//! and not the content, the record has the content still. An object that is like what the record
//! says is taken for it, whoever made it. What a recovery makes anew comes from [`Ahead`](super::Ahead).
//!
//! A directory is filled before it gets a mode that may keep its owner out, and the times that were
//! asked for, which filling it moves: [`Applier::finish_directories`], after all names are made.

use std::{
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, OFlags, RenameFlags, readlinkat},
    io::Errno,
};
use txos_core::FileKind;

use super::{Applier, Pass, metadata::OPEN};
use crate::{
    Result, StoreError,
    delta::content::read_lens,
    plan::{Make, Put, What},
    small::dress,
    sys::{self, Disk, Flush, Name, Object, disk, flush_open, place, write_all},
};

impl Applier<'_> {
    pub(super) fn make(&mut self, number: usize, op: &Put, make: &Make) -> Result<()> {
        let to = place(self.host(op.area), &op.to);
        if matches!(self.pass, Pass::Again { .. }) {
            let found = match Object::open(to.tree, to.path)? {
                None => self.bound_elsewhere(op, make)?,
                found => found,
            };
            if let Some(found) = found {
                return self.judge_made(op, make, &found);
            }
        }
        let failed = |errno| StoreError::io("make", to.shown(), errno);
        let taken = match self.pass {
            Pass::Again { ahead, number: plan, .. } => ahead.take(plan, number)?,
            Pass::First { .. } => None,
        };
        let fresh = match self.pass {
            Pass::First { fresh: Some(fresh), .. } => {
                fresh.puts.get(number).and_then(Option::as_ref)
            }
            _ => taken.as_ref(),
        };
        let made = match to.tree.parent(to.path) {
            Ok((dir, name)) => match self.make_at(dir.as_fd(), name, op, make, fresh) {
                // What was made in another directory can't always come into this one (project quotas,
                // subvolumes).
                Err(Errno::XDEV) if taken.is_some() => {
                    self.make_at(dir.as_fd(), name, op, make, None)
                }
                made => made,
            },
            Err(error) => Err(error.errno().unwrap_or(Errno::IO)),
        };
        match made {
            Ok(()) => Ok(()),
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                self.keep_made(op, make, "others have changed it meanwhile")
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// A crash may have left another of its names and not this one: it gets this one again.
    fn bound_elsewhere(&self, op: &Put, make: &Make) -> Result<Option<Object>> {
        let to = place(self.host(op.area), &op.to);
        let links = self.plan.links.iter().filter(|link| link.area == op.area);
        for link in links.filter(|link| link.from == op.to) {
            let from = place(self.host(op.area), &link.to);
            let failed = |errno| StoreError::io("link", from.shown(), errno);
            let Some(found) = Object::open(from.tree, from.path)? else { continue };
            let ours = match op.id.ino {
                0 => alike(from.tree, from.path, make, &found, false).map_err(failed)?,
                _ => op.id.is(&found.attrs),
            };
            if ours {
                return match sys::link(from, to) {
                    Ok(()) => Ok(Some(found)),
                    // Someone took the name: what is made below says so.
                    Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                    Err(errno) => Err(failed(errno)),
                };
            }
        }
        Ok(None)
    }

    fn make_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        op: &Put,
        make: &Make,
        fresh: Option<&OwnedFd>,
    ) -> Result<(), Errno> {
        match (&make.what, fresh) {
            (What::File(_), Some(file)) => disk().bind(file.as_fd(), dir, name),
            (What::File(bytes), None) => self.make_file(dir, name, op, make, bytes),
            (What::Symlink(target), _) => {
                disk().symlink(target, dir, name)?;
                self.dress_named(op, make)
            }
            (What::Dir, _) => {
                disk().mkdir(dir, name, OPEN)?;
                self.dress_named(op, make)
            }
        }
    }

    /// A file that is not open from before: made without a name, or where the file system can't,
    /// under one that nobody else uses.
    fn make_file(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        op: &Put,
        make: &Make,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let fill = |file: &OwnedFd| {
            fill(file, make, bytes)?;
            flush_open(file, Flush::All)
        };
        match disk().unnamed(dir, 0o600) {
            Ok(file) => {
                fill(&file)?;
                disk().bind(file.as_fd(), dir, name)
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                let made = self.plan.made;
                let aside = format!(".txos-{:x}-{:x}-{}", made.sec, made.nsec, op.area);
                let aside = Name { dir, name: OsStr::new(&aside) };
                match disk().unlink(aside, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno),
                }
                let file = disk().create(dir, aside.name, 0o600)?;
                fill(&file)?;
                let bound = disk().rename(aside, Name { dir, name }, RenameFlags::NOREPLACE);
                if bound.is_err() {
                    let _ = disk().unlink(aside, AtFlags::empty());
                }
                bound
            }
            Err(errno) => Err(errno),
        }
    }

    fn dress_named(&self, op: &Put, make: &Make) -> Result<(), Errno> {
        match Object::open(self.host(op.area), &op.to) {
            Ok(Some(object)) => dress_object(&object, make, make.what != What::Dir),
            _ => Err(Errno::NOENT),
        }
    }

    /// Something is at the name.
    fn judge_made(&mut self, op: &Put, make: &Make, found: &Object) -> Result<()> {
        let shown = self.shown(op.area, &op.to);
        let failed = |errno| StoreError::io("examine", &shown, errno);
        let host = self.host(op.area);
        let ours = op.id.ino != 0 && op.id.is(&found.attrs);
        if alike(host, &op.to, make, found, ours).map_err(failed)? {
            self.skipped += 1;
            return dress_object(found, make, make.what != What::Dir).map_err(failed);
        }
        match &make.what {
            What::File(bytes) if ours => {
                let open = || host.open_at(&op.to, OFlags::RDWR | OFlags::NOFOLLOW);
                let file = match open() {
                    Err(Errno::ACCESS) => {
                        found.chmod(0o600)?;
                        open().map_err(failed)?
                    }
                    other => other.map_err(failed)?,
                };
                write_all(&file, bytes, 0).map_err(failed)?;
                disk().resize(file.as_fd(), bytes.len() as u64).map_err(failed)?;
                dress(&file, make, None).map_err(failed)
            }
            _ => self.keep_made(op, make, "others have changed it meanwhile"),
        }
    }

    /// Step 5, new directories: what they could not have before they were filled.
    pub(super) fn finish_directories(&mut self) -> Result<()> {
        let mut last: Vec<(&Put, &Make)> = (self.plan.puts.iter())
            .filter_map(|op| Some((op, op.make.as_ref()?)))
            .filter(|(_, make)| make.what == What::Dir)
            .filter(|(_, make)| {
                make.perm & OPEN != OPEN || make.atime.is_some() || make.mtime.is_some()
            })
            .collect();
        last.sort_by(|(one, _), (other, _)| other.to.cmp(&one.to));
        for (op, make) in last {
            let host = self.host(op.area);
            let failed = |errno| StoreError::io("make", self.shown(op.area, &op.to), errno);
            if let Some(found) = Object::open(host, &op.to)?
                && alike(host, &op.to, make, &found, false).map_err(failed)?
            {
                dress_object(&found, make, true).map_err(failed)?;
            }
        }
        Ok(())
    }

    pub(super) fn keep_made(&mut self, op: &Put, make: &Make, reason: &str) -> Result<()> {
        let saved = match &make.what {
            What::File(bytes) => Some(self.rescue_bytes(&op.to, &[(0, bytes.as_slice())])?),
            _ => None,
        };
        self.keep(op.area, &op.to, reason, saved);
        Ok(())
    }

    /// Whether the name holds what this plan makes there.
    pub(super) fn made_there(&self, area: u32, path: &Path) -> Result<bool> {
        let put = self.plan.puts.iter().find(|op| op.area == area && op.to == path);
        let Some((op, make)) = put.and_then(|op| Some((op, op.make.as_ref()?))) else {
            return Ok(false);
        };
        let Some(found) = Object::open(self.host(area), path)? else { return Ok(false) };
        let ours = op.id.ino != 0 && op.id.is(&found.attrs);
        Ok(ours
            || alike(self.host(area), path, make, &found, false)
                .map_err(|errno| StoreError::io("examine", self.shown(area, path), errno))?)
    }
}

/// Gives a new file its content and all else that it shall have.
pub(super) fn fill(file: &OwnedFd, make: &Make, bytes: &[u8]) -> Result<(), Errno> {
    write_all(file, bytes, 0)?;
    dress(file, make, None)
}

/// Gives an object what it shall have; one that is not `whole` yet gets a mode that lets its owner
/// in, and no times.
fn dress_object(object: &Object, make: &Make, whole: bool) -> Result<(), Errno> {
    let now = &object.attrs;
    let perm = if whole { make.perm } else { make.perm | OPEN };
    if let Some((uid, gid)) = make.owner.filter(|owner| *owner != (now.uid, now.gid)) {
        disk().chown(object.fd(), uid, gid)?;
    }
    if now.kind != FileKind::Symlink {
        if now.perm != perm || make.owner.is_some() {
            disk().chmod(object.fd(), perm)?;
        }
        for (name, value) in &make.xattrs {
            disk().set_xattr(object.fd(), name, Some(value))?;
        }
    }
    match sys::timestamps(make.atime, make.mtime) {
        Some(times) if whole => disk().set_times(object.fd(), &times),
        _ => Ok(()),
    }
}

/// Whether what is found is like what the record says; `ours` says that it is that very object,
/// whose attributes may not be set yet.
fn alike(
    tree: &txos_host::Tree,
    path: &Path,
    make: &Make,
    found: &Object,
    ours: bool,
) -> Result<bool, Errno> {
    let attrs = &found.attrs;
    match &make.what {
        What::Dir => {
            let modes = [make.perm, make.perm | OPEN, OPEN];
            Ok(attrs.kind == FileKind::Dir && modes.contains(&attrs.perm))
        }
        What::Symlink(target) => {
            if attrs.kind != FileKind::Symlink {
                return Ok(false);
            }
            let found = readlinkat(found.fd(), c"", Vec::new())?;
            Ok(found == *target)
        }
        What::File(bytes) => {
            let fits = attrs.kind == FileKind::File
                && attrs.size == bytes.len() as u64
                && (ours || attrs.perm == make.perm);
            if !fits {
                return Ok(false);
            }
            let file = match tree.open_at(path, OFlags::RDONLY | OFlags::NOFOLLOW) {
                Ok(file) => file,
                // Its own mode keeps this user out: it is written anew.
                Err(Errno::ACCESS) => return Ok(false),
                Err(errno) => return Err(errno),
            };
            let mut content = Vec::new();
            read_lens(&file, 0, attrs.size, &mut content)?;
            Ok(content == *bytes)
        }
    }
}
