use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::io::Errno;

/// Why a domain could not be used. Nothing stays frozen after any of these.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    /// The name cannot be the name of a domain.
    #[error(
        "{0:?} is no name for a domain: letters, digits, - and _, at most 64, and neither \
         \"system\" nor \"none\""
    )]
    Name(String),
    /// This machine, or this user, has no control groups to make a domain of.
    #[error("domains are not available here: {reason}; {remedy}")]
    Unavailable {
        /// What is missing.
        reason: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// There is no domain of this name, or it was removed while it was in use.
    #[error("there is no domain {0:?} any more or yet: see txos domain list, txos domain create")]
    Gone(String),
    /// The domain is there already.
    #[error("there is a domain {0:?} already")]
    Exists(String),
    /// The domain still has processes.
    #[error("domain {name:?} has {count} process(es): end them, or take them out of it first")]
    Busy {
        /// Its name.
        name: String,
        /// How many processes it has.
        count: usize,
    },
    /// A member must not be frozen.
    #[error("the domain {name:?} cannot be paused: {reason}")]
    Obstacle {
        /// The domain.
        name: String,
        /// Which process, why, and what to do.
        reason: String,
    },
    /// Not everything stood still in time.
    #[error(
        "the domain did not stand still within {limit:?}, in {tries} attempts{}; try again, or \
         give it more time with --pause-limit",
        .who.as_ref().map(|who| format!(" ({who})")).unwrap_or_default()
    )]
    NotFrozen {
        /// The limit of each attempt.
        limit: Duration,
        /// How many attempts there were.
        tries: u32,
        /// Who did not, where that is known.
        who: Option<String>,
    },
    /// The limit was over before the commit was decided; the domain runs again.
    #[error(
        "the commit was not decided within the pause limit of {0:?}; give it more time with \
         --pause-limit"
    )]
    Expired(Duration),
    /// The watchdog cannot be started, or died, or does not answer. Without it nothing is frozen.
    #[error("the watchdog of the pause {0}; nothing was frozen, try again")]
    Watchdog(String),
    /// A process could not be moved into a group.
    #[error("cannot move process {pid} to {}: {errno}; {}", .group.display(), move_remedy(*.errno))]
    Move {
        /// The process.
        pid: u32,
        /// Where to.
        group: PathBuf,
        /// What the kernel says.
        errno: Errno,
    },
    /// A file of the hierarchy, or of the ledger, could not be used.
    #[error("cannot {action} {}: {errno}", .path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it failed.
        errno: Errno,
    },
}

/// The result of a call of this crate.
pub type Result<T, E = DomainError> = std::result::Result<T, E>;

impl DomainError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, errno: Errno) -> Self {
        DomainError::Io { action, path: path.as_ref().to_owned(), errno }
    }

    pub(crate) fn std(action: &'static str, path: impl AsRef<Path>, error: &io::Error) -> Self {
        Self::io(action, path, errno_of(error))
    }
}

pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn move_remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::SRCH => "it has ended",
        Errno::ACCESS | Errno::PERM => {
            "a user can only move processes within a subtree that was delegated to him; start it \
             with txos domain exec in such a subtree (systemd-run --user --scope -p Delegate=yes)"
        }
        Errno::BUSY | Errno::OPNOTSUPP => "the group has controllers or is of a threaded kind",
        Errno::NODEV | Errno::NOENT => "the group is gone",
        _ => "see dmesg",
    }
}
