//! Every call that takes a descriptor, with every kind of descriptor, each opened anew.

use std::fs;

use super::Book;
use super::sys::{
    Answer, close, fd, get, ints, longs, open, pair, path, pipe, put, room, said, told, word,
};
use crate::call;

/// A kind of descriptor, and how one is made.
type Kind = (&'static str, fn() -> i32);

const KINDS: &[Kind] = &[
    ("file read", || open("d/file", libc::O_RDONLY)),
    ("file write", || open("d/file", libc::O_WRONLY)),
    ("file both", || open("d/file", libc::O_RDWR)),
    ("file append", || open("d/file", libc::O_RDWR | libc::O_APPEND)),
    ("file new", || open("d/new", libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC)),
    ("file path", || open("d/file", libc::O_PATH)),
    ("nameless", || open("d", libc::O_RDWR | libc::O_TMPFILE)),
    ("directory", || open("d/sub", libc::O_RDONLY | libc::O_DIRECTORY)),
    ("directory path", || open("d/sub", libc::O_PATH)),
    ("fifo", || open("d/fifo", libc::O_RDWR | libc::O_NONBLOCK)),
    ("pipe read", || {
        let (read, write) = pipe(libc::O_NONBLOCK);
        let _ = put(write, "pipe");
        close(&[write]);
        read
    }),
    ("pipe write", || {
        let (read, write) = pipe(libc::O_NONBLOCK);
        // Kept open under a number that no case uses.
        let _ = call!(SYS_dup3, read, 900, libc::O_CLOEXEC);
        close(&[read]);
        write
    }),
    ("pipe broken", || {
        let (read, write) = pipe(libc::O_NONBLOCK);
        close(&[read]);
        write
    }),
    ("local stream", || {
        let (one, other) = pair(libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
        let _ = put(other, "sock");
        let _ = call!(SYS_dup3, other, 901, libc::O_CLOEXEC);
        close(&[other]);
        one
    }),
    ("local datagram", || fd(call!(SYS_socket, 1, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0))),
    ("tcp", || fd(call!(SYS_socket, 2, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0))),
    ("tcp listening", || {
        let socket = fd(call!(SYS_socket, 2, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0));
        let _ = call!(SYS_bind, socket, super::sockets::loopback(0), 16);
        let _ = call!(SYS_listen, socket, 1);
        socket
    }),
    ("tcp6", || fd(call!(SYS_socket, 10, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0))),
    ("udp", || fd(call!(SYS_socket, 2, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0))),
    ("netlink", || fd(call!(SYS_socket, 16, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0))),
    ("eventfd", || fd(call!(SYS_eventfd2, 3, libc::EFD_NONBLOCK))),
    ("timerfd", || fd(call!(SYS_timerfd_create, 1, libc::TFD_NONBLOCK))),
    ("signalfd", || fd(call!(SYS_signalfd4, -1, longs(&[1 << 9]), 8, libc::SFD_NONBLOCK))),
    ("epoll", || fd(call!(SYS_epoll_create1, 0))),
    ("inotify", || fd(call!(SYS_inotify_init1, libc::IN_NONBLOCK))),
    ("memory", || {
        let file = fd(call!(SYS_memfd_create, path("case"), 2));
        let _ = put(file, "0123456789");
        let _ = call!(SYS_lseek, file, 0, 0);
        file
    }),
    ("memory unsealable", || fd(call!(SYS_memfd_create, path("case"), 0))),
    ("pidfd", || fd(call!(SYS_pidfd_open, call!(SYS_getpid).unwrap_or(0), 0))),
    ("null", || open("/dev/null", libc::O_RDWR)),
    ("zero", || open("/dev/zero", libc::O_RDWR)),
    ("full", || open("/dev/full", libc::O_RDWR)),
    ("proc", || open("/proc/self/comm", libc::O_RDONLY)),
    ("closed", || 899),
    ("-1", || -1),
    ("here", || libc::AT_FDCWD),
];

/// A way to use a descriptor, and whether its value counts.
type Use = (&'static str, bool, fn(i32) -> Answer);

fn with_pipe(both: fn(i32, i32, i32) -> Answer, at: i32) -> Answer {
    let (read, write) = pipe(libc::O_NONBLOCK);
    let answer = both(at, read, write);
    close(&[read, write]);
    answer
}

fn with_file(both: fn(i32, i32) -> Answer, at: i32) -> Answer {
    let file = open("d/other", libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC);
    let _ = put(file, "abcdefgh");
    let _ = call!(SYS_lseek, file, 0, 0);
    let answer = both(at, file);
    close(&[file]);
    answer
}

fn vector(bytes: usize) -> u64 {
    let data = room(b"vector");
    word(longs(&[word(data) as i64, bytes as i64]))
}

fn lock(kind: i32, from: i64) -> u64 {
    let lock = room(&[]);
    lock.put(0, &(kind as i16).to_ne_bytes());
    lock.put(8, &from.to_ne_bytes());
    lock.put(16, &1i64.to_ne_bytes());
    word(lock)
}

fn map(at: i32, protection: i32, flags: i32) -> Answer {
    let address = call!(SYS_mmap, 0, 4096, protection, flags, at, 0)?;
    call!(SYS_munmap, address, 4096)
}

fn poll(at: i32) -> Answer {
    let asked = ints(&[at, 0x7f]);
    call!(SYS_ppoll, asked, 1, longs(&[0, 0]), 0, 0)?;
    Ok(i64::from(asked.int(1) >> 16))
}

fn epoll_add(at: i32) -> Answer {
    let epoll = call!(SYS_epoll_create1, 0)? as i32;
    let answer = call!(SYS_epoll_ctl, epoll, 1, at, ints(&[5, 0, 0]));
    close(&[epoll]);
    answer
}

fn mode_of(at: i32) -> Answer {
    let space = room(&[]);
    call!(SYS_statx, at, path(""), libc::AT_EMPTY_PATH, 0x7ff, space)?;
    let bytes = space.bytes(28, 2);
    Ok(i64::from(u16::from_ne_bytes([bytes[0], bytes[1]])))
}

fn fcntl(at: i32, command: i32, value: u64) -> Answer {
    call!(SYS_fcntl, at, command, value)
}

const USES: &[Use] = &[
    ("read", true, |at| call!(SYS_read, at, room(&[]), 5)),
    ("read 0", true, |at| call!(SYS_read, at, room(&[]), 0)),
    ("read bad", true, |at| call!(SYS_read, at, super::sys::BAD, 5)),
    ("write", true, |at| call!(SYS_write, at, longs(&[1]), 8)),
    ("write 0", true, |at| call!(SYS_write, at, room(&[]), 0)),
    ("write bad", true, |at| call!(SYS_write, at, super::sys::BAD, 8)),
    ("pread", true, |at| call!(SYS_pread64, at, room(&[]), 5, 2)),
    ("pread -1", true, |at| call!(SYS_pread64, at, room(&[]), 5, -1)),
    ("pwrite", true, |at| call!(SYS_pwrite64, at, room(b"PW"), 2, 4)),
    ("readv", true, |at| call!(SYS_readv, at, vector(4), 1)),
    ("readv 2000", true, |at| call!(SYS_readv, at, vector(4), 2000)),
    ("writev", true, |at| call!(SYS_writev, at, vector(6), 1)),
    ("preadv2 nowait", false, |at| call!(SYS_preadv2, at, vector(4), 1, 0, 0, 8)),
    ("pwritev2 append", true, |at| call!(SYS_pwritev2, at, vector(6), 1, 0, 0, 16)),
    ("preadv2 wrong", true, |at| call!(SYS_preadv2, at, vector(4), 1, 0, 0, 0x4000)),
    ("lseek set", true, |at| call!(SYS_lseek, at, 3, libc::SEEK_SET)),
    ("lseek -1", true, |at| call!(SYS_lseek, at, -1, libc::SEEK_SET)),
    ("lseek current", true, |at| call!(SYS_lseek, at, 0, libc::SEEK_CUR)),
    ("lseek end", false, |at| call!(SYS_lseek, at, 0, libc::SEEK_END)),
    ("lseek data", true, |at| call!(SYS_lseek, at, 0, libc::SEEK_DATA)),
    ("lseek hole", false, |at| call!(SYS_lseek, at, 0, libc::SEEK_HOLE)),
    ("lseek wrong", true, |at| call!(SYS_lseek, at, 0, 99)),
    ("ftruncate", true, |at| call!(SYS_ftruncate, at, 6)),
    ("ftruncate -1", true, |at| call!(SYS_ftruncate, at, -1)),
    ("fallocate", true, |at| call!(SYS_fallocate, at, 0, 0, 20)),
    ("fallocate keep", true, |at| call!(SYS_fallocate, at, 1, 0, 20)),
    ("fallocate punch", true, |at| call!(SYS_fallocate, at, 3, 0, 4)),
    ("fallocate zero", true, |at| call!(SYS_fallocate, at, 16, 0, 4)),
    ("fallocate nothing", true, |at| call!(SYS_fallocate, at, 0, 0, 0)),
    ("fadvise", true, |at| call!(SYS_fadvise64, at, 0, 0, 3)),
    ("fadvise wrong", true, |at| call!(SYS_fadvise64, at, 0, 0, 99)),
    ("readahead", true, |at| call!(SYS_readahead, at, 0, 4096)),
    ("fsync", true, |at| call!(SYS_fsync, at)),
    ("fdatasync", true, |at| call!(SYS_fdatasync, at)),
    ("syncfs", true, |at| call!(SYS_syncfs, at)),
    ("sync_file_range", true, |at| call!(SYS_sync_file_range, at, 0, 0, 2)),
    ("fstat", true, mode_of),
    ("fstatfs", false, |at| call!(SYS_fstatfs, at, room(&[]))),
    ("fchmod", true, |at| call!(SYS_fchmod, at, 0o750)),
    ("fchown nothing", true, |at| call!(SYS_fchown, at, -1, -1)),
    ("futimens", true, |at| call!(SYS_utimensat, at, 0, longs(&[5, 6, 7, 8]), 0)),
    ("fgetxattr", true, |at| call!(SYS_fgetxattr, at, path("user.old"), room(&[]), 100)),
    ("fsetxattr", true, |at| call!(SYS_fsetxattr, at, path("user.f"), room(b"v"), 1, 0)),
    ("flistxattr", false, |at| call!(SYS_flistxattr, at, room(&[]), 4000)),
    ("fremovexattr", true, |at| call!(SYS_fremovexattr, at, path("user.none"))),
    ("getdents64", false, |at| call!(SYS_getdents64, at, room(&[]), 4000)),
    ("fchdir", true, |at| {
        let here = open(".", libc::O_PATH);
        let answer = call!(SYS_fchdir, at);
        let _ = call!(SYS_fchdir, here);
        close(&[here]);
        answer
    }),
    ("openat below", true, |at| {
        let inner = call!(SYS_openat, at, path("inner"), 0)? as i32;
        close(&[inner]);
        Ok(0)
    }),
    ("mkdirat below", true, |at| call!(SYS_mkdirat, at, path("made"), 0o755)),
    ("unlinkat below", true, |at| call!(SYS_unlinkat, at, path("made"), libc::AT_REMOVEDIR)),
    ("dup", false, |at| {
        let other = call!(SYS_dup, at)? as i32;
        close(&[other]);
        Ok(0)
    }),
    ("dup2 itself", false, |at| call!(SYS_dup3, at, at, 0)),
    ("F_DUPFD", true, |at| {
        let other = fcntl(at, libc::F_DUPFD, 800)? as i32;
        close(&[other]);
        Ok(i64::from(other))
    }),
    ("F_GETFD", true, |at| fcntl(at, libc::F_GETFD, 0)),
    ("F_SETFD", true, |at| fcntl(at, libc::F_SETFD, 1)),
    ("F_GETFL", true, |at| fcntl(at, libc::F_GETFL, 0)),
    ("F_SETFL", true, |at| fcntl(at, libc::F_SETFL, (libc::O_NONBLOCK | libc::O_APPEND) as u64)),
    ("F_SETFL direct", true, |at| fcntl(at, libc::F_SETFL, libc::O_DIRECT as u64)),
    ("F_GETOWN", true, |at| fcntl(at, libc::F_GETOWN, 0)),
    ("F_SETSIG", true, |at| fcntl(at, 10, 10)),
    ("F_GETLK", true, |at| fcntl(at, libc::F_GETLK, lock(libc::F_WRLCK, 0))),
    ("F_SETLK read", true, |at| fcntl(at, libc::F_SETLK, lock(libc::F_RDLCK, 0))),
    ("F_SETLK write", true, |at| fcntl(at, libc::F_SETLK, lock(libc::F_WRLCK, 0))),
    ("F_SETLK unlock", true, |at| fcntl(at, libc::F_SETLK, lock(libc::F_UNLCK, 0))),
    ("F_SETLK wrong", true, |at| fcntl(at, libc::F_SETLK, lock(9, 0))),
    ("F_SETLK negative", true, |at| fcntl(at, libc::F_SETLK, lock(libc::F_RDLCK, -9))),
    ("F_SETLK bad", true, |at| fcntl(at, libc::F_SETLK, super::sys::BAD)),
    ("F_OFD_SETLK", true, |at| fcntl(at, libc::F_OFD_SETLK, lock(libc::F_RDLCK, 0))),
    ("F_SETLEASE read", true, |at| fcntl(at, libc::F_SETLEASE, libc::F_RDLCK as u64)),
    ("F_SETLEASE write", true, |at| fcntl(at, libc::F_SETLEASE, libc::F_WRLCK as u64)),
    ("F_GETLEASE", true, |at| fcntl(at, libc::F_GETLEASE, 0)),
    ("F_NOTIFY", true, |at| fcntl(at, libc::F_NOTIFY, 0)),
    ("F_GETPIPE_SZ", true, |at| fcntl(at, libc::F_GETPIPE_SZ, 0)),
    ("F_SETPIPE_SZ", true, |at| fcntl(at, libc::F_SETPIPE_SZ, 8192)),
    ("F_GET_SEALS", true, |at| fcntl(at, libc::F_GET_SEALS, 0)),
    ("F_ADD_SEALS", true, |at| fcntl(at, libc::F_ADD_SEALS, 2)),
    ("F_GET_RW_HINT", true, |at| fcntl(at, 1035, word(longs(&[0])))),
    ("fcntl wrong", true, |at| fcntl(at, 9999, 0)),
    ("flock shared", true, |at| call!(SYS_flock, at, libc::LOCK_SH | libc::LOCK_NB)),
    ("flock exclusive", true, |at| call!(SYS_flock, at, libc::LOCK_EX | libc::LOCK_NB)),
    ("flock unlock", true, |at| call!(SYS_flock, at, libc::LOCK_UN)),
    ("flock wrong", true, |at| call!(SYS_flock, at, 64)),
    ("FIONREAD", true, |at| {
        let count = ints(&[0]);
        call!(SYS_ioctl, at, libc::FIONREAD, count)?;
        Ok(i64::from(count.int(0)))
    }),
    ("FIONBIO", true, |at| call!(SYS_ioctl, at, libc::FIONBIO, ints(&[1]))),
    ("FIOCLEX", true, |at| call!(SYS_ioctl, at, libc::FIOCLEX, 0)),
    ("TCGETS", true, |at| call!(SYS_ioctl, at, libc::TCGETS, room(&[]))),
    ("ioctl wrong", true, |at| call!(SYS_ioctl, at, 0x7777, 0)),
    ("poll", true, poll),
    ("epoll add", true, epoll_add),
    ("epoll_wait", true, |at| call!(SYS_epoll_pwait, at, room(&[]), 4, 0, 0, 8)),
    ("splice to pipe", true, |at| {
        with_pipe(|at, _, write| call!(SYS_splice, at, 0, write, 0, 4, 2), at)
    }),
    ("splice from pipe", true, |at| {
        with_pipe(
            |at, read, write| {
                let _ = put(write, "data");
                call!(SYS_splice, read, 0, at, 0, 4, 2)
            },
            at,
        )
    }),
    ("splice offset", true, |at| {
        with_pipe(|at, _, write| call!(SYS_splice, at, longs(&[2]), write, 0, 4, 2), at)
    }),
    ("tee", true, |at| with_pipe(|at, _, write| call!(SYS_tee, at, write, 4, 2), at)),
    ("vmsplice", true, |at| call!(SYS_vmsplice, at, vector(6), 1, 2)),
    ("sendfile from", true, |at| with_file(|at, file| call!(SYS_sendfile, file, at, 0, 4), at)),
    ("sendfile to", true, |at| with_file(|at, file| call!(SYS_sendfile, at, file, 0, 4), at)),
    ("sendfile offset", true, |at| {
        with_file(|at, file| call!(SYS_sendfile, file, at, longs(&[3]), 4), at)
    }),
    ("copy_file_range from", true, |at| {
        with_file(|at, file| call!(SYS_copy_file_range, at, 0, file, 0, 4, 0), at)
    }),
    ("copy_file_range to", true, |at| {
        with_file(|at, file| call!(SYS_copy_file_range, file, 0, at, 0, 4, 0), at)
    }),
    ("mmap private", true, |at| map(at, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE)),
    ("mmap shared", true, |at| map(at, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)),
    ("mmap shared read", true, |at| map(at, libc::PROT_READ, libc::MAP_SHARED)),
    ("mmap validate sync", true, |at| map(at, libc::PROT_READ, 3 | libc::MAP_SYNC)),
    ("getsockname", true, |at| call!(SYS_getsockname, at, room(&[]), ints(&[100]))),
    ("getpeername", true, |at| call!(SYS_getpeername, at, room(&[]), ints(&[100]))),
    ("getsockopt type", true, |at| {
        let value = ints(&[0]);
        call!(SYS_getsockopt, at, libc::SOL_SOCKET, libc::SO_TYPE, value, ints(&[4]))?;
        Ok(i64::from(value.int(0)))
    }),
    ("setsockopt reuse", true, |at| {
        call!(SYS_setsockopt, at, libc::SOL_SOCKET, libc::SO_REUSEADDR, ints(&[1]), 4)
    }),
    ("listen", true, |at| call!(SYS_listen, at, 1)),
    ("accept", true, |at| call!(SYS_accept4, at, 0, 0, 0)),
    ("shutdown", true, |at| call!(SYS_shutdown, at, 2)),
    ("send", true, |at| call!(SYS_sendto, at, room(b"x"), 1, libc::MSG_NOSIGNAL, 0, 0)),
    ("recv", true, |at| call!(SYS_recvfrom, at, room(&[]), 10, libc::MSG_DONTWAIT, 0, 0)),
    ("sendmsg bad", true, |at| call!(SYS_sendmsg, at, super::sys::BAD, 0)),
    ("timerfd_gettime", true, |at| call!(SYS_timerfd_gettime, at, room(&[]))),
    ("timerfd_settime", true, |at| call!(SYS_timerfd_settime, at, 0, longs(&[0, 0, 100, 0]), 0)),
    ("signalfd again", true, |at| call!(SYS_signalfd4, at, longs(&[1 << 9]), 8, 0).map(|_| 0)),
    ("inotify watch", true, |at| call!(SYS_inotify_add_watch, at, path("d"), 0xfff)),
    ("inotify unwatch", true, |at| call!(SYS_inotify_rm_watch, at, 1)),
    ("pidfd signal 0", true, |at| call!(SYS_pidfd_send_signal, at, 0, 0, 0)),
    ("name_to_handle_at", true, |at| {
        call!(SYS_name_to_handle_at, at, path(""), ints(&[128]), ints(&[0]), 0x1000)
    }),
    ("fexecve", true, |at| call!(SYS_execveat, at, path(""), 0, 0, libc::AT_EMPTY_PATH)),
    ("close", true, |at| call!(SYS_close, at)),
    ("close_range", true, |at| call!(SYS_close_range, at, at, 0)),
];

/// What changes attributes: not of the machine's own devices.
const CHANGES: &[&str] = &["fchmod", "fchown nothing", "futimens", "fsetxattr", "fremovexattr"];

/// Makes what the kinds open.
///
/// # Panics
/// If something cannot be made.
pub(super) fn prepare() {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
    fs::create_dir_all("d/sub").expect("mkdir");
    fs::write("d/sub/inner", b"inner").expect("write");
    fs::write("d/file", b"0123456789").expect("write");
    setxattr("d/file", "user.old", b"was here", XattrFlags::empty()).expect("setxattr");
    mknodat(CWD, "d/fifo", FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("mkfifo");
}

pub(super) fn run(book: &mut Book) {
    // A broken pipe has to be an answer.
    let ignore = longs(&[1, 0, 0, 0]);
    let _ = call!(SYS_rt_sigaction, libc::SIGPIPE, ignore, 0, 8);
    let _ = call!(SYS_rt_sigaction, libc::SIGIO, ignore, 0, 8);
    for (kind, make) in KINDS {
        for (name, exact, with) in USES {
            if CHANGES.contains(name) && ["null", "zero", "full", "proc"].contains(kind) {
                continue;
            }
            // Whoever else holds a pidfd of this process, the test's own runner for one, is counted too.
            if name.starts_with("F_SETLEASE") && *kind == "pidfd" {
                continue;
            }
            let at = make();
            let answer = with(at);
            let shown = if *exact { told(answer) } else { said(answer) };
            book.note(format_args!("{name} {kind}"), shown);
            close(&[at, 900, 901]);
        }
        let whole = open("d/file", libc::O_RDONLY);
        book.note(format_args!("content after {kind}"), get(whole, 100));
        close(&[whole]);
    }
}
