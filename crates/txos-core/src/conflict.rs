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
    /// More, where there is more to say.
    pub detail: Detail,
}

/// What more there is to say of a conflict. Written as a text, which is empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Detail {
    /// Nothing.
    #[default]
    None,
    /// Nobody but the capture itself is known to have read the object: a retry in which it reads nothing
    /// ahead may well not meet it.
    ReadAhead,
    /// It was this process, which is in no transaction.
    By(String),
    /// It was another transaction: which, and what it did. Begins with [`RIVAL`].
    Rival(String),
    /// This.
    Said(String),
}

const READ_AHEAD: &str = "only read ahead; a retry without that does not depend on it";
const BY: &str = "by ";
/// What the text of each transaction begins with.
pub const RIVAL: &str = "transaction ";

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Detail::None => Ok(()),
            Detail::ReadAhead => f.write_str(READ_AHEAD),
            Detail::By(process) => write!(f, "{BY}{process}"),
            Detail::Rival(text) | Detail::Said(text) => f.write_str(text),
        }
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Detail {
        match text.as_str() {
            "" => Detail::None,
            READ_AHEAD => Detail::ReadAhead,
            _ if text.starts_with(RIVAL) => Detail::Rival(text),
            _ => match text.strip_prefix(BY) {
                Some(process) => Detail::By(process.to_owned()),
                None => Detail::Said(text),
            },
        }
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Detail {
        text.to_owned().into()
    }
}

impl From<Detail> for String {
    fn from(detail: Detail) -> String {
        detail.to_string()
    }
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
        match &self.detail {
            Detail::None => Ok(()),
            detail => write!(f, " ({detail})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_written_as_texts_and_read_again() {
        let by = Detail::By("process 3".to_owned());
        let rival = Detail::Rival("transaction 7 writes it".to_owned());
        let said = Detail::Said("no such device".to_owned());
        for detail in [Detail::None, Detail::ReadAhead, by, rival, said] {
            assert_eq!(Detail::from(String::from(detail.clone())), detail);
        }
    }
}
