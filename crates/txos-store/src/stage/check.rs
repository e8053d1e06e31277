//! Whatever could refuse an operation is examined before the commit is decided.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, OFlags, StatVfsMountFlags, accessat, fstatvfs},
    io::Errno,
};
use txos_host::Tree;

use crate::{
    Result, StoreError,
    apply::Held,
    delta::{Draft, DraftWrite},
    sys::{self, Object},
};

/// So many in-place targets are held open at most; more are only tried. Far below the descriptor
/// limits of common systems (`RLIMIT_NOFILE`).
const HELD: usize = 512;
/// Space that names and attributes may take, for each operation and in all, in bytes.
const PER_OPERATION: u64 = 256;
const RESERVE: u64 = 256 * 1024;

/// Examines all operations of `draft`, and opens the files that are written in place.
///
/// # Errors
/// [`StoreError::Refused`] or [`StoreError::NoSpace`] where an operation would fail.
pub(super) fn check(host: &Tree, draft: &Draft) -> Result<Vec<Held>> {
    let stat = fstatvfs(host.root())
        .map_err(|errno| StoreError::io("examine the file system of", host.at(), errno))?;
    if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let remedy = "remount it writable";
        return Err(StoreError::refused(&draft.point, "is mounted read-only", remedy));
    }
    space(host, draft)?;
    parents(host, draft)?;
    objects(host, draft)?;
    let mut held = Vec::new();
    for write in &draft.writes {
        let file = open_target(host, draft, write)?;
        let file = file.filter(|_| held.len() < HELD);
        held.push(Held { file, attrs: write.attrs });
    }
    Ok(held)
}

fn space(host: &Tree, draft: &Draft) -> Result<()> {
    let content: u64 = draft.writes.iter().map(|write| write.spec.growth()).sum();
    let names = draft.removes.len()
        + draft.moves.len()
        + draft.puts.len()
        + draft.links.len()
        + draft.file_meta.len()
        + draft.dir_meta.len();
    let needed = content + names as u64 * PER_OPERATION + RESERVE;
    let free = sys::free_bytes(host.root())
        .map_err(|errno| StoreError::io("examine the file system of", host.at(), errno))?;
    if free < needed {
        return Err(StoreError::NoSpace { path: draft.point.clone(), needed });
    }
    Ok(())
}

/// Directories in which names are made or removed must allow that.
fn parents(host: &Tree, draft: &Draft) -> Result<()> {
    let parent = |path: &Path| path.parent().map(Path::to_owned);
    let mut losing: BTreeSet<PathBuf> = BTreeSet::new();
    losing.extend(draft.removes.iter().filter_map(|op| parent(&op.path)));
    losing.extend(draft.moves.iter().filter_map(|op| parent(&op.from)));
    let mut gaining: BTreeSet<PathBuf> = BTreeSet::new();
    gaining.extend(draft.puts.iter().filter_map(|op| parent(&op.rel)));
    gaining.extend(draft.moves.iter().filter_map(|op| parent(&op.to)));
    gaining.extend(draft.links.iter().filter_map(|op| parent(&op.to)));
    for path in losing.union(&gaining) {
        // A final parent that is not there yet is new, or renamed and examined under its old name.
        let Some(dir) = Object::open(host, path)? else { continue };
        if dir.attrs.kind != txos_core::FileKind::Dir {
            continue;
        }
        match dir.locked_by_attribute()? {
            Some("append-only") if !losing.contains(path) => {}
            Some(what) => return Err(locked(&draft.point.join(path), what)),
            None => {}
        }
        let owned = dir.attrs.uid == rustix::process::geteuid().as_raw();
        let access = Access::WRITE_OK | Access::EXEC_OK;
        if !owned && accessat(dir.fd(), c".", access, AtFlags::EACCESS).is_err() {
            let reason = "this user may not change the names in the directory";
            let path = draft.point.join(path);
            return Err(StoreError::refused(path, reason, "run as its owner"));
        }
    }
    Ok(())
}

/// Objects that are removed, renamed, displaced or changed must allow that.
fn objects(host: &Tree, draft: &Draft) -> Result<()> {
    let displaced = (draft.puts.iter().filter(|op| op.replaces.is_some()).map(|op| &op.rel))
        .chain(draft.moves.iter().filter(|op| op.replaces.is_some()).map(|op| &op.to))
        .chain(draft.links.iter().filter(|op| op.replaces.is_some()).map(|op| &op.to));
    let paths = (draft.removes.iter().map(|op| &op.path))
        .chain(draft.moves.iter().map(|op| &op.from))
        .chain(draft.links.iter().map(|op| &op.from))
        .chain(draft.file_meta.iter().chain(&draft.dir_meta).map(|op| &op.path))
        .chain(displaced);
    for path in paths {
        if let Some(object) = Object::open(host, path)?
            && let Some(what) = object.locked_by_attribute()?
        {
            return Err(locked(&draft.point.join(path), what));
        }
    }
    Ok(())
}

fn locked(path: &Path, what: &str) -> StoreError {
    StoreError::refused(path, format!("is {what}"), "see chattr(1) and run it again")
}

/// Opens a file that is written in place. `None` if its owner keeps itself out of it: the apply
/// changes its mode first.
fn open_target(host: &Tree, draft: &Draft, write: &DraftWrite) -> Result<Option<OwnedFd>> {
    let path = draft.point.join(&write.path);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let refuse = |reason: &str, remedy: &str| Err(StoreError::refused(&path, reason, remedy));
    match host.open_at(&write.path, flags) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::TXTBSY) => refuse("is being executed", "end the program and run it again"),
        Err(Errno::PERM) => refuse("is immutable or append-only", "see chattr(1) and run it again"),
        Err(Errno::ROFS) => refuse("is on a read-only file system", "remount it writable"),
        Err(Errno::ACCESS) => {
            let owner = host.attrs(&write.path)?.map(|attrs| attrs.uid);
            if owner == Some(rustix::process::geteuid().as_raw()) {
                return Ok(None);
            }
            refuse("this user may not write it", "run as its owner")
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            Err(crate::delta::changed_outside(&path, "it is gone"))
        }
        Err(errno) => Err(StoreError::io("open for writing", path, errno)),
    }
}
