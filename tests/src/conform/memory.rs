//! Calls about memory: mappings of files and of nothing, protections, advice, locks, shared changes.
#![allow(unsafe_code, reason = "looks into mappings that it made")]

use super::Book;
use super::sys::{
    Answer, close, fd, get, in_child, longs, open, path, peek, poke, put, room, said, told,
};
use crate::call;

const PAGE: u64 = 4096;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ALONE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

fn map(at: i32, protection: i32, flags: i32, offset: i64, length: u64) -> Answer {
    call!(SYS_mmap, 0, length, protection, flags, at, offset)
}

fn at(answer: Answer) -> u64 {
    answer.unwrap_or(0) as u64
}

/// What a child finds at an address: the byte, or the signal that ended it.
fn look(address: u64) -> String {
    // SAFETY: an address that is not mapped ends the child alone.
    in_child(|| i32::from(unsafe { peek(address) })).to_string()
}

/// How a child ends that stores at an address.
fn store(address: u64) -> String {
    in_child(|| {
        // SAFETY: an address that is not mapped, or not writable, ends the child alone.
        unsafe { poke(address, 1) };
        0
    })
    .to_string()
}

pub(super) fn run(book: &mut Book) {
    // A child that is ended by a fault leaves no core file.
    let _ = call!(SYS_prlimit64, 0, libc::RLIMIT_CORE, longs(&[0, 0]), 0);
    arguments(book);
    files(book);
    protections(book);
    moves(book);
    advice(book);
    locks(book);
    anonymous_files(book);
}

fn arguments(book: &mut Book) {
    let file = open("d/file", libc::O_RDONLY);
    let write_only = open("d/file", libc::O_WRONLY);
    let directory = open("d", libc::O_RDONLY);
    let private = libc::MAP_PRIVATE;
    for (case, answer) in [
        ("no length", map(file, BOTH, private, 0, 0)),
        ("huge", map(-1, BOTH, ALONE, 0, !0xfff)),
        ("neither", map(file, BOTH, 0, 0, PAGE)),
        ("offset not aligned", map(file, BOTH, private, 100, PAGE)),
        ("closed", map(899, BOTH, private, 0, PAGE)),
        ("directory", map(directory, libc::PROT_READ, private, 0, PAGE)),
        ("shared write of a reader", map(file, BOTH, libc::MAP_SHARED, 0, PAGE)),
        ("private write of a reader", map(file, BOTH, private, 0, PAGE)),
        ("of a writer", map(write_only, libc::PROT_WRITE, libc::MAP_SHARED, 0, PAGE)),
        ("execute", map(file, libc::PROT_READ | libc::PROT_EXEC, private, 0, PAGE)),
        ("fixed at nothing", call!(SYS_mmap, 100, PAGE, BOTH, ALONE | libc::MAP_FIXED, -1, 0)),
        ("huge pages wrong", map(-1, BOTH, ALONE | libc::MAP_HUGETLB | 63 << 26, 0, PAGE)),
        ("unmap not aligned", call!(SYS_munmap, 100, PAGE)),
        ("unmap nothing", call!(SYS_munmap, 1 << 20, PAGE)),
        ("unmap no length", call!(SYS_munmap, 1 << 20, 0)),
        ("brk", call!(SYS_brk, 0)),
        ("mincore not aligned", call!(SYS_mincore, 100, PAGE, room(&[]))),
        ("mincore nothing", call!(SYS_mincore, 1 << 20, PAGE, room(&[]))),
        ("msync not aligned", call!(SYS_msync, 100, PAGE, libc::MS_ASYNC)),
        ("msync both", call!(SYS_msync, 1 << 20, PAGE, libc::MS_ASYNC | libc::MS_SYNC)),
        ("msync unknown", call!(SYS_msync, 1 << 20, PAGE, 64)),
        ("msync nothing", call!(SYS_msync, 1 << 20, PAGE, libc::MS_ASYNC)),
        ("remap_file_pages", call!(SYS_remap_file_pages, 100, PAGE, 0, 0, 0)),
    ] {
        book.note(case, said(answer));
    }
    close(&[file, write_only, directory]);
}

