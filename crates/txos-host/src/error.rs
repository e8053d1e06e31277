use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A failure to read the stable system.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A call on an object of the stable system failed.
    #[error("cannot {action} {}: {errno}", path.display())]
    Object {
        /// What was tried, as a verb ("open", "read the attributes of").
        action: &'static str,
        /// The object.
        path: PathBuf,
        /// Why it failed.
        errno: Errno,
    },
    /// The kernel's mount table has a line that is not in the format of `proc(5)`.
    #[error("cannot understand line {line:?} of /proc/self/mountinfo")]
    MountTable {
        /// The line.
        line: String,
    },
}

/// The result of reading the stable system.
pub type Result<T> = std::result::Result<T, HostError>;

impl HostError {
    /// An error of `action` on `path`.
    pub fn object(action: &'static str, path: impl AsRef<Path>, errno: Errno) -> Self {
        HostError::Object { action, path: path.as_ref().to_owned(), errno }
    }

    /// The error number, where a call failed.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            HostError::Object { errno, .. } => Some(*errno),
            HostError::MountTable { .. } => None,
        }
    }
}
