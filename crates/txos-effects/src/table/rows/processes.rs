//! Processes, credentials, scheduling, tracing.

use super::{Case, Entry, Fate, by, cases, plain, when};
use Fate::*;

const NAMESPACES: &str = "A new namespace would leave or change the view: 134.";

const UNSHARE: &[Case] =
    &[by("CLONE_NEWNS and the other namespaces", &[(0, 0x0002_0000)], Refused, NAMESPACES)];

const PIDFD: &[Case] = &[when(
    "the number of a process outside",
    Refused,
    "134 and a line: its descriptor would lead out of the view. Signals reach it by kill(2).",
)];

pub(super) const ROWS: &[Entry] = &[
    cases(
        &["clone"],
        ProcessPrivate,
        "The child belongs to the transaction, which ends when its last process has ended; killed \
         by an abort.",
        UNSHARE,
    ),
    plain(
        &["fork", "vfork"],
        ProcessPrivate,
        "The child belongs to the transaction, which ends when its last process has ended; killed \
         by an abort.",
    ),
    plain(
        &["clone3"],
        Absent,
        "Its flags stand in memory, which no filter reads: ENOSYS, and C libraries use clone.",
    ),
    plain(
        &["execve", "execveat"],
        Transactional,
        "Runs a program of the view: reading it joins the workset. Set-user-id programs and file \
         capabilities work for root's transactions.",
    ),
    plain(
        &["exit", "exit_group"],
        ProcessPrivate,
        "Ends the caller. The command's status decides: 0 commits, anything else aborts.",
    ),
    plain(
        &["wait4", "waitid"],
        ProcessPrivate,
        "About members alone; outsiders have no pid in the view (ECHILD).",
    ),
    cases(
        &["pidfd_open"],
        ProcessPrivate,
        "Of members alone; gone with them, at commit and at abort.",
        PIDFD,
    ),
    cases(
        &["unshare"],
        ProcessPrivate,
        "Descriptor tables, working directories and semaphores of the process itself; gone with it.",
        UNSHARE,
    ),
    plain(&["setns"], Refused, "It would leave the view: 134, at every stage."),
    plain(
        &[
            "setuid",
            "setgid",
            "setreuid",
            "setregid",
            "setresuid",
            "setresgid",
            "setfsuid",
            "setfsgid",
            "setgroups",
            "capset",
        ],
        ProcessPrivate,
        "Credentials of the process itself, as far as it has the right; gone with it at commit and \
         abort. Capabilities that act on the machine are not there.",
    ),
    plain(
        &[
            "getpid",
            "gettid",
            "getppid",
            "getuid",
            "geteuid",
            "getgid",
            "getegid",
            "getresuid",
            "getresgid",
            "getgroups",
            "getpgid",
            "getpgrp",
            "getsid",
            "capget",
            "getcpu",
            "getpriority",
            "getrlimit",
            "getrusage",
            "times",
            "sched_getaffinity",
            "sched_getattr",
            "sched_getparam",
            "sched_getscheduler",
            "sched_get_priority_max",
            "sched_get_priority_min",
            "sched_rr_get_interval",
            "ioprio_get",
            "get_robust_list",
            "lsm_get_self_attr",
            "lsm_list_modules",
            "uname",
            "sysinfo",
        ],
        Harmless,
        "Tells of members (pids are the view's own) or of the machine; nothing to commit or undo, \
         and not part of the workset.",
    ),
    plain(
        &[
            "setpgid",
            "setsid",
            "setpriority",
            "setrlimit",
            "prlimit64",
            "ioprio_set",
            "sched_setaffinity",
            "sched_setattr",
            "sched_setparam",
            "sched_setscheduler",
            "sched_yield",
            "personality",
            "set_tid_address",
            "set_robust_list",
            "rseq",
            "rseq_slice_yield",
            "arch_prctl",
            "modify_ldt",
            "landlock_create_ruleset",
            "landlock_add_rule",
            "landlock_restrict_self",
            "lsm_set_self_attr",
        ],
        ProcessPrivate,
        "Of members alone: groups, limits, priorities, protections; gone with them at commit and \
         at abort.",
    ),
    cases(
        &["prctl"],
        ProcessPrivate,
        "Properties of the process itself; gone with it at commit and at abort.",
        &[when(
            "PR_SET_CHILD_SUBREAPER",
            ProcessPrivate,
            "Members are collected by it; the transaction still waits for all of them.",
        )],
    ),
    cases(
        &["seccomp"],
        ProcessPrivate,
        "Further filters of the process's own, on top of the transaction's; gone with it.",
        &[when(
            "SECCOMP_FILTER_FLAG_NEW_LISTENER",
            Refused,
            "EBUSY: a process can have one listener, and the transaction's is there.",
        )],
    ),
    plain(
        &["ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"],
        ProcessPrivate,
        "Between members as natively; outsiders have no pid in the view (ESRCH), and its init \
         cannot be traced.",
    ),
    plain(
        &["futex", "futex_wait", "futex_wake", "futex_waitv", "futex_requeue", "membarrier"],
        ProcessPrivate,
        "Waits and wakes among members through memory they share; gone with them. On a file mapped \
         from the view it meets members only.",
    ),
    plain(
        &[
            "get_thread_area",
            "set_thread_area",
            "uselib",
            "vserver",
            "security",
            "tuxcall",
            "afs_syscall",
            "_sysctl",
            "create_module",
            "get_kernel_syms",
            "query_module",
            "lookup_dcookie",
        ],
        Absent,
        "The kernel itself has no such call any more: ENOSYS (create_module: 134).",
    ),
];
