use std::path::{Path, PathBuf};

use rustix::io::Errno;
use txos_core::Conflict;
use txos_host::HostError;

use crate::{names::shown, state::Holder};

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Someone outside changed what the transaction read or is about to write. Nothing was
    /// applied; running the transaction again may succeed.
    #[error("{} object(s) changed since the transaction read them, first {}", .0.len(), first(.0))]
    Conflict(Vec<Conflict>),
    /// The delta, or the state directory, is such that txos will not go on. Nothing was applied.
    #[error("{}: {reason}; {remedy}", shown(path))]
    Refused {
        /// The object.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What the user can do.
        remedy: String,
    },
    /// A file system has not enough space. Nothing was applied.
    #[error("{}: no space left{}; free some on that file system and try again", shown(path), needs(*needed))]
    NoSpace {
        /// An object on the file system that is full.
        path: PathBuf,
        /// How many bytes are needed, or 0 where that is not known.
        needed: u64,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {errno}", shown(path))]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The object.
        path: PathBuf,
        /// Why it failed.
        errno: Errno,
    },
    /// A file of the state directory is damaged in a way that a crash does not explain.
    #[error("{} is damaged ({detail}); {remedy}", shown(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
        /// What the user can do.
        remedy: String,
    },
    /// Another process holds the state directory.
    #[error("the state directory is in use by {0}")]
    Busy(Box<Holder>),
    /// The caller gave up waiting.
    #[error("gave up waiting for {0}")]
    Cancelled(Box<Holder>),
    /// The transaction is committed, but applying it could not be finished.
    #[error("the transaction is committed but not wholly applied: {cause}; run txos recover")]
    Unfinished {
        /// Why.
        cause: Box<StoreError>,
    },
    /// The domain could not be made to stand still, or not for long enough. Nothing was applied.
    #[error("{0}")]
    Domain(String),
    /// An operation of a small commit would fail. Nothing was done.
    #[error("{}: operation {index}: {errno}", shown(path))]
    Operation {
        /// Which, counted from 0.
        index: usize,
        /// What it is about.
        path: PathBuf,
        /// What its system call would give.
        errno: Errno,
    },
    /// The disk failed while the transaction was decided, and only a recovery can tell how.
    #[error(
        "{}: the flush of the commit record failed ({errno}), and so did taking it back: \
             whether the transaction is committed, txos recover tells",
        shown(path)
    )]
    Undecided {
        /// The journal.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The stable system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The result of a call of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

fn first(conflicts: &[Conflict]) -> String {
    conflicts.first().map(Conflict::to_string).unwrap_or_default()
}

fn needs(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(" ({bytes} bytes are needed)") }
}

impl StoreError {
    /// A refusal to go on because of `path`.
    pub fn refused(
        path: impl AsRef<Path>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let path = path.as_ref().to_owned();
        StoreError::Refused { path, reason: reason.into(), remedy: remedy.into() }
    }

    /// A failed call; a full disk or quota is told apart.
    pub fn io(action: &'static str, path: impl AsRef<Path>, errno: Errno) -> Self {
        let path = path.as_ref().to_owned();
        match errno {
            Errno::NOSPC | Errno::DQUOT => StoreError::NoSpace { path, needed: 0 },
            errno => StoreError::Io { action, path, errno },
        }
    }

    /// A failed call of the standard library.
    pub fn std(action: &'static str, path: impl AsRef<Path>, error: &std::io::Error) -> Self {
        Self::io(action, path, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// A damaged file of the state directory.
    pub fn damaged(
        path: impl AsRef<Path>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let path = path.as_ref().to_owned();
        StoreError::Damaged { path, detail: detail.into(), remedy: remedy.into() }
    }
}
