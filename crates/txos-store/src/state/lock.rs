//! Who may change the state directory.
//!
//! # Which lock is held for what
//!
//! | lock | what it guards | held |
//! |---|---|---|
//! | `lock` | recovery; and validation, journal and apply of one commit | for a commit |
//! | `tx` (the directory) | ids, and which transactions there are | for a system call or ten |
//! | `tx/ID/lock` | that the transaction is alive | as long as it is |
//!
//! They are taken in this order. All three are flock(2)s: they end with the last process that holds
//! them, so that what a crash left has no holder.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::Read,
    ops::ControlFlow,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags, flock, openat},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use txos_core::TxId;

use super::{StateDir, overwrite_open};
use crate::{Result, StoreError, names};

/// Pauses between two attempts to take the lock of a commit.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Who holds the lock of a state directory, as the holder says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its transaction, once it has one.
    pub id: Option<TxId>,
    /// Its process id.
    pub pid: u32,
    /// What it runs.
    pub command: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "transaction {id}")?,
            None => f.write_str("txos")?,
        }
        if self.pid != 0 {
            write!(f, " (process {})", self.pid)?;
        }
        if !self.command.is_empty() {
            write!(f, ": {}", names::escape(self.command.as_bytes()))?;
        }
        Ok(())
    }
}

/// The exclusive lock of a state directory, held until it is dropped or its last process ends.
///
/// A child that is forked without an exec holds it too: as long as a part of a transaction lives,
/// the transaction is not taken for dead.
#[derive(Debug)]
pub struct ExclusiveLock {
    file: File,
    holder: Holder,
}

impl ExclusiveLock {
    /// Says for which transaction the lock is held now.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn set_transaction(&mut self, id: Option<TxId>) -> Result<()> {
        self.holder.id = id;
        self.announce()
    }

    fn announce(&mut self) -> Result<()> {
        let text = serde_json::to_vec(&self.holder).unwrap_or_default();
        overwrite_open(&self.file, &text)
            .map_err(|error| StoreError::std("write", "the lock file", &error))
    }
}

impl StateDir {
    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] with the holder if someone does.
    pub fn try_lock(&self, command: &str) -> Result<ExclusiveLock> {
        let path = self.path.join("lock");
        let mut file = open_lock(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // A holder that is just announcing itself is anonymous for a moment.
                let _ = file.read_to_string(&mut text);
                let holder = serde_json::from_str(&text).unwrap_or_default();
                return Err(StoreError::Busy(Box::new(holder)));
            }
            Err(errno) => return Err(StoreError::io("lock", &path, errno)),
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let pid = std::process::id();
        let holder = Holder { id: None, pid, command: command.to_owned(), since };
        let mut lock = ExclusiveLock { file, holder };
        lock.announce()?;
        Ok(lock)
    }

    /// Takes the lock, waiting for its holder: some milliseconds as a rule, the time of a commit.
    /// `waiting` is called at once when someone holds it and then again and again, at least ten
    /// times a second, and ends the wait by `Break`.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`] if `waiting` ended the wait; otherwise as [`StateDir::try_lock`].
    pub fn lock_exclusive(
        &self,
        command: &str,
        mut waiting: impl FnMut(&Holder) -> ControlFlow<()>,
    ) -> Result<ExclusiveLock> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_lock(command) {
                Err(StoreError::Busy(holder)) => {
                    if waiting(&holder).is_break() {
                        return Err(StoreError::Cancelled(holder));
                    }
                }
                other => return other,
            }
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Takes the lock on the table of transactions, waiting for it: whoever holds it lets go after
    /// a few system calls.
    pub(crate) fn table(&self) -> Result<OwnedFd> {
        let table = self.tree().dir(Path::new("tx"))?;
        let table = openat(&table, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let failed = |errno| StoreError::io("lock", self.path.join("tx"), errno);
        let table = table.map_err(failed)?;
        wait_for(&table, FlockOperation::LockExclusive).map_err(failed)?;
        Ok(table)
    }
}

/// flock(2), again after each signal.
pub(super) fn wait_for(file: impl AsFd, operation: FlockOperation) -> Result<(), Errno> {
    loop {
        match flock(&file, operation) {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

pub(super) fn open_lock(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|error| StoreError::std("open", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Privilege;

    #[test]
    fn the_second_learns_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
        let mut first = state.try_lock("make install").unwrap();
        first.set_transaction(Some(TxId(7))).unwrap();
        let mut calls = 0;
        let error = state
            .lock_exclusive("other", |holder| {
                calls += 1;
                assert_eq!((holder.id, holder.pid), (Some(TxId(7)), std::process::id()));
                assert_eq!(holder.command, "make install");
                if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap_err();
        assert!(matches!(error, StoreError::Cancelled(_)));
        drop(first);
        state.try_lock("third").unwrap();
    }
}
