//! splice, tee, vmsplice, sendfile, copy_file_range, and vectors: what arrives, and where offsets stand.

use super::Book;
use super::sys::{BAD, close, get, longs, open, pair, pipe, put, room, said, told, word};
use crate::call;

const NEW: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;

/// What a file holds.
fn content(file: &str) -> String {
    let fd = open(file, libc::O_RDONLY);
    let text = get(fd, 200);
    close(&[fd]);
    text
}

fn position(fd: i32) -> String {
    told(call!(SYS_lseek, fd, 0, libc::SEEK_CUR))
}

pub(super) fn run(book: &mut Book) {
    for (how, source) in [("old", "d/file"), ("new", "source")] {
        if how == "new" {
            let file = open(source, NEW);
            let _ = put(file, "0123456789");
            close(&[file]);
        }
        whole(book, how, source);
    }
    wrong(book);
    vectors(book);
    holes(book);
}

fn whole(book: &mut Book, how: &str, source: &str) {
    let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
    let from = open(source, libc::O_RDONLY);
    let (read, write) = pipe(0);
    note("splice in", told(call!(SYS_splice, from, 0, write, 0, 4, 0)));
    note("splice in, position", position(from));
    note("splice at 2", told(call!(SYS_splice, from, longs(&[2]), write, 0, 3, 0)));
    note("splice at 2, position", position(from));
    note("splice at end", told(call!(SYS_splice, from, longs(&[1000]), write, 0, 3, 0)));
    let (read2, write2) = pipe(0);
    note("tee", told(call!(SYS_tee, read, write2, 100, 0)));
    note("tee'd", get(read2, 100));
    let to = open("target", NEW);
    note("splice out", told(call!(SYS_splice, read, 0, to, 0, 100, 0)));
    note("splice out, content", content("target"));
    note("sendfile", told(call!(SYS_sendfile, to, from, 0, 3)));
    let offset = longs(&[1]);
    note("sendfile at 1", told(call!(SYS_sendfile, to, from, offset, 2)));
    note("sendfile at 1, offset", offset.long(0).to_string());
    note("sendfile past the end", told(call!(SYS_sendfile, to, from, longs(&[100]), 2)));
    note("sendfile, content", content("target"));
    let (one, two) = pair(libc::SOCK_STREAM);
    note("sendfile to a socket", told(call!(SYS_sendfile, one, from, longs(&[0]), 10)));
    note("from the socket", get(two, 100));
    let _ = put(two, "back");
    note("splice from a socket", told(call!(SYS_splice, one, 0, write, 0, 4, 0)));
    note("through the pipe", get(read, 100));
    let copied = call!(SYS_copy_file_range, from, longs(&[0]), to, longs(&[20]), 5, 0);
    // Between two layers of the view it is EXDEV, as between two file systems, and programs copy by hand.
    note("copy_file_range", told(copied));
    let within = call!(SYS_copy_file_range, to, longs(&[0]), to, longs(&[30]), 5, 0);
    note("copy_file_range within", told(within));
    note("copy_file_range overlapping", {
        said(call!(SYS_copy_file_range, to, longs(&[0]), to, longs(&[2]), 5, 0))
    });
    note("size", told(call!(SYS_lseek, to, 0, libc::SEEK_END)));
    let data = room(b"mapped pages");
    let vector = longs(&[word(data) as i64, 12]);
    note("vmsplice", told(call!(SYS_vmsplice, write, vector, 1, 0)));
    note("vmspliced", get(read, 100));
    close(&[from, to, read, write, read2, write2, one, two]);
}

