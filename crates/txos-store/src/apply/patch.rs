//! Step 1, content from the record: written in place.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use txos_host::attrs_of;

use super::{
    Applier, Pass,
    fold::{Judged, Todo, judge},
};
use crate::{
    Result, StoreError,
    delta::content::read_lens,
    plan::Patch,
    sys::{Disk, Flush, disk, flush_open, write_all},
};

impl Applier<'_> {
    pub(super) fn patches(&mut self) -> Result<()> {
        let plan = self.plan;
        match self.pass {
            Pass::First { fresh: Some(fresh), .. } => {
                for (patch, file) in plan.patches.iter().zip(&fresh.patches) {
                    self.write_patch(patch, file)?;
                }
            }
            _ => plan.patches.iter().try_for_each(|patch| self.patch_again(patch))?,
        }
        Ok(())
    }

    fn write_patch(&self, patch: &Patch, file: &OwnedFd) -> Result<()> {
        let failed = |errno| StoreError::io("write", self.shown(patch.area, &patch.path), errno);
        let mut size = patch.before_size;
        for (offset, bytes) in patch.pieces() {
            write_all(file, &bytes, offset).map_err(failed)?;
            size = size.max(offset + bytes.len() as u64);
        }
        // A size that is set to what it was moves the time, too.
        if size != patch.after_size || patch.blocks.is_empty() {
            disk().resize(file.as_fd(), patch.after_size).map_err(failed)?;
        }
        self.flush_vanishing(patch, file)
    }

    /// A file whose name goes is not found again by that name: its content is made lasting first.
    fn flush_vanishing(&self, patch: &Patch, file: &OwnedFd) -> Result<()> {
        if !self.vanishing.contains(&(patch.area, patch.path.clone())) {
            return Ok(());
        }
        flush_open(file, Flush::Data)
            .map_err(|errno| StoreError::io("write", self.shown(patch.area, &patch.path), errno))
    }

    fn patch_again(&mut self, patch: &Patch) -> Result<()> {
        let Pass::Again { folds, .. } = self.pass else { return Ok(()) };
        let dev = self.plan.areas[patch.area as usize].fs.dev;
        let shown = self.shown(patch.area, &patch.path);
        let failed = |errno| StoreError::io("write", &shown, errno);
        let Some(file) = self.open_target(patch.area, &patch.path, patch.id)? else {
            if self.vanished(patch.area, &patch.path) {
                self.skipped += 1;
                return Ok(());
            }
            return self.keep_patch(patch, "others have replaced or removed it");
        };
        let size = attrs_of(&file).map_err(failed)?.size;
        let read = |offset: u64, length: u64| {
            let mut block = Vec::new();
            read_lens(&file, offset, length, &mut block).map(|()| block)
        };
        match judge(folds.of(dev, patch), size, folds.rewrite, read).map_err(failed)? {
            Judged::Done if patch.blocks.is_empty() => {
                disk().resize(file.as_fd(), size).map_err(failed)?;
            }
            Judged::Done => self.skipped += 1,
            Judged::Foreign => return self.keep_patch(patch, "others have written to it"),
            Judged::Write(todo, after) => {
                finish(&file, &todo, after, size).map_err(failed)?;
                self.flush_vanishing(patch, &file)?;
            }
        }
        Ok(())
    }

    fn keep_patch(&mut self, patch: &Patch, reason: &str) -> Result<()> {
        let saved = self.rescue_patch(patch)?;
        self.keep(patch.area, &patch.path, reason, Some(saved));
        Ok(())
    }
}

fn finish(file: &OwnedFd, todo: &[Todo<'_>], after: u64, mut size: u64) -> Result<(), Errno> {
    for part in todo {
        // What a later patch cuts off need not be written.
        let fits = after.saturating_sub(part.offset).min(part.bytes.len() as u64) as usize;
        write_all(file, &part.bytes[..fits], part.offset)?;
        size = size.max(part.offset + fits as u64);
    }
    if size == after { Ok(()) } else { disk().resize(file.as_fd(), after) }
}
