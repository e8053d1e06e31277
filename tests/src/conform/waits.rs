//! select, poll, epoll, eventfd, and futexes.

use super::Book;
use super::sys::{BAD, open};
use super::sys::{
    Room, close, fd, fork, get, in_child, ints, longs, name, pair, pipe, put, rest, room, said,
    told, until_in, wait_for,
};
use crate::call;

pub(super) fn run(book: &mut Book) {
    poll(book);
    select(book);
    epoll(book);
    event_counters(book);
    futexes(book);
}

/// Longest wait for another process, in seconds; it comes to that only where something is wrong.
const LONG: i32 = 60;

/// poll(2) of one descriptor: the count and the events.
fn polled(at: i32, events: i32, milliseconds: i64) -> String {
    let asked = ints(&[at, events & 0xffff]);
    let limit = longs(&[milliseconds / 1000, milliseconds % 1000 * 1_000_000]);
    match call!(SYS_ppoll, asked, 1, limit, 0, 8) {
        Ok(count) => format!("{count} {:#x}", asked.int(1) as u32 >> 16),
        Err(error) => name(error),
    }
}

fn poll(book: &mut Book) {
    let all = i32::from(libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP);
    let (read, write) = pipe(libc::O_NONBLOCK);
    book.note("poll empty pipe", polled(read, all, 0));
    book.note("poll its writer", polled(write, all, 0));
    let _ = put(write, "x");
    book.note("poll with a byte", polled(read, all, 0));
    while put(write, &"x".repeat(4096)).is_ok() {}
    book.note("poll full writer", polled(write, all, 0));
    close(&[write]);
    book.note("poll without writer", polled(read, all, 0));
    let (other, writer) = pipe(libc::O_NONBLOCK);
    close(&[other]);
    book.note("poll without reader", polled(writer, all, 0));
    close(&[read, writer]);
    let (one, two) = pair(libc::SOCK_STREAM);
    book.note("poll socket", polled(one, all, 0));
    let _ = call!(SYS_shutdown, two, 1);
    book.note("poll half shut", polled(one, all, 0));
    close(&[two]);
    book.note("poll shut", polled(one, all, 0));
    close(&[one]);
    book.note("poll closed", polled(899, all, 0));
    book.note("poll negative", polled(-1, all, 0));
    book.note("poll time-out", polled(-1, all, 20));
    let directory = open("d", libc::O_RDONLY);
    let file = open("d/file", libc::O_RDWR);
    book.note("poll directory", polled(directory, all, 0));
    book.note("poll file", polled(file, all, 0));
    close(&[directory, file]);
    book.note("ppoll bad list", said(call!(SYS_ppoll, BAD, 1, longs(&[0, 0]), 0, 8)));
    book.note("ppoll bad time", said(call!(SYS_ppoll, 0, 0, longs(&[0, -1]), 0, 8)));
    book.note("ppoll too many", said(call!(SYS_ppoll, room(&[]), -1, longs(&[0, 0]), 0, 8)));
}

fn set(of: &[i32]) -> Room {
    let set = room(&[0; 128]);
    for at in of {
        let at = *at as usize;
        let byte = set.bytes(at / 8, 1)[0] | 1 << (at % 8);
        set.put(at / 8, &[byte]);
    }
    set
}

fn select(book: &mut Book) {
    let (read, write) = pipe(libc::O_NONBLOCK);
    let no_time = || longs(&[0, 0]);
    let member = |set: &Room, at: i32| set.bytes(at as usize / 8, 1)[0] >> (at % 8) & 1;
    let asked = set(&[read]);
    let answer = call!(SYS_pselect6, read + 1, asked, 0, 0, no_time(), 0);
    book.note("select empty pipe", format_args!("{} {}", told(answer), member(&asked, read)));
    let _ = put(write, "x");
    let (asked, writers) = (set(&[read]), set(&[write]));
    let answer = call!(SYS_pselect6, 64, asked, writers, 0, no_time(), 0);
    let both = format!("{} {}", member(&asked, read), member(&writers, write));
    book.note("select both ends", format_args!("{} {both}", told(answer)));
    book.note("select closed", said(call!(SYS_pselect6, 900, set(&[899]), 0, 0, no_time(), 0)));
    book.note("select negative", said(call!(SYS_pselect6, -1, 0, 0, 0, no_time(), 0)));
    book.note("select bad set", said(call!(SYS_pselect6, 10, BAD, 0, 0, no_time(), 0)));
    book.note("select bad time", said(call!(SYS_pselect6, 0, 0, 0, 0, longs(&[0, -5]), 0)));
    book.note("select time-out", told(call!(SYS_pselect6, 0, 0, 0, 0, longs(&[0, 20_000_000]), 0)));
    close(&[read, write]);
}

