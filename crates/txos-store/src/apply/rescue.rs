//! Saving what could not be put in place.

use std::path::{Path, PathBuf};

use rustix::{fd::AsFd, fs::RenameFlags, io::Errno};
use txos_host::Tree;

use super::{Applier, locate::Spot};
use crate::{
    Result, StoreError,
    plan::{Patch, Write},
    stage,
    sys::{self, Disk, disk, place, write_all},
};

impl Applier<'_> {
    /// A name in `conflicts/ID` for the next thing that is saved.
    fn rescue_name(&mut self, name: &Path) -> Result<PathBuf> {
        let dir = Path::new("conflicts").join(self.plan.tx.to_string());
        sys::make_dirs(self.state.tree(), &dir)?;
        loop {
            self.saved += 1;
            let mut last = std::ffi::OsString::from(format!("{}-", self.saved));
            last.push(name.file_name().unwrap_or_default());
            let path = dir.join(last);
            if place(self.state.tree(), &path).attrs()?.is_none() {
                return Ok(path);
            }
        }
    }

    /// Saves an object that waits.
    pub(super) fn rescue_waiting(&mut self, area: u32, spot: &Spot) -> Result<Option<PathBuf>> {
        match spot {
            Spot::Stage(path) => {
                let to = self.rescue_name(path)?;
                self.save(self.stage(area), path, &to).map(Some)
            }
            // It still has its old name: there it is safe.
            Spot::Host(path) => {
                let there = place(self.host(area), path).attrs()?.is_some();
                Ok(there.then(|| self.shown(area, path)))
            }
        }
    }

    /// Saves what was to be written to a file, at the offsets where it was to be.
    pub(super) fn rescue_patch(&mut self, patch: &Patch) -> Result<PathBuf> {
        let pieces = patch.pieces();
        let parts: Vec<_> = pieces.iter().map(|(at, bytes)| (*at, bytes.as_slice())).collect();
        self.rescue_bytes(&patch.path, &parts)
    }

    /// Saves bytes at offsets.
    pub(super) fn rescue_bytes(&mut self, name: &Path, parts: &[(u64, &[u8])]) -> Result<PathBuf> {
        let to = self.rescue_name(name)?;
        let saved = self.state.path().join(&to);
        let failed = |errno| StoreError::io("save", &saved, errno);
        let (dir, name) = self.state.tree().parent(&to)?;
        let file = disk().create(dir.as_fd(), name, 0o600).map_err(failed)?;
        for (offset, bytes) in parts {
            write_all(&file, bytes, *offset).map_err(failed)?;
        }
        Ok(saved)
    }

    /// Saves the content that was to be written in place.
    pub(super) fn rescue_write(&mut self, op: &Write) -> Result<Option<PathBuf>> {
        let to = self.rescue_name(&op.path)?;
        if place(self.tx, &op.source).attrs()?.is_none() {
            return Ok(None);
        }
        self.save(self.tx, &op.source, &to).map(Some)
    }

    fn save(&self, tree: &Tree, path: &Path, to: &Path) -> Result<PathBuf> {
        let state = self.state.tree();
        let saved = self.state.path().join(to);
        match sys::rename(place(tree, path), place(state, to), RenameFlags::NOREPLACE) {
            Ok(()) => Ok(saved),
            Err(Errno::XDEV) => {
                stage::copy_tree(tree, path, state, to)?;
                Ok(saved)
            }
            Err(errno) => Err(StoreError::io("save", saved, errno)),
        }
    }
}
