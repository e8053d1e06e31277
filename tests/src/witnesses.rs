//! The test that makes the call, for each row and each case of the table of effects which is not made for
//! real as it stands (refused, absent, deferred, or let through by a flag) and which registers alone don't
//! tell. Those that registers tell are all made by [`crate::rows`].
//!
//! That a test of that name makes these calls in a transaction is looked at with strace(1), by
//! `tests/effects_witnesses.rs`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use txos_effects::filter::Arch;
use txos_effects::filter::rules::rule_of;
use txos_effects::table::{Fate, Sample, rows};

/// Tests that make the call.
#[derive(Debug, Clone, Copy)]
pub struct Witness {
    /// The case's first words; empty for the plain call.
    pub when: &'static str,
    /// The calls of which this is the test.
    pub calls: &'static [&'static str],
    /// The test's file and its name in it.
    pub test: (&'static str, &'static str),
    /// What strace(1) shows of the arguments.
    pub shows: &'static str,
}

const fn by(
    when: &'static str,
    calls: &'static [&'static str],
    test: (&'static str, &'static str),
    shows: &'static str,
) -> Witness {
    Witness { when, calls, test, shows }
}

const OPEN: &[&str] = &["open", "openat", "openat2", "creat"];
const OPEN_FLAGS: &[&str] = &["open", "openat", "openat2"];
const WRITE: &[&str] = &["write", "writev", "pwritev2", "sendfile", "splice", "tee", "vmsplice"];
const WRITE_AT: &[&str] = &["pwrite64", "pwritev"];
const AT_ONCE: &[&str] =
    &["write", "writev", "pwritev2", "sendfile", "splice", "pwrite64", "pwritev"];
const PIPES: &[&str] = &["tee", "vmsplice"];
const READ: &[&str] = &["read", "readv", "preadv2", "pread64", "preadv"];
const PEER: &[&str] = &["connect", "sendto", "sendmsg", "sendmmsg"];
const SEND: &[&str] = &["sendto", "sendmsg", "sendmmsg"];
const CONNECT: &[&str] = &["connect"];
const THREADS: &[&str] = &["tkill", "tgkill", "rt_tgsigqueueinfo"];
const RENAMES: &[&str] = &["rename", "renameat", "renameat2"];
const NO_CALLS_ANY_MORE: &[&str] = &[
    "_sysctl",
    "afs_syscall",
    "epoll_ctl_old",
    "epoll_wait_old",
    "get_kernel_syms",
    "get_thread_area",
    "getpmsg",
    "lookup_dcookie",
    "putpmsg",
    "query_module",
    "security",
    "set_thread_area",
    "tuxcall",
    "uselib",
    "vserver",
];

