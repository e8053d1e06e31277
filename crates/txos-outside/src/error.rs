use rustix::io::Errno;

/// Why changes by outsiders are not reported. A transaction runs all the same: they are found when
/// it commits.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// The kernel does not grant what is needed.
    #[error(
        "changes by others cannot be watched ({action}: {errno}); run txos as root, on Linux 5.17 or newer"
    )]
    NotGranted {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        errno: Errno,
    },
    /// No file system could be marked.
    #[error("changes by others cannot be watched: no file system takes marks")]
    NoFileSystem,
    /// The mount table could not be read.
    #[error(transparent)]
    Host(#[from] txos_host::HostError),
    /// The reading thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl OutsideError {
    /// Whether what failed may be granted later: the machine was short of something.
    pub fn may_pass(&self) -> bool {
        match self {
            OutsideError::NotGranted { errno, .. } => matches!(
                *errno,
                Errno::MFILE
                    | Errno::NFILE
                    | Errno::NOMEM
                    | Errno::NOBUFS
                    | Errno::NOSPC
                    | Errno::AGAIN
            ),
            OutsideError::NoFileSystem => false,
            OutsideError::Host(_) | OutsideError::Thread(_) => true,
        }
    }
}

/// The result of a call of this crate.
pub type Result<T, E = OutsideError> = std::result::Result<T, E>;
