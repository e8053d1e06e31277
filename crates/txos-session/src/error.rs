use rustix::io::Errno;
use txos_capture::CaptureError;
use txos_host::HostError;
use txos_store::StoreError;
use txos_view::ViewError;

/// Why a session could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A view could not be made.
    #[error(transparent)]
    View(#[from] ViewError),
    /// Its reads could not be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The state directory cannot be used, or a commit failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stable system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A step failed.
    #[error("cannot {action}: {errno}")]
    Step {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        errno: Errno,
    },
    /// A thread of the session failed.
    #[error("a thread of the session ended unexpectedly; this is a defect of txos")]
    Panicked,
}

/// The result of a call of the session.
pub type Result<T, E = SessionError> = std::result::Result<T, E>;

impl SessionError {
    pub(crate) fn step(action: &'static str) -> impl FnOnce(Errno) -> SessionError {
        move |errno| SessionError::Step { action, errno }
    }

    /// The error number that a program is told.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            SessionError::View(ViewError::Step { errno, .. } | ViewError::Mount { errno, .. })
            | SessionError::Step { errno, .. }
            | SessionError::Store(StoreError::Io { errno, .. }) => *errno,
            SessionError::Store(StoreError::NoSpace { .. }) => Errno::NOSPC,
            SessionError::Store(StoreError::Refused { .. }) => Errno::PERM,
            _ => Errno::IO,
        }
    }
}
