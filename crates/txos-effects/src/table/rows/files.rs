//! Files, directories, attributes, locks, mounts.

use super::{Case, Entry, Fate, by, cases, plain, when};
use Fate::*;

const DEVICE: Case = when(
    "a device but null, zero, full, random, urandom, tty, terminals",
    Flag,
    "EPERM, EACCES or ENOENT inside; --allow PATH lets a device through, outside the transaction, and \
     the report names it.",
);

const SETTINGS: Case = when(
    "/proc/sys, /sys and their kind for writing",
    Refused,
    "EROFS: they are read-only in the view, at every stage.",
);

const FIFO: Case = when(
    "a FIFO or socket that an outsider made",
    Refused,
    "A FIFO meets members only, never the outsider at its other end (the open waits, as for an absent \
     peer; it fails with EACCES where an ordinary user would write to another user's). --allow PATH lets \
     it through.",
);

const LIVE: Case = when(
    "a path below --live or --allow",
    Flag,
    "The host's own file: changed at once, not undone by an abort, named in the report.",
);

const CREAT: &[Case] = &[DEVICE, SETTINGS, FIFO, LIVE];

const OPEN: &[Case] = &[
    when(
        "O_SYNC, O_DSYNC",
        Deferred,
        "Inside, writes return without waiting for the disk; the commit makes all of it durable at \
         once; after an abort nothing of it is there.",
    ),
    when(
        "O_DIRECT",
        Transactional,
        "Works on the shadow, with the alignment that its file system asks for; committed and \
         aborted as any write.",
    ),
    when(
        "O_TMPFILE",
        Transactional,
        "A nameless file in the shadow; named by linkat(2) it is created at commit; nameless or \
         aborted it is gone.",
    ),
    DEVICE,
    SETTINGS,
    FIFO,
    LIVE,
];

const OPEN_SAYS: &str = "Opens the file of the view; what is read is validated at commit, what is created or \
    truncated is visible outside at commit and never after an abort.";

const RENAME_SAYS: &str = "Renames in the shadow; made outside at commit, not at abort. EXDEV between file \
    systems, as natively, and for a directory that goes into another one and whose path was longer than \
    overlayfs's redirect_max (256 bytes).";

const NAME_SAYS: &str =
    "Changes a name in the shadow; the same change is made outside at commit, and none at abort.";

const MOVED_BY_A_USER: Case = when(
    "a directory that exists outside, without privilege",
    Refused,
    "EXDEV, because overlayfs grants redirect_dir to no user namespace; mv and its kind copy instead.",
);

const ONTO_ANOTHER_NAME: Case = when(
    "one name of a file onto another name of it, without privilege",
    Refused,
    "ESTALE, because overlayfs gives its index to no user namespace: the names are separate files there; \
        natively nothing is done.",
);

const LOCK_SAYS: &str = "A lock on a file that exists outside is also taken there, in the member's \
    place: busy outside is busy inside. Outside it is held until the transaction has committed or \
    aborted, also when members unlock it before.";

