//! inotify(7) of members, and dnotify.

use super::Book;
use super::sys::{BAD, close, fd, in_child, open, path, put, room, said, told};
use crate::call;

/// The events that wait: mask and name of each.
fn events(watch: i32) -> String {
    let space = room(&[]);
    let Ok(length) = call!(SYS_read, watch, space, 4000) else { return "none".to_owned() };
    let mut at = 0;
    let mut found = Vec::new();
    while at < length as usize {
        let words: Vec<u8> = space.bytes(at, 16);
        let word =
            |n: usize| u32::from_ne_bytes([words[n], words[n + 1], words[n + 2], words[n + 3]]);
        let size = word(12) as usize;
        let name = space.bytes(at + 16, size);
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(size);
        let cookie = if word(8) == 0 { "" } else { "+" };
        found.push(format!("{:#x}{cookie}{}", word(4), String::from_utf8_lossy(&name[..end])));
        at += 16 + size;
    }
    found.join(" ")
}

pub(super) fn run(book: &mut Book) {
    book.note("init wrong", said(call!(SYS_inotify_init1, 0x77)));
    for how in ["old", "new"] {
        let dir = format!("watched-{how}");
        let dir = if how == "old" { "d/sub" } else { &dir };
        if how == "new" {
            let _ = call!(SYS_mkdirat, libc::AT_FDCWD, dir, 0o755);
        }
        directory(book, how, dir);
        file(book, how, dir);
    }
    wrong(book);
}

fn directory(book: &mut Book, how: &str, dir: &str) {
    let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
    let watch = fd(call!(SYS_inotify_init1, libc::IN_NONBLOCK | libc::IN_CLOEXEC));
    note("watch", said(call!(SYS_inotify_add_watch, watch, dir, 0xfff)));
    note("quiet", events(watch));
    let below = |name: &str| format!("{dir}/{name}");
    let at = libc::AT_FDCWD;
    let made = open(&below("made"), libc::O_WRONLY | libc::O_CREAT);
    note("create", events(watch));
    let _ = put(made, "text");
    note("write", events(watch));
    close(&[made]);
    note("close", events(watch));
    let read = open(&below("made"), libc::O_RDONLY);
    let _ = call!(SYS_read, read, room(&[]), 10);
    close(&[read]);
    note("read", events(watch));
    let _ = call!(SYS_fchmodat, at, below("made").as_str(), 0o600);
    note("chmod", events(watch));
    let _ = call!(SYS_truncate, below("made").as_str(), 1);
    note("truncate", events(watch));
    let _ = call!(SYS_renameat2, at, below("made").as_str(), at, below("moved").as_str(), 0);
    note("rename", events(watch));
    let _ = call!(SYS_renameat2, at, below("moved").as_str(), at, "moved-away", 0);
    note("move away", events(watch));
    let _ = call!(SYS_renameat2, at, "moved-away", at, below("back").as_str(), 0);
    note("move in", events(watch));
    let _ = call!(SYS_linkat, at, below("back").as_str(), at, below("link").as_str(), 0);
    note("link", events(watch));
    let _ = call!(SYS_symlinkat, "x", at, below("symlink").as_str());
    note("symlink", events(watch));
    let _ = call!(SYS_mkdirat, at, below("below").as_str(), 0o755);
    note("mkdir", events(watch));
    in_child(|| {
        close(&[open(&format!("{dir}/below/deep"), libc::O_WRONLY | libc::O_CREAT)]);
        0
    });
    note("deeper is not seen", events(watch));
    let _ = call!(SYS_unlinkat, at, format!("{dir}/below/deep").as_str(), 0);
    let _ = call!(SYS_unlinkat, at, below("below").as_str(), libc::AT_REMOVEDIR);
    note("rmdir", events(watch));
    for name in ["back", "link", "symlink"] {
        let _ = call!(SYS_unlinkat, at, below(name).as_str(), 0);
    }
    note("unlink", events(watch));
    note("unwatch", said(call!(SYS_inotify_rm_watch, watch, 1)));
    note("unwatched", events(watch));
    note("unwatch again", said(call!(SYS_inotify_rm_watch, watch, 1)));
    close(&[watch]);
}

fn file(book: &mut Book, how: &str, dir: &str) {
    let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
    let name = format!("{dir}/single");
    close(&[open(&name, libc::O_RDWR | libc::O_CREAT)]);
    let watch = fd(call!(SYS_inotify_init1, libc::IN_NONBLOCK));
    note("watch a file", said(call!(SYS_inotify_add_watch, watch, name.as_str(), 0xfff)));
    let writer = open(&name, libc::O_RDWR);
    let _ = put(writer, "x");
    close(&[writer]);
    note("file written", events(watch));
    note("once more", {
        let once = 0x2 | 0x8000_0000_u32;
        said(call!(SYS_inotify_add_watch, watch, name.as_str(), once))
    });
    let writer = open(&name, libc::O_RDWR);
    let _ = put(writer, "x");
    let _ = put(writer, "x");
    close(&[writer]);
    note("seen once", events(watch));
    let _ = call!(SYS_inotify_add_watch, watch, name.as_str(), 0xfff);
    let _ = call!(SYS_unlinkat, libc::AT_FDCWD, name.as_str(), 0);
    note("file removed", events(watch));
    note("only directories", said(call!(SYS_inotify_add_watch, watch, "d/file", 0x0100_0fff)));
    // A file that was there before the watch, and is written for the first time after it.
    let old = "d/watched-old";
    let exists = call!(SYS_faccessat, libc::AT_FDCWD, old, 0).is_ok();
    note("nothing of other files", if exists { "there".to_owned() } else { events(watch) });
    close(&[watch]);
}

fn wrong(book: &mut Book) {
    let watch = fd(call!(SYS_inotify_init1, libc::IN_NONBLOCK));
    let file = open("d/file", libc::O_RDONLY);
    for (case, answer) in [
        ("no mask", call!(SYS_inotify_add_watch, watch, "d", 0)),
        ("bad path", call!(SYS_inotify_add_watch, watch, BAD, 0xfff)),
        ("absent", call!(SYS_inotify_add_watch, watch, "none", 0xfff)),
        ("not a group", call!(SYS_inotify_add_watch, file, "d", 0xfff)),
        ("closed", call!(SYS_inotify_add_watch, 899, "d", 0xfff)),
        ("rm not a group", call!(SYS_inotify_rm_watch, file, 1)),
        ("rm none", call!(SYS_inotify_rm_watch, watch, 99)),
        ("create there", call!(SYS_inotify_add_watch, watch, "d", 0x1000_0fff)),
        ("create again", call!(SYS_inotify_add_watch, watch, "d", 0x1000_0fff)),
        ("create and add", call!(SYS_inotify_add_watch, watch, "d", 0x3000_0fff)),
    ] {
        book.note(case, said(answer));
    }
    book.note("read too small", told(call!(SYS_read, watch, room(&[]), 3)));
    close(&[open("d/seen", libc::O_RDWR | libc::O_CREAT)]);
    book.note("read without room", told(call!(SYS_read, watch, room(&[]), 3)));
    let _ = call!(SYS_unlinkat, libc::AT_FDCWD, path("d/seen"), 0);
    close(&[watch, file]);
}
