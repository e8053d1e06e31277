//! The state directory: all that txos keeps between and during transactions.
//!
//! ```text
//! STATE/            0700, owned by its user
//!   format          "txos state 1 root" or "txos state 1 user", and a newline
//!   lock            flock(2)ed by who may change the state; names its holder
//!   ids             the next transaction id (see `ids`)
//!   journal         what is decided (see docs/journal.md)
//!   log             one line of JSON for each ended transaction
//!   tx/ID/          one transaction: meta.json, lock, upper.N, work.N, prepared
//!   conflicts/ID/   what could not be applied without harming someone outside
//! ```
//!
//! # Invariants
//!
//! - Nobody but the owner can read or write anything in it: mode 0700 and the owner are checked
//!   each time it is opened, and a directory that fails is refused, never repaired.
//! - A lock is held by an open file, so it ends with the last process that holds it: what a crash
//!   left has no holder.
//! - The directory is written only by holders of the lock, except that a transaction writes its
//!   own `tx/ID` while it holds `tx/ID/lock`.
//! - Small files that change often are overwritten in place, within one block: truncating or
//!   replacing them would make some file systems write at once, and free a block each time.

mod ids;
mod lock;
mod log;
mod txdir;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use txos_core::TxId;
use txos_host::Tree;

pub use lock::{ExclusiveLock, Holder};
pub use log::{LogEntry, Outcome};
pub use txdir::{Layer, TxDir, TxMeta, TxState, TxStatus};

use crate::{Result, StoreError, sys};

const VERSION: u32 = 1;

/// Which overlay attributes the views of a state directory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Privilege {
    /// `trusted.overlay.*`: views are made by root.
    Root,
    /// `user.overlay.*`: views are made in a user namespace.
    User,
}

impl Privilege {
    fn word(self) -> &'static str {
        match self {
            Privilege::Root => "root",
            Privilege::User => "user",
        }
    }

    /// The prefix of the overlay's own extended attributes.
    pub(crate) fn xattr_prefix(self) -> &'static str {
        match self {
            Privilege::Root => "trusted.overlay.",
            Privilege::User => "user.overlay.",
        }
    }
}

/// An open state directory.
#[derive(Debug)]
pub struct StateDir {
    tree: Tree,
    path: PathBuf,
    privilege: Privilege,
}

impl StateDir {
    /// Opens the state directory at `path`, and creates it if it is absent.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if it belongs to someone else, others may enter it, it is of another
    /// format or of the other privilege, or it is no state directory; otherwise what the file
    /// system gives.
    pub fn open(path: impl AsRef<Path>, privilege: Privilege) -> Result<StateDir> {
        let path = path.as_ref();
        create(path)?;
        let path = fs::canonicalize(path)
            .map_err(|error| StoreError::std("find the state directory", path, &error))?;
        check_owner(&path)?;
        check_format(&path, privilege)?;
        for name in ["tx", "conflicts"] {
            create(&path.join(name))?;
        }
        Ok(StateDir { tree: Tree::open(&path)?, path, privilege })
    }

