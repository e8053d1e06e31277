//! Asynchronous input and output: the kernel's own (`io_submit`), and `io_uring`, which is absent in a
//! transaction so that programs fall back.

use super::Book;
use super::sys::{BAD, close, longs, open, room, said, told, word};
use crate::call;

pub(super) fn run(book: &mut Book) {
    let context = longs(&[0]);
    book.note("setup none", said(call!(SYS_io_setup, 0, context)));
    book.note("setup", said(call!(SYS_io_setup, 4, context)));
    book.note("setup used", said(call!(SYS_io_setup, 4, context)));
    let at = context.long(0);
    let file = open("asynchronous", libc::O_RDWR | libc::O_CREAT);
    let data = room(b"later");
    // data, key, flags, opcode, priority, descriptor, buffer, bytes, offset, …
    let control = room(&[]);
    control.put(16, &1u16.to_ne_bytes());
    control.put(20, &file.to_ne_bytes());
    control.put(24, &word(data).to_ne_bytes());
    control.put(32, &5u64.to_ne_bytes());
    let list = longs(&[word(control) as i64]);
    book.note("submit", told(call!(SYS_io_submit, at, 1, list)));
    let events = room(&[]);
    book.note("events", told(call!(SYS_io_getevents, at, 1, 1, events, longs(&[5, 0]))));
    book.note("result", events.long(2));
    book.note("content", super::sys::get(file, 10));
    book.note("submit nothing", told(call!(SYS_io_submit, at, 0, list)));
    book.note("submit bad", said(call!(SYS_io_submit, at, 1, BAD)));
    control.put(20, &899i32.to_ne_bytes());
    book.note("submit closed", said(call!(SYS_io_submit, at, 1, list)));
    book.note("cancel", said(call!(SYS_io_cancel, at, control, events)));
    book.note("destroy", said(call!(SYS_io_destroy, at)));
    book.note("destroy again", said(call!(SYS_io_destroy, at)));
    let ring = call!(SYS_io_uring_setup, 4, room(&[]));
    book.note("io_uring", said(ring));
    close(&[file, ring.unwrap_or(-1) as i32]);
}
