use rustix::io::Errno;
use txos_host::HostError;

/// A failure of capture itself.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The stable system could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The FUSE device failed.
    #[error(
        "cannot {action} the FUSE device: {errno}; check that /dev/fuse exists and the fuse module is loaded"
    )]
    Device {
        /// What was tried, as a verb.
        action: &'static str,
        /// Why it failed.
        errno: Errno,
    },
    /// A worker thread could not be started.
    #[error("cannot start a capture thread: {0}; raise the limit of processes (ulimit -u)")]
    Thread(std::io::Error),
    /// Worker threads did not come back from reading the stable system.
    #[error(
        "{threads} capture threads still wait for the stable system after {seconds} s; \
         look for a file system that does not answer"
    )]
    Stuck {
        /// How many.
        threads: usize,
        /// For how long they were waited for.
        seconds: u64,
    },
    /// The kernel can't be told to forget what a capture told it.
    #[error("cannot renew a capture: {0} (Linux 6.16 or later can)")]
    Forget(Errno),
    /// A worker thread panicked; what it captured may be incomplete.
    #[error("a capture thread failed; the transaction cannot be committed")]
    Panicked,
}

/// The result of capture.
pub type Result<T> = std::result::Result<T, CaptureError>;
