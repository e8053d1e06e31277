//! Who pauses which group: pauses are counted by locks that the kernel keeps.
//!
//! # Invariants
//!
//! - For each group that is or was paused there is one file, named by the group's number. Each pause
//!   holds a shared `flock(2)` on it, by one open file that txos and its watchdogs share: the lock
//!   lasts as long as the longest-lived of them, or until one of them ends the pause for all.
//! - The file says whether the group is frozen by us (`ours`), and whether somebody else had frozen
//!   it before (`foreign`). It is changed only by who holds the guard and finds no other lock.
//! - `ours` is written before the group is frozen and cleared after it was thawed. So a file that
//!   says `ours` and has no lock is what the dead have left.
//! - A group is frozen under the guard, and only while its file says `ours`: a pause whose limit was
//!   over before it froze anything freezes nothing any more.
//! - The guard is held for a few system calls, by processes that are never in a domain. Whoever ends
//!   a pause waits for it for a short time only, and then goes on without: a domain that is thawed
//!   too early is a fault of isolation, one that is never thawed is worse.
//!
//! The directory belongs to one user and is closed to others: a lock held by a stranger would keep
//! a domain frozen.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use crate::{
    DomainError, Group, Result,
    error::errno_of,
    group::{ask, asked},
};

/// So long the end of a pause waits for the guard.
const PATIENCE: Duration = Duration::from_millis(20);
/// So long a sweep does, which is in no hurry.
const SWEEP_PATIENCE: Duration = Duration::from_secs(10);

/// What is kept of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    ours: bool,
    foreign: bool,
}

/// The directory with a file for each group.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    dir: PathBuf,
}

/// One pause of one group.
#[derive(Debug)]
pub(crate) struct Claim {
    file: File,
}

impl Ledger {
    /// Opens the ledger of the calling user, making it if it is missing: `/run/txos` for root, else
    /// `$XDG_RUNTIME_DIR/txos`.
    ///
    /// # Errors
    /// If there is no such place, or it belongs to somebody else, or others may enter it.
    pub(crate) fn open_own() -> Result<Ledger> {
        Ledger::open(&Ledger::place()?)
    }

