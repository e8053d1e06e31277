use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// A failure to make the view or to talk to the processes in it.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A step of making the view failed.
    #[error("cannot {step}: {errno}{}", advice(.remedy))]
    Step {
        /// What was tried, as a verb and its object.
        step: String,
        /// Why it failed.
        errno: Errno,
        /// What to do about it; empty where nothing is known.
        remedy: &'static str,
    },
    /// A mount failed.
    #[error("cannot mount {what} at {}: {errno}{}", at.display(), advice(.remedy))]
    Mount {
        /// What was to be mounted.
        what: String,
        /// Where.
        at: PathBuf,
        /// Why it failed.
        errno: Errno,
        /// What to do about it; empty where nothing is known.
        remedy: &'static str,
    },
    /// The mount table could not be read.
    #[error(transparent)]
    Host(#[from] txos_host::HostError),
    /// A message between manager and view was not understood.
    #[error("unexpected message between manager and view: {0}")]
    Message(String),
    /// The other side went away.
    #[error("the {0} ended unexpectedly")]
    Gone(&'static str),
}

/// The result of an operation on views.
pub type Result<T> = std::result::Result<T, ViewError>;

impl ViewError {
    pub(crate) fn step(step: impl Into<String>, errno: Errno) -> Self {
        ViewError::Step { step: step.into(), errno, remedy: "" }
    }

    pub(crate) fn mount(what: impl Into<String>, at: &Path, errno: Errno) -> Self {
        ViewError::Mount { what: what.into(), at: at.to_owned(), errno, remedy: "" }
    }

    pub(crate) fn with_remedy(self, text: &'static str) -> Self {
        match self {
            ViewError::Step { step, errno, .. } => ViewError::Step { step, errno, remedy: text },
            ViewError::Mount { what, at, errno, .. } => {
                ViewError::Mount { what, at, errno, remedy: text }
            }
            other => other,
        }
    }
}

fn advice(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}
