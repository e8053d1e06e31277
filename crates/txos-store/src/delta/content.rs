//! Comparing a copied-up file with the stable one, block by block.
//!
//! What is read is read by whole pages; what is compared, by blocks of the spec's size.

use std::os::fd::AsFd;

use rustix::{
    fs::{SeekFrom, seek},
    io::{Errno, pread},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::plan::{BLOCK, PAGE, Run, WriteSpec, zero};

const CHUNK: u64 = 64 * PAGE;
/// A tail that is cut off is hashed up to this size; reading more would cost what `O_TRUNC` saves.
const TAIL: u64 = 1 << 20;

/// What must be written so that a file of `before_size` bytes open as `before` becomes `after`.
///
/// # Errors
/// What `pread(2)` gives.
pub(crate) fn compare(
    before: impl AsFd,
    before_size: u64,
    after: impl AsFd,
    after_size: u64,
) -> Result<WriteSpec, Errno> {
    let mut runs: Vec<Run> = Vec::new();
    let mut rest = Xxh3::new();
    let mut end = None;
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let mut offset = 0;
    while let Some(start) = next_data(&before, before_size, &after, after_size, offset)? {
        if start >= after_size {
            break;
        }
        let length = CHUNK.min(after_size - start);
        read_lens(&after, start, length, &mut new)?;
        read_lens(&before, start, length, &mut old)?;
        let common = before_size.min(after_size);
        for (index, (was, is)) in
            old.chunks(BLOCK as usize).zip(new.chunks(BLOCK as usize)).enumerate()
        {
            let number = start / BLOCK + index as u64;
            if was == is {
                let kept = common.saturating_sub(number * BLOCK).min(is.len() as u64) as usize;
                add_rest(&mut rest, number, &is[..kept]);
                continue;
            }
            let hashes = (xxh3_64(was), xxh3_64(is));
            let reached = before_size.saturating_sub(number * BLOCK);
            if before_size < after_size && (1..is.len() as u64).contains(&reached) {
                let mut cut = is.to_vec();
                cut[reached as usize..].fill(0);
                end = Some(xxh3_64(&cut));
            }
            match runs.last_mut() {
                Some(run) if run.first + run.hashes.len() as u64 == number => {
                    run.hashes.push(hashes);
                }
                _ => runs.push(Run { first: number, hashes: vec![hashes] }),
            }
        }
        offset = (start + length).next_multiple_of(PAGE);
    }
    let edge = edge(&before, BLOCK, before_size, after_size)?;
    let edge: Vec<u64> = edge.iter().map(|part| xxh3_64(part)).collect();
    let behind = behind(&edge, before_size, after_size);
    let tail = tail(&before, before_size, behind)?;
    let rest = rest.digest();
    Ok(WriteSpec { block: BLOCK, before_size, after_size, runs, rest, end, edge, tail })
}

/// What state a file is in that [`compare`] gave `spec` for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentState {
    /// Nothing was written yet.
    Before,
    /// All was written.
    After,
    /// Each block is as before or as after: our own write was interrupted.
    Torn,
    /// Someone else wrote.
    Foreign,
}

/// Examines a file of `size` bytes.
///
/// # Errors
/// What `pread(2)` gives.
pub(crate) fn examine(file: impl AsFd, size: u64, spec: &WriteSpec) -> Result<ContentState, Errno> {
    look(file, size, spec, false)
}

/// As [`examine`], after a power cut may have torn our own write.
///
/// Who makes a file shorter zeroes the rest of its last page, and that page, or a part of it, may reach
/// the disk without the new size: the file has its old size then, and zeros in what it was to lose. In the same way the
/// block in which a growing file ended may be there without the new size, and shows only as far.
///
/// # Errors
/// What `pread(2)` gives.
pub(crate) fn examine_torn(
    file: impl AsFd,
    size: u64,
    spec: &WriteSpec,
) -> Result<ContentState, Errno> {
    look(file, size, spec, true)
}

