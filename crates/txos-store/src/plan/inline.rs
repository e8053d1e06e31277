use std::{ffi::CString, path::PathBuf};

use txos_core::Stamp;

use super::Ident;

/// Writes content in place, all of it in the record: nothing is staged.
///
/// Several patches of one file may be pending at once, as long as each leaves its size alone, or
/// each only appends: then every block on disk is as one of them left it, and the rest follows
/// ([`crate::apply`] folds them).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub area: u32,
    /// Original path.
    pub path: PathBuf,
    pub id: Ident,
    pub before_size: u64,
    pub after_size: u64,
    /// Ascending, each block once.
    pub blocks: Vec<PatchBlock>,
}

/// What becomes of one block. A hash is of 4096 bytes as the block reads in a file of the given
/// size, zeros behind its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PatchBlock {
    /// Which block.
    pub number: u64,
    /// Where in the block the new bytes begin.
    pub start: u32,
    pub bytes: Vec<u8>,
    /// Hash before, at the size before and at the size after.
    pub before: [u64; 2],
    /// Hash after, at the size before and at the size after.
    pub after: [u64; 2],
}

/// How a patch moves the size of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The size stays.
    Within,
    /// Bytes are added behind the old end, and no other is touched.
    Append,
    /// Anything else.
    Other,
}

impl Patch {
    pub(crate) fn shape(&self) -> Shape {
        let first =
            self.blocks.first().map(|block| block.number * super::BLOCK + u64::from(block.start));
        if self.before_size == self.after_size {
            Shape::Within
        } else if self.after_size > self.before_size
            && first.is_some_and(|first| first >= self.before_size)
        {
            Shape::Append
        } else {
            Shape::Other
        }
    }
}

/// A new object that is made from the record alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Make {
    pub what: What,
    pub perm: u32,
    /// Owner, where it is not who makes it.
    pub owner: Option<(u32, u32)>,
    pub xattrs: Vec<(CString, Vec<u8>)>,
    pub atime: Option<Stamp>,
    pub mtime: Option<Stamp>,
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A regular file with this content.
    File(Vec<u8>),
    /// An empty directory.
    Dir,
    /// A symbolic link.
    Symlink(CString),
}
