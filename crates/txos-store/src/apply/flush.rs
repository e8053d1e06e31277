//! Making what was applied lasting.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use txos_host::Tree;

use crate::{
    Result, StoreError,
    plan::{Ident, Plan},
    sys,
};

/// So many objects are flushed one by one; of more, their whole file systems.
pub(super) const FEW: usize = 16;

/// Flushes all that the plans changed.
///
/// # Errors
/// What flushing gives: the disk may have lost something, and the plans must stay in the journal.
pub(crate) fn flush_targets<'p>(plans: impl Iterator<Item = &'p Plan> + Clone) -> Result<()> {
    let mut targets: BTreeMap<&Path, BTreeSet<Target>> = BTreeMap::new();
    for plan in plans {
        collect(plan, &mut targets);
    }
    let all = targets.values().map(BTreeSet::len).sum::<usize>() > FEW;
    for (point, paths) in &targets {
        let tree = match Tree::open(point) {
            // Unmounted, which flushed it, or removed with all that was in it.
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR)) => continue,
            opened => opened?,
        };
        if all {
            sys::flush_file_system(&tree)?;
            continue;
        }
        for (path, id) in paths {
            // Another object may have the name by now, and the one that was changed another name.
            let moved = match id.map(|id| (id, tree.attrs(path))) {
                Some((id, Ok(now))) => !now.is_some_and(|now| id.is(&now)),
                // A directory above it has a new mode by now, that keeps its owner out.
                Some((_, Err(error))) if error.errno() == Some(Errno::ACCESS) => true,
                Some((_, Err(error))) => return Err(error.into()),
                None => false,
            };
            if moved {
                sys::flush_file_system(&tree)?;
                break;
            }
            match sys::flush(sys::place(&tree, path)) {
                Ok(()) => {}
                // Moved, removed, a link or a device: nothing of its own to flush by this name.
                Err(StoreError::Io {
                    errno:
                        Errno::NOENT
                        | Errno::NOTDIR
                        | Errno::LOOP
                        | Errno::NXIO
                        | Errno::INVAL
                        | Errno::ACCESS,
                    ..
                }) => {
                    sys::flush_file_system(&tree)?;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What is to be flushed: a path beneath the mount point, and which object is meant if it is one that
/// was there before.
type Target = (PathBuf, Option<Ident>);

fn collect<'p>(plan: &'p Plan, targets: &mut BTreeMap<&'p Path, BTreeSet<Target>>) {
    let mut add_as = |area: u32, path: &Path, id: Option<Ident>| {
        let point = plan.areas[area as usize].point.as_path();
        targets.entry(point).or_default().insert((path.to_owned(), id));
    };
    for op in plan.file_meta.iter().chain(&plan.dir_meta) {
        add_as(op.area, &op.path, Some(op.id));
    }
    for op in &plan.patches {
        add_as(op.area, &op.path, Some(op.id));
    }
    for op in &plan.writes {
        add_as(op.area, &op.path, Some(op.id));
    }
    let mut add = |area: u32, path: &Path| add_as(area, path, None);
    let above = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
    for op in &plan.removes {
        add(op.area, &above(&op.path));
    }
    for op in &plan.moves {
        add(op.area, &above(&op.from));
        add(op.area, &above(&op.to));
    }
    for op in &plan.puts {
        add(op.area, &above(&op.to));
        if op.make.is_some() {
            add(op.area, &op.to);
        }
    }
    for op in &plan.links {
        add(op.area, &above(&op.to));
    }
}
