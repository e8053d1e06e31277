//! Timers and clocks.

use super::Book;
use super::sys::{Answer, BAD, close, fd, ints, longs, name, rest, room, said, told};
use crate::call;

pub(super) fn run(book: &mut Book) {
    clocks(book);
    sleeps(book);
    interval(book);
    posix(book);
    descriptors(book);
}

const CLOCKS: &[(&str, i32)] = &[
    ("realtime", 0),
    ("monotonic", 1),
    ("process", 2),
    ("thread", 3),
    ("raw", 4),
    ("coarse", 5),
    ("boot", 7),
    ("realtime alarm", 8),
    ("boot alarm", 9),
    ("tai", 11),
    ("unknown", 77),
    ("-1", -1),
];

fn clocks(book: &mut Book) {
    for (name_of, clock) in CLOCKS {
        book.note(
            format_args!("gettime {name_of}"),
            said(call!(SYS_clock_gettime, *clock, room(&[]))),
        );
        book.note(
            format_args!("getres {name_of}"),
            said(call!(SYS_clock_getres, *clock, room(&[]))),
        );
        let timer = call!(SYS_timerfd_create, *clock, libc::TFD_CLOEXEC);
        book.note(format_args!("timerfd {name_of}"), said(timer));
        close(&[timer.unwrap_or(-1) as i32]);
        let made = ints(&[0]);
        let event = room(&[]);
        event.put(12, &1i32.to_ne_bytes());
        let timer = call!(SYS_timer_create, *clock, event, made);
        book.note(format_args!("timer {name_of}"), said(timer));
        if timer.is_ok() {
            let _ = call!(SYS_timer_delete, made.int(0));
        }
    }
    book.note("gettime nowhere", said(call!(SYS_clock_gettime, 0, BAD)));
    book.note("gettimeofday", said(call!(SYS_gettimeofday, room(&[]), 0)));
    let (first, second) = (longs(&[0, 0]), longs(&[0, 0]));
    let _ = call!(SYS_clock_gettime, 1, first);
    let _ = call!(SYS_clock_gettime, 1, second);
    let ordered = (first.long(0), first.long(1)) <= (second.long(0), second.long(1));
    book.note("never back", ordered);
}

fn sleeps(book: &mut Book) {
    for (case, answer) in [
        ("nanosleep", call!(SYS_nanosleep, longs(&[0, 1_000_000]), 0)),
        ("nanosleep negative", call!(SYS_nanosleep, longs(&[-1, 0]), 0)),
        ("nanosleep too fine", call!(SYS_nanosleep, longs(&[0, 1_000_000_000]), 0)),
        ("nanosleep nowhere", call!(SYS_nanosleep, BAD, 0)),
        ("clock_nanosleep", call!(SYS_clock_nanosleep, 1, 0, longs(&[0, 1_000_000]), 0)),
        ("clock_nanosleep past", call!(SYS_clock_nanosleep, 0, 1, longs(&[1, 0]), 0)),
        ("clock_nanosleep thread", call!(SYS_clock_nanosleep, 3, 0, longs(&[0, 1]), 0)),
        ("clock_nanosleep unknown", call!(SYS_clock_nanosleep, 77, 0, longs(&[0, 1]), 0)),
    ] {
        book.note(case, said(answer));
    }
    let status = super::sys::in_child(|| {
        let _ = call!(SYS_rt_sigaction, libc::SIGALRM, super::processes::handler(), 0, 8);
        // Again and again, because the first may come before the sleep has begun.
        let _ = call!(SYS_setitimer, 0, longs(&[0, 20_000, 0, 20_000]), 0);
        let left = longs(&[0, 0]);
        match call!(SYS_nanosleep, longs(&[5, 0]), left) {
            Err(libc::EINTR) if left.long(0) == 4 => 0,
            _ => 1,
        }
    });
    book.note("nanosleep interrupted, rest told", status);
}

