//! Descriptors and what flows through them.

use super::{Case, Entry, Fate, by, cases, plain, when};
use Fate::*;

const HELD: Case = when(
    "standard output and error",
    Deferred,
    "Held and written in order at commit, dropped by a conflict, shown after a failure of the command; \
     at once on a terminal or with --output live.",
);

const OPEN_BEFORE: Case = when(
    "what was open before, from descriptor 3 on",
    Deferred,
    "Files open for reading, or for both, are the view's files. What else can be written (a file, a \
     pipe, a connected stream socket) is a pipe: held, written in order and in one go at commit, dropped \
     otherwise. Terminals are the view's.",
);

const AT_ONCE: Case = when(
    "--exempt-log FILE, --live PATH, --pass-fd N",
    Flag,
    "Written outside at once; it survives an abort, and the report names it. An exempt log can only be \
     appended to, wherever a write says it goes.",
);

const WRITE: &[Case] = &[HELD, OPEN_BEFORE, AT_ONCE];

const WRITE_AT: &[Case] = &[
    when(
        "standard output and error, and what was open before for writing alone",
        Refused,
        "ESPIPE, also where it is a file outside: what is held is a pipe.",
    ),
    AT_ONCE,
];

/// Between pipes.
const WRITE_PIPE: &[Case] = &[
    HELD,
    OPEN_BEFORE,
    when(
        "a pipe by --pass-fd N",
        Flag,
        "Written outside at once; it survives an abort, and the report names it.",
    ),
];

const WRITE_SAYS: &str = "Writes to the shadow, visible to members at once, outside at commit, nowhere after \
    an abort. RWF_SYNC and its kind do not wait: the commit does.";

const MOVE_SAYS: &str = "Moves bytes between descriptors of members as read and write would; committed or \
    dropped with their targets.";

const READ: &[Case] = &[
    when(
        "standard input",
        Transactional,
        "Recorded as it is read: a retry sees the same bytes; at the end the outer position is where \
         the command stopped, where the input can seek.",
    ),
    when(
        "a pipe that was open before, from descriptor 3 on",
        Transactional,
        "As standard input: lent, so that what is left unread stays outside, and recorded for a retry.",
    ),
    when(
        "a jobserver's pipe, a socket or an event counter that was open before",
        Flag,
        "Not there (EBADF), and a line; --pass-fd N lets it through. A connected stream socket can be \
         written.",
    ),
];

const IOCTL: &[Case] = &[
    by("TIOCSTI", &[(1, 0x5412)], Refused, "It types into a terminal: 134 at every stage."),
    by("TIOCLINUX", &[(1, 0x541C)], Refused, "It acts on the machine's console: 134."),
    by("TIOCCONS", &[(1, 0x541D)], Refused, "It redirects the machine's console: 134."),
    by("FIFREEZE", &[(1, 0xC004_5877)], Refused, "It stops a whole file system: 134."),
    by("FITHAW", &[(1, 0xC004_5878)], Refused, "It starts a whole file system: 134."),
    by("FITRIM", &[(1, 0xC018_5879)], Refused, "It acts on a whole file system: 134."),
    by("FS_IOC_SHUTDOWN", &[(1, 0x8004_587D)], Refused, "It ends a whole file system: 134."),
    when(
        "FICLONE, FIDEDUPERANGE",
        Transactional,
        "Inside the shadow as its file system can; EXDEV or EOPNOTSUPP between layers, and \
         programs copy by hand; committed or dropped as a write.",
    ),
    when(
        "FS_IOC_GETFLAGS, FS_IOC_SETFLAGS",
        Transactional,
        "On files that the transaction has written; ENOTTY on others, as on file systems without \
         flags.",
    ),
    when(
        "terminals",
        ProcessPrivate,
        "The view's own terminal; sizes and modes follow the outer one while the command runs, and \
         the outer one is restored at commit and abort.",
    ),
    when(
        "network interfaces",
        ProcessPrivate,
        "Those of the transaction's own network namespace, which ends with it. With --allow net \
         they are the host's and can only be read.",
    ),
    when(
        "devices of the machine",
        Refused,
        "Their nodes cannot be opened in the view unless --allow PATH lets one through.",
    ),
];

pub(super) const ROWS: &[Entry] = &[
    cases(
        &["read", "pread64", "readv", "preadv", "preadv2"],
        Transactional,
        "Reads the view: the file's content joins the workset and is validated at commit; an abort \
         leaves no trace. From pipes and sockets: what members sent.",
        READ,
    ),
    cases(&["write", "writev", "pwritev2"], Transactional, WRITE_SAYS, WRITE),
    cases(&["pwrite64", "pwritev"], Transactional, WRITE_SAYS, WRITE_AT),
    cases(&["sendfile", "splice"], Transactional, MOVE_SAYS, WRITE),
    cases(&["tee", "vmsplice"], Transactional, MOVE_SAYS, WRITE_PIPE),
    plain(
        &["lseek", "close", "close_range", "dup", "dup2", "dup3"],
        ProcessPrivate,
        "Changes the process's own descriptors, which end with it at commit and at abort.",
    ),
    plain(
        &["readahead", "fadvise64", "cachestat"],
        Harmless,
        "Advice or statistics about cached pages of the view; nothing to commit or undo.",
    ),
    cases(
        &["ioctl"],
        ProcessPrivate,
        "Requests to what a descriptor is open on: the view's files, members' pipes and sockets; \
         committed or dropped with that.",
        IOCTL,
    ),
    plain(
        &["pipe", "pipe2", "eventfd", "eventfd2", "memfd_create"],
        ProcessPrivate,
        "Between members alone; gone with the last of them, at commit and at abort.",
    ),
    plain(
        &[
            "select",
            "pselect6",
            "poll",
            "ppoll",
            "epoll_create",
            "epoll_create1",
            "epoll_ctl",
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
        ],
        ProcessPrivate,
        "Waits for descriptors of members; nothing outlives the processes, at commit or abort.",
    ),
    plain(
        &["io_setup", "io_submit", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents"],
        Transactional,
        "Asynchronous reads and writes of the view's files, ended before the transaction is; \
         committed or dropped as read and write. Its fsync operation syncs the shadow.",
    ),
    plain(
        &["io_uring_setup", "io_uring_enter", "io_uring_register"],
        Absent,
        "Its requests pass no filter, so it is not offered: ENOSYS, and programs fall back to the \
         calls above.",
    ),
    plain(
        &["epoll_ctl_old", "epoll_wait_old", "getpmsg", "putpmsg"],
        Absent,
        "The kernel itself has no such call any more: ENOSYS.",
    ),
];
