//! Several pending patches of one file, seen as one.
//!
//! A later commit may have written the same blocks, and a crash keeps of each block whichever of
//! its versions the disk had. So the patches of a file are folded: for each block the versions in
//! their order, of which one is found, and what comes after that one is written.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    plan::{Ident, Patch, PatchBlock, Plan},
    small::hash_at,
};

/// The patches of all pending plans, by file.
#[derive(Default)]
pub(crate) struct Folds {
    files: HashMap<(u64, Ident), Vec<Patch>>,
    /// After a failed flush: what looks written may be in memory alone, and is written again.
    pub rewrite: bool,
}

/// What is to be written to a block, and where in it.
pub(crate) struct Todo<'p> {
    pub offset: u64,
    pub bytes: &'p [u8],
}

/// What a file needs.
pub(crate) enum Judged<'p> {
    /// All is as it will be.
    Done,
    /// This, and then this size.
    Write(Vec<Todo<'p>>, u64),
    /// Someone else wrote to it.
    Foreign,
}

/// Takes the patches out of `plans`, the oldest first; of each file the last plan keeps one.
pub(crate) fn fold(plans: &mut [Plan]) -> Folds {
    let mut folds = Folds::default();
    for plan in plans.iter() {
        for patch in &plan.patches {
            let dev = plan.areas[patch.area as usize].fs.dev;
            folds.files.entry((dev, patch.id)).or_default().push(patch.clone());
        }
    }
    let mut seen = std::collections::HashSet::new();
    for plan in plans.iter_mut().rev() {
        let areas = &plan.areas;
        plan.patches.retain(|patch| seen.insert((areas[patch.area as usize].fs.dev, patch.id)));
    }
    folds
}

impl Folds {
    /// The patches of the file that `patch` is of, the oldest first.
    pub(crate) fn of(&self, dev: u64, patch: &Patch) -> &[Patch] {
        self.files.get(&(dev, patch.id)).map_or(&[], Vec::as_slice)
    }
}

/// Decides about a file of `size` bytes, of which `read` gives so many bytes at an offset, zeros behind
/// its end.
///
/// # Errors
/// What `read` gives.
pub(crate) fn judge<'p, E>(
    patches: &'p [Patch],
    size: u64,
    rewrite: bool,
    mut read: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Judged<'p>, E> {
    let Some(last) = patches.last() else { return Ok(Judged::Done) };
    let sizes = patches.iter().flat_map(|patch| [patch.before_size, patch.after_size]);
    let (low, high) =
        sizes.fold((u64::MAX, 0), |(low, high), size| (low.min(size), high.max(size)));
    // Patches of several versions of the format are never pending at once (`Patch::shape`).
    if size < low || size > high || patches.iter().any(|patch| patch.block != last.block) {
        return Ok(Judged::Foreign);
    }
    let mut numbers: Vec<u64> =
        patches.iter().flat_map(|patch| &patch.blocks).map(|block| block.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut todo = Vec::new();
    for number in numbers {
        let now = read(number * last.block, last.block)?;
        let hash = xxh3_64(&now);
        let versions: Vec<(u64, &PatchBlock)> = patches
            .iter()
            .flat_map(|patch| patch.blocks.iter().map(|block| (patch.after_size, block)))
            .filter(|(_, block)| block.number == number)
            .collect();
        // As before one of them, or as after one, where what that one cuts off may be there still.
        // What shows as after one only as far as the file reaches now lacks the rest: that one is
        // written again.
        let cut = |size: u64| hash_at(&now, number, size);
        let at = |fits: &dyn Fn(u64, &PatchBlock) -> bool| {
            versions.iter().position(|(size, block)| fits(*size, block))
        };
        let found = at(&|size, block| {
            block.before.contains(&hash) || (size < high && block.before[1] == cut(size))
        })
        .or_else(|| {
            let after = |size, block: &PatchBlock| {
                block.after[1] == hash || (size < high && block.after[1] == cut(size))
            };
            at(&after).map(|index| index + 1)
        })
        .or_else(|| at(&|_, block| block.after[0] == hash));
        let Some(found) = found else { return Ok(Judged::Foreign) };
        let from = if rewrite { 0 } else { found };
        todo.extend(
            versions[from..]
                .iter()
                .map(|(_, block)| Todo { offset: last.offset(block), bytes: &block.bytes }),
        );
    }
    if todo.is_empty() && size == last.after_size {
        return Ok(Judged::Done);
    }
    Ok(Judged::Write(todo, last.after_size))
}
