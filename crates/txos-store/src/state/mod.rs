//! The state directory: all that txos keeps between and during transactions.
//!
//! ```text
//! STATE/            0700, owned by its user
//!   format          "txos state 1 root" or "txos state 1 user", and a newline
//!   lock            flock(2)ed by who commits or recovers; names its holder
//!   ids             the next transaction id (see `ids`)
//!   journal         what is decided (see docs/journal.md)
//!   log, log.1      one line of JSON for each ended transaction; those before
//!   tx/ID/          one transaction: meta.json, lock, upper.N, work.N, prepared
//!   tx/ID.gone/     one that is over and is being removed
//!   view/           where views are put together, each in a mount namespace of its own
//!   conflicts/ID/   what could not be applied without harming someone outside
//! ```
//!
//! # Invariants
//!
//! - Nobody but the owner can read or write anything in it: mode 0700 and the owner are checked
//!   each time it is opened, and a directory that fails is refused, never repaired.
//! - A lock is held by an open file, so it ends with the last process that holds it: what a crash
//!   left has no holder.
//! - Each part is written only by who holds the lock that guards it (see `lock`).
//! - Small files that change often are overwritten in place, within one block: truncating or
//!   replacing them would make some file systems write at once, and free a block each time.

mod ids;
mod lock;
mod log;
mod place;
mod txdir;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{fs::RenameFlags, io::Errno};
use serde::{Deserialize, Serialize};
use txos_core::TxId;
use txos_host::Tree;

pub use lock::{ExclusiveLock, Holder};
pub use log::{LogEntry, Loss, Outcome};
pub use place::default_directory;
#[cfg(any(test, fuzzing))]
pub(crate) use txdir::last_meta;
pub use txdir::{Layer, TxDir, TxMeta, TxState, TxStatus};
pub(crate) use txdir::{append_meta, meta_time};

use crate::{Result, StoreError, sys};

const VERSION: u32 = 1;

/// How the name begins under which the format is written.
const ASIDE: &str = "format.new.";

/// How the name of a directory ends whose transaction is over.
const GONE: &str = ".gone";

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
    /// format or of the other privilege, or it is no state directory, or if this boot cannot be told
    /// from another; otherwise what the file system gives.
    pub fn open(path: impl AsRef<Path>, privilege: Privilege) -> Result<StateDir> {
        let path = path.as_ref();
        require_boot_id(sys::boot_id())?;
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
    ///
    /// It loses its name first: nobody finds it half-removed and takes it for one that crashed.
    pub(crate) fn discard(&self, id: TxId) -> Result<()> {
        match self.set_aside(id)? {
            true => self.remove_aside(id),
            false => Ok(()),
        }
    }

    /// Takes what is left of transaction `id` its name; gives whether there was anything. A recovery
    /// removes it, if [`StateDir::remove_aside`] does not.
    pub(crate) fn set_aside(&self, id: TxId) -> Result<bool> {
        let (path, aside) = (Self::tx_path(id), Self::aside_path(id));
        let (from, to) = (sys::place(&self.tree, &path), sys::place(&self.tree, &aside));
        match sys::rename(from, to, RenameFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            // Another of that id was left by a crash in the middle of this.
            Err(Errno::NOTEMPTY | Errno::EXIST) => sys::remove_tree(&self.tree, &path)?,
            Err(errno) => return Err(StoreError::io("remove", self.path.join(path), errno)),
        }
        Ok(true)
    }

    /// Removes what a commit has set aside (see [`Prepared::leave_directory`]).
    ///
    /// # Errors
    /// If something in it cannot be removed.
    ///
    /// [`Prepared::leave_directory`]: crate::Prepared::leave_directory
    pub fn remove_aside(&self, id: TxId) -> Result<()> {
        sys::remove_tree(&self.tree, &Self::aside_path(id))
    }

    fn aside_path(id: TxId) -> PathBuf {
        Path::new("tx").join(format!("{id}{GONE}"))
    }

    /// Removes what a crash left of directories that were being removed.
    pub(crate) fn sweep(&self) -> Result<()> {
        let failed = |error: io::Error| StoreError::std("read", self.path.join("tx"), &error);
        for entry in fs::read_dir(self.path.join("tx")).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if name.to_str().is_some_and(|name| name.ends_with(GONE)) {
                sys::remove_tree(&self.tree, &Path::new("tx").join(name))?;
            }
        }
        Ok(())
    }

    /// Whether a process holds transaction `id`.
    pub(crate) fn is_alive(&self, id: TxId) -> bool {
        txdir::alive(&self.path.join(Self::tx_path(id)))
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
    let failed = |error: io::Error| {
        let reason = format!("the state directory cannot be created: {error}");
        let remedy = "set TXOS_STATE to a place where you may make one";
        StoreError::refused(path, reason, remedy)
    };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(above)
                .and_then(|()| DirBuilder::new().mode(0o700).create(path))
                .map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn check_owner(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path)
        .map_err(|error| StoreError::std("examine the state directory", path, &error))?;
    let me = rustix::process::geteuid().as_raw();
    let remedy = "name another directory in TXOS_STATE";
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
            "use the version of txos, and the privilege (root that may mount, or a user), that made it, or name another directory in TXOS_STATE",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Another process may be at the same, now or a moment ago.
            let mut others = fs::read_dir(path)
                .map_err(|error| StoreError::std("read", path, &error))?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .filter(|name| !name.starts_with(ASIDE));
            if others.next().is_some() {
                if file.exists() {
                    return check_format(path, privilege);
                }
                let remedy = "give an empty directory, or none yet made";
                return Err(StoreError::refused(path, "is not a state directory of txos", remedy));
            }
            // Written aside first: a crash leaves the whole file or none.
            let aside = path.join(format!("{ASIDE}{}", std::process::id()));
            fs::write(&aside, expected)
                .and_then(|()| fs::rename(&aside, &file))
                .map_err(|error| StoreError::std("write", &file, &error))
        }
        Err(error) => Err(StoreError::std("read", &file, &error)),
    }
}

/// What was flushed and what a reboot made void is told by the boot's id.
fn require_boot_id(id: [u8; 16]) -> Result<()> {
    if id == [0; 16] {
        let path = "/proc/sys/kernel/random/boot_id";
        let reason = "it cannot be read, and without it this boot cannot be told from another";
        return Err(StoreError::refused(path, reason, "mount /proc"));
    }
    Ok(())
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
