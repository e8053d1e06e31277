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
    /// Size of a block; [`super::BLOCK`] but in records of older versions.
    pub block: u64,
    /// Ascending, each block once.
    pub blocks: Vec<PatchBlock>,
}

/// What becomes of one block. A hash is of a whole block as it reads in a file of the given size,
/// zeros behind its end.
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
    /// Where in the file the new bytes of one of its blocks begin.
    pub(crate) fn offset(&self, block: &PatchBlock) -> u64 {
        block.number * self.block + u64::from(block.start)
    }

    /// What is to be written: offsets and bytes, adjacent blocks in one.
    pub(crate) fn pieces(&self) -> Vec<(u64, Vec<u8>)> {
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for block in &self.blocks {
            let offset = self.offset(block);
            match pieces.last_mut() {
                Some((at, bytes)) if *at + bytes.len() as u64 == offset => {
                    bytes.extend(&block.bytes);
                }
                _ => pieces.push((offset, block.bytes.clone())),
            }
        }
        pieces
    }

    /// How many pages of the file lie before `end` and are written to.
    pub(crate) fn pages_before(&self, end: u64) -> u64 {
        let mut pages: Vec<u64> =
            self.blocks.iter().map(|block| block.number * self.block / super::PAGE).collect();
        pages.dedup();
        pages.iter().filter(|page| *page * super::PAGE < end).count() as u64
    }

    pub(crate) fn shape(&self) -> Shape {
        let first = self.blocks.first().map(|block| self.offset(block));
        if self.block != super::BLOCK {
            // Of an older version: nothing new is folded with it.
            Shape::Other
        } else if self.before_size == self.after_size {
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
