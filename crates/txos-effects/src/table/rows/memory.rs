//! Memory.

use super::{Entry, Fate, by, cases, plain, when};
use Fate::*;

pub(super) const ROWS: &[Entry] = &[
    cases(
        &["mmap"],
        ProcessPrivate,
        "Memory of the process; gone with it at commit and at abort.",
        &[
            when(
                "a file, MAP_PRIVATE",
                Transactional,
                "The file's content joins the workset. A mapping made before the file's first \
                 change inside keeps showing the old content.",
            ),
            when(
                "a file, MAP_SHARED",
                Transactional,
                "Stores go to the shadow, to the file outside at commit, nowhere after an abort. A \
                 read-only mapping made before the first change inside stays old.",
            ),
            when(
                "--live PATH",
                Flag,
                "The host's own file: stores are seen at once and not undone.",
            ),
        ],
    ),
    cases(
        &["msync"],
        Transactional,
        "Writes mapped pages to the shadow; outside at commit, nowhere after an abort.",
        &[by("MS_SYNC", &[(2, 4)], Deferred, "Returns 0 at once; the commit makes all durable.")],
    ),
    plain(
        &[
            "brk",
            "munmap",
            "mremap",
            "remap_file_pages",
            "mprotect",
            "pkey_alloc",
            "pkey_free",
            "pkey_mprotect",
            "madvise",
            "process_madvise",
            "process_mrelease",
            "mincore",
            "mlock",
            "mlock2",
            "mlockall",
            "munlock",
            "munlockall",
            "mbind",
            "set_mempolicy",
            "set_mempolicy_home_node",
            "get_mempolicy",
            "migrate_pages",
            "move_pages",
            "mseal",
            "map_shadow_stack",
            "memfd_secret",
        ],
        ProcessPrivate,
        "Memory of members; gone with them at commit and at abort.",
    ),
    plain(
        &["userfaultfd"],
        Refused,
        "A page fault that a member answers could hold up whoever reads its memory for the \
         transaction: 134; programs fall back.",
    ),
];