fn wrong(book: &mut Book) {
    let file = open("target", libc::O_RDWR);
    let append = open("target", libc::O_RDWR | libc::O_APPEND);
    let (read, write) = pipe(libc::O_NONBLOCK);
    let directory = open("d", libc::O_RDONLY);
    for (case, answer) in [
        ("splice file to file", call!(SYS_splice, file, 0, append, 0, 1, 0)),
        ("splice to append", call!(SYS_splice, read, 0, append, 0, 1, 0)),
        ("splice pipe offset", call!(SYS_splice, read, longs(&[0]), file, 0, 1, 0)),
        ("splice same pipe", call!(SYS_splice, read, 0, write, 0, 1, 0)),
        ("splice empty", call!(SYS_splice, read, 0, file, 0, 1, 2)),
        ("splice 0", call!(SYS_splice, read, 0, file, 0, 0, 0)),
        ("splice closed", call!(SYS_splice, 899, 0, file, 0, 1, 0)),
        ("splice wrong flag", call!(SYS_splice, read, 0, file, 0, 1, 0x100)),
        ("splice directory", call!(SYS_splice, directory, 0, write, 0, 1, 0)),
        ("tee same", call!(SYS_tee, read, write, 1, 0)),
        ("tee file", call!(SYS_tee, file, write, 1, 0)),
        ("vmsplice file", call!(SYS_vmsplice, file, longs(&[0, 0]), 1, 0)),
        ("vmsplice many", call!(SYS_vmsplice, write, longs(&[0, 0]), 2000, 0)),
        ("sendfile to a reader", call!(SYS_sendfile, read, file, 0, 1)),
        ("sendfile from a pipe", call!(SYS_sendfile, file, read, 0, 1)),
        ("sendfile negative", call!(SYS_sendfile, write, file, longs(&[-1]), 1)),
        ("sendfile bad offset", call!(SYS_sendfile, write, file, BAD, 1)),
        ("sendfile directory", call!(SYS_sendfile, write, directory, 0, 1)),
        ("copy flags", call!(SYS_copy_file_range, file, 0, file, 0, 1, 7)),
        ("copy append", call!(SYS_copy_file_range, file, 0, append, 0, 1, 0)),
        ("copy directory", call!(SYS_copy_file_range, directory, 0, file, 0, 1, 0)),
        ("copy pipe", call!(SYS_copy_file_range, read, 0, file, 0, 1, 0)),
    ] {
        book.note(case, said(answer));
    }
    close(&[file, append, read, write, directory]);
}

fn vectors(book: &mut Book) {
    let file = open("vectors", NEW);
    let parts = [room(b"one,"), room(b"two,"), room(b"three")];
    let list: Vec<i64> =
        parts.iter().zip([4, 4, 5]).flat_map(|(part, size)| [word(part) as i64, size]).collect();
    book.note("writev", told(call!(SYS_writev, file, longs(&list), 3)));
    book.note("pwritev", told(call!(SYS_pwritev, file, longs(&list), 2, 20, 0)));
    book.note("content", content("vectors"));
    let into = [room(&[]), room(&[])];
    let list = longs(&[word(into[0]) as i64, 3, word(into[1]) as i64, 100]);
    book.note("preadv", told(call!(SYS_preadv, file, list, 2, 2, 0)));
    let texts = into.map(|part| String::from_utf8_lossy(&part.bytes(0, 3)).into_owned());
    book.note("preadv parts", texts.join("|"));
    book.note("readv none", told(call!(SYS_readv, file, list, 0)));
    book.note("readv negative", said(call!(SYS_readv, file, list, -1)));
    book.note("readv bad", said(call!(SYS_readv, file, BAD, 1)));
    book.note("readv long", said(call!(SYS_readv, file, longs(&[word(into[0]) as i64, -1]), 1)));
    close(&[file]);
}

/// Holes: where data is, and what punching leaves.
fn holes(book: &mut Book) {
    let file = open("holes", NEW);
    let _ = call!(SYS_ftruncate, file, 1 << 20);
    let _ = call!(SYS_pwrite64, file, room(&[b'd'; 4000]), 4096, 262_144);
    let seek = |from: i64, whence: i32| told(call!(SYS_lseek, file, from, whence));
    book.note("data", seek(0, libc::SEEK_DATA));
    book.note("hole", seek(262_144, libc::SEEK_HOLE));
    book.note("data behind", seek(300_000, libc::SEEK_DATA));
    book.note("hole at the end", seek((1 << 20) - 1, libc::SEEK_HOLE));
    book.note("hole beyond", seek(1 << 20, libc::SEEK_HOLE));
    book.note("punch", said(call!(SYS_fallocate, file, 3, 262_144, 4096)));
    book.note("data after punching", seek(0, libc::SEEK_DATA));
    book.note("collapse", said(call!(SYS_fallocate, file, 8, 0, 4096)));
    book.note("insert", said(call!(SYS_fallocate, file, 32, 0, 4096)));
    book.note("size", seek(0, libc::SEEK_END));
    close(&[file]);
}
