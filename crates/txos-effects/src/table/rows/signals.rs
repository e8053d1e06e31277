//! Signals, timers, clocks.

use super::{Case, Entry, Fate, cases, plain, when};
use Fate::*;

const OUTSIDER: &[Case] = &[when(
    "a process outside",
    Deferred,
    "Found and permitted as natively, and kept: sent in order after the commit, by pidfd, so never to \
     another process; dropped by an abort. A number that a member has had names no outsider (ESRCH), \
     nor do numbers once those of the view may have begun anew. (kill -1 and groups: members alone.)",
)];

const TO_THREAD: &[Case] = &[when(
    "a thread of a process outside",
    Deferred,
    "As kill: kept, and sent in order after the commit to that thread alone, with the value that it \
     carries; dropped by an abort. (Before Linux 6.9 a thread cannot be held: 134.)",
)];

const BY_DESCRIPTOR: &[Case] = &[when(
    "a descriptor of a process outside",
    Refused,
    "No call inside gives one (pidfd_open: 134); the kernel refuses one that was passed in (EINVAL), \
     because its process is in no pid namespace of the view's.",
)];

const CLOCK_READ: &[Case] = &[when(
    "reading (modes 0 or ADJ_OFFSET_SS_READ)",
    Harmless,
    "The supervisor reads the clock in the caller's place; nothing to commit or undo.",
)];

pub(super) const ROWS: &[Entry] = &[
    cases(
        &["kill"],
        ProcessPrivate,
        "To members: at once. They end with the transaction, at commit and at abort.",
        OUTSIDER,
    ),
    cases(
        &["rt_sigqueueinfo"],
        ProcessPrivate,
        "To members: at once. They end with the transaction, at commit and at abort.",
        OUTSIDER,
    ),
    cases(
        &["tkill", "tgkill", "rt_tgsigqueueinfo"],
        ProcessPrivate,
        "To members: at once. They end with the transaction, at commit and at abort.",
        TO_THREAD,
    ),
    cases(
        &["pidfd_send_signal"],
        ProcessPrivate,
        "To members: at once. They end with the transaction, at commit and at abort.",
        BY_DESCRIPTOR,
    ),
    plain(
        &[
            "rt_sigaction",
            "rt_sigprocmask",
            "rt_sigpending",
            "rt_sigsuspend",
            "rt_sigtimedwait",
            "rt_sigreturn",
            "sigaltstack",
            "signalfd",
            "signalfd4",
            "pause",
            "restart_syscall",
            "uretprobe",
        ],
        ProcessPrivate,
        "Signal state of the process itself; a retry starts with a fresh one.",
    ),
    plain(
        &[
            "alarm",
            "getitimer",
            "setitimer",
            "timer_create",
            "timer_settime",
            "timer_gettime",
            "timer_getoverrun",
            "timer_delete",
            "timerfd_create",
            "timerfd_settime",
            "timerfd_gettime",
            "nanosleep",
            "clock_nanosleep",
        ],
        ProcessPrivate,
        "Timers of the process itself, gone with it at commit and abort. Alarm clocks that wake \
         the machine fail with EPERM.",
    ),
    plain(
        &["time", "gettimeofday", "clock_gettime", "clock_getres", "getrandom"],
        Harmless,
        "Time and chance are read as they are: a retry sees other values; nothing to commit or \
         undo.",
    ),
    plain(
        &["settimeofday", "clock_settime"],
        Refused,
        "The clock is the machine's: 134; nothing at commit or abort.",
    ),
    cases(
        &["adjtimex", "clock_adjtime"],
        Refused,
        "Setting the machine's clock: 134; nothing at commit or abort.",
        CLOCK_READ,
    ),
];
