//! The content of a file while a small commit is put together.

use std::{collections::BTreeMap, os::fd::AsFd};

use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    delta::content::read_lens,
    plan::{BLOCK, PatchBlock},
};

/// A file that is written in place, block by block as far as it is touched.
#[derive(Default)]
pub(super) struct Content {
    before_size: u64,
    pub size: u64,
    /// The smallest size that it had in between: what lies behind reads zero.
    low: u64,
    blocks: BTreeMap<u64, Block>,
    /// Whether its size was set, be it to what it was: that moves its time.
    pub sized: bool,
}

struct Block {
    before: Vec<u8>,
    now: Vec<u8>,
    /// Which bytes were written.
    from: usize,
    to: usize,
}

/// Hash of a whole block as it reads in a file of `size` bytes.
pub(crate) fn hash_at(block: &[u8], number: u64, size: u64) -> u64 {
    let visible = size.saturating_sub(number * block.len() as u64).min(block.len() as u64) as usize;
    if visible == block.len() {
        return xxh3_64(block);
    }
    let mut padded = vec![0; block.len()];
    padded[..visible].copy_from_slice(&block[..visible]);
    xxh3_64(&padded)
}

impl Content {
    pub(super) fn new(size: u64) -> Content {
        Content { before_size: size, size, low: size, ..Content::default() }
    }

    fn block(&mut self, file: impl AsFd, number: u64) -> Result<&mut Block, Errno> {
        use std::collections::btree_map::Entry;
        match self.blocks.entry(number) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let offset = number * BLOCK;
                let mut before = vec![0; BLOCK as usize];
                if offset < self.before_size {
                    read_lens(file, offset, BLOCK, &mut before)?;
                    // Someone may just be making it longer: that is not what was seen.
                    let seen = (self.before_size - offset).min(BLOCK) as usize;
                    before[seen..].fill(0);
                }
                let mut now = before.clone();
                let kept = self.low.saturating_sub(offset).min(BLOCK) as usize;
                now[kept..].fill(0);
                Ok(entry.insert(Block { before, now, from: BLOCK as usize, to: 0 }))
            }
        }
    }

    pub(super) fn write(
        &mut self,
        file: impl AsFd,
        offset: u64,
        mut bytes: &[u8],
    ) -> Result<(), Errno> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?;
        if end > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        let mut at = offset;
        while !bytes.is_empty() {
            let block = self.block(&file, at / BLOCK)?;
            let start = (at % BLOCK) as usize;
            let count = bytes.len().min(BLOCK as usize - start);
            block.now[start..start + count].copy_from_slice(&bytes[..count]);
            block.from = block.from.min(start);
            block.to = block.to.max(start + count);
            at += count as u64;
            bytes = &bytes[count..];
        }
        if end > offset {
            self.size = self.size.max(end);
        }
        Ok(())
    }

    pub(super) fn resize(&mut self, file: impl AsFd, size: u64) -> Result<(), Errno> {
        if size > i64::MAX as u64 {
            return Err(Errno::FBIG);
        }
        self.sized = true;
        if size < self.size {
            for (number, block) in self.blocks.range_mut(size / BLOCK..) {
                let kept = size.saturating_sub(number * BLOCK).min(BLOCK) as usize;
                if block.now[kept..].iter().any(|byte| *byte != 0) {
                    block.from = block.from.min(kept);
                    block.to = BLOCK as usize;
                }
                block.now[kept..].fill(0);
            }
            if size < self.low && !size.is_multiple_of(BLOCK) {
                self.low = size;
                self.block(&file, size / BLOCK)?;
            }
            self.low = self.low.min(size);
        }
        self.size = size;
        Ok(())
    }

    /// What is to be written; also blocks that must become zero since the file was shorter in
    /// between.
    ///
    /// # Errors
    /// What `pread(2)` gives.
    pub(super) fn finish(&mut self, file: impl AsFd) -> Result<(u64, u64, Vec<PatchBlock>), Errno> {
        let cleared = self.before_size.min(self.size);
        for number in self.low.div_ceil(BLOCK)..cleared.div_ceil(BLOCK) {
            self.block(&file, number)?;
        }
        let (before, after) = (self.before_size, self.size);
        let mut blocks = Vec::new();
        for (number, block) in &self.blocks {
            let visible = after.saturating_sub(number * BLOCK).min(BLOCK) as usize;
            // Bytes that were not written may differ, too, where the file was cut in between.
            let common = before.min(after).saturating_sub(number * BLOCK).min(BLOCK) as usize;
            let differs = |at: &usize| block.before[*at] != block.now[*at];
            let first = (0..common).find(differs).unwrap_or(block.from).min(block.from);
            let last = (0..common).rev().find(differs).map_or(block.to, |at| at + 1).max(block.to);
            let last = last.min(visible);
            if first >= last {
                continue;
            }
            blocks.push(PatchBlock {
                number: *number,
                start: first as u32,
                bytes: block.now[first..last].to_vec(),
                before: [
                    hash_at(&block.before, *number, before),
                    hash_at(&block.before, *number, after),
                ],
                after: [hash_at(&block.now, *number, before), hash_at(&block.now, *number, after)],
            });
        }
        Ok((before, after, blocks))
    }
}