fn look(file: impl AsFd, size: u64, spec: &WriteSpec, torn: bool) -> Result<ContentState, Errno> {
    if size != spec.before_size && size != spec.after_size {
        return Ok(ContentState::Foreign);
    }
    let mut listed = spec.runs.iter().flat_map(|run| {
        run.hashes.iter().enumerate().map(|(at, hashes)| (run.first + at as u64, *hashes))
    });
    let mut next = listed.next();
    let mut rest = Xxh3::new();
    let (mut any_before, mut any_after) = (false, false);
    let common = spec.before_size.min(spec.after_size);
    let mut buffer = Vec::new();
    let mut offset = 0;
    let size_of = spec.block;
    loop {
        // The next block that holds data, or that is listed.
        let data = data_from(&file, size, offset)?.map(page_of);
        let start = match (data, next.map(|(number, _)| page_of(number * size_of))) {
            (Some(data), Some(block)) => data.min(block),
            (Some(start), None) | (None, Some(start)) => start,
            (None, None) => break,
        };
        if start >= spec.after_size {
            break;
        }
        let length = CHUNK.min(spec.after_size - start);
        read_lens(&file, start, length, &mut buffer)?;
        for (index, block) in buffer.chunks(size_of as usize).enumerate() {
            let number = start / size_of + index as u64;
            match next {
                Some((wanted, (before, after))) if wanted == number => {
                    next = listed.next();
                    let hash = xxh3_64(block);
                    let ended = size == spec.before_size && number == size / size_of;
                    let cut = torn && ended && spec.end == Some(hash);
                    any_before |= hash == before;
                    any_after |= hash == after || cut;
                    if hash != before && hash != after && !cut {
                        return Ok(ContentState::Foreign);
                    }
                }
                _ => {
                    let kept = common.saturating_sub(number * size_of).min(block.len() as u64);
                    add_rest(&mut rest, number, &block[..kept as usize]);
                }
            }
        }
        offset = (start + length).next_multiple_of(PAGE);
    }
    if rest.digest() != spec.rest {
        return Ok(ContentState::Foreign);
    }
    if size == spec.before_size && size != spec.after_size {
        match lost(&file, spec)? {
            Lost::There => {}
            Lost::Zeroed if torn => return Ok(ContentState::Torn),
            Lost::Zeroed | Lost::Other => return Ok(ContentState::Foreign),
        }
        return Ok(if any_after { ContentState::Torn } else { ContentState::Before });
    }
    // The size is the new one. Where it was the old one too, untouched blocks are `before`.
    let resized = spec.before_size != spec.after_size;
    Ok(match (any_before, any_after) {
        (false, _) => ContentState::After,
        (true, false) if !resized => ContentState::Before,
        (true, _) => ContentState::Torn,
    })
}

/// How what a shrinking file loses reads, as long as it has its old size.
enum Lost {
    /// As it was.
    There,
    /// Something of the page in which it is to end is zero already, all else as it was.
    Zeroed,
    /// As somebody else wrote it.
    Other,
}

fn lost(file: impl AsFd, spec: &WriteSpec) -> Result<Lost, Errno> {
    let behind = behind(&spec.edge, spec.before_size, spec.after_size);
    let tail_is_there = tail(&file, spec.before_size, behind)? == spec.tail;
    let parts = edge(&file, spec.block, spec.before_size, spec.after_size)?;
    if spec.edge.is_empty() && !parts.is_empty() {
        // Of an older version: the page is hashed with what lies behind it.
        let zeroed = parts.iter().all(|part| zero(part));
        return Ok(match (tail_is_there, zeroed) {
            (true, _) => Lost::There,
            (false, true) => Lost::Zeroed,
            (false, false) => Lost::Other,
        });
    }
    if !tail_is_there || parts.len() != spec.edge.len() {
        return Ok(Lost::Other);
    }
    let mut state = Lost::There;
    for (part, hash) in parts.iter().zip(&spec.edge) {
        if xxh3_64(part) != *hash {
            if !zero(part) {
                return Ok(Lost::Other);
            }
            state = Lost::Zeroed;
        }
    }
    Ok(state)
}

/// What a shrinking file loses of the page in which it is to end, in blocks.
fn edge(
    file: impl AsFd,
    block: u64,
    before_size: u64,
    after_size: u64,
) -> Result<Vec<Vec<u8>>, Errno> {
    let end = after_size.next_multiple_of(PAGE).min(before_size);
    let mut parts = Vec::new();
    let mut at = after_size;
    while at < end {
        let next = (at + 1).next_multiple_of(block).min(end);
        let mut part = Vec::new();
        read_lens(&file, at, next - at, &mut part)?;
        parts.push(part);
        at = next;
    }
    Ok(parts)
}

/// Where what [`WriteSpec::tail`] is of begins.
fn behind(edge: &[u64], before_size: u64, after_size: u64) -> u64 {
    match edge.is_empty() {
        true => after_size,
        false => after_size.next_multiple_of(PAGE).min(before_size),
    }
}

