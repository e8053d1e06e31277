use std::{io, path::PathBuf};

use rustix::io::Errno;
use txos_core::Conflict;
use txos_host::HostError;
use txos_store::StoreError;

/// Why a call of a transaction, or its commit, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the transaction has read was changed by someone else before it could commit. Nothing
    /// was changed; [`crate::transaction`] runs the closure again by itself.
    #[error("{} object(s) changed since the transaction read them, first {}", .0.len(), first(.0))]
    Conflict(Vec<Conflict>),
    /// The closure lost so many times that it was not run again.
    #[error("lost {attempts} times to changes by others, last to {}; try again later, or with more retries", first(.last))]
    Retries {
        /// How often it ran.
        attempts: u32,
        /// What was changed the last time.
        last: Vec<Conflict>,
    },
    /// A call failed as the system call of its name would have.
    #[error("cannot {action} {}: {}", path.display(), io::Error::from_raw_os_error(errno.raw_os_error()))]
    Os {
        /// What was asked for, as a verb ("read", "rename").
        action: &'static str,
        /// The path, as it was given.
        path: PathBuf,
        /// The error number of `errno(3)`.
        errno: Errno,
    },
    /// The transaction cannot be committed, or the state directory cannot be used.
    #[error(transparent)]
    Store(StoreError),
    /// The stable system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The caller's own: it aborts the transaction and comes back as it is.
    #[error("{0}")]
    Aborted(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of a call of a transaction.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn first(conflicts: &[Conflict]) -> String {
    conflicts.first().map(Conflict::to_string).unwrap_or_default()
}

impl Error {
    /// An error of the caller that aborts the transaction.
    pub fn abort(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Error::Aborted(error.into())
    }

    /// The error number, where a system call of that name would have had one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Os { errno, .. } | Error::Store(StoreError::Io { errno, .. }) => Some(*errno),
            Error::Host(error) => error.errno(),
            Error::Store(StoreError::NoSpace { .. }) => Some(Errno::NOSPC),
            _ => None,
        }
    }

    /// Whether running the transaction again may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict(_) | Error::Retries { .. })
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict(conflicts) => Error::Conflict(conflicts),
            other => Error::Store(other),
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(errno) => io::Error::from_raw_os_error(errno.raw_os_error()),
            None => io::Error::other(error),
        }
    }
}
