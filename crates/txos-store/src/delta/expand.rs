//! Which stable names the transaction removed: a removed directory stands for all that it held.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use txos_core::{Attrs, FileKind};
use txos_host::read_listing;

use super::walk::Reader;
use crate::{Result, StoreError, sys};

/// Stable names that are gone, with what was bound to them, sorted.
pub(super) type Gone = BTreeMap<PathBuf, Attrs>;

/// Directories that are gone, with the number of names that each holds.
pub(super) type Emptied = Vec<(PathBuf, u64)>;

/// Adds to `hidden` names all names below removed directories, except what was renamed out of them
/// (`moved`, directories by original path).
pub(super) fn expand(
    reader: &Reader<'_>,
    hidden: &[(PathBuf, Attrs)],
    moved: &BTreeMap<PathBuf, PathBuf>,
) -> Result<(Gone, Emptied)> {
    let mut emptied = Emptied::new();
    let mut gone = Gone::new();
    for from in moved.keys() {
        refuse_mounts(reader, from)?;
        refuse_protected(reader, from)?;
    }
    let mut pending = Vec::new();
    for (base, attrs) in hidden {
        if moved.contains_key(base) {
            continue;
        }
        refuse_mounts(reader, base)?;
        refuse_protected(reader, base)?;
        gone.insert(base.clone(), *attrs);
        if attrs.kind == FileKind::Dir {
            pending.push(base.clone());
        }
    }
    while let Some(dir) = pending.pop() {
        let shown = reader.point.join(&dir);
        let failed = |errno| StoreError::io("read the removed directory", &shown, errno);
        let fd = reader
            .host
            .open_at(&dir, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(|errno| super::failed_outside("read the removed directory", &shown, errno))?;
        let listing = read_listing(&fd).map_err(failed)?;
        emptied.push((dir.clone(), listing.entries.len() as u64));
        for entry in listing.entries {
            let path = dir.join(&entry.name);
            if moved.contains_key(&path) {
                continue;
            }
            let Some(attrs) = sys::attrs_in(&fd, &entry.name, &shown)? else { continue };
            if attrs.kind == FileKind::Dir {
                pending.push(path.clone());
            }
            gone.insert(path, attrs);
        }
    }
    Ok((gone, emptied))
}

/// A mount point cannot be removed or renamed natively either; what holds one would move the mount
/// along, which is refused.
fn refuse_mounts(reader: &Reader<'_>, rel: &Path) -> Result<()> {
    let path = reader.host.at().join(rel);
    match reader.mounts.iter().find(|point| point.starts_with(&path)) {
        None => Ok(()),
        Some(point) => {
            let reason = format!("{} is mounted there", crate::names::shown(point));
            Err(StoreError::refused(reader.point.join(rel), reason, "unmount it first"))
        }
    }
}

fn refuse_protected(reader: &Reader<'_>, rel: &Path) -> Result<()> {
    let path = reader.point.join(rel);
    match reader.options.protect.iter().find(|protected| protected.starts_with(&path)) {
        None => Ok(()),
        Some(protected) => {
            let reason = format!("{}, which txos needs, is in it", crate::names::shown(protected));
            Err(StoreError::refused(path, reason, "abort the transaction"))
        }
    }
}
