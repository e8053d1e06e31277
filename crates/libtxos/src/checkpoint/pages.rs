//! Contents of memory.
//!
//! The page tables say which pages differ (proc_pid_pagemap(5)): after a fork both processes have the same
//! physical pages, and whoever writes gets a copy. So a page is unchanged exactly if both entries are the
//! same; where the kernel does not show page numbers (to others than root), a page that is mapped by one
//! process only was changed, and any other is compared.

use super::{
    arena::{Arena, CHUNK},
    maps::{Mapping, drop_pages_if_possible},
    raw::{Text, close, die, open, pread, syscall},
};

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// A page of a file, or of shared memory.
const FILE: u64 = 1 << 61;
const EXCLUSIVE: u64 = 1 << 56;
const NUMBER: u64 = (1 << 55) - 1;
/// What has to be the same.
const SAME: u64 = PRESENT | SWAPPED | FILE | NUMBER;
/// The area that the kernel writes to by itself, `struct rseq`.
const RSEQ: u64 = 32;

/// What is to be done with a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Todo {
    Nothing,
    /// Its content is the snapshot's.
    Copy,
    /// It was not there, or is the file's.
    Drop,
    /// Nobody knows: compare.
    Compare,
}

fn todo(now: u64, then: u64) -> Todo {
    let anonymous_then = then & SWAPPED != 0 || (then & PRESENT != 0 && then & FILE == 0);
    let differs = if now & SAME != then & SAME {
        true
    } else if now & (PRESENT | SWAPPED) == 0 || now & NUMBER != 0 {
        false
    } else if now & FILE != 0 {
        // Pages of the file, unchanged in both.
        false
    } else if now & EXCLUSIVE != 0 || then & EXCLUSIVE != 0 {
        true
    } else {
        return Todo::Compare;
    };
    match (differs, anonymous_then) {
        (false, _) => Todo::Nothing,
        (true, true) => Todo::Copy,
        // What is not there in either, or a page of the file that only one has looked at.
        (true, false) if now & (PRESENT | SWAPPED) == 0 || now & FILE != 0 => Todo::Nothing,
        (true, false) => Todo::Drop,
    }
}

/// Puts the contents of all private mappings back.
pub(super) fn restore(arena: &mut Arena, snapshot: i32, mappings: usize) {
    let path = Text::new().add(b"/proc/").number(snapshot as u64, 10).add(b"/pagemap");
    let now = open(b"/proc/self/pagemap\0", libc::O_RDONLY);
    let then = open(path.as_bytes(), libc::O_RDONLY);
    if now < 0 || then < 0 {
        die(b"its page tables cannot be read");
    }
    for index in 0..mappings {
        let mapping = arena.then[index];
        if mapping.shared || mapping.is_kernels() {
            continue;
        }
        let mut at = mapping.start;
        while at < mapping.end {
            let pages = ((mapping.end - at) / PAGE).min(CHUNK as u64) as usize;
            entries(now, at, &mut arena.entries_now[..pages]);
            entries(then, at, &mut arena.entries_then[..pages]);
            chunk(arena, snapshot, &mapping, at, pages);
            at += pages as u64 * PAGE;
        }
    }
    close(now);
    close(then);
}

fn entries(pagemap: i32, at: u64, into: &mut [u64]) {
    let length = size_of_val(into);
    // SAFETY: a slice of numbers is a slice of bytes.
    let bytes = unsafe { core::slice::from_raw_parts_mut(into.as_mut_ptr().cast(), length) };
    if pread(pagemap, bytes, at / PAGE * 8) != length as isize {
        die(b"its page tables cannot be read");
    }
}

/// Goes over the pages from `at` on in runs that need the same.
fn chunk(arena: &mut Arena, snapshot: i32, mapping: &Mapping, at: u64, pages: usize) {
    let of = |index: usize| todo(arena.entries_now[index], arena.entries_then[index]);
    let (mut begin, mut current) = (0, of(0));
    for index in 1..=pages {
        let next = if index < pages { of(index) } else { Todo::Nothing };
        if index < pages && next == current {
            continue;
        }
        let (from, to) = (at + begin as u64 * PAGE, at + index as u64 * PAGE);
        match current {
            Todo::Nothing => {}
            Todo::Drop if !mapping.remade && drop_pages_if_possible(from, to) => {}
            Todo::Drop | Todo::Copy | Todo::Compare => {
                put(arena.rseq, snapshot, mapping, from, to);
            }
        }
        (begin, current) = (index, next);
    }
}

/// Writes the snapshot's content to a range of a mapping.
fn put(rseq: u64, snapshot: i32, mapping: &Mapping, from: u64, to: u64) {
    let writable = mapping.protection & libc::PROT_WRITE != 0;
    if !writable {
        super::maps::protect(from, to, mapping.protection | libc::PROT_READ | libc::PROT_WRITE);
    }
    // Around what the kernel keeps up to date itself.
    let (before, after) = (rseq.clamp(from, to), (rseq + RSEQ).clamp(from, to));
    if rseq != 0 && before < after {
        copy(snapshot, from, before);
        copy(snapshot, after, to);
    } else {
        copy(snapshot, from, to);
    }
    if !writable {
        super::maps::protect(from, to, mapping.protection);
    }
}

/// Copies a range of the snapshot's memory to the same place here.
pub(super) fn copy(snapshot: i32, from: u64, to: u64) {
    /// One call copies no more than 2 GiB.
    const MOST: u64 = 1 << 30;
    let mut at = from;
    while at < to {
        let range = [at, (to - at).min(MOST)];
        let range = range.as_ptr();
        // SAFETY: the range is a mapping of the program, writable now; its content is what it was.
        let copied =
            unsafe { syscall!(libc::SYS_process_vm_readv, snapshot, range, 1, range, 1, 0) };
        if copied <= 0 {
            die(b"the snapshot's memory cannot be read");
        }
        at += copied as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_pair_of_entries_means() {
        let is = |now, then, wanted: Todo| assert!(todo(now, then) == wanted);
        is(0, 0, Todo::Nothing);
        // Page numbers show.
        is(PRESENT | 5, PRESENT | 5, Todo::Nothing);
        is(PRESENT | 6 | EXCLUSIVE, PRESENT | 5 | EXCLUSIVE, Todo::Copy);
        is(0, PRESENT | 5, Todo::Copy);
        is(0, SWAPPED | 9, Todo::Copy);
        is(PRESENT | 6, 0, Todo::Drop);
        is(PRESENT | 6, PRESENT | FILE | 5, Todo::Drop);
        is(PRESENT | FILE | 5, 0, Todo::Nothing);
        is(0, PRESENT | FILE | 5, Todo::Nothing);
        is(PRESENT | FILE | 5, PRESENT | 7, Todo::Copy);
        // They don't.
        is(PRESENT, PRESENT, Todo::Compare);
        is(PRESENT | EXCLUSIVE, PRESENT | EXCLUSIVE, Todo::Copy);
        is(PRESENT | FILE, PRESENT | FILE, Todo::Nothing);
    }
}
