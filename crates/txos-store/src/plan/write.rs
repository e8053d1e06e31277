use std::path::PathBuf;

use super::Ident;

/// Unit in which content in place is compared and journaled, in bytes: a sector, the least that a
/// disk writes whole. A page can be torn by a power cut, where the file system's blocks are smaller
/// or the disk writes less than a page at once; then each of its sectors is as before or as after.
pub(crate) const BLOCK: u64 = 512;

/// A page, in bytes: the unit in which the kernel keeps contents, and in which records before
/// version 3 compared them.
pub(crate) const PAGE: u64 = 4096;

/// Writes content in place: the object keeps its inode, its other names and its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub area: u32,
    /// Original path.
    pub path: PathBuf,
    pub id: Ident,
    /// File with the new content, beneath the transaction's directory.
    pub source: PathBuf,
    pub spec: WriteSpec,
}

/// What is written in place, and how to recognise before, after, and a torn state between.
///
/// Blocks are looked at through a lens of the *new* size: what lies past it is cut off, and what a
/// shorter file lacks is zero. Through it a block shows `before` or `after` whatever the size is
/// at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteSpec {
    /// Size of a block; [`BLOCK`] but in records of older versions.
    pub block: u64,
    pub before_size: u64,
    pub after_size: u64,
    /// The blocks that differ, ascending.
    pub runs: Vec<Run>,
    /// Hash of all other blocks up to the smaller size: number and bytes of each that is not all
    /// zero.
    pub rest: u64,
    /// Hash of the block in which a growing file ended, with its bytes after up to that old end: it may
    /// reach the disk before the size does. None where that block is not listed, or in older records.
    pub end: Option<u64>,
    /// Hash of each block, or part of one, that a shrinking file loses of the page in which it is to
    /// end: the kernel zeroes these before the size changes. Records before version 3 have none.
    pub edge: Vec<u64>,
    /// Hash of what it loses behind that (without an edge: of all that it loses), unless that is much.
    pub tail: Option<u64>,
}

/// Adjacent blocks that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number of the first block.
    pub first: u64,
    /// Hash of each block before and after, through the lens.
    pub hashes: Vec<(u64, u64)>,
}

impl WriteSpec {
    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.before_size == self.after_size
    }

    /// How many bytes of the file system the write may need at most.
    pub(crate) fn growth(&self) -> u64 {
        let pages = |run: &Run| {
            let end = (run.first + run.hashes.len() as u64) * self.block;
            end.div_ceil(PAGE) - run.first * self.block / PAGE
        };
        self.runs.iter().map(|run| pages(run) * PAGE).sum()
    }
}

/// Whether a block is all zero.
pub(crate) fn zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}