/// All of them.
pub const WITNESSES: &[Witness] = &[
    by(
        "",
        &["fsync", "fdatasync", "syncfs", "sync_file_range"],
        ("effects_rows", "what_asks_for_durability_waits_for_nothing_and_comes_with_the_commit"),
        "",
    ),
    by("", NO_CALLS_ANY_MORE, ("filter", "what_no_kernel_has_any_more_is_absent"), ""),
    by("O_SYNC, O_DSYNC", OPEN_FLAGS, ("effects_calls", "synchronous_files"), "O_SYNC"),
    by("a device but null, zero, full", OPEN, ("effects_calls", "devices"), "/node"),
    by("/proc/sys, /sys and their kind", OPEN, ("effects_calls", "settings"), "/proc/sys/"),
    by("a FIFO or socket that an outsider", OPEN, ("effects_calls", "fifos_of_outsiders"), "fifo"),
    by("a path below --live or --allow", OPEN, ("effects_calls", "live_files"), "/live/"),
    by(
        "a directory that exists outside",
        RENAMES,
        ("effects_calls", "directories_of_users"),
        "old",
    ),
    by("one name of a file onto another", RENAMES, ("effects_calls", "names_of_one_file"), "one"),
    by(
        "RENAME_WHITEOUT",
        &["renameat2"],
        ("effects_rows", "a_whiteout_cannot_be_made_by_hand"),
        "RENAME_WHITEOUT",
    ),
    by("a character device 0:0", &["mknod", "mknodat"], ("effects_calls", "whiteouts"), "S_IFCHR"),
    by(
        "a file that was only read so far",
        &["file_setattr"],
        ("effects_calls", "flags_of_a_file_that_was_only_read"),
        "",
    ),
    by("devices of the machine", &["ioctl"], ("effects_calls", "devices_are_asked_nothing"), ""),
    by("standard output and error", WRITE, ("effects_calls", "held_output"), ""),
    by("standard output and error, and what", WRITE_AT, ("effects_calls", "held_output"), "(1, "),
    by(
        "what was open before, from descriptor 3 on",
        WRITE,
        ("effects_calls", "held_output"),
        "3, ",
    ),
    by("--exempt-log FILE, --live PATH", AT_ONCE, ("effects_calls", "exempt_logs"), ""),
    by("a pipe by --pass-fd N", PIPES, ("effects_calls", "passed_pipes"), "4, "),
    by("a jobserver's pipe, a socket", READ, ("effects_calls", "what_is_not_there"), "EBADF"),
    by("an address outside loopback", PEER, ("effects_calls", "far_addresses"), "192.0.2.1"),
    by(
        "a loopback port where an outsider",
        PEER,
        ("effects_calls", "outsiders_ports"),
        "127.0.0.1",
    ),
    by(
        "connect to what --allow net:HOST",
        CONNECT,
        ("effects_sockets", "a_host_that_is_allowed_by_name_is_reached_and_no_other"),
        "127.0.0.1",
    ),
    by("an address that --allow net:HOST", SEND, ("effects_calls", "allowed_hosts"), "127.0.0.1"),
    by(
        "connect with --net record",
        CONNECT,
        ("effects_sockets", "a_retry_sees_the_recorded_answers_and_asks_nobody"),
        "127.0.0.1",
    ),
    by("/dev/log", PEER, ("effects_calls", "messages_to_the_log"), "/dev/log"),
    by(
        "/run/systemd/journal/socket",
        PEER,
        ("effects_deferred", "entries_of_the_journal_by_each_call"),
        "/run/systemd/journal/socket",
    ),
    by(
        "/run/systemd/journal/stdout",
        CONNECT,
        (
            "effects_deferred",
            "streams_into_the_journal_are_sent_by_a_commit_and_dropped_by_an_abort",
        ),
        "/run/systemd/journal/stdout",
    ),
    by("a local socket of an outsider", PEER, ("effects_calls", "local_sockets"), "ECONNREFUSED"),
    by(
        "a process outside",
        &["kill", "rt_sigqueueinfo"],
        ("effects_calls", "processes_outside"),
        "",
    ),
    by("a thread of a process outside", THREADS, ("effects_calls", "processes_outside"), ""),
    by(
        "the number of a process outside",
        &["pidfd_open"],
        ("effects_deferred", "a_descriptor_of_an_outsider_is_refused_by_name"),
        "",
    ),
    by(
        "a descriptor of a process outside",
        &["pidfd_send_signal"],
        ("effects_calls", "descriptors_of_processes_outside"),
        "EINVAL",
    ),
    by(
        "--live PATH",
        &["mmap"],
        ("effects_rows", "stores_into_live_files_are_outside_at_once"),
        "MAP_SHARED",
    ),
    by(
        "SECCOMP_FILTER_FLAG_NEW_LISTENER",
        &["seccomp"],
        ("effects_rows", "a_member_can_install_filters_but_no_second_listener"),
        "EBUSY",
    ),
];

/// Each row and case that needs a witness: call and case, the latter empty for the plain call.
pub fn needed() -> Vec<(&'static str, &'static str)> {
    let unmade = |fate| matches!(fate, Fate::Refused | Fate::Absent | Fate::Deferred | Fate::Flag);
    let mut needed = Vec::new();
    for row in rows() {
        if unmade(row.fate) && rule_of(row.call).is_none() {
            needed.push((row.call, ""));
        }
        for case in row.cases {
            if unmade(case.fate) && case.sample == Sample::Elsewhere {
                needed.push((row.call, case.when));
            }
        }
    }
    needed
}

