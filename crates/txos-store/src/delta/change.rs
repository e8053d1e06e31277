use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use txos_core::{FileKind, Stamp};

use crate::names;

/// One object that a transaction changes, or one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The name, as an absolute path. In JSON, names are text in which a backslash is `\\` and each
    /// byte of a control character or of anything that is not UTF-8 is `\xHH`.
    #[serde(with = "names::path")]
    pub path: PathBuf,
    /// What happens to it.
    #[serde(flatten)]
    pub kind: ChangeKind,
    /// The type of the object (of the new one, where there are two).
    pub object: FileKind,
    /// Size in bytes before, if there was a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size_before: Option<u64>,
    /// Size in bytes after, if there will be a file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size_after: Option<u64>,
    /// Attributes that change, of an object that stays the same.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub attrs: Vec<AttrChange>,
}

/// What happens to a name or an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "lowercase")]
pub enum ChangeKind {
    /// A name that was not there, bound to a new object.
    Created,
    /// The same object with other content.
    Modified,
    /// A name bound to another, new object.
    Replaced,
    /// A name that will not be there.
    Removed,
    /// A name bound to an object that had another name.
    Renamed {
        /// The name that it had.
        #[serde(with = "names::path")]
        from: PathBuf,
    },
    /// A further name of an object that keeps the ones it had.
    Linked {
        /// One of those.
        #[serde(with = "names::path")]
        to: PathBuf,
    },
    /// The same object with other attributes.
    Metadata,
}

/// An attribute that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "attr", rename_all = "lowercase")]
pub enum AttrChange {
    /// Permission bits.
    Mode {
        /// Before.
        before: u32,
        /// After.
        after: u32,
    },
    /// User and group.
    Owner {
        /// Before.
        before: (u32, u32),
        /// After.
        after: (u32, u32),
    },
    /// Time of the last change of the content.
    Modified {
        /// Before.
        before: Stamp,
        /// After.
        after: Stamp,
    },
    /// An extended attribute, by name; its values are not shown.
    Xattr {
        /// Its name, written as names are.
        name: String,
        /// Whether it will be there.
        set: bool,
    },
}