pub(super) const ROWS: &[Entry] = &[
    cases(&["open", "openat", "openat2"], Transactional, OPEN_SAYS, OPEN),
    cases(&["creat"], Transactional, OPEN_SAYS, CREAT),
    plain(
        &[
            "stat",
            "lstat",
            "fstat",
            "newfstatat",
            "statx",
            "access",
            "faccessat",
            "faccessat2",
            "readlink",
            "readlinkat",
            "getdents",
            "getdents64",
            "getxattr",
            "lgetxattr",
            "fgetxattr",
            "getxattrat",
            "listxattr",
            "llistxattr",
            "flistxattr",
            "listxattrat",
            "file_getattr",
        ],
        Transactional,
        "Reads from the view; the facet that was read joins the workset, the commit is refused if \
         an outsider changed it; an abort leaves no trace.",
    ),
    plain(
        &["mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "link", "symlink", "symlinkat"],
        Transactional,
        NAME_SAYS,
    ),
    plain(
        &["linkat"],
        Transactional,
        "As link. With AT_EMPTY_PATH it answers ENOENT unless the file was opened with the caller's credentials: \
         nobody inside has CAP_DAC_READ_SEARCH; the name /proc/self/fd/N does it.",
    ),
    cases(
        &["rename", "renameat"],
        Transactional,
        RENAME_SAYS,
        &[MOVED_BY_A_USER, ONTO_ANOTHER_NAME],
    ),
    cases(
        &["renameat2"],
        Transactional,
        RENAME_SAYS,
        &[
            MOVED_BY_A_USER,
            ONTO_ANOTHER_NAME,
            when(
                "RENAME_WHITEOUT",
                Refused,
                "EINVAL: overlayfs has none; it is meant for overlays themselves.",
            ),
        ],
    ),
    cases(
        &["mknod", "mknodat"],
        Transactional,
        "Makes the node in the shadow; it exists outside from the commit on, and not after an \
         abort.",
        &[when(
            "a character device 0:0",
            Refused,
            "EPERM: it is the overlay's own sign for a removed name.",
        )],
    ),
    plain(
        &[
            "chmod",
            "fchmod",
            "fchmodat",
            "fchmodat2",
            "chown",
            "lchown",
            "fchown",
            "fchownat",
            "utime",
            "utimes",
            "futimesat",
            "utimensat",
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "setxattrat",
            "removexattr",
            "lremovexattr",
            "fremovexattr",
            "removexattrat",
        ],
        Transactional,
        "Changes attributes in the shadow; they are set outside at commit, and not at abort. \
         Owners that a user may not set natively cannot be set in the view either.",
    ),
    cases(
        &["file_setattr"],
        Transactional,
        "Flags of a file in the shadow, as far as overlayfs keeps them; set outside at commit.",
        &[when(
            "a file that was only read so far",
            Refused,
            "ENOTTY or EOPNOTSUPP by overlayfs; nothing changes.",
        )],
    ),
    plain(
        &["truncate", "ftruncate", "fallocate"],
        Transactional,
        "Changes length or holes in the shadow; the file outside gets them at commit, keeping its \
         inode; an abort drops them.",
    ),
    plain(
        &["copy_file_range"],
        Transactional,
        "Copies between files of the view; EXDEV where source and target lie in different layers, \
         as between file systems, and programs copy by hand. The copy is committed or dropped.",
    ),
    plain(
        &["name_to_handle_at"],
        Harmless,
        "EOPNOTSUPP by overlayfs, as on file systems without handles; nothing to commit or undo.",
    ),
    plain(
        &["open_by_handle_at"],
        Refused,
        "A handle reaches past the view: 134, and nothing happens at commit or abort.",
    ),
    plain(
        &["fsync", "fdatasync", "sync", "syncfs", "sync_file_range"],
        Deferred,
        "Waits for nothing on a file of the view; the commit makes everything durable together \
         (unless --nondurable); after an abort there is nothing to keep. A file that is let through \
         is flushed at once; sync(2) returns 0.",
    ),
    cases(
        &["fcntl"],
        ProcessPrivate,
        "Flags, owners, leases and duplicates of a member's own descriptors; gone with the \
         processes at commit and at abort.",
        &[
            by("F_SETLK, F_SETLKW", &[(1, 6)], Transactional, LOCK_SAYS),
            by("F_OFD_SETLK, F_OFD_SETLKW", &[(1, 37)], Transactional, LOCK_SAYS),
            by(
                "F_GETLK, F_OFD_GETLK",
                &[(1, 5)],
                Transactional,
                "Tells of locks of members and of outsiders; an outsider's holder is given as \
                 process -1, since it has no pid in the view.",
            ),
            when(
                "F_SETLEASE, F_NOTIFY",
                ProcessPrivate,
                "About the shadow file alone: members break it, outsiders do not; gone at the end.",
            ),
        ],
    ),
    plain(&["flock"], Transactional, LOCK_SAYS),
    plain(
        &["inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"],
        Transactional,
        "Members see members' changes at once and no outsider's; outsiders who watch see the \
         changes when the commit makes them, and nothing of an abort.",
    ),
    plain(
        &["fanotify_init"],
        Refused,
        "It would watch whole file systems, outsiders' files too: 134, nothing at commit or abort.",
    ),
    plain(
        &["fanotify_mark"],
        Harmless,
        "Without a group from fanotify_init it has nothing to act on: EBADF, at every stage.",
    ),
    plain(
        &["chdir", "fchdir", "getcwd", "chroot", "umask"],
        ProcessPrivate,
        "The process's own root, directory or mask, in the view; gone with it at commit and abort.",
    ),
    plain(
        &["statfs", "fstatfs", "ustat", "sysfs", "statmount", "listmount", "listns"],
        Harmless,
        "Tells of the view's mounts and their space; not part of the workset (free space changes \
         always); nothing to commit or undo.",
    ),
    plain(
        &[
            "mount",
            "umount2",
            "pivot_root",
            "move_mount",
            "open_tree",
            "open_tree_attr",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "mount_setattr",
            "swapon",
            "swapoff",
            "quotactl",
            "quotactl_fd",
            "nfsservctl",
        ],
        Refused,
        "Mounts, swap and quota cannot be rolled back: 134, or made for real with --on-unsupported \
         allow (mounts: in the view's namespace alone); nothing happens at commit or abort.",
    ),
];
