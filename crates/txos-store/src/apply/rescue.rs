//! Saving what could not be put in place.

use std::path::{Path, PathBuf};

use rustix::{fs::RenameFlags, io::Errno};
use txos_host::Tree;

use super::Applier;
use crate::{
    Result, StoreError,
    plan::Write,
    stage,
    sys::{self, place},
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

    /// Saves an object that waits at the absolute path `waiting`.
    pub(super) fn rescue_waiting(
        &mut self,
        area: u32,
        waiting: PathBuf,
    ) -> Result<Option<PathBuf>> {
        let to = self.rescue_name(&waiting)?;
        let (host, stage) = (self.host(area), self.stage(area));
        let (tree, path) = match (waiting.strip_prefix(stage.at()), waiting.strip_prefix(host.at()))
        {
            (Ok(path), _) => (stage, path),
            // It still has its old name: there it is safe.
            (_, Ok(path)) if place(host, path).attrs()?.is_some() => return Ok(Some(waiting)),
            _ => return Ok(None),
        };
        self.save(tree, path, &to).map(Some)
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