    fn place() -> Result<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/run/txos"));
        }
        let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let dir = dir.filter(|dir| dir.is_absolute()).ok_or(DomainError::Unavailable {
            reason: "XDG_RUNTIME_DIR is not set".to_owned(),
            remedy: "log in so that the session has a runtime directory, or set it",
        })?;
        Ok(dir.join("txos"))
    }

    /// Opens the ledger at `dir`.
    ///
    /// # Errors
    /// As [`Ledger::open_own`].
    pub(crate) fn open(dir: &Path) -> Result<Ledger> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(DomainError::std("make the directory", dir, &error));
            }
            _ => {}
        }
        let meta =
            fs::symlink_metadata(dir).map_err(|error| DomainError::std("examine", dir, &error))?;
        let me = rustix::process::geteuid().as_raw();
        if !meta.is_dir() || meta.uid() != me || meta.mode() & 0o077 != 0 {
            return Err(DomainError::Unavailable {
                reason: format!("{} is not a directory of this user alone", dir.display()),
                remedy: "remove it, or see who made it",
            });
        }
        Ok(Ledger { dir: dir.to_owned() })
    }

    /// Counts a pause of a group that is about to be frozen.
    ///
    /// # Errors
    /// If the group is gone, or the guard is not had within `patience`. Nothing is counted then.
    pub(crate) fn enter(&self, group: &Group, patience: Duration) -> Result<Claim> {
        let Some(_guard) = self.guard(patience)? else {
            return Err(DomainError::io("lock", self.dir.join("guard"), Errno::TIMEDOUT));
        };
        let path = self.dir.join(group.id().to_string());
        let failed = |errno| DomainError::io("lock", &path, errno);
        let file = open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let before = read(&file);
                let foreign = group.freeze_asked()? && (!before.ours || before.foreign);
                let entry = Entry { path: group.path().to_owned(), ours: true, foreign };
                write(&file, &entry).map_err(|error| DomainError::std("write", &path, &error))?;
            }
            Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(failed(errno)),
        }
        flock(&file, FlockOperation::NonBlockingLockShared).map_err(failed)?;
        Ok(Claim { file })
    }

    /// Asks for the freeze of a group, unless its pause has been ended by the watchdog; gives whether
    /// it was asked for.
    ///
    /// # Errors
    /// If the group is gone, or the guard is not had within `patience`.
    pub(crate) fn freeze(&self, claim: &Claim, group: &Group, patience: Duration) -> Result<bool> {
        let Some(_guard) = self.guard(patience)? else { return Ok(false) };
        if !read(&claim.file).ours {
            return Ok(false);
        }
        group.ask_freeze(true)?;
        // Whoever ends a pause does not wait for the guard for ever.
        if !read(&claim.file).ours {
            group.ask_freeze(false)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Thaws a group whose pause was ended before, if it is frozen all the same and not by others: its
    /// txos has died, perhaps in the middle of a freeze.
    pub(crate) fn make_sure(&self, claim: &Claim, freeze: impl AsFd) {
        let _guard = self.guard(PATIENCE).ok().flatten();
        if flock(&claim.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let entry = read(&claim.file);
            if !entry.ours && !entry.foreign && asked(&freeze) == Ok(true) {
                let _ = ask(&freeze, false);
            }
            let _ = flock(&claim.file, FlockOperation::Unlock);
        }
    }

    /// Ends a pause, and thaws the group if no other pause of it is left. Ending it once more does
    /// nothing.
    pub(crate) fn leave(&self, claim: &Claim, freeze: impl AsFd) {
        let _guard = self.guard(PATIENCE).ok().flatten();
        let _ = flock(&claim.file, FlockOperation::Unlock);
        if flock(&claim.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What could not be thawed stays noted as ours, for the next sweep.
            let _ = thaw(&claim.file, freeze);
            let _ = flock(&claim.file, FlockOperation::Unlock);
        }
    }

    /// The guard, once it is free; `None` if it is not within `patience`.
    fn guard(&self, patience: Duration) -> Result<Option<File>> {
        let path = self.dir.join("guard");
        let file = open(&path)?;
        let deadline = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    thread::sleep(Duration::from_micros(50));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
                Err(errno) => return Err(DomainError::io("lock", &path, errno)),
            }
        }
    }

    fn sweep(&self) -> Result<Vec<PathBuf>> {
        let mut thawed = Vec::new();
        let entries =
            fs::read_dir(&self.dir).map_err(|error| DomainError::std("read", &self.dir, &error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let id = path.file_name().and_then(|name| name.to_str()?.parse::<u64>().ok());
            let Some(id) = id else { continue };
            let Some(_guard) = self.guard(SWEEP_PATIENCE)? else {
                return Err(DomainError::io("lock", self.dir.join("guard"), Errno::TIMEDOUT));
            };
            let file = open(&path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Somebody pauses it now.
                Err(Errno::WOULDBLOCK) => continue,
                Err(errno) => return Err(DomainError::io("lock", &path, errno)),
            }
            let entry = read(&file);
            match Group::open(&entry.path) {
                Ok(group) if group.id() == id => {
                    thaw(&file, group.freeze_fd())
                        .map_err(|errno| DomainError::io("thaw", &entry.path, errno))?;
                    if entry.ours && !entry.foreign {
                        thawed.push(entry.path.clone());
                    }
                }
                Err(DomainError::Io { errno, .. }) if !is_gone(errno) => {
                    return Err(DomainError::io("open", &entry.path, errno));
                }
                _ => drop(fs::remove_file(&path)),
            }
        }
        Ok(thawed)
    }
}

impl Claim {
    /// The lock, to be shared with a watchdog.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The pause that another process has shared.
    pub(crate) fn shared(fd: std::os::fd::OwnedFd) -> Claim {
        Claim { file: fd.into() }
    }
}

/// Ends pauses whose txos and watchdogs have all died; gives the groups that were thawed. A place
/// that was never used has none.
///
/// # Errors
/// If the ledger cannot be read.
pub fn sweep() -> Result<Vec<PathBuf>> {
    let place = Ledger::place()?;
    if !place.exists() {
        return Ok(Vec::new());
    }
    Ledger::open(&place)?.sweep()
}

/// Thaws a group that no pause is left of. The caller holds the file's lock.
///
/// # Errors
/// If it cannot be thawed, and is not gone: it stays noted as frozen by us then.
fn thaw(file: &File, freeze: impl AsFd) -> Result<(), Errno> {
    let entry = read(file);
    if !entry.ours {
        return Ok(());
    }
    if !entry.foreign && asked(&freeze) != Ok(false) {
        match ask(&freeze, false) {
            Err(errno) if !is_gone(errno) => return Err(errno),
            _ => {}
        }
    }
    write(file, &Entry { ours: false, ..entry }).map_err(|error| errno_of(&error))
}

/// Whether a call on a group's file says that the group was removed.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NODEV)
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| DomainError::std("open", path, &error))
}

/// What the file says; that nothing is known, where a crash of the system cut it short.
fn read(mut file: &File) -> Entry {
    let mut text = Vec::new();
    let begin = io::Seek::rewind(&mut file);
    match begin.and_then(|()| file.read_to_end(&mut text)) {
        Ok(_) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => Entry::default(),
    }
}

fn write(file: &File, entry: &Entry) -> io::Result<()> {
    let mut text = serde_json::to_vec(entry).unwrap_or_default();
    // Overwritten in one call and padded with blanks, never cut short first.
    let old = file.metadata()?.len() as usize;
    text.resize(text.len().max(old), b' ');
    file.write_all_at(&text, 0)
}