fn files(book: &mut Book) {
    for (how, file) in [("old", "d/file"), ("new", "mapped")] {
        let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
        let writer = open(file, libc::O_RDWR | libc::O_CREAT);
        let _ = call!(SYS_pwrite64, writer, room(b"0123456789"), 10, 0);
        let shared = at(map(writer, BOTH, libc::MAP_SHARED, 0, 2 * PAGE));
        let private = at(map(writer, BOTH, libc::MAP_PRIVATE, 0, PAGE));
        note("shared", look(shared));
        note("past the end, same page", look(shared + 100));
        note("past the end, next page", look(shared + PAGE));
        // SAFETY: both mappings are writable and these cases' own.
        unsafe {
            poke(shared, b'S');
            poke(private + 1, b'P');
        }
        note("store shared", {
            let _ = call!(SYS_lseek, writer, 0, 0);
            get(writer, 5)
        });
        note("private sees shared", look(private));
        note("msync", said(call!(SYS_msync, shared, PAGE, libc::MS_ASYNC)));
        note("msync invalidate", said(call!(SYS_msync, shared, PAGE, libc::MS_INVALIDATE)));
        let _ = call!(SYS_pwrite64, writer, room(b"W"), 1, 2);
        note("write seen", look(shared + 2));
        let _ = call!(SYS_ftruncate, writer, 0);
        note("truncated", look(shared));
        let _ = call!(SYS_ftruncate, writer, 10);
        note("grown", look(shared));
        let _ = call!(SYS_munmap, shared, 2 * PAGE);
        note("unmapped", look(shared));
        let _ = call!(SYS_munmap, private, PAGE);
        close(&[writer]);
    }
}

fn protections(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("mprotect {case}"), answer);
    let memory = at(map(-1, BOTH, ALONE, 0, 4 * PAGE));
    note("read only", said(call!(SYS_mprotect, memory, PAGE, libc::PROT_READ)));
    note("read then", look(memory));
    note("store then", store(memory));
    note("nothing", said(call!(SYS_mprotect, memory, PAGE, libc::PROT_NONE)));
    note("read nothing", look(memory));
    note("back", said(call!(SYS_mprotect, memory, PAGE, BOTH)));
    note("store back", store(memory));
    note("execute too", said(call!(SYS_mprotect, memory, PAGE, BOTH | libc::PROT_EXEC)));
    note("not aligned", said(call!(SYS_mprotect, memory + 1, PAGE, BOTH)));
    note("not mapped", said(call!(SYS_mprotect, 1 << 20, PAGE, BOTH)));
    note("wrong", said(call!(SYS_mprotect, memory, PAGE, 0x40)));
    let file = open("d/file", libc::O_RDONLY);
    let shared = at(map(file, libc::PROT_READ, libc::MAP_SHARED, 0, PAGE));
    note("shared of a reader", said(call!(SYS_mprotect, shared, PAGE, BOTH)));
    close(&[file]);
    note("seal wrong", said(call!(SYS_mseal, memory, PAGE, 1)));
    note("seal", said(call!(SYS_mseal, memory, PAGE, 0)));
    note("sealed", said(call!(SYS_mprotect, memory, PAGE, libc::PROT_READ)));
    note("sealed unmap", said(call!(SYS_munmap, memory, PAGE)));
    note("key wrong", said(call!(SYS_pkey_free, 99)));
}

fn moves(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("mremap {case}"), answer);
    let memory = at(map(-1, BOTH, ALONE, 0, 2 * PAGE));
    // SAFETY: the mapping is writable and these cases' own.
    unsafe { poke(memory, 9) };
    note("smaller", said(call!(SYS_mremap, memory, 2 * PAGE, PAGE, 0, 0)));
    let larger = call!(SYS_mremap, memory, PAGE, 64 * PAGE, 1, 0);
    note("larger", said(larger));
    note("kept", look(at(larger)));
    note("not aligned", said(call!(SYS_mremap, memory + 1, PAGE, PAGE, 0, 0)));
    note("no new length", said(call!(SYS_mremap, at(larger), PAGE, 0, 0, 0)));
    note("wrong flag", said(call!(SYS_mremap, at(larger), PAGE, PAGE, 64, 0)));
    note("fixed alone", said(call!(SYS_mremap, at(larger), PAGE, PAGE, 2, 0)));
    note("not mapped", said(call!(SYS_mremap, 1 << 20, PAGE, PAGE, 0, 0)));
}

