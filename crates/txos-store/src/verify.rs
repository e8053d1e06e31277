//! Whether all that a delta writes is still as it was when the delta was made.
//!
//! The workset proves what was read. This proves what is about to be written, whether the workset
//! holds it or not, and costs what the delta holds.

use std::path::{Path, PathBuf};

use rustix::{fs::OFlags, io::Errno};
use txos_core::{Attrs, Conflict, Facet, Seen};
use txos_host::{Tree, attrs_at, attrs_of, read_listing};

use crate::{
    Result, StoreError,
    apply::{Held, unchanged},
    delta::content::{ContentState, examine},
    plan::{Ident, Plan},
    sys::place,
};

/// What a draft found on the stable system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Mount point, as a path that can be opened, and as people know it.
    pub at: PathBuf,
    pub point: PathBuf,
    /// Names and what is bound to them; original paths, sorted.
    pub names: Vec<(PathBuf, Option<Ident>)>,
    /// Directories that go, with the number of names they hold.
    pub removed: Vec<(PathBuf, u64)>,
}

/// What is not as expected.
pub(crate) fn verify(expectations: &[Expectation]) -> Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for expected in expectations {
        let tree = Tree::open(&expected.at)?;
        names(&tree, expected, &mut conflicts)?;
        for (path, count) in &expected.removed {
            let failed = |errno| StoreError::io("read", expected.at.join(path), errno);
            let dir = match tree.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(dir) => dir,
                // The names say what happened to it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            let now = read_listing(&dir).map_err(failed)?.entries.len() as u64;
            if now != *count {
                conflicts.push(conflict(expected, path, Facet::Listing, Seen::Changed));
            }
        }
    }
    Ok(conflicts)
}

/// Names of one directory stand together: it is opened once for them.
fn names(tree: &Tree, expected: &Expectation, conflicts: &mut Vec<Conflict>) -> Result<()> {
    let mut open: Option<(&Path, Option<rustix::fd::OwnedFd>)> = None;
    for (path, id) in &expected.names {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        if open.as_ref().is_none_or(|(dir, _)| *dir != parent) {
            let dir = match tree.open_at(parent, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(dir) => Some(dir),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
                Err(errno) => {
                    return Err(StoreError::io("open", expected.at.join(parent), errno));
                }
            };
            open = Some((parent, dir));
        }
        let found: Option<Attrs> = match &open {
            Some((_, Some(dir))) => attrs_at(dir, name)
                .map_err(|errno| StoreError::io("examine", expected.at.join(path), errno))?,
            _ => {
                // The parent itself is gone, also where nothing was expected in it.
                conflicts.push(conflict(expected, parent, Facet::Binding, Seen::Replaced));
                continue;
            }
        };
        match (found, id) {
            (None, None) => {}
            (Some(found), Some(id)) if id.is(&found) => {}
            (None, Some(_)) => {
                conflicts.push(conflict(expected, path, Facet::Binding, Seen::Removed));
            }
            (Some(_), None) => {
                conflicts.push(conflict(expected, path, Facet::Binding, Seen::Created));
            }
            (Some(_), Some(_)) => {
                conflicts.push(conflict(expected, path, Facet::Binding, Seen::Replaced));
            }
        }
    }
    Ok(())
}

/// Files that are written in place: those whose version has moved are compared again.
pub(crate) fn verify_content(plan: &Plan, held: &[Held]) -> Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for (write, held) in plan.writes.iter().zip(held) {
        // One that its owner keeps itself out of is examined when it is written.
        let Some(file) = &held.file else { continue };
        let shown = plan.areas[write.area as usize].point.join(&write.path);
        let failed = |errno| StoreError::io("examine", &shown, errno);
        let now = attrs_of(file).map_err(failed)?;
        if unchanged(&held.attrs, &now) {
            continue;
        }
        let state = examine(file, now.size, &write.spec).map_err(failed)?;
        if state != ContentState::Before {
            conflicts.push(about_to_be_written(shown, Facet::Content, Seen::Changed));
        }
    }
    Ok(conflicts)
}

/// Owners and modes that are about to change.
pub(crate) fn verify_metadata(plan: &Plan) -> Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for meta in plan.file_meta.iter().chain(&plan.dir_meta) {
        if meta.owner.is_none() && meta.perm.is_none() {
            continue;
        }
        let point = &plan.areas[meta.area as usize].point;
        let tree = Tree::open(point)?;
        // A directory that is renamed is not at its final path yet.
        let found = place(&tree, &meta.path).attrs()?;
        let Some(now) = found.filter(|now| meta.id.is(now)) else { continue };
        let owner = meta.owner.is_some_and(|owner| owner.before != (now.uid, now.gid));
        let perm = meta.perm.is_some_and(|perm| perm.before != now.perm);
        if owner || perm {
            let path = point.join(&meta.path);
            conflicts.push(about_to_be_written(path, Facet::Perms, Seen::Changed));
        }
    }
    Ok(conflicts)
}

fn conflict(expected: &Expectation, path: &Path, facet: Facet, seen: Seen) -> Conflict {
    about_to_be_written(expected.point.join(path), facet, seen)
}

fn about_to_be_written(path: PathBuf, facet: Facet, seen: Seen) -> Conflict {
    Conflict { path, facet, seen, detail: "the transaction writes it".into() }
}
