//! Communication by key and by name: System V and POSIX.

use super::Book;
use super::sys::{
    BAD, Room, close, fork, in_child, ints, longs, name, path, rest, room, said, told, until_in,
    wait_for, word,
};
use crate::call;

/// A key that nothing else of these cases uses.
const KEY: i32 = 0x7458_0001;
const CREATE: i32 = libc::IPC_CREAT;
const ONLY: i32 = libc::IPC_EXCL;

pub(super) fn run(book: &mut Book) {
    queues(book);
    semaphores(book);
    memory(book);
    named_queues(book);
    named_memory(book);
}

fn message(kind: i64, text: &str) -> Room {
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(text.as_bytes());
    room(&bytes)
}

fn queues(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("msg {case}"), answer);
    note("absent", said(call!(SYS_msgget, KEY, 0)));
    let queue = call!(SYS_msgget, KEY, CREATE | ONLY | 0o600);
    note("make", said(queue));
    let Ok(queue) = queue else { return };
    note("make again", said(call!(SYS_msgget, KEY, CREATE | ONLY | 0o600)));
    note("find", i32::from(call!(SYS_msgget, KEY, 0) == Ok(queue)).to_string());
    let send = |kind: i64, text: &str, flags: i32| {
        said(call!(SYS_msgsnd, queue, message(kind, text), text.len(), flags))
    };
    let receive = |size: usize, kind: i64, flags: i32| {
        let into = room(&[]);
        match call!(SYS_msgrcv, queue, into, size, kind, flags) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&into.bytes(8, length as usize)).into_owned();
                format!("{} {text}", into.long(0))
            }
            Err(error) => name(error),
        }
    };
    note("send 5", send(5, "five", 0));
    note("send 2", send(2, "two", 0));
    note("send 9", send(9, "nine", 0));
    note("send kind 0", send(0, "x", 0));
    note("send too long", said(call!(SYS_msgsnd, queue, message(1, ""), 1 << 20, 0)));
    note("send bad", said(call!(SYS_msgsnd, queue, BAD, 1, 0)));
    note("receive kind 2", receive(100, 2, 0));
    note("receive lowest", receive(100, -9, 0));
    note("receive too small", receive(1, 0, 0));
    note("receive cut", receive(2, 0, libc::MSG_NOERROR));
    note("receive none", receive(100, 0, libc::IPC_NOWAIT));
    note("receive negative", said(call!(SYS_msgrcv, queue, room(&[]), -1, 0, 0)));
    let status = room(&[]);
    note("status", said(call!(SYS_msgctl, queue, libc::IPC_STAT, status)));
    note("status of", status.int(0).to_string());
    note("unknown", said(call!(SYS_msgctl, queue, 999, status)));
    note("status nowhere", said(call!(SYS_msgctl, queue, libc::IPC_STAT, BAD)));
    while send(1, &"f".repeat(2000), libc::IPC_NOWAIT) == "ok" {}
    note("full", send(1, &"f".repeat(2000), libc::IPC_NOWAIT));
    let child = fork(|| {
        let answer = call!(SYS_msgsnd, queue, message(1, &"w".repeat(2000)), 2000, 0);
        answer.map_or_else(|error| error, |_| 0)
    });
    until_in(child, &[libc::SYS_msgsnd]);
    note("remove", said(call!(SYS_msgctl, queue, libc::IPC_RMID, 0)));
    note("waiter", name(wait_for(child)));
    note("after", said(call!(SYS_msgctl, queue, libc::IPC_STAT, status)));
}