fn advice(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("madvise {case}"), answer);
    let memory = at(map(-1, BOTH, ALONE, 0, 4 * PAGE));
    // SAFETY: the mapping is writable and these cases' own.
    unsafe { poke(memory, 9) };
    for (name, what) in [
        ("normal", 0),
        ("random", 1),
        ("sequential", 2),
        ("will need", 3),
        ("remove", 9),
        ("do not fork", 10),
        ("do fork", 11),
        ("merge", 12),
        ("unmerge", 13),
        ("huge", 14),
        ("not huge", 15),
        ("no dump", 16),
        ("dump", 17),
        ("wipe on fork", 18),
        ("keep", 19),
        ("cold", 20),
        ("page out", 21),
        ("populate", 22),
        ("populate write", 23),
        ("unknown", 99),
        ("do not need", 4),
    ] {
        note(name, said(call!(SYS_madvise, memory, PAGE, what)));
    }
    note("wiped", look(memory));
    note("not aligned", said(call!(SYS_madvise, memory + 1, PAGE, 0)));
    note("not mapped", said(call!(SYS_madvise, 1 << 20, PAGE, 3)));
    let file = open("d/file", libc::O_RDWR);
    let shared = at(map(file, BOTH, libc::MAP_SHARED, 0, PAGE));
    for (name, what) in [("will need", 3), ("do not need", 4), ("remove", 9), ("free", 8)] {
        note(&format!("file {name}"), said(call!(SYS_madvise, shared, PAGE, what)));
    }
    close(&[file]);
}

fn locks(book: &mut Book) {
    let memory = at(map(-1, BOTH, ALONE, 0, 4 * PAGE));
    for (case, answer) in [
        ("mlock", call!(SYS_mlock, memory, PAGE)),
        ("mlock not mapped", call!(SYS_mlock, 1 << 20, PAGE)),
        ("munlock", call!(SYS_munlock, memory, PAGE)),
        ("mlock2", call!(SYS_mlock2, memory, PAGE, 1)),
        ("mlock2 wrong", call!(SYS_mlock2, memory, PAGE, 8)),
        ("mlockall none", call!(SYS_mlockall, 0)),
        ("mlockall wrong", call!(SYS_mlockall, 64)),
        ("munlockall", call!(SYS_munlockall)),
        ("membarrier query", call!(SYS_membarrier, 0, 0, 0).map(|_| 0)),
        ("membarrier wrong", call!(SYS_membarrier, 1 << 30, 0, 0)),
    ] {
        book.note(case, said(answer));
    }
}

fn anonymous_files(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("memfd {case}"), answer);
    let file = fd(call!(SYS_memfd_create, path("case"), libc::MFD_ALLOW_SEALING));
    note("wrong", said(call!(SYS_memfd_create, path("case"), 0x1000)));
    note("long name", said(call!(SYS_memfd_create, path(&"n".repeat(300)), 0)));
    note("write", told(put(file, "sealed")));
    note("seals", told(call!(SYS_fcntl, file, libc::F_GET_SEALS, 0)));
    note(
        "seal",
        said(call!(SYS_fcntl, file, libc::F_ADD_SEALS, libc::F_SEAL_WRITE | libc::F_SEAL_GROW)),
    );
    note("write then", said(put(file, "more")));
    note("grow then", said(call!(SYS_ftruncate, file, 100)));
    note("shrink then", said(call!(SYS_ftruncate, file, 2)));
    note("map to write", said(map(file, BOTH, libc::MAP_SHARED, 0, PAGE)));
    note("map to read", said(map(file, libc::PROT_READ, libc::MAP_PRIVATE, 0, PAGE)));
    close(&[file]);
    book.note("secret wrong", said(call!(SYS_memfd_secret, 0x1000)));
}
