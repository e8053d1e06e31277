//! What can go wrong, each naming the object and the remedy.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// seccomp(2) refused the filter for want of a right.
    #[error(
        "system call filter: permission denied; install it while the process still has \
         CAP_SYS_ADMIN in its user namespace, or set no_new_privs first"
    )]
    FilterDenied,
    /// A filter with a listener is there already.
    #[error(
        "system call filter: one with a listener is installed already; a transaction cannot be \
         started inside another one, start it outside"
    )]
    ListenerTaken,
    /// The child did not send its listener.
    #[error("listener of the system call filter: the child sent none (it ended too early?)")]
    NoListener,
    /// A retry would need input that was not recorded.
    #[error(
        "standard input: {bytes} bytes were fed, but recording them failed ({cause}), so they \
         cannot be fed again; free some space for {dir}, or give --no-retry"
    )]
    NotReplayable {
        /// Bytes that were fed before.
        bytes: u64,
        /// Why the record is not complete.
        cause: String,
        /// Where records spill to.
        dir: PathBuf,
    },
    /// Standard input, as a file, could not be opened in the view.
    #[error("standard input: {path} cannot be opened in the view: {error}; give it as a pipe")]
    Reopen {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A descriptor that is to be handed on was not inherited.
    #[error(
        "descriptor {0} cannot be handed on: it is not open, or closed on exec; open it in the shell, \
         as in `{0}>file`, and give numbers from 3 on"
    )]
    NotInherited(i32),
    /// A system call failed.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

impl Error {
    /// Wraps the error of a system call; for `map_err`.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |error| Error::System { what, error: error.into() }
    }
}
