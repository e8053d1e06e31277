//! flock(2), the locks of fcntl(2), and leases, between processes.

use super::Book;
use super::sys::{Answer, Room, get, put, until_in};
use super::sys::{close, fd, fork, in_child, name, open, pipe, room, said, wait_for};
use crate::call;

/// Calls in which a child waits for a lock.
const LOCKS: &[i64] = &[libc::SYS_flock, libc::SYS_fcntl];

fn record(kind: i32, start: i64, length: i64) -> Room {
    let lock = room(&[]);
    lock.put(0, &(kind as i16).to_ne_bytes());
    lock.put(8, &start.to_ne_bytes());
    lock.put(16, &length.to_ne_bytes());
    lock
}

fn set(at: i32, command: i32, kind: i32, start: i64, length: i64) -> Answer {
    call!(SYS_fcntl, at, command, record(kind, start, length))
}

/// The lock that would be in the way: kind, start, length, and whether its holder is told.
fn ask(at: i32, kind: i32, start: i64, length: i64) -> String {
    let lock = record(kind, start, length);
    match call!(SYS_fcntl, at, libc::F_GETLK, lock) {
        Ok(_) => {
            let kind = i16::from_ne_bytes([lock.bytes(0, 1)[0], lock.bytes(1, 1)[0]]);
            let known = i32::from(kind) != libc::F_UNLCK;
            let holder = if known && lock.int(6) > 0 { "holder" } else { "-" };
            format!("{kind} {} {} {holder}", lock.long(1), lock.long(2))
        }
        Err(error) => name(error),
    }
}

fn answer_of_child(body: impl FnOnce() -> Answer) -> String {
    match in_child(|| body().map_or_else(|error| error, |_| 0)) {
        0 => "ok".to_owned(),
        error => name(error),
    }
}

pub(super) fn run(book: &mut Book) {
    for (how, flags) in [("old", 0), ("new", libc::O_CREAT)] {
        // Once on the file that was there before, once on one made here.
        let file = if flags == 0 { "d/file" } else { "locked" };
        whole_files(book, how, file, flags);
        ranges(book, how, file, flags);
        waits(book, how, file, flags);
        leases(book, how, file, flags);
    }
}

fn whole_files(book: &mut Book, how: &str, file: &str, flags: i32) {
    let mine = open(file, libc::O_RDWR | flags);
    for (first, name_of) in [(libc::LOCK_SH, "shared"), (libc::LOCK_EX, "exclusive")] {
        book.note(format_args!("{how} flock {name_of}"), said(call!(SYS_flock, mine, first)));
        for (second, other) in [(libc::LOCK_SH, "shared"), (libc::LOCK_EX, "exclusive")] {
            let try_it = || {
                let theirs = open(file, libc::O_RDWR);
                let answer = call!(SYS_flock, theirs, second | libc::LOCK_NB);
                close(&[theirs]);
                answer
            };
            book.note(format_args!("{how} flock {name_of} then {other}, another"), {
                answer_of_child(try_it)
            });
            book.note(format_args!("{how} flock {name_of} then {other}, same process"), {
                said(try_it())
            });
        }
        let inherited = || call!(SYS_flock, mine, libc::LOCK_EX | libc::LOCK_NB);
        book.note(format_args!("{how} flock {name_of}, inherited"), answer_of_child(inherited));
    }
    book.note(format_args!("{how} flock down"), said(call!(SYS_flock, mine, libc::LOCK_SH)));
    let copy = fd(call!(SYS_dup, mine));
    book.note(
        format_args!("{how} flock unlock a copy"),
        said(call!(SYS_flock, copy, libc::LOCK_UN)),
    );
    let free = || call!(SYS_flock, open(file, libc::O_RDONLY), libc::LOCK_EX | libc::LOCK_NB);
    book.note(format_args!("{how} flock read-only, exclusive"), answer_of_child(free));
    close(&[mine, copy]);
}

