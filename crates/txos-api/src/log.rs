//! The changes of a transaction, in the order in which they were asked for.
//!
//! The store plans and applies them one after the other as the system calls of their names, all or
//! nothing. Paths are those that hold at that place in the order, free of symbolic links as far as
//! the transaction has followed them.

use std::{
    ffi::{CString, OsString},
    path::{Path, PathBuf},
};

use txos_core::Stamp;
use txos_store::SmallOp;

/// What is done to the object of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Write { offset: u64, bytes: Vec<u8> },
    Replace { bytes: Vec<u8> },
    Append { bytes: Vec<u8> },
    Truncate { size: u64 },
    Create { mode: u32, bytes: Vec<u8> },
    CreateDir { mode: u32 },
    Symlink { target: OsString },
    Link { to: PathBuf },
    Rename { to: PathBuf, replace: bool },
    Remove,
    RemoveDir,
    SetMode { mode: u32 },
    SetOwner { uid: Option<u32>, gid: Option<u32> },
    SetXattr { name: CString, value: Option<Vec<u8>> },
    SetTimes { atime: Option<Stamp>, mtime: Option<Stamp> },
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub path: PathBuf,
    pub deed: Deed,
}

/// The changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Vec<Change>);

impl Log {
    /// Adds a change. What a change to the same file right before it makes superfluous is merged
    /// with that one.
    pub(crate) fn push(&mut self, path: PathBuf, deed: Deed) {
        if let Some(last) = self.0.last_mut()
            && last.path == path
            && merge(&mut last.deed, &deed)
        {
            return;
        }
        self.0.push(Change { path, deed });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of the change with this number.
    pub(crate) fn path(&self, index: usize) -> Option<&Path> {
        self.0.get(index).map(|change| change.path.as_path())
    }

    /// As the store takes them.
    pub(crate) fn operations(&self) -> Vec<SmallOp<'_>> {
        self.0.iter().map(operation).collect()
    }
}

/// Lets `last` do what `next` does too, if that is simple.
fn merge(last: &mut Deed, next: &Deed) -> bool {
    match (last, next) {
        (
            Deed::Append { bytes } | Deed::Replace { bytes } | Deed::Create { bytes, .. },
            Deed::Append { bytes: more },
        ) => bytes.extend_from_slice(more),
        (Deed::Replace { bytes } | Deed::Create { bytes, .. }, Deed::Replace { bytes: other }) => {
            bytes.clone_from(other);
        }
        (Deed::Write { offset, bytes }, Deed::Write { offset: next, bytes: more })
            if *offset + bytes.len() as u64 == *next =>
        {
            bytes.extend_from_slice(more);
        }
        _ => return false,
    }
    true
}

fn operation(change: &Change) -> SmallOp<'_> {
    let path = change.path.as_path();
    match &change.deed {
        Deed::Write { offset, bytes } => SmallOp::Write { path, offset: *offset, bytes },
        Deed::Replace { bytes } => SmallOp::Replace { path, bytes },
        Deed::Append { bytes } => SmallOp::Append { path, bytes },
        Deed::Truncate { size } => SmallOp::Truncate { path, size: *size },
        Deed::Create { mode, bytes } => SmallOp::Create { path, bytes, mode: *mode },
        Deed::CreateDir { mode } => SmallOp::CreateDir { path, mode: *mode },
        Deed::Symlink { target } => SmallOp::Symlink { path, target: Path::new(target) },
        Deed::Link { to } => SmallOp::Link { from: path, to },
        Deed::Rename { to, replace } => SmallOp::Rename { from: path, to, replace: *replace },
        Deed::Remove => SmallOp::Remove { path },
        Deed::RemoveDir => SmallOp::RemoveDir { path },
        Deed::SetMode { mode } => SmallOp::SetMode { path, mode: *mode },
        Deed::SetOwner { uid, gid } => SmallOp::SetOwner { path, uid: *uid, gid: *gid },
        Deed::SetXattr { name, value } => SmallOp::SetXattr { path, name, value: value.as_deref() },
        Deed::SetTimes { atime, mtime } => SmallOp::SetTimes { path, atime: *atime, mtime: *mtime },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(deeds: &[Deed]) -> Vec<Deed> {
        let mut log = Log::default();
        for deed in deeds {
            log.push("/f".into(), deed.clone());
        }
        log.0.into_iter().map(|change| change.deed).collect()
    }

    #[test]
    fn changes_in_a_row_are_merged_where_nothing_is_lost_by_it() {
        let append = |bytes: &[u8]| Deed::Append { bytes: bytes.to_vec() };
        assert_eq!(log(&[append(b"a"), append(b"b")]), [append(b"ab")]);
        let write = |offset, bytes: &[u8]| Deed::Write { offset, bytes: bytes.to_vec() };
        assert_eq!(log(&[write(4, b"ab"), write(6, b"c")]), [write(4, b"abc")]);
        assert_eq!(log(&[write(4, b"ab"), write(7, b"c")]).len(), 2);
        let replace = |bytes: &[u8]| Deed::Replace { bytes: bytes.to_vec() };
        assert_eq!(log(&[replace(b"abc"), replace(b"x"), append(b"y")]), [replace(b"xy")]);
        assert_eq!(log(&[append(b"a"), replace(b"x")]).len(), 2);
    }
}