fn semaphores(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("sem {case}"), answer);
    note("none", said(call!(SYS_semget, KEY, 0, CREATE | 0o600)));
    let set = call!(SYS_semget, KEY, 3, CREATE | ONLY | 0o600);
    note("make", said(set));
    let Ok(set) = set else { return };
    note("larger", said(call!(SYS_semget, KEY, 9, 0)));
    note("too many", said(call!(SYS_semget, KEY + 1, 1 << 20, CREATE | 0o600)));
    let control =
        |index: i32, command: i32, value: u64| told(call!(SYS_semctl, set, index, command, value));
    let one = |index: i16, change: i16, flags: i16| {
        let operation = room(&[]);
        for (at, word) in [index, change, flags].into_iter().enumerate() {
            operation.put(at * 2, &word.to_ne_bytes());
        }
        operation
    };
    let operate = |operation: &Room| said(call!(SYS_semop, set, operation, 1));
    let nowait = libc::IPC_NOWAIT as i16;
    note("set", control(0, libc::SETVAL, 2));
    note("get", control(0, libc::GETVAL, 0));
    note("set too high", control(0, libc::SETVAL, 1 << 20));
    note("set all", control(0, libc::SETALL, word(room(&[1, 0, 2, 0, 3, 0]))));
    note("get third", control(2, libc::GETVAL, 0));
    note("get fourth", control(3, libc::GETVAL, 0));
    note("down", operate(&one(0, -1, 0)));
    note("down at zero", operate(&one(0, -1, nowait)));
    note("zero", operate(&one(0, 0, nowait)));
    note("not zero", operate(&one(1, 0, nowait)));
    note("up", operate(&one(0, 5, 0)));
    note("index too high", operate(&one(7, 1, 0)));
    note("no operations", said(call!(SYS_semop, set, one(0, 0, 0), 0)));
    note("too many operations", said(call!(SYS_semop, set, one(0, 0, 0), 5000)));
    note("bad", said(call!(SYS_semop, set, BAD, 1)));
    note("time-out", {
        said(call!(SYS_semtimedop, set, one(1, -9, 0), 1, longs(&[0, 20_000_000])))
    });
    let child = in_child(|| {
        i32::from(call!(SYS_semop, set, one(0, -2, libc::SEM_UNDO as i16), 1).is_err())
    });
    note("undone", format!("{child} {}", control(0, libc::GETVAL, 0)));
    let child = fork(|| call!(SYS_semop, set, one(1, -9, 0), 1).map_or_else(|error| error, |_| 0));
    let mut waiting = String::new();
    for _ in 0..100 {
        rest(5);
        waiting = control(1, libc::GETNCNT, 0);
        if waiting == "1" {
            break;
        }
    }
    note("waiting", waiting);
    note("remove", control(0, libc::IPC_RMID, 0));
    note("waiter", name(wait_for(child)));
    note("after", control(0, libc::GETVAL, 0));
}

fn memory(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("shm {case}"), answer);
    note("size 0", said(call!(SYS_shmget, KEY, 0, CREATE | 0o600)));
    let segment = call!(SYS_shmget, KEY, 8192, CREATE | ONLY | 0o600);
    note("make", said(segment));
    let Ok(segment) = segment else { return };
    note("larger", said(call!(SYS_shmget, KEY, 16384, 0)));
    note("again", said(call!(SYS_shmget, KEY, 8192, CREATE | ONLY)));
    let at = call!(SYS_shmat, segment, 0, 0);
    note("attach", said(at));
    note("attach nowhere", said(call!(SYS_shmat, segment, 4097, 0)));
    note("attach no segment", said(call!(SYS_shmat, 0x7fff_0000, 0, 0)));
    let Ok(at) = at else { return };
    store(at as u64, 42);
    let child = in_child(|| {
        let found = call!(SYS_shmat, segment, 0, libc::SHM_RDONLY).unwrap_or(0) as u64;
        i32::from(load(found))
    });
    note("seen by another", child.to_string());
    let status = room(&[]);
    note("status", said(call!(SYS_shmctl, segment, libc::IPC_STAT, status)));
    note("size", status.long(6).to_string());
    note("lock", said(call!(SYS_shmctl, segment, libc::SHM_LOCK, 0)));
    note("unlock", said(call!(SYS_shmctl, segment, libc::SHM_UNLOCK, 0)));
    note("unknown", said(call!(SYS_shmctl, segment, 999, status)));
    note("remove", said(call!(SYS_shmctl, segment, libc::IPC_RMID, 0)));
    note("still there", load(at as u64).to_string());
    note("detach", said(call!(SYS_shmdt, at)));
    note("detach again", said(call!(SYS_shmdt, at)));
    note("after", said(call!(SYS_shmctl, segment, libc::IPC_STAT, status)));
}

#[allow(unsafe_code, reason = "shared memory that this file attached")]
fn store(at: u64, byte: u8) {
    // SAFETY: the segment is attached, writable, and used by these cases alone.
    unsafe { super::sys::poke(at, byte) };
}

