use std::{collections::HashSet, path::Path};

use rustix::{fd::AsFd, fs::FileType, io::Errno};
use txos_core::FileKind;
use txos_host::Tree;

use super::layout::Layout;
use crate::{
    Result, StoreError,
    delta::{Draft, Shadow},
    sys::{self, Disk, Object, disk, place},
};

/// Takes the overlay's marks off all new objects, and gives them what the overlay kept from them.
/// Deepest first, so that the times of directories come out right.
pub(super) fn strip(tx: &Tree, layout: &Layout, draft: &Draft) -> Result<()> {
    let disturbed = |fresh: &Shadow| {
        let child_gone = |paths: &[std::path::PathBuf]| {
            paths.iter().any(|path| path.parent() == Some(&fresh.rel))
        };
        child_gone(&draft.dropped) || child_gone(&draft.evicted)
    };
    for fresh in draft.fresh.iter().rev() {
        let marked = !fresh.own.is_empty() || !fresh.unescaped.is_empty();
        let dir = fresh.attrs.kind == FileKind::Dir;
        if !fresh.protected.is_empty() {
            let reason = "the transaction made it immutable or append-only (chattr)";
            let path = draft.point.join(&fresh.rel);
            return Err(StoreError::refused(path, reason, "run chattr outside a transaction"));
        }
        if fresh.null_device {
            remake_null_device(tx, layout, fresh)?;
        } else if marked || (dir && disturbed(fresh)) {
            clean(tx, layout, fresh)?;
        }
    }
    // New files get their modes back at once; directories when they are in place.
    let fresh: HashSet<&Path> = draft.fresh.iter().map(|fresh| fresh.rel.as_path()).collect();
    draft
        .closed
        .iter()
        .filter(|closed| closed.kind == FileKind::File && fresh.contains(closed.rel.as_path()))
        .try_for_each(|closed| closed.close(tx, &layout.now(&closed.rel)))
}

fn clean(tx: &Tree, layout: &Layout, fresh: &Shadow) -> Result<()> {
    let Some(object) = Object::open(tx, &layout.now(&fresh.rel))? else { return Ok(()) };
    let change = || -> Result<()> {
        for name in &fresh.own {
            object.set_xattr(name, None)?;
        }
        for (name, value) in &fresh.unescaped {
            object.set_xattr(name, Some(value))?;
        }
        Ok(())
    };
    change()?;
    if fresh.attrs.kind == FileKind::Dir {
        object.set_times(Some(fresh.attrs.atime), Some(fresh.attrs.mtime))?;
    }
    Ok(())
}

/// The device that the layer could only hold under a substitute number.
fn remake_null_device(tx: &Tree, layout: &Layout, fresh: &Shadow) -> Result<()> {
    let at = layout.now(&fresh.rel);
    let shown = tx.at().join(&at);
    let failed = |errno| StoreError::io("make the device", &shown, errno);
    let Some(old) = Object::open(tx, &at)? else { return Ok(()) };
    let xattrs = old.xattrs()?;
    sys::unlink(place(tx, &at)).map_err(failed)?;
    let (dir, name) = tx.parent(&at)?;
    disk().mknod(dir.as_fd(), name, FileType::CharacterDevice, 0).map_err(failed)?;
    let Some(new) = Object::open(tx, &at)? else { return Err(failed(Errno::NOENT)) };
    new.chown(fresh.attrs.uid, fresh.attrs.gid)?;
    new.chmod(fresh.attrs.perm)?;
    for (name, value) in xattrs.iter().filter(|(name, _)| !fresh.own.contains(name)) {
        new.set_xattr(name, Some(value))?;
    }
    new.set_times(Some(fresh.attrs.atime), Some(fresh.attrs.mtime))
}
