//! Processes, signals between them, and what a process can ask about itself.
#![allow(unsafe_code, reason = "a signal handler is an address")]

use super::Book;
use super::sys::{
    BAD, Room, close, fd, fork, get, in_child, ints, longs, name, path, pipe, put, rest, room,
    said, told, wait_for,
};
use crate::call;

/// A handler that does nothing, as `rt_sigaction` wants it: handler, flags, restorer, mask.
pub(super) fn handler() -> Room {
    extern "C" fn nothing(_: i32) {}
    #[cfg(target_arch = "x86_64")]
    {
        longs(&[nothing as extern "C" fn(i32) as usize as i64, 0x0400_0000, restorer(), 0])
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        longs(&[nothing as extern "C" fn(i32) as usize as i64, 0, 0, 0])
    }
}

// Where a handler returns to: x86-64 has no such place of its own.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl txos_conform_restorer",
    "txos_conform_restorer:",
    "mov rax, 15",
    "syscall"
);

#[cfg(target_arch = "x86_64")]
fn restorer() -> i64 {
    unsafe extern "C" {
        fn txos_conform_restorer();
    }
    txos_conform_restorer as unsafe extern "C" fn() as usize as i64
}

pub(super) fn run(book: &mut Book) {
    signals(book);
    waiting(book);
    pidfds(book);
    asking(book);
    control(book);
    limits(book);
}

fn me() -> i64 {
    call!(SYS_getpid).unwrap_or(0)
}

fn signals(book: &mut Book) {
    for (case, answer) in [
        ("kill 0 myself", call!(SYS_kill, me(), 0)),
        ("kill nobody", call!(SYS_kill, 0x3fff_ffff, 0)),
        ("kill wrong", call!(SYS_kill, me(), 99)),
        ("kill no group", call!(SYS_kill, -0x3fff_ffff, 0)),
        ("kill least", call!(SYS_kill, i32::MIN, 0)),
        ("tgkill myself", call!(SYS_tgkill, me(), me(), 0)),
        ("tgkill wrong thread", call!(SYS_tgkill, me(), 0x3fff_ffff, 0)),
        ("tgkill -1", call!(SYS_tgkill, -1, me(), 0)),
        ("tkill -1", call!(SYS_tkill, -1, 0)),
        ("queue wrong", call!(SYS_rt_sigqueueinfo, 0x3fff_ffff, 10, room(&[]))),
        ("action of 99", call!(SYS_rt_sigaction, 99, 0, room(&[]), 8)),
        ("action of kill", call!(SYS_rt_sigaction, 9, longs(&[1, 0, 0, 0]), 0, 8)),
        ("action nowhere", call!(SYS_rt_sigaction, 10, BAD, 0, 8)),
        ("mask wrong", call!(SYS_rt_sigprocmask, 99, longs(&[0]), 0, 8)),
        ("mask size", call!(SYS_rt_sigprocmask, 0, longs(&[0]), 0, 4)),
        ("stack small", call!(SYS_sigaltstack, longs(&[4096, 0, 10]), 0)),
        (
            "timed wait none",
            call!(SYS_rt_sigtimedwait, longs(&[1 << 9]), 0, longs(&[0, 1_000_000]), 8),
        ),
        ("signalfd wrong", call!(SYS_signalfd4, -1, longs(&[0]), 4, 0)),
    ] {
        book.note(case, said(answer));
    }
    let block = |set: i64| call!(SYS_rt_sigprocmask, 0, longs(&[set]), 0, 8);
    let usr1 = 1 << (libc::SIGUSR1 - 1);
    let status = in_child(|| {
        let _ = block(usr1);
        let _ = call!(SYS_kill, me(), libc::SIGUSR1);
        let pending = longs(&[0]);
        let _ = call!(SYS_rt_sigpending, pending, 8);
        let info = room(&[]);
        let taken = call!(SYS_rt_sigtimedwait, longs(&[usr1]), info, longs(&[1, 0]), 8);
        i32::from(pending.long(0) != usr1 || taken != Ok(10) || i64::from(info.int(4)) != me())
    });
    book.note("blocked, pending, taken, by me", status);
    let status = in_child(|| {
        let _ = block(usr1);
        let at = fd(call!(SYS_signalfd4, -1, longs(&[usr1]), 8, libc::SFD_NONBLOCK));
        let none = get(at, 128) == "EAGAIN";
        let _ = call!(SYS_kill, me(), libc::SIGUSR1);
        let info = room(&[]);
        let read = call!(SYS_read, at, info, 128);
        i32::from(!none || read != Ok(128) || info.int(0) != 10)
    });
    book.note("signalfd", status);
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR2, libc::SIGRTMIN()] {
        let child = fork(|| {
            rest(5000);
            0
        });
        let _ = call!(SYS_kill, child, signal);
        book.note(format_args!("signal {signal} ends a child"), wait_for(child));
    }
    let child = fork(|| {
        let _ = call!(SYS_rt_sigaction, libc::SIGTERM, longs(&[1, 0, 0, 0]), 0, 8);
        let _ = call!(SYS_kill, me(), libc::SIGTERM);
        3
    });
    book.note("ignored", wait_for(child));
    let child = fork(|| {
        let _ = call!(SYS_kill, me(), libc::SIGSTOP);
        4
    });
    let status = ints(&[0]);
    let _ = call!(SYS_wait4, child, status, libc::WUNTRACED, 0);
    book.note("stopped", libc::WIFSTOPPED(status.int(0)));
    let _ = call!(SYS_kill, child, libc::SIGCONT);
    book.note("goes on", wait_for(child));
    let status = in_child(|| {
        let _ = call!(SYS_rt_sigaction, libc::SIGUSR1, handler(), 0, 8);
        let parent = me();
        let child = fork(|| {
            rest(30);
            let _ = call!(SYS_kill, parent, libc::SIGUSR1);
            0
        });
        let (read, _write) = pipe(0);
        let answer = get(read, 1);
        wait_for(child);
        i32::from(answer != "E4")
    });
    book.note("a read is interrupted", status);
}