/// The page in which `offset` lies.
fn page_of(offset: u64) -> u64 {
    offset / PAGE * PAGE
}

/// The first offset from `offset` on, a multiple of the page, at whose page either file has data.
fn next_data(
    one: impl AsFd,
    one_size: u64,
    other: impl AsFd,
    other_size: u64,
    offset: u64,
) -> Result<Option<u64>, Errno> {
    let first = data_from(one, one_size, offset)?;
    let second = data_from(other, other_size, offset)?;
    let next = match (first, second) {
        (Some(first), Some(second)) => Some(first.min(second)),
        (first, second) => first.or(second),
    };
    Ok(next.map(page_of))
}

/// The first offset from `offset` on that is not in a hole.
fn data_from(file: impl AsFd, size: u64, offset: u64) -> Result<Option<u64>, Errno> {
    if offset >= size {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(offset)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        // A file system without holes.
        Err(Errno::INVAL) => Ok(Some(offset)),
        Err(errno) => Err(errno),
    }
}

/// Whether `length` bytes at `offset` lie in a hole.
pub(crate) fn in_hole(file: impl AsFd, size: u64, offset: u64, length: u64) -> Result<bool, Errno> {
    Ok(data_from(file, size, offset)?.is_none_or(|data| data >= offset + length))
}

