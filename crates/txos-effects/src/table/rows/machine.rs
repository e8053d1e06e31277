//! The machine.

use super::{Entry, Fate, by, cases, plain};
use Fate::*;

pub(super) const ROWS: &[Entry] = &[
    plain(
        &[
            "reboot",
            "kexec_load",
            "kexec_file_load",
            "init_module",
            "finit_module",
            "delete_module",
            "sethostname",
            "setdomainname",
            "acct",
            "iopl",
            "ioperm",
        ],
        Refused,
        "It changes the running machine: 134; nothing at commit or abort.",
    ),
    plain(
        &["bpf", "perf_event_open"],
        Refused,
        "It watches or changes what lies outside the transaction: 134; programs go without.",
    ),
    plain(
        &["vhangup"],
        ProcessPrivate,
        "Hangs up the view's own terminal; the outer one is restored at the end.",
    ),
    cases(
        &["syslog"],
        Harmless,
        "Reads the kernel's log where the caller may; nothing to commit or undo.",
        &[
            by("consuming (2, 4)", &[(0, 2)], Refused, "It takes from all readers: 134."),
            by("clearing (5)", &[(0, 5)], Refused, "It clears for all readers: 134."),
            by("console level (6, 7, 8)", &[(0, 8)], Refused, "It changes the console: 134."),
        ],
    ),
];