fn waiting(book: &mut Book) {
    book.note("wait without children", said(call!(SYS_wait4, -1, 0, 0, 0)));
    book.note("wait for a stranger", said(call!(SYS_wait4, 0x3fff_ffff, 0, 0, 0)));
    book.note("wait wrong", said(call!(SYS_wait4, -1, 0, 0x100, 0)));
    book.note("waitid wrong", said(call!(SYS_waitid, 9, 0, room(&[]), 4, 0)));
    let child = fork(|| 7);
    let info = room(&[]);
    book.note("waitid", said(call!(SYS_waitid, 1, child, info, libc::WEXITED | libc::WNOWAIT, 0)));
    book.note("waitid status", format_args!("{} {}", info.int(0), info.int(6)));
    book.note("status", wait_for(child));
    let (read, write) = pipe(0);
    let child = fork(|| {
        let _ = get(read, 1);
        0
    });
    book.note("not yet", told(call!(SYS_wait4, child, 0, libc::WNOHANG, 0)));
    let _ = put(write, "x");
    book.note("then", wait_for(child));
    close(&[read, write]);
    let orphan = in_child(|| {
        let _ = call!(SYS_prctl, libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        let child = fork(|| {
            fork(|| 5);
            0
        });
        wait_for(child);
        let status = ints(&[0]);
        let _ = call!(SYS_wait4, -1, status, 0, 0);
        libc::WEXITSTATUS(status.int(0))
    });
    book.note("an orphan is collected", orphan);
    let status =
        in_child(|| i32::from(call!(SYS_setsid).is_err() || call!(SYS_setpgid, 0, 0) != Err(1)));
    book.note("session", status);
}

fn pidfds(book: &mut Book) {
    book.note("pidfd of nobody", said(call!(SYS_pidfd_open, 0x3fff_ffff, 0)));
    book.note("pidfd of 0", said(call!(SYS_pidfd_open, 0, 0)));
    book.note("pidfd wrong", said(call!(SYS_pidfd_open, me(), 0x77)));
    let child = fork(|| {
        rest(5000);
        0
    });
    let at = fd(call!(SYS_pidfd_open, child, 0));
    let polled = |at: i32| told(call!(SYS_ppoll, ints(&[at, 1]), 1, longs(&[0, 0]), 0, 8));
    book.note("pidfd lives", polled(at));
    book.note("pidfd signal wrong", said(call!(SYS_pidfd_send_signal, at, 99, 0, 0)));
    book.note("pidfd signal", said(call!(SYS_pidfd_send_signal, at, 9, 0, 0)));
    let info = room(&[]);
    book.note("waitid by pidfd", said(call!(SYS_waitid, 3, at, info, libc::WEXITED, 0)));
    book.note("killed by", info.int(6));
    book.note("pidfd ended", polled(at));
    book.note("pidfd signal then", said(call!(SYS_pidfd_send_signal, at, 9, 0, 0)));
    close(&[at]);
    let (read, write) = pipe(0);
    let child = fork(|| {
        let _ = get(read, 1);
        0
    });
    let at = fd(call!(SYS_pidfd_open, child, 0));
    let taken = call!(SYS_pidfd_getfd, at, read, 0);
    book.note("a member's descriptor", said(taken));
    book.note("a member's closed one", said(call!(SYS_pidfd_getfd, at, 899, 0)));
    let _ = put(write, "x");
    wait_for(child);
    close(&[at, read, write, taken.unwrap_or(-1) as i32]);
}

fn asking(book: &mut Book) {
    for (case, answer) in [
        ("getpgid", call!(SYS_getpgid, 0)),
        ("getpgid nobody", call!(SYS_getpgid, 0x3fff_ffff)),
        ("getsid nobody", call!(SYS_getsid, 0x3fff_ffff)),
        ("getpriority", call!(SYS_getpriority, 0, 0)),
        ("getpriority wrong", call!(SYS_getpriority, 9, 0)),
        ("getrusage", call!(SYS_getrusage, 0, room(&[]))),
        ("getrusage wrong", call!(SYS_getrusage, 77, room(&[]))),
        ("uname", call!(SYS_uname, room(&[]))),
        ("uname nowhere", call!(SYS_uname, BAD)),
        ("sysinfo", call!(SYS_sysinfo, room(&[]))),
        ("times", call!(SYS_times, room(&[]))),
        ("getcpu", call!(SYS_getcpu, room(&[]), 0, 0)),
        ("affinity", call!(SYS_sched_getaffinity, 0, 128, room(&[]))),
        ("scheduler", call!(SYS_sched_getscheduler, 0)),
        ("scheduler nobody", call!(SYS_sched_getscheduler, 0x3fff_ffff)),
        ("scheduler wrong", call!(SYS_sched_setscheduler, 0, 99, ints(&[0]))),
        ("priorities", call!(SYS_sched_get_priority_max, 1)),
        ("yield", call!(SYS_sched_yield)),
        ("getrandom", call!(SYS_getrandom, room(&[]), 16, 0)),
        ("getrandom wrong", call!(SYS_getrandom, room(&[]), 16, 0x99)),
        ("getcwd small", call!(SYS_getcwd, room(&[]), 1)),
        ("umask", call!(SYS_umask, 0o22)),
        ("capget", call!(SYS_capget, longs(&[0x2008_0522]), room(&[]))),
        ("capget wrong", call!(SYS_capget, longs(&[0x1]), room(&[]))),
        ("kcmp", call!(SYS_kcmp, me(), me(), 0, 1, 1)),
        ("getgroups wrong", call!(SYS_getgroups, -1, room(&[]))),
        ("ioprio", call!(SYS_ioprio_get, 1, 0)),
        ("personality", call!(SYS_personality, -1)),
        (
            "read a member",
            call!(SYS_process_vm_readv, me(), longs(&[0, 0]), 0, longs(&[0, 0]), 0, 0),
        ),
        (
            "read nobody",
            call!(SYS_process_vm_readv, 0x3fff_ffff, longs(&[0, 0]), 1, longs(&[0, 0]), 1, 0),
        ),
        ("trace nobody", call!(SYS_ptrace, 16, 0x3fff_ffff, 0, 0)),
        ("landlock version", call!(SYS_landlock_create_ruleset, 0, 0, 1)),
        ("rseq wrong", call!(SYS_rseq, 0, 7, 0, 0)),
    ] {
        book.note(case, said(answer));
    }
    let status = in_child(|| {
        let child = fork(|| {
            let _ = call!(SYS_ptrace, 0, 0, 0, 0);
            let _ = call!(SYS_kill, me(), libc::SIGSTOP);
            6
        });
        let status = ints(&[0]);
        let _ = call!(SYS_wait4, child, status, 0, 0);
        let stopped = libc::WIFSTOPPED(status.int(0));
        let _ = call!(SYS_ptrace, 7, child, 0, 0);
        i32::from(!stopped) * 100 + wait_for(child)
    });
    book.note("a traced child", status);
}

fn control(book: &mut Book) {
    let named = in_child(|| {
        let _ = call!(SYS_prctl, libc::PR_SET_NAME, path("renamed"), 0, 0, 0);
        let name = room(&[]);
        let _ = call!(SYS_prctl, libc::PR_GET_NAME, name, 0, 0, 0);
        i32::from(name.bytes(0, 7) != b"renamed")
    });
    book.note("prctl name", named);
    for (case, option, value) in [
        ("dumpable", libc::PR_GET_DUMPABLE, 0),
        ("death signal wrong", libc::PR_SET_PDEATHSIG, 999),
        ("death signal", libc::PR_SET_PDEATHSIG, 0),
        ("no new privileges", libc::PR_GET_NO_NEW_PRIVS, 0),
        ("timing", libc::PR_GET_TIMING, 0),
        ("securebits", libc::PR_GET_SECUREBITS, 0),
        ("slack", libc::PR_GET_TIMERSLACK, 0),
        ("unknown", 9999, 0),
    ] {
        book.note(format_args!("prctl {case}"), told(call!(SYS_prctl, option, value, 0, 0, 0)));
    }
    let privileges =
        in_child(|| i32::from(call!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).is_err()));
    book.note("prctl no new privileges, set", privileges);
    let filter = in_child(|| {
        let _ = call!(SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let program = room(&[]);
        program.put(0, &[6, 0, 0, 0, 0, 0, 0xff, 0x7f]);
        let list = longs(&[1, super::sys::word(program) as i64]);
        call!(SYS_seccomp, 1, 0, list).map_or_else(|error| error, |_| 0)
    });
    book.note("a filter of one's own", name(filter));
    book.note("seccomp wrong", said(call!(SYS_seccomp, 99, 0, 0)));
    book.note(
        "unshare files",
        in_child(|| i32::from(call!(SYS_unshare, libc::CLONE_FILES).is_err())),
    );
    book.note("unshare wrong", said(call!(SYS_unshare, 0x8000)));
}

fn limits(book: &mut Book) {
    for (case, which) in
        [("files", libc::RLIMIT_NOFILE), ("stack", libc::RLIMIT_STACK), ("data", libc::RLIMIT_DATA)]
    {
        let now = longs(&[0, 0]);
        let got = call!(SYS_prlimit64, 0, which, 0, now);
        book.note(
            format_args!("limit {case}"),
            format_args!("{} {} {}", said(got), now.long(0), now.long(1)),
        );
    }
    book.note("limit wrong", said(call!(SYS_prlimit64, 0, 99, 0, room(&[]))));
    book.note("limit above", said(call!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, longs(&[9, 3]), 0)));
    book.note("limit of nobody", said(call!(SYS_prlimit64, 0x3fff_ffff, 7, 0, room(&[]))));
    let full = in_child(|| {
        let _ = call!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, longs(&[20, 20]), 0);
        let mut last = Ok(0);
        for _ in 0..30 {
            last = call!(SYS_dup, 0);
        }
        last.map_or_else(|error| error, |_| 0)
    });
    book.note("no more descriptors", name(full));
    let large = in_child(|| {
        let _ = call!(SYS_rt_sigaction, libc::SIGXFSZ, longs(&[1, 0, 0, 0]), 0, 8);
        let _ = call!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, longs(&[100, 100]), 0);
        let file = super::sys::open("limited", libc::O_RDWR | libc::O_CREAT);
        let first = call!(SYS_write, file, room(&[0; 150]), 150);
        let second = call!(SYS_write, file, room(&[0; 10]), 10);
        i32::from(first != Ok(100)) * 100 + second.map_or_else(|error| error, |_| 0)
    });
    book.note("no larger file", name(large));
}