impl Witness {
    /// Whether it is there for this call in this case; the one with the longest words is meant.
    pub fn is_of(&self, call: &str, when: &str) -> bool {
        let rest = WITNESSES.iter().filter(|other| other.calls.contains(&call));
        let longest = rest
            .filter(|other| {
                other.when.is_empty() == when.is_empty() && when.starts_with(other.when)
            })
            .map(|other| other.when.len())
            .max();
        self.calls.contains(&call)
            && self.when.is_empty() == when.is_empty()
            && when.starts_with(self.when)
            && Some(self.when.len()) == longest
    }
}

/// What strace(1) wrote of the members of transactions, by calls: `strace -ff -o PREFIX
/// --decode-pids=pidns`, with [`CREATE`] and `seccomp` among the calls that it shows.
///
/// A member is whoever installs a filter with a listener, from then on, and whoever it makes.
#[derive(Debug, Default)]
pub struct Traced {
    lines: Vec<String>,
}

/// The calls that make a process or thread.
pub const CREATE: &str = "?clone,?clone3,?fork,?vfork";

impl Traced {
    /// Reads what was written to `PREFIX.PID`, all in one directory.
    pub fn read(dir: &Path) -> Traced {
        let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let texts: Vec<(u32, String)> = files
            .filter_map(|file| {
                let pid = PathBuf::from(file.file_name()).extension()?.to_str()?.parse().ok()?;
                let text = std::fs::read(file.path()).ok()?;
                Some((pid, String::from_utf8_lossy(&text).into_owned()))
            })
            .collect();
        Traced::of(&texts)
    }

    /// The same of texts.
    fn of(texts: &[(u32, String)]) -> Traced {
        let mut members: BTreeSet<u32> = BTreeSet::new();
        let mut lines = Vec::new();
        // A child's lines come to be a member's when its maker's line was found to be one.
        loop {
            let before = members.len();
            lines.clear();
            for (pid, text) in texts {
                let mut member = members.contains(pid);
                for line in text.lines() {
                    if member {
                        members.extend(made(line));
                        lines.push(line.to_owned());
                    }
                    let listens = line.contains("FLAG_NEW_LISTENER") && !line.contains("= -1");
                    member |= line.starts_with("seccomp(") && listens;
                }
            }
            if members.len() == before {
                return Traced { lines };
            }
        }
    }

    /// Whether a member made this call, with this among what is shown of it.
    pub fn made(&self, call: &str, shows: &str) -> bool {
        // One that is newer than strace(1) has its number there, and its arguments bare.
        let number = Arch::HOST.number(call).unwrap_or_default();
        let (begins, newer) = (format!("{call}("), format!("syscall_{number:#x}("));
        self.lines.iter().any(|line| {
            (line.starts_with(&begins) && line.contains(shows)) || line.starts_with(&newer)
        })
    }

    /// How many calls of members are in it.
    pub fn calls(&self) -> usize {
        self.lines.len()
    }
}

/// The process or thread that a line tells of as made, by its number outside.
fn made(line: &str) -> Option<u32> {
    let creates = ["clone(", "clone3(", "fork(", "vfork("];
    if !creates.iter().any(|name| line.starts_with(name)) {
        return None;
    }
    let (_, result) = line.rsplit_once(" = ")?;
    let outside = result.split_once("/* ").and_then(|(_, told)| told.split(' ').next());
    outside.unwrap_or(result).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_of_members_alone() {
        let text = |lines: &[&str]| lines.join("\n");
        let traced = Traced::of(&[
            // The grandchild stands before its maker.
            (7, text(&["connect(3, far) = -1 E134 (Unknown error 134)"])),
            (
                5,
                text(&[
                    "vfork()             = 3 /* 7 in strace's PID NS */",
                    "write(1, \"x\", 1) = 1",
                ]),
            ),
            (
                2,
                text(&[
                    "kill(9, SIGTERM) = 0",
                    "seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, {}) = 3",
                    "clone(child_stack=NULL, flags=SIGCHLD) = 2 /* 5 in strace's PID NS */",
                ]),
            ),
            (4, text(&["tee(3, 4, 1, 0) = 1"])),
        ]);
        assert!(traced.made("connect", "far") && traced.made("write", ""));
        assert!(!traced.made("connect", "near") && !traced.made("kill", ""));
        assert!(!traced.made("tee", ""), "of no member");
        assert_eq!(traced.calls(), 4);
    }
}