fn ranges(book: &mut Book, how: &str, file: &str, flags: i32) {
    let mine = open(file, libc::O_RDWR | flags);
    let write = libc::F_WRLCK;
    let read = libc::F_RDLCK;
    let note = |book: &mut Book, case: &str, answer: String| {
        book.note(format_args!("{how} {case}"), answer);
    };
    note(book, "write 10-19", said(set(mine, libc::F_SETLK, write, 10, 10)));
    note(book, "own is never in the way", ask(mine, write, 0, 0));
    for (case, kind, start, length) in [
        ("before", write, 0, 10),
        ("over", write, 5, 10),
        ("within", read, 12, 2),
        ("last byte", write, 19, 1),
        ("after", write, 20, 10),
        ("all", read, 0, 0),
        ("backwards", write, 20, -5),
    ] {
        note(book, &format!("another: {case}"), {
            answer_of_child(|| set(open(file, libc::O_RDWR), libc::F_SETLK, kind, start, length))
        });
        let (from, to) = pipe(0);
        let child = fork(|| {
            let _ = put(to, &ask(open(file, libc::O_RDWR), kind, start, length));
            0
        });
        wait_for(child);
        note(book, &format!("another asks: {case}"), get(from, 100));
        close(&[from, to]);
    }
    note(book, "split", said(set(mine, libc::F_SETLK, libc::F_UNLCK, 13, 4)));
    note(book, "another in the gap", {
        answer_of_child(|| set(open(file, libc::O_RDWR), libc::F_SETLK, write, 13, 4))
    });
    note(book, "another beside the gap", {
        answer_of_child(|| set(open(file, libc::O_RDWR), libc::F_SETLK, write, 12, 4))
    });
    let ofd = open(file, libc::O_RDWR);
    note(book, "ofd against own process", said(set(ofd, libc::F_OFD_SETLK, write, 10, 2)));
    note(book, "ofd elsewhere", said(set(ofd, libc::F_OFD_SETLK, write, 40, 2)));
    note(book, "process against ofd", said(set(mine, libc::F_SETLK, write, 40, 2)));
    let pid = record(write, 60, 1);
    pid.put(24, &7i32.to_ne_bytes());
    note(book, "ofd with a pid", said(call!(SYS_fcntl, ofd, libc::F_OFD_SETLK, pid)));
    close(&[ofd]);
    note(book, "process after the ofd is closed", said(set(mine, libc::F_SETLK, write, 40, 2)));
    // Closing any descriptor of the file drops a process's locks.
    close(&[open(file, libc::O_RDONLY)]);
    note(book, "after closing another descriptor", {
        answer_of_child(|| set(open(file, libc::O_RDWR), libc::F_SETLK, write, 0, 0))
    });
    note(book, "write lock on a reader", {
        said(set(open(file, libc::O_RDONLY), libc::F_SETLK, write, 0, 1))
    });
    note(book, "read lock on a writer", {
        said(set(open(file, libc::O_WRONLY), libc::F_SETLK, read, 0, 1))
    });
    note(book, "before the beginning", said(set(mine, libc::F_SETLK, read, -1, 1)));
    note(book, "past the end of all", said(set(mine, libc::F_SETLK, read, i64::MAX, 2)));
    note(book, "unknown kind", said(set(mine, libc::F_SETLK, 17, 0, 1)));
    let child = answer_of_child(|| set(mine, libc::F_SETLK, write, 70, 1));
    note(book, "inherited descriptor, own lock", child);
    close(&[mine]);
}

/// Waiting for a lock: until it is free, until a signal, never in a circle.
fn waits(book: &mut Book, how: &str, file: &str, flags: i32) {
    let note = |book: &mut Book, case: &str, answer: String| {
        book.note(format_args!("{how} {case}"), answer);
    };
    for (case, lock, unlock) in [
        ("flock", 0, 0),
        ("fcntl", libc::F_SETLKW, libc::F_SETLK),
        ("ofd", libc::F_OFD_SETLKW, libc::F_OFD_SETLK),
    ] {
        let take = move |at: i32| match lock {
            0 => call!(SYS_flock, at, libc::LOCK_EX),
            command => set(at, command, libc::F_WRLCK, 0, 10),
        };
        let free = move |at: i32| match unlock {
            0 => call!(SYS_flock, at, libc::LOCK_UN),
            command => set(at, command, libc::F_UNLCK, 0, 10),
        };
        let mine = open(file, libc::O_RDWR | flags);
        note(book, &format!("{case} taken"), said(take(mine)));
        let (from, to) = pipe(0);
        let child = fork(|| {
            let theirs = open(file, libc::O_RDWR);
            let _ = put(to, "begins ");
            let answer = take(theirs);
            let _ = put(to, &said(answer));
            0
        });
        note(book, &format!("{case} waiter"), get(from, 7));
        until_in(child, LOCKS);
        note(book, &format!("{case} freed"), said(free(mine)));
        wait_for(child);
        note(book, &format!("{case} waiter then"), get(from, 10));
        // A waiter that is killed, and one that is interrupted.
        note(book, &format!("{case} taken again"), said(take(mine)));
        let child = fork(|| {
            let handler = super::processes::handler();
            let _ = call!(SYS_rt_sigaction, libc::SIGUSR1, handler, 0, 8);
            let _ = put(to, "ready");
            take(open(file, libc::O_RDWR)).map_or_else(|error| error, |_| 0)
        });
        let _ = get(from, 5);
        // A signal that comes before the wait interrupts nothing.
        until_in(child, LOCKS);
        let _ = call!(SYS_kill, child, libc::SIGUSR1);
        note(book, &format!("{case} interrupted"), name(wait_for(child)));
        let child = fork(|| {
            let _ = put(to, "ready");
            i32::from(take(open(file, libc::O_RDWR)).is_ok())
        });
        let _ = get(from, 5);
        until_in(child, LOCKS);
        let _ = call!(SYS_kill, child, libc::SIGKILL);
        note(book, &format!("{case} killed"), wait_for(child).to_string());
        let _ = free(mine);
        close(&[mine, from, to]);
    }
}

fn leases(book: &mut Book, how: &str, file: &str, flags: i32) {
    let mine = open(file, libc::O_RDONLY | flags);
    let lease = |kind: i32| call!(SYS_fcntl, mine, libc::F_SETLEASE, kind);
    book.note(format_args!("{how} read lease"), said(lease(libc::F_RDLCK)));
    let held = call!(SYS_fcntl, mine, libc::F_GETLEASE, 0);
    book.note(format_args!("{how} lease held"), super::sys::told(held));
    book.note(format_args!("{how} another reads"), {
        answer_of_child(|| call!(SYS_openat, libc::AT_FDCWD, file, libc::O_RDONLY, 0))
    });
    let nonblocking = libc::O_WRONLY | libc::O_NONBLOCK;
    let ignore = super::sys::longs(&[1, 0, 0, 0]);
    let _ = call!(SYS_rt_sigaction, libc::SIGIO, ignore, 0, 8);
    book.note(format_args!("{how} another writes"), {
        answer_of_child(|| call!(SYS_openat, libc::AT_FDCWD, file, nonblocking, 0))
    });
    book.note(format_args!("{how} no lease"), said(lease(libc::F_UNLCK)));
    close(&[mine]);
}