fn epoll(book: &mut Book) {
    let (add, delete, modify) = (1, 2, 3);
    let epoll = fd(call!(SYS_epoll_create1, libc::EPOLL_CLOEXEC));
    let (read, write) = pipe(libc::O_NONBLOCK);
    let interest = |events: u32, data: i32| ints(&[events as i32, data, 0]);
    let control = |at: i32, what: i32, on: i32, interest: &Room| {
        said(call!(SYS_epoll_ctl, at, what, on, interest))
    };
    let waited = |most: i32, milliseconds: i32| {
        let found = room(&[]);
        match call!(SYS_epoll_pwait, epoll, found, most, milliseconds, 0, 8) {
            Ok(0) => "none".to_owned(),
            Ok(count) => {
                let first = format!("{:#x} data {}", found.int(0), found.int(1));
                format!("{count}: {first}")
            }
            Err(error) => name(error),
        }
    };
    let readable = libc::EPOLLIN as u32;
    book.note("create1 wrong", said(call!(SYS_epoll_create1, 77)));
    book.note("add", control(epoll, add, read, &interest(readable, 7)));
    book.note("add again", control(epoll, add, read, &interest(readable, 7)));
    book.note("modify absent", control(epoll, modify, write, &interest(4, 1)));
    book.note("delete absent", control(epoll, delete, write, &interest(4, 1)));
    book.note("add itself", control(epoll, add, epoll, &interest(1, 1)));
    book.note("add closed", control(epoll, add, 899, &interest(1, 1)));
    book.note("control of a pipe", control(read, add, write, &interest(1, 1)));
    book.note("unknown operation", control(epoll, 9, write, &interest(1, 1)));
    book.note("bad event", said(call!(SYS_epoll_ctl, epoll, add, write, BAD)));
    let file = open("d/file", libc::O_RDONLY);
    book.note("add a file", control(epoll, add, file, &interest(1, 1)));
    close(&[file]);
    book.note("nothing ready", waited(4, 0));
    let _ = put(write, "x");
    book.note("ready", waited(4, 0));
    book.note("ready still", waited(4, 0));
    book.note("edge", control(epoll, modify, read, &interest(readable | libc::EPOLLET as u32, 8)));
    book.note("edge first", waited(4, 0));
    book.note("edge second", waited(4, 0));
    let _ = put(write, "y");
    book.note("edge anew", waited(4, 0));
    let once = readable | libc::EPOLLONESHOT as u32;
    book.note("one shot", control(epoll, modify, read, &interest(once, 9)));
    book.note("one shot first", waited(4, 0));
    book.note("one shot second", waited(4, 0));
    book.note("both", control(epoll, add, write, &interest(libc::EPOLLOUT as u32, 5)));
    book.note("writer ready", waited(4, 0));
    book.note("none wanted", waited(0, 0));
    book.note("negative wanted", waited(-1, 0));
    book.note("wait in nowhere", said(call!(SYS_epoll_pwait, epoll, BAD, 4, 0, 0, 8)));
    let outer = fd(call!(SYS_epoll_create1, 0));
    book.note("nested", control(outer, add, epoll, &interest(1, 1)));
    book.note("circle", control(epoll, add, outer, &interest(1, 1)));
    let limit = call!(SYS_epoll_pwait2, outer, room(&[]), 4, longs(&[0, 1000]), 0, 8);
    book.note("pwait2", told(limit));
    close(&[read, write]);
    book.note("closed are gone", waited(4, 0));
    // A wait that another process ends.
    let (read, write) = pipe(0);
    let _ = control(epoll, add, read, &interest(readable, 3));
    let (from, to) = pipe(0);
    let child = fork(|| i32::from(put(to, &waited(4, LONG * 1000)).is_err()));
    until_in(child, &[libc::SYS_epoll_pwait]);
    let _ = put(write, "z");
    book.note("woken", get(from, 100));
    wait_for(child);
    close(&[read, write, from, to, epoll, outer]);
}