/// Reads `length` bytes at `offset`; what the file lacks is zero.
pub(crate) fn read_lens(
    file: impl AsFd,
    offset: u64,
    length: u64,
    buffer: &mut Vec<u8>,
) -> Result<(), Errno> {
    buffer.clear();
    buffer.resize(length as usize, 0);
    let mut done = 0;
    while done < buffer.len() {
        match pread(&file, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn add_rest(rest: &mut Xxh3, number: u64, block: &[u8]) {
    if !zero(block) {
        rest.update(&number.to_le_bytes());
        rest.update(block);
    }
}

fn tail(file: impl AsFd, before_size: u64, from: u64) -> Result<Option<u64>, Errno> {
    let length = before_size.saturating_sub(from);
    if length == 0 || length > TAIL {
        return Ok(None);
    }
    let mut buffer = Vec::new();
    read_lens(file, from, length, &mut buffer)?;
    Ok(Some(xxh3_64(&buffer)))
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write as _, os::unix::fs::FileExt};

    use proptest::prelude::*;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn spec(before: &[u8], after: &[u8]) -> WriteSpec {
        let (old, new) = (file(before), file(after));
        compare(&old, before.len() as u64, &new, after.len() as u64).unwrap()
    }

    fn state(now: &[u8], spec: &WriteSpec) -> ContentState {
        examine(file(now), now.len() as u64, spec).unwrap()
    }

    fn after_a_cut(now: &[u8], spec: &WriteSpec) -> ContentState {
        examine_torn(file(now), now.len() as u64, spec).unwrap()
    }

    #[test]
    fn only_blocks_that_differ_are_listed() {
        let before = vec![1; 5 * BLOCK as usize];
        let mut after = before.clone();
        after[BLOCK as usize * 2 + 5] = 9;
        let spec = spec(&before, &after);
        assert_eq!(spec.runs.len(), 1);
        assert_eq!((spec.runs[0].first, spec.runs[0].hashes.len()), (2, 1));
    }

    #[test]
    fn a_page_that_was_cut_before_the_size_was_is_our_own_write() {
        let page = PAGE as usize;
        let (before, after) = (vec![1; 3 * page + 306], vec![2; 53]);
        let spec = spec(&before, &after);
        let torn = |bytes: &[u8]| after_a_cut(bytes, &spec);
        let mut now = before.clone();
        now[..53].fill(2);
        assert_eq!(torn(&now), ContentState::Torn, "the new bytes alone");
        now[53..page].fill(0);
        assert_eq!(torn(&now), ContentState::Torn, "the new bytes, and the rest of the page");
        assert_eq!(state(&now, &spec), ContentState::Foreign, "while nothing has been cut");
        now[512..1024].fill(1);
        assert_eq!(torn(&now), ContentState::Torn, "a part of the rest");
        now[512..1024].fill(4);
        assert_eq!(torn(&now), ContentState::Foreign, "somebody else's in the rest");
        now[512..1024].fill(0);
        now[page..].fill(0);
        assert_eq!(torn(&now), ContentState::Foreign, "more than the page");
        now[page..].fill(1);
        now[..53].fill(1);
        assert_eq!(torn(&now), ContentState::Torn, "the rest of the page alone");
        now[..53].fill(3);
        assert_eq!(torn(&now), ContentState::Foreign);
        let mut other = before;
        other[page + 5] = 7;
        assert_eq!(torn(&other), ContentState::Foreign);
    }

    #[test]
    fn holes_are_not_read() {
        let (old, new) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let size = 1 << 40;
        for file in [&old, &new] {
            file.set_len(size).unwrap();
        }
        new.write_at(b"x", size / 2).unwrap();
        let spec = compare(&old, size, &new, size).unwrap();
        assert_eq!(spec.runs.len(), 1);
        assert_eq!(examine(&old, size, &spec).unwrap(), ContentState::Before);
        assert_eq!(examine(&new, size, &spec).unwrap(), ContentState::After);
        old.write_at(b"y", 77 * PAGE).unwrap();
        assert_eq!(examine(&old, size, &spec).unwrap(), ContentState::Foreign);
    }

    /// A few pages, few distinct ones, of any length.
    fn content() -> impl Strategy<Value = Vec<u8>> {
        (prop::collection::vec(0u8..3, 0..5), 0usize..PAGE as usize).prop_map(|(pages, odd)| {
            let mut bytes: Vec<u8> =
                pages.iter().flat_map(|byte| vec![*byte; PAGE as usize]).collect();
            bytes.truncate(bytes.len().saturating_sub(odd));
            bytes
        })
    }

    proptest! {
        #[test]
        fn before_and_after_are_told_apart(before in content(), after in content()) {
            let spec = spec(&before, &after);
            prop_assert_eq!(spec.is_empty(), before == after);
            if before != after {
                prop_assert_eq!(state(&before, &spec), ContentState::Before);
                prop_assert_eq!(state(&after, &spec), ContentState::After);
            }
        }

        #[test]
        fn any_interruption_is_seen_as_torn_or_an_end(
            before in content(), after in content(), resized: bool, mask: u8,
        ) {
            let spec = spec(&before, &after);
            let listed: Vec<u64> = spec
                .runs
                .iter()
                .flat_map(|run| run.first..run.first + run.hashes.len() as u64)
                .collect();
            // A growing file is extended first, a shrinking one cut last.
            let extended = after.len() > before.len() && (resized || mask != 0);
            let mut now = before.clone();
            if extended {
                now.resize(after.len(), 0);
            }
            let mut written = 0;
            for (at, number) in listed.iter().enumerate() {
                if mask >> (at % 8) & 1 == 1 {
                    let start = (*number * BLOCK) as usize;
                    let end = (start + BLOCK as usize).min(after.len());
                    now[start..end].copy_from_slice(&after[start..end]);
                    written += 1;
                }
            }
            if after.len() < before.len() && resized && written == listed.len() {
                now.truncate(after.len());
            }
            prop_assert_ne!(state(&now, &spec), ContentState::Foreign);
            if now == after {
                prop_assert!(matches!(state(&now, &spec), ContentState::After));
            }
        }

        /// Of the sectors each is on the disk or not, and so is the size.
        #[test]
        fn any_power_cut_is_seen_as_torn_or_an_end(
            before in content(), after in content(), resized: bool, mask: u64,
        ) {
            let spec = spec(&before, &after);
            let written = |at: usize| mask >> (at / BLOCK as usize % 64) & 1 == 1;
            // The kernel zeroes the rest of the page in which a shrinking file is to end.
            let mut page = after.clone();
            if after.len() < before.len() {
                page.resize(after.len().next_multiple_of(PAGE as usize).min(before.len()), 0);
            }
            let size = if resized { after.len() } else { before.len() };
            let mut now: Vec<u8> = before.clone();
            now.resize(size.max(before.len()), 0);
            for at in (0..now.len().min(page.len())).filter(|at| written(*at)) {
                now[at] = page[at];
            }
            now.truncate(size);
            prop_assert_ne!(after_a_cut(&now, &spec), ContentState::Foreign);
            if now == after && before != after {
                prop_assert_eq!(after_a_cut(&now, &spec), ContentState::After);
            }
        }

        #[test]
        fn a_foreign_byte_is_seen(before in content(), after in content(), at: prop::sample::Index) {
            let spec = spec(&before, &after);
            prop_assume!(!before.is_empty());
            let mut now = before.clone();
            let at = at.index(now.len());
            now[at] = 77;
            prop_assert_eq!(state(&now, &spec), ContentState::Foreign);
        }
    }
}
