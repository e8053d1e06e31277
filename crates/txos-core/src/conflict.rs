use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::Facet;

/// What was found where the workset remembers something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seen {
    /// The name was absent when the transaction looked, and is bound now.
    Created,
    /// The name was bound, and is absent now.
    Removed,
    /// The name is bound to another object.
    Replaced,
    /// The same object shows another version of the facet.
    Changed,
    /// Another transaction has a lock on it, and waits for one of this transaction's.
    Locked,
    /// It can no longer be examined (the cause is in [`Conflict::detail`]).
    Unreadable,
}

/// One facet that the transaction read and that someone has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// The object, as an absolute path of the stable system.
    pub path: PathBuf,
    /// Which facet of it.
    pub facet: Facet,
    /// What happened to it.
    pub seen: Seen,
    /// More, where there is more to say; may be empty.
    pub detail: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.seen {
            Seen::Created => "was created",
            Seen::Removed => "was removed",
            Seen::Replaced => "was replaced",
            Seen::Changed => "changed",
            Seen::Locked => "is locked",
            Seen::Unreadable => "cannot be examined any more",
        };
        write!(f, "{}: {} {what}", self.path.display(), self.facet)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        Ok(())
    }
}
