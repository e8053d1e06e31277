//! Communication by key or name: System V and POSIX.

use super::{Entry, Fate, plain};
use Fate::*;

pub(super) const ROWS: &[Entry] = &[
    plain(
        &[
            "msgget",
            "msgsnd",
            "msgrcv",
            "msgctl",
            "semget",
            "semop",
            "semtimedop",
            "semctl",
            "shmget",
            "shmat",
            "shmdt",
            "shmctl",
        ],
        ProcessPrivate,
        "In the transaction's own IPC namespace: members share, outsiders' objects are not there. \
         What is left at the end goes with the namespace, at commit too: it is not published, and a \
         line says what is gone.",
    ),
    plain(
        &["mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"],
        ProcessPrivate,
        "Queues of the transaction's own namespace and /dev/mqueue: members share them; gone at \
         commit and at abort, not published, and a line says so.",
    ),
    plain(
        &["add_key", "request_key", "keyctl"],
        Refused,
        "Kernel keyrings belong to users and sessions outside: 134; nothing at commit or abort.",
    ),
];