#[allow(unsafe_code, reason = "shared memory that this file attached")]
fn load(at: u64) -> u8 {
    // SAFETY: the segment is attached.
    unsafe { super::sys::peek(at) }
}

fn named_queues(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("mq {case}"), answer);
    // The machine has one space of names, and a run that was killed may have left its own.
    let mine = format!("txos-case-{}", std::process::id());
    let file = path(&mine);
    let attributes = longs(&[0, 4, 32, 0]);
    note("absent", said(call!(SYS_mq_open, file, libc::O_RDWR, 0, 0)));
    let flags = libc::O_RDWR | CREATE_FILE | libc::O_NONBLOCK;
    let queue = call!(SYS_mq_open, file, flags | libc::O_EXCL, 0o600, attributes);
    note("make", said(queue));
    let Ok(queue) = queue else { return };
    note("make again", said(call!(SYS_mq_open, file, flags | libc::O_EXCL, 0o600, attributes)));
    note("wrong attributes", {
        said(call!(SYS_mq_open, path(&format!("{mine}-2")), flags, 0o600, longs(&[0, -1, 32, 0])))
    });
    note("slash", said(call!(SYS_mq_open, path("a/b"), flags, 0o600, 0)));
    note("no name", said(call!(SYS_mq_open, path(""), flags, 0o600, 0)));
    let send = |text: &str, priority: i32| {
        said(call!(SYS_mq_timedsend, queue, room(text.as_bytes()), text.len(), priority, 0))
    };
    let receive = |size: usize| {
        let (into, priority) = (room(&[]), ints(&[0]));
        match call!(SYS_mq_timedreceive, queue, into, size, priority, 0) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&into.bytes(0, length as usize)).into_owned();
                format!("{} {text}", priority.int(0))
            }
            Err(error) => name(error),
        }
    };
    note("send low", send("low", 1));
    note("send high", send("high", 9));
    note("send too long", send(&"l".repeat(33), 1));
    note("send priority", send("p", 1 << 20));
    note("receive small", receive(8));
    note("receive first", receive(32));
    note("receive second", receive(32));
    note("receive none", receive(32));
    for _ in 0..4 {
        let _ = send("fill", 0);
    }
    note("full", send("more", 0));
    let now = room(&[]);
    note("attributes", said(call!(SYS_mq_getsetattr, queue, 0, now)));
    note("count", format!("{} {} {}", now.long(1), now.long(2), now.long(3)));
    note("set wrong", said(call!(SYS_mq_getsetattr, queue, longs(&[64, 0, 0, 0]), 0)));
    note("notify none", said(call!(SYS_mq_notify, queue, 0)));
    note("notify bad", said(call!(SYS_mq_notify, queue, BAD)));
    let polled = ints(&[queue as i32, i32::from(libc::POLLIN | libc::POLLOUT)]);
    note("poll", told(call!(SYS_ppoll, polled, 1, longs(&[0, 0]), 0, 8)));
    note("unlink", said(call!(SYS_mq_unlink, file)));
    note("unlink again", said(call!(SYS_mq_unlink, file)));
    note("works still", receive(32));
    close(&[queue as i32]);
    note("closed", receive(32));
}

const CREATE_FILE: i32 = libc::O_CREAT;

fn named_memory(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("shm_open {case}"), answer);
    let file = format!("/dev/shm/txos-case-{}", std::process::id());
    let file = path(&file);
    let made = call!(SYS_openat, 0, file, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600);
    note("make", said(made));
    let Ok(at) = made else { return };
    note("size", said(call!(SYS_ftruncate, at, 4096)));
    let map = |at: i64| call!(SYS_mmap, 0, 4096, 3, libc::MAP_SHARED, at, 0).unwrap_or(0) as u64;
    let mine = map(at);
    store(mine, 7);
    let child = in_child(|| {
        let other = call!(SYS_openat, 0, file, libc::O_RDWR, 0).unwrap_or(-1);
        i32::from(load(map(other)))
    });
    note("seen by another", child.to_string());
    note("unlink", said(call!(SYS_unlinkat, 0, file, 0)));
    note("still there", load(mine).to_string());
    close(&[at as i32]);
}
