//! Extended attributes: names, sizes, flags, lists.

use super::Book;
use super::sys::{BAD, Room, close, name, open, path, room, said, told, word};
use crate::call;

fn listed(at: &str) -> String {
    let space = room(&[]);
    match call!(SYS_llistxattr, at, space, 4000) {
        Ok(length) => {
            let bytes = space.bytes(0, length as usize);
            let mut names: Vec<String> = bytes
                .split(|byte| *byte == 0)
                .filter(|name| name.starts_with(b"user.case"))
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            names.sort();
            names.join(",")
        }
        Err(error) => name(error),
    }
}

fn set(at: &str, attribute: &str, value: &Room, length: usize, flags: i32) -> String {
    said(call!(SYS_setxattr, at, path(attribute), value, length, flags))
}

pub(super) fn run(book: &mut Book) {
    let value = room(&[b'v'; 70_000]);
    close(&[open("attributes", libc::O_RDWR | libc::O_CREAT)]);
    for at in ["d/file", "d/sub", "attributes"] {
        let mut note = |case: &str, answer: String| {
            book.note(format_args!("{at} {case}"), answer);
        };
        note("set", set(at, "user.case1", &value, 10, 0));
        note("create there", set(at, "user.case1", &value, 10, 1));
        note("replace", set(at, "user.case1", &value, 12, 2));
        note("replace absent", set(at, "user.case2", &value, 1, 2));
        note("both flags", set(at, "user.case2", &value, 1, 3));
        note("unknown flag", set(at, "user.case2", &value, 1, 8));
        note("empty value", set(at, "user.case0", &value, 0, 0));
        note("large value", set(at, "user.caselarge", &value, 1500, 0));
        note("too large", set(at, "user.casehuge", &value, 65_537, 0));
        note("name of 255", set(at, &format!("user.{}", "n".repeat(250)), &value, 1, 0));
        note("name of 256", set(at, &format!("user.{}", "n".repeat(251)), &value, 1, 0));
        note("no name", set(at, "", &value, 1, 0));
        note("prefix alone", set(at, "user.", &value, 1, 0));
        note("no such prefix", set(at, "nothing.x", &value, 1, 0));
        note("system", set(at, "system.x", &value, 1, 0));
        note("bad value", said(call!(SYS_setxattr, at, path("user.casebad"), BAD, 3, 0)));
        note("bad name", said(call!(SYS_setxattr, at, BAD, value, 3, 0)));
        note("list", listed(at));
        let space = room(&[]);
        let get = |attribute: &str, size: usize| {
            told(call!(SYS_getxattr, at, path(attribute), space, size))
        };
        note("get", get("user.case1", 100));
        note("get exactly", get("user.case1", 12));
        note("get too small", get("user.case1", 11));
        note("get size", told(call!(SYS_getxattr, at, path("user.case1"), 0, 0)));
        note("get empty", get("user.case0", 10));
        note("get absent", get("user.none", 10));
        note("get unknown prefix", get("none.x", 10));
        note("get into nowhere", said(call!(SYS_getxattr, at, path("user.case1"), BAD, 100)));
        note("list too small", said(call!(SYS_listxattr, at, space, 3)));
        note("list into nowhere", said(call!(SYS_listxattr, at, BAD, 4000)));
        note("remove", said(call!(SYS_removexattr, at, path("user.case0"))));
        note("remove absent", said(call!(SYS_removexattr, at, path("user.case0"))));
        note("remove the long name", {
            let long = format!("user.{}", "n".repeat(250));
            said(call!(SYS_removexattr, at, path(&long)))
        });
        note("list after", listed(at));
        let fd = open(at, libc::O_RDONLY);
        let by_fd = call!(SYS_fsetxattr, fd, path("user.casefd"), value, 5, 0);
        note("by descriptor, opened to read", said(by_fd));
        note("by descriptor", told(call!(SYS_fgetxattr, fd, path("user.casefd"), space, 10)));
        let by_path = open(at, libc::O_PATH);
        note("by path descriptor", {
            said(call!(SYS_fgetxattr, by_path, path("user.casefd"), space, 10))
        });
        close(&[fd, by_path]);
    }
    let link = call!(SYS_symlinkat, "d/file", libc::AT_FDCWD, "attributes-link");
    book.note("link", said(link));
    let on_link = call!(SYS_lsetxattr, "attributes-link", path("user.l"), value, 1, 0);
    book.note("set on a link", said(on_link));
    book.note("through a link", set("attributes-link", "user.casel", &value, 3, 0));
    book.note("seen behind the link", listed("d/file"));
    let arguments = super::sys::longs(&[word(value) as i64, 4]);
    let at_call = |flags: i32| {
        // setxattrat(2), Linux 6.13.
        super::sys::call(
            463,
            &[
                libc::AT_FDCWD as u64,
                word("d/file"),
                flags as u64,
                word(path("user.caseat")),
                word(arguments),
                16,
            ],
        )
    };
    if !matches!(at_call(0), Err(libc::ENOSYS)) {
        book.note("setxattrat", said(at_call(0)));
        book.note("setxattrat wrong flag", said(at_call(1)));
        book.note("seen then", listed("d/file"));
    }
}