fn event_counters(book: &mut Book) {
    let read = |at: i32| {
        let value = longs(&[0]);
        call!(SYS_read, at, value, 8).map(|_| value.long(0))
    };
    let write = |at: i32, value: i64| call!(SYS_write, at, longs(&[value]), 8);
    let counter = fd(call!(SYS_eventfd2, 5, libc::EFD_NONBLOCK));
    book.note("eventfd first", told(read(counter)));
    book.note("eventfd empty", told(read(counter)));
    book.note("eventfd add", told(write(counter, 3)));
    book.note("eventfd add more", told(write(counter, 4)));
    book.note("eventfd sum", told(read(counter)));
    book.note("eventfd most", told(write(counter, -2)));
    book.note("eventfd over", told(write(counter, 1)));
    book.note("eventfd -1", told(write(counter, -1)));
    book.note("eventfd short", told(call!(SYS_read, counter, room(&[]), 4)));
    close(&[counter]);
    let semaphore = fd(call!(SYS_eventfd2, 2, libc::EFD_NONBLOCK | libc::EFD_SEMAPHORE));
    let three = [(); 3].map(|()| told(read(semaphore)));
    book.note("eventfd semaphore", three.join(" "));
    close(&[semaphore]);
    book.note("eventfd wrong", said(call!(SYS_eventfd2, 0, 0x10)));
}

/// Memory that children share.
fn shared_page() -> u64 {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    call!(SYS_mmap, 0, 4096, protection, flags, -1, 0).unwrap_or(0) as u64
}

/// How many a wake-up wakes, once the child is in its wait. It is there in the call a little before it
/// can be woken.
fn woken_of(child: i32, at: u64) -> String {
    let wake = 1;
    until_in(child, &[libc::SYS_futex]);
    for _ in 0..LONG * 1000 {
        match call!(SYS_futex, at, wake, 1, 0, 0, 0) {
            Ok(0) => rest(1),
            woken => return told(woken),
        }
    }
    "nobody".to_owned()
}

fn futexes(book: &mut Book) {
    let page = shared_page();
    let (wait, wake) = (0, 1);
    let limit = || longs(&[0, 20_000_000]);
    let mut note = |case: &str, answer: String| book.note(format_args!("futex {case}"), answer);
    note("other value", said(call!(SYS_futex, page, wait, 1, limit(), 0, 0)));
    note("time-out", said(call!(SYS_futex, page, wait, 0, limit(), 0, 0)));
    note("private time-out", said(call!(SYS_futex, page, wait | 128, 0, limit(), 0, 0)));
    note("bad time", said(call!(SYS_futex, page, wait, 0, longs(&[0, -1]), 0, 0)));
    note("nowhere", said(call!(SYS_futex, BAD, wait, 0, limit(), 0, 0)));
    note("not aligned", said(call!(SYS_futex, page + 1, wait, 0, limit(), 0, 0)));
    note("wake nobody", told(call!(SYS_futex, page, wake, 1, 0, 0, 0)));
    note("unknown", said(call!(SYS_futex, page, 77, 0, 0, 0, 0)));
    note("no mask", said(call!(SYS_futex, page, 9, 0, limit(), 0, 0)));
    note("requeue other value", said(call!(SYS_futex, page, 4, 1, 1, page + 64, 9)));
    let child = fork(|| {
        let answer = call!(SYS_futex, page, wait, 0, longs(&[LONG.into(), 0]), 0, 0);
        answer.map_or_else(|error| error, |_| 0)
    });
    note("wake one", woken_of(child, page));
    note("woken", name(wait_for(child)));
    // On a file of the tree, which two processes map.
    let file = open("futex-file", libc::O_RDWR | libc::O_CREAT);
    let _ = call!(SYS_ftruncate, file, 4096);
    let map =
        |file: i32| call!(SYS_mmap, 0, 4096, 3, libc::MAP_SHARED, file, 0).unwrap_or(0) as u64;
    let mine = map(file);
    let child = fork(|| {
        let theirs = map(open("futex-file", libc::O_RDWR));
        let answer = call!(SYS_futex, theirs, wait, 0, longs(&[LONG.into(), 0]), 0, 0);
        answer.map_or_else(|error| error, |_| 0)
    });
    note("wake one on a file", woken_of(child, mine));
    note("woken on a file", name(wait_for(child)));
    close(&[file]);
    let _ = call!(SYS_unlinkat, libc::AT_FDCWD, "futex-file", 0);
    let lock_pi =
        in_child(|| call!(SYS_futex, page + 128, 6, 0, 0, 0, 0).map_or_else(|e| e, |_| 0));
    note("lock with inheritance", name(lock_pi));
    note("robust list", said(call!(SYS_set_robust_list, room(&[]), 24)));
    note("robust list wrong", said(call!(SYS_set_robust_list, room(&[]), 23)));
}
