//! Every call that takes a path, with every kind of path.
//!
//! Each combination works on a directory of its own, `p/N/in`, so that none sees what another did, not
//! even to its parent directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::Book;
use super::sys::{Answer, BAD, longs, name, path, room, said, word};
use crate::call;

/// What a path leads to, or fails at.
const TARGETS: &[&str] = &[
    "",
    "file",
    "file/",
    "file/x",
    "dir",
    "dir/",
    "dir/inner",
    "dir/none",
    "dir/../file",
    "empty",
    "empty/",
    "none",
    "none/",
    "none/x",
    "loop",
    "loop/x",
    "dangling",
    "dangling/",
    "tofile",
    "tofile/",
    "todir",
    "todir/",
    "todir/inner",
    "hard",
    "fifo",
    "sock",
    "ro",
    "shut/f",
    ".",
    "..",
    "dir/.",
    "LONG",
    "FAR",
    "NULL",
    "BAD",
];

fn target(what: &str) -> u64 {
    match what {
        "LONG" => word(path(&"n".repeat(256))),
        "FAR" => word(path(&"d/".repeat(2100))),
        "NULL" => 0,
        "BAD" => BAD,
        other => word(path(other)),
    }
}

/// One way to use a path.
type Use = (&'static str, fn(u64) -> Answer);

const HERE: i32 = libc::AT_FDCWD;

fn open(at: u64, flags: i32) -> Answer {
    call!(SYS_openat, HERE, at, flags | libc::O_NONBLOCK | libc::O_CLOEXEC, 0o644)
}

fn open2(at: u64, flags: i32, resolve: i64) -> Answer {
    let mode = if flags & libc::O_CREAT == 0 { 0 } else { 0o600 };
    let how = longs(&[i64::from(flags | libc::O_NONBLOCK | libc::O_CLOEXEC), mode, resolve]);
    // The kernel can't tell where `..` leads while anything on the machine is renamed or mounted, and
    // leaves it to the caller to ask again: EAGAIN in openat2(2).
    for _ in 0..10_000 {
        let answer = call!(SYS_openat2, HERE, at, how, 24);
        if answer != Err(libc::EAGAIN) {
            return answer;
        }
    }
    Err(libc::EAGAIN)
}

fn stat(at: u64, flags: i32) -> Answer {
    let space = room(&[]);
    call!(SYS_statx, HERE, at, flags, 0x7ff, space)?;
    let bytes = space.bytes(28, 2);
    let mode = i64::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    // The size of a directory is the file system's own affair.
    let size = if mode & 0o170_000 == 0o040_000 { 0 } else { space.long(5) };
    Ok(mode * 10_000 + size)
}

fn socket_address(at: u64) -> u64 {
    let text = match at {
        0 | BAD => return at,
        _ => at,
    };
    let address = room(&[]);
    address.put(0, &1u16.to_ne_bytes());
    let mut length = 0;
    while length < 106 {
        let byte = byte_of(text, length);
        if byte == 0 {
            break;
        }
        address.put(2 + length, &[byte]);
        length += 1;
    }
    word(address)
}

#[allow(unsafe_code, reason = "reads a path that this file made")]
fn byte_of(text: u64, at: usize) -> u8 {
    // SAFETY: the path was made by `path`, ends with a zero, and is read up to that.
    unsafe { super::sys::peek(text + at as u64) }
}

fn unix(kind: fn(i32, u64) -> Answer, at: u64) -> Answer {
    let socket = call!(SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0)? as i32;
    let answer = kind(socket, socket_address(at));
    super::sys::close(&[socket]);
    answer
}

fn listing(at: u64) -> Answer {
    let fd = open(at, libc::O_RDONLY | libc::O_DIRECTORY)? as i32;
    let answer = call!(SYS_getdents64, fd, room(&[]), 4096);
    super::sys::close(&[fd]);
    // How much room an entry takes is the kernel's affair; whether there are some is not.
    answer.map(|bytes| i64::from(bytes > 0))
}

fn set_attribute(number: libc::c_long, at: u64, flags: i32) -> Answer {
    let (name, value) = (path("user.case"), room(b"value"));
    super::sys::call(number, &[at, word(name), word(value), 5, word(flags)])
}

const USES: &[Use] = &[
    ("open read", |at| open(at, libc::O_RDONLY)),
    ("open write", |at| open(at, libc::O_WRONLY)),
    ("open both", |at| open(at, libc::O_RDWR)),
    ("open truncate", |at| open(at, libc::O_RDWR | libc::O_TRUNC)),
    ("open append", |at| open(at, libc::O_WRONLY | libc::O_APPEND)),
    ("open directory", |at| open(at, libc::O_RDONLY | libc::O_DIRECTORY)),
    ("open nofollow", |at| open(at, libc::O_RDONLY | libc::O_NOFOLLOW)),
    ("open path", |at| open(at, libc::O_PATH)),
    ("open path nofollow", |at| open(at, libc::O_PATH | libc::O_NOFOLLOW)),
    ("open create", |at| open(at, libc::O_WRONLY | libc::O_CREAT)),
    ("open create excl", |at| open(at, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL)),
    ("open create nofollow", |at| open(at, libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW)),
    ("open create directory", |at| open(at, libc::O_CREAT | libc::O_DIRECTORY)),
    ("open tmpfile", |at| open(at, libc::O_RDWR | libc::O_TMPFILE)),
    ("open sync", |at| open(at, libc::O_RDWR | libc::O_SYNC)),
    ("open direct", |at| open(at, libc::O_RDONLY | libc::O_DIRECT)),
    ("open noatime", |at| open(at, libc::O_RDONLY | libc::O_NOATIME)),
    ("openat2 beneath", |at| open2(at, libc::O_RDONLY, 8)),
    ("openat2 in root", |at| open2(at, libc::O_RDONLY, 16)),
    ("openat2 no links", |at| open2(at, libc::O_RDONLY, 4)),
    ("openat2 no mounts", |at| open2(at, libc::O_PATH, 1)),
    ("openat2 create", |at| open2(at, libc::O_WRONLY | libc::O_CREAT, 0)),
    ("getdents64", listing),
    ("mkdirat", |at| call!(SYS_mkdirat, HERE, at, 0o755)),
    ("rmdir", |at| call!(SYS_unlinkat, HERE, at, libc::AT_REMOVEDIR)),
    ("unlink", |at| call!(SYS_unlinkat, HERE, at, 0)),
    ("mknod fifo", |at| call!(SYS_mknodat, HERE, at, libc::S_IFIFO | 0o644, 0)),
    ("mknod file", |at| call!(SYS_mknodat, HERE, at, libc::S_IFREG | 0o644, 0)),
    ("mknod socket", |at| call!(SYS_mknodat, HERE, at, libc::S_IFSOCK | 0o644, 0)),
    ("mknod null", |at| call!(SYS_mknodat, HERE, at, libc::S_IFCHR | 0o644, 0x103)),
    ("symlink at", |at| call!(SYS_symlinkat, "file", HERE, at)),
    ("symlink to", |at| call!(SYS_symlinkat, at, HERE, "new")),
    ("link to", |at| call!(SYS_linkat, HERE, "file", HERE, at, 0)),
    ("link from", |at| call!(SYS_linkat, HERE, at, HERE, "new", 0)),
    ("link from follow", |at| call!(SYS_linkat, HERE, at, HERE, "new", libc::AT_SYMLINK_FOLLOW)),
    ("rename from", |at| call!(SYS_renameat2, HERE, at, HERE, "new", 0)),
    ("rename file to", |at| call!(SYS_renameat2, HERE, "file", HERE, at, 0)),
    ("rename dir to", |at| call!(SYS_renameat2, HERE, "dir", HERE, at, 0)),
    ("rename to empty", |at| call!(SYS_renameat2, HERE, at, HERE, "empty", 0)),
    ("rename into itself", |at| call!(SYS_renameat2, HERE, at, HERE, "dir/inside", 0)),
    ("rename noreplace", |at| call!(SYS_renameat2, HERE, "file", HERE, at, 1)),
    ("rename exchange", |at| call!(SYS_renameat2, HERE, "file", HERE, at, 2)),
    ("rename both flags", |at| call!(SYS_renameat2, HERE, "file", HERE, at, 3)),
    ("readlinkat", |at| call!(SYS_readlinkat, HERE, at, room(&[]), 100)),
    ("readlinkat 0", |at| call!(SYS_readlinkat, HERE, at, room(&[]), 0)),
    ("stat", |at| stat(at, 0)),
    ("lstat", |at| stat(at, libc::AT_SYMLINK_NOFOLLOW)),
    ("access exists", |at| call!(SYS_faccessat, HERE, at, 0)),
    ("access read", |at| call!(SYS_faccessat, HERE, at, 4)),
    ("access write", |at| call!(SYS_faccessat, HERE, at, 2)),
    ("access execute", |at| call!(SYS_faccessat, HERE, at, 1)),
    ("access wrong", |at| call!(SYS_faccessat, HERE, at, 99)),
    ("faccessat2", |at| call!(SYS_faccessat2, HERE, at, 6, libc::AT_EACCESS)),
    ("chmod", |at| call!(SYS_fchmodat, HERE, at, 0o640)),
    ("chmod setid", |at| call!(SYS_fchmodat, HERE, at, 0o6755)),
    ("fchmodat2 nofollow", |at| call!(SYS_fchmodat2, HERE, at, 0o600, libc::AT_SYMLINK_NOFOLLOW)),
    ("chown nothing", |at| call!(SYS_fchownat, HERE, at, -1, -1, 0)),
    ("lchown nothing", |at| call!(SYS_fchownat, HERE, at, -1, -1, libc::AT_SYMLINK_NOFOLLOW)),
    ("truncate 3", |at| call!(SYS_truncate, at, 3)),
    ("truncate 100", |at| call!(SYS_truncate, at, 100)),
    ("truncate -1", |at| call!(SYS_truncate, at, -1)),
    ("utimensat", |at| call!(SYS_utimensat, HERE, at, longs(&[1, 2, 3, 4]), 0)),
    ("utimensat link", |at| {
        call!(SYS_utimensat, HERE, at, longs(&[1, 2, 3, 4]), libc::AT_SYMLINK_NOFOLLOW)
    }),
    ("utimensat wrong", |at| call!(SYS_utimensat, HERE, at, longs(&[1, -2, 3, 4]), 0)),
    ("utimensat omit", |at| {
        call!(SYS_utimensat, HERE, at, longs(&[1, libc::UTIME_OMIT, 3, libc::UTIME_OMIT]), 0)
    }),
    ("setxattr", |at| set_attribute(libc::SYS_setxattr, at, 0)),
    ("setxattr create", |at| set_attribute(libc::SYS_setxattr, at, 1)),
    ("setxattr replace", |at| set_attribute(libc::SYS_setxattr, at, 2)),
    ("lsetxattr", |at| set_attribute(libc::SYS_lsetxattr, at, 0)),
    ("getxattr", |at| call!(SYS_getxattr, at, path("user.old"), room(&[]), 100)),
    ("getxattr size", |at| call!(SYS_getxattr, at, path("user.old"), 0, 0)),
    ("getxattr small", |at| call!(SYS_getxattr, at, path("user.old"), room(&[]), 1)),
    ("lgetxattr", |at| call!(SYS_lgetxattr, at, path("user.old"), room(&[]), 100)),
    ("listxattr", |at| call!(SYS_listxattr, at, room(&[]), 4096)),
    ("llistxattr", |at| call!(SYS_llistxattr, at, room(&[]), 4096)),
    ("removexattr", |at| call!(SYS_removexattr, at, path("user.old"))),
    ("lremovexattr", |at| call!(SYS_lremovexattr, at, path("user.old"))),
    ("chdir", |at| call!(SYS_chdir, at)),
    ("statfs", |at| call!(SYS_statfs, at, room(&[]))),
    ("execve", |at| call!(SYS_execve, at, 0, 0)),
    ("inotify watch", |at| {
        let fd = call!(SYS_inotify_init1, 0)? as i32;
        let answer = call!(SYS_inotify_add_watch, fd, at, 0xfff);
        super::sys::close(&[fd]);
        answer
    }),
    ("inotify link", |at| {
        let fd = call!(SYS_inotify_init1, 0)? as i32;
        let answer = call!(SYS_inotify_add_watch, fd, at, 0x0200_0fff);
        super::sys::close(&[fd]);
        answer
    }),
    ("bind", |at| unix(|fd, address| call!(SYS_bind, fd, address, 110), at)),
    ("connect", |at| unix(|fd, address| call!(SYS_connect, fd, address, 110), at)),
];

/// How an answer is shown: values where they are the same on every machine.
fn shown(name_of: &str, answer: Answer) -> String {
    let exact = ["stat", "lstat", "readlinkat", "getxattr", "lgetxattr", "getdents64"];
    match answer {
        Ok(value) if exact.iter().any(|name| name_of.starts_with(name)) => value.to_string(),
        Ok(_) => said(answer),
        Err(error) => name(error),
    }
}

/// Uses that change nothing: those of one path share a directory.
const LOOKS: &[&str] = &[
    "open read",
    "open directory",
    "open nofollow",
    "open path",
    "open path nofollow",
    "open direct",
    "open noatime",
    "openat2 beneath",
    "openat2 in root",
    "openat2 no links",
    "openat2 no mounts",
    "getdents64",
    "readlinkat",
    "readlinkat 0",
    "stat",
    "lstat",
    "access exists",
    "access read",
    "access write",
    "access execute",
    "access wrong",
    "faccessat2",
    "getxattr",
    "getxattr size",
    "getxattr small",
    "lgetxattr",
    "listxattr",
    "llistxattr",
    "chdir",
    "statfs",
    "execve",
    "inotify watch",
    "inotify link",
    "connect",
];

/// The directory of a combination.
fn place(number: usize, name: &str) -> String {
    match LOOKS.contains(&name) {
        true => format!("p/look-{}/in", number % TARGETS.len()),
        false => format!("p/{number}/in"),
    }
}

/// Makes the directories that the combinations work on, each with what is always there and with what
/// its path names.
///
/// # Panics
/// If one cannot be made.
pub(super) fn prepare() {
    let without = without();
    for (number, (name, target, _)) in combinations().enumerate() {
        if without.as_deref() == Some(target) {
            continue;
        }
        let dir = place(number, name);
        if fs::exists(&dir).unwrap_or(false) {
            continue;
        }
        let below = |name: &str| format!("{dir}/{name}");
        for name in ["dir", "empty"] {
            fs::create_dir_all(below(name)).expect("mkdir");
        }
        for name in ["file", "dir/inner"] {
            fs::write(below(name), b"0123456789").expect("write");
        }
        for name in ["file", "dir"] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(below(name), "user.old", b"was here", flags).expect("setxattr");
        }
        let first = target.split('/').next().unwrap_or_default();
        match first {
            "loop" => symlink("loop", below(first)).expect("symlink"),
            "dangling" => symlink("nowhere", below(first)).expect("symlink"),
            "tofile" => symlink("file", below(first)).expect("symlink"),
            "todir" => symlink("dir", below(first)).expect("symlink"),
            "hard" => fs::hard_link(below("file"), below(first)).expect("link"),
            "fifo" => {
                let mode = Mode::from_raw_mode(0o644);
                mknodat(CWD, below(first), FileType::Fifo, mode, 0).expect("mkfifo");
            }
            "sock" => drop(UnixListener::bind(below(first)).expect("bind")),
            "ro" => {
                fs::write(below(first), b"0123456789").expect("write");
                fs::set_permissions(below(first), fs::Permissions::from_mode(0o444))
                    .expect("chmod");
            }
            "shut" => {
                fs::create_dir(below(first)).expect("mkdir");
                fs::write(below("shut/f"), b"0123456789").expect("write");
                fs::set_permissions(below(first), fs::Permissions::from_mode(0o000))
                    .expect("chmod");
            }
            _ => {}
        }
    }
}