    /// Where it is, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which overlay attributes its views use.
    pub fn privilege(&self) -> Privilege {
        self.privilege
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The transactions that have a directory here, by id: running, prepared, and what crashed.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn transactions(&self) -> Result<Vec<TxStatus>> {
        let mut all = Vec::new();
        for id in self.transaction_ids()? {
            // It may end while the list is made.
            if let Some(status) = txdir::status(self, id)? {
                all.push(status);
            }
        }
        Ok(all)
    }

    pub(crate) fn transaction_ids(&self) -> Result<Vec<TxId>> {
        let failed = |error: io::Error| StoreError::std("read", self.path.join("tx"), &error);
        let mut ids = Vec::new();
        for entry in fs::read_dir(self.path.join("tx")).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            ids.extend(name.to_str().and_then(|name| name.parse::<TxId>().ok()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// What transaction `id` says of itself; `None` if it has no directory.
    pub(crate) fn meta(&self, id: TxId) -> Result<Option<TxMeta>> {
        txdir::read_meta(&self.path.join(Self::tx_path(id)))
    }

    pub(crate) fn status(&self, id: TxId) -> Result<Option<TxStatus>> {
        txdir::status(self, id)
    }

    pub(crate) fn tx_path(id: TxId) -> PathBuf {
        Path::new("tx").join(id.to_string())
    }

    /// Removes what is left of transaction `id`.
    pub(crate) fn discard(&self, id: TxId) -> Result<()> {
        sys::remove_tree(&self.tree, &Self::tx_path(id))
    }
}

/// Overwrites a small text file without ever freeing a block: what a longer one left is blanked.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    overwrite_open(&file, text)?;
    Ok(file)
}

fn overwrite_open(file: &File, text: &[u8]) -> io::Result<()> {
    let mut padded = text.to_vec();
    let old = file.metadata()?.len().min(1 << 16) as usize;
    padded.resize(text.len().max(old), b' ');
    file.write_all_at(&padded, 0)
}

fn create(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(above)
                .and_then(|()| DirBuilder::new().mode(0o700).create(path))
                .map_err(|error| StoreError::std("create the state directory", path, &error))
        }
        Err(error) => Err(StoreError::std("create the state directory", path, &error)),
    }
}

fn check_owner(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path)
        .map_err(|error| StoreError::std("examine the state directory", path, &error))?;
    let me = rustix::process::geteuid().as_raw();
    let remedy = "give another directory with --state, or set TXOS_STATE";
    if !meta.is_dir() {
        return Err(StoreError::refused(path, "the state directory is not a directory", remedy));
    }
    if meta.uid() != me {
        let reason = format!("the state directory belongs to user {}, not {me}", meta.uid());
        return Err(StoreError::refused(path, reason, remedy));
    }
    if meta.mode() & 0o077 != 0 {
        let reason =
            format!("others may enter the state directory (mode {:o})", meta.mode() & 0o7777);
        return Err(StoreError::refused(
            path,
            reason,
            "look what they did there, then chmod 700 it",
        ));
    }
    Ok(())
}

fn check_format(path: &Path, privilege: Privilege) -> Result<()> {
    let file = path.join("format");
    let expected = format!("txos state {VERSION} {}\n", privilege.word());
    match fs::read_to_string(&file) {
        Ok(text) if text == expected => Ok(()),
        Ok(text) => Err(StoreError::refused(
            &file,
            format!(
                "the state directory is of format {:?}, not {:?}",
                text.trim(),
                expected.trim()
            ),
            "use the version of txos that made it, or give another directory with --state",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let empty = fs::read_dir(path)
                .map_err(|error| StoreError::std("read", path, &error))?
                .next()
                .is_none();
            if !empty {
                let remedy = "give an empty directory, or none yet made";
                return Err(StoreError::refused(path, "is not a state directory of txos", remedy));
            }
            // Written aside first: a crash leaves the whole file or an empty directory.
            let aside = path.join("format.new");
            fs::write(&aside, expected)
                .and_then(|()| fs::rename(&aside, &file))
                .map_err(|error| StoreError::std("write", &file, &error))
        }
        Err(error) => Err(StoreError::std("read", &file, &error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn foreign_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("state");
        StateDir::open(&at, Privilege::Root).unwrap();
        StateDir::open(&at, Privilege::Root).unwrap();
        assert!(matches!(StateDir::open(&at, Privilege::User), Err(StoreError::Refused { .. })));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(StateDir::open(&at, Privilege::Root), Err(StoreError::Refused { .. })));
        fs::set_permissions(&at, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(at.join("format"), "txos state 2 root\n").unwrap();
        assert!(matches!(StateDir::open(&at, Privilege::Root), Err(StoreError::Refused { .. })));
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(other.join("mine"), "").unwrap();
        assert!(matches!(StateDir::open(&other, Privilege::Root), Err(StoreError::Refused { .. })));
    }
}