fn interval(book: &mut Book) {
    for (name_of, which) in [("real", 0), ("virtual", 1), ("profile", 2), ("unknown", 9)] {
        let set = call!(SYS_setitimer, which, longs(&[0, 0, 100, 0]), 0);
        let now = longs(&[0, 0, 0, 0]);
        let got = call!(SYS_getitimer, which, now);
        let near = (98..=100).contains(&now.long(2));
        book.note(
            format_args!("itimer {name_of}"),
            format_args!("{} {} {near}", said(set), said(got)),
        );
        let _ = call!(SYS_setitimer, which, longs(&[0, 0, 0, 0]), 0);
    }
    book.note("itimer wrong", said(call!(SYS_setitimer, 0, longs(&[0, 0, 0, 1_000_000]), 0)));
    let status = super::sys::in_child(|| {
        let _ = call!(SYS_setitimer, 0, longs(&[0, 0, 0, 10_000]), 0);
        rest(5000);
        1
    });
    book.note("itimer ends its process", status);
}

fn settle(seconds: i64, nanoseconds: i64, every: i64) -> super::sys::Room {
    longs(&[0, every, seconds, nanoseconds])
}

fn posix(book: &mut Book) {
    let made = ints(&[0]);
    let event = room(&[]);
    // SIGEV_NONE: nothing is sent, the timer is only read.
    event.put(12, &1i32.to_ne_bytes());
    let mut note = |case: &str, answer: String| book.note(format_args!("timer {case}"), answer);
    note("create", said(call!(SYS_timer_create, 1, event, made)));
    let timer = made.int(0);
    let now = longs(&[0, 0, 0, 0]);
    note("settime", said(call!(SYS_timer_settime, timer, 0, settle(100, 0, 0), 0)));
    note("gettime", said(call!(SYS_timer_gettime, timer, now)));
    note("remains", (98..=100).contains(&now.long(2)).to_string());
    note("wrong time", said(call!(SYS_timer_settime, timer, 0, settle(0, -1, 0), 0)));
    note("nowhere", said(call!(SYS_timer_settime, timer, 0, BAD, 0)));
    note("overrun", told(call!(SYS_timer_getoverrun, timer)));
    note("delete", said(call!(SYS_timer_delete, timer)));
    note("delete again", said(call!(SYS_timer_delete, timer)));
    note("gettime then", said(call!(SYS_timer_gettime, timer, now)));
    event.put(12, &77i32.to_ne_bytes());
    note("wrong event", said(call!(SYS_timer_create, 1, event, made)));
}

fn expirations(timer: i32) -> Answer {
    let count = longs(&[0]);
    call!(SYS_read, timer, count, 8).map(|_| count.long(0))
}

/// As [`expirations`], and waits for the first of them, 10 s at the most.
fn awaited(timer: i32) -> Answer {
    for _ in 0..2000 {
        match expirations(timer) {
            Err(libc::EAGAIN) => rest(5),
            answer => return answer,
        }
    }
    Err(libc::ETIMEDOUT)
}

fn descriptors(book: &mut Book) {
    let mut note = |case: &str, answer: String| book.note(format_args!("timerfd {case}"), answer);
    let timer = fd(call!(SYS_timerfd_create, 1, libc::TFD_NONBLOCK));
    note("idle", told(expirations(timer)));
    note("set", said(call!(SYS_timerfd_settime, timer, 0, settle(0, 1_000_000, 0), 0)));
    note("expired", told(awaited(timer)));
    note("expired once", told(expirations(timer)));
    note("in the past", said(call!(SYS_timerfd_settime, timer, 1, settle(0, 1, 0), 0)));
    note("at once", told(awaited(timer)));
    note("every", said(call!(SYS_timerfd_settime, timer, 0, settle(0, 1_000_000, 1_000_000), 0)));
    let (first, second) = (awaited(timer).unwrap_or(0), awaited(timer).unwrap_or(0));
    note("several", (first + second >= 2).to_string());
    note("stop", said(call!(SYS_timerfd_settime, timer, 0, settle(0, 0, 0), 0)));
    rest(5);
    let _ = expirations(timer);
    note("stopped", told(expirations(timer)));
    note("short", told(call!(SYS_read, timer, room(&[]), 4)));
    note("wrong", said(call!(SYS_timerfd_settime, timer, 99, settle(0, 0, 0), 0)));
    note("not one", said(call!(SYS_timerfd_gettime, 899, room(&[]))));
    note("write", name(call!(SYS_write, timer, room(&[]), 8).err().unwrap_or(0)));
    close(&[timer]);
}