pub(super) fn run(book: &mut Book) {
    let home = super::sys::open(".", libc::O_PATH | libc::O_DIRECTORY);
    let without = without();
    for (number, (name, path, with)) in combinations().enumerate() {
        if without.as_deref() == Some(path) {
            continue;
        }
        super::sys::fd(call!(SYS_fchdir, home));
        super::sys::fd(call!(SYS_chdir, place(number, name).as_str()));
        let answer = with(target(path));
        book.note(format_args!("{name} {path:?}"), shown(name, answer));
        if let Ok(value) = answer
            && (name.starts_with("open") || name.starts_with("openat2"))
        {
            super::sys::close(&[value as i32]);
        }
    }
    super::sys::fd(call!(SYS_fchdir, home));
}

/// A kind of path to leave out (`CONFORM_WITHOUT`): one that a view of an ordinary user refuses.
fn without() -> Option<String> {
    std::env::var("CONFORM_WITHOUT").ok()
}

/// The directory that a case of this group worked on, by the words of its line.
pub fn place_of(case: &str) -> Option<String> {
    let found =
        combinations().enumerate().find(|(_, (name, path, _))| case == format!("{name} {path:?}"));
    found.map(|(number, (name, ..))| place(number, name))
}

fn combinations() -> impl Iterator<Item = (&'static str, &'static str, fn(u64) -> Answer)> {
    USES.iter().flat_map(|(name, with)| TARGETS.iter().map(move |target| (*name, *target, *with)))
}
