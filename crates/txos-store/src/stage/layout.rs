use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use txos_host::Tree;

use crate::{
    Result, StoreError,
    delta::Draft,
    sys::{self, place},
};

/// Where the shadow objects of a layer are while it is staged, beneath the transaction's
/// directory.
pub(super) struct Layout {
    upper: PathBuf,
    /// Objects taken out of new directories: path in the layer, and where they are; in path order.
    evicted: Vec<(PathBuf, PathBuf)>,
}

impl Layout {
    pub(super) fn new(tx: &Path, upper: &Path) -> Result<Layout> {
        Ok(Layout { upper: beneath(tx, upper)?, evicted: Vec::new() })
    }

    /// Where the shadow object is that was at `rel` of the layer.
    pub(super) fn now(&self, rel: &Path) -> PathBuf {
        let out = self.evicted.iter().rev().find_map(|(from, to)| {
            let below = rel.strip_prefix(from).ok()?;
            Some(if below.as_os_str().is_empty() { to.clone() } else { to.join(below) })
        });
        out.unwrap_or_else(|| self.upper.join(rel))
    }

    /// Takes out of new directories what must not go with them: copies of stable objects, which
    /// come from elsewhere, and what is left out.
    pub(super) fn evict(&mut self, tx: &Tree, draft: &Draft) -> Result<()> {
        if !draft.evicted.is_empty() {
            sys::make_dirs(tx, Path::new("stage"))?;
        }
        let layer = self.upper.file_name().unwrap_or_default().to_owned();
        for (number, rel) in draft.evicted.iter().enumerate() {
            let from = self.now(rel);
            let to = Path::new("stage").join(format!("e{}-{number}", layer.display()));
            sys::rename(place(tx, &from), place(tx, &to), RenameFlags::NOREPLACE)
                .map_err(|errno| StoreError::io("stage", tx.at().join(&from), errno))?;
            self.evicted.push((rel.clone(), to));
        }
        for rel in &draft.dropped {
            sys::remove_tree(tx, &self.now(rel))?;
        }
        Ok(())
    }
}

/// `path` as one beneath the transaction's directory.
pub(super) fn beneath(tx: &Path, path: &Path) -> Result<PathBuf> {
    path.strip_prefix(tx).map(Path::to_owned).map_err(|_| {
        StoreError::refused(path, "is not in the transaction's directory", "abort the transaction")
    })
}
