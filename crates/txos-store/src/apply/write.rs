//! Step 1, content: written in place, so that the object stays itself.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};
use txos_core::Attrs;
use txos_host::attrs_of;

use super::{Applier, Held, Pass, locate::Spot};
use crate::{
    Result, StoreError,
    delta::content::{ContentState, examine, examine_torn, in_hole, read_lens},
    plan::{Ident, PAGE, Write, WriteSpec},
    sys::{Disk, Flush, Object, disk, flush_open, place, write_all},
};

impl Applier<'_> {
    pub(super) fn writes(&mut self) -> Result<()> {
        let plan = self.plan;
        for (number, op) in plan.writes.iter().enumerate() {
            let held = match self.pass {
                Pass::First { held, .. } => held.get(number),
                Pass::Again { .. } => None,
            };
            self.write(op, held)?;
        }
        Ok(())
    }

    fn write(&mut self, op: &Write, held: Option<&Held>) -> Result<()> {
        let shown = self.shown(op.area, &op.path);
        let failed = |errno| StoreError::io("write", &shown, errno);
        let own;
        let file = match held.and_then(|held| held.file.as_ref()) {
            Some(file) => file.as_fd(),
            None => match self.open_target(op.area, &op.path, op.id)? {
                Some(file) => {
                    own = file;
                    own.as_fd()
                }
                None if self.vanished(op.area, &op.path) => {
                    self.skipped += 1;
                    return Ok(());
                }
                None => {
                    let saved = self.rescue_write(op)?;
                    self.keep(op.area, &op.path, "others have replaced or removed it", saved);
                    return Ok(());
                }
            },
        };
        let now = attrs_of(file).map_err(failed)?;
        let state = match held {
            Some(held) if unchanged(&held.attrs, &now) => ContentState::Before,
            _ => match self.pass {
                Pass::First { .. } => examine(file, now.size, &op.spec),
                Pass::Again { .. } => examine_torn(file, now.size, &op.spec),
            }
            .map_err(failed)?,
        };
        match state {
            ContentState::After => {
                self.skipped += 1;
                Ok(())
            }
            ContentState::Foreign => {
                let saved = self.rescue_write(op)?;
                self.keep(op.area, &op.path, "others have written to it", saved);
                Ok(())
            }
            ContentState::Before | ContentState::Torn => {
                let source =
                    self.tx.open_at(&op.source, OFlags::RDONLY | OFlags::NOFOLLOW).map_err(
                        |errno| StoreError::io("read", self.tx.at().join(&op.source), errno),
                    )?;
                transfer(&source, file, &now, &op.spec, &failed)?;
                if self.vanishing.contains(&(op.area, op.path.clone())) {
                    flush_open(file, Flush::Data).map_err(failed)?;
                }
                Ok(())
            }
        }
    }

    /// Finds the target wherever the apply has got to, and opens it.
    pub(super) fn open_target(&self, area: u32, path: &Path, id: Ident) -> Result<Option<OwnedFd>> {
        for spot in self.locator.spots(area, path) {
            let at = match &spot {
                Spot::Host(path) => place(self.host(area), path),
                Spot::Stage(path) => place(self.stage(area), path),
            };
            if !at.attrs()?.is_some_and(|attrs| id.is(&attrs)) {
                continue;
            }
            let failed = |errno| StoreError::io("open for writing", at.shown(), errno);
            let open = || at.tree.open_at(at.path, OFlags::RDWR | OFlags::NOFOLLOW);
            let file = match open() {
                Err(Errno::ACCESS) => {
                    let Some(object) = Object::open(at.tree, at.path)? else { continue };
                    object.chmod(object.attrs.perm | 0o600)?;
                    let file = open().map_err(failed);
                    object.chmod(object.attrs.perm)?;
                    file?
                }
                other => other.map_err(failed)?,
            };
            if id.is(&attrs_of(&file).map_err(failed)?) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

/// Whether a file is proven to be as it was when its content was compared. A time without nanoseconds
/// may be one of whole seconds, and proves nothing.
pub(crate) fn unchanged(then: &Attrs, now: &Attrs) -> bool {
    then.id == now.id && then.ctime == now.ctime && then.ctime.nsec != 0 && then.size == now.size
}

/// Writes the blocks that differ, a page at a time. A growing file is extended first, a shrinking one cut last: each
/// state on the way shows, through the lens of the new size, blocks of before or after only.
fn transfer(
    source: &OwnedFd,
    target: impl AsFd,
    now: &Attrs,
    spec: &WriteSpec,
    failed: &dyn Fn(Errno) -> StoreError,
) -> Result<()> {
    if now.size < spec.after_size {
        disk().resize(target.as_fd(), spec.after_size).map_err(failed)?;
    }
    let mut buffer = Vec::new();
    for run in &spec.runs {
        let end = (run.first + run.hashes.len() as u64) * spec.block;
        let end = end.min(spec.after_size);
        let mut offset = run.first * spec.block;
        while offset < end {
            let length = (offset + 1).next_multiple_of(PAGE).min(end) - offset;
            let hole = in_hole(source, spec.after_size, offset, length).map_err(failed)?;
            if !(hole && punch(&target, offset, length).map_err(failed)?) {
                read_lens(source, offset, length, &mut buffer).map_err(failed)?;
                write_all(&target, &buffer, offset).map_err(failed)?;
            }
            offset += length;
        }
    }
    if now.size > spec.after_size {
        disk().resize(target.as_fd(), spec.after_size).map_err(failed)?;
    }
    Ok(())
}

/// Makes a hole; `false` where the file system has none.
fn punch(target: impl AsFd, offset: u64, length: u64) -> Result<bool, Errno> {
    match disk().punch(target.as_fd(), offset, length) {
        Ok(()) => Ok(true),
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno),
    }
}
