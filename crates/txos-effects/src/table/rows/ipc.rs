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
        Transactional,
        "In the transaction's own IPC namespace: members share, outsiders' objects are not there. \
         What has a key and is left at the end is made outside at commit, with content, owner and \
         mode (and another number); where the key is used outside the commit is refused. What has no \
         key is gone, and a line says so. Nothing is left of an abort.",
    ),
    plain(
        &["mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify", "mq_getsetattr"],
        Transactional,
        "Queues of the transaction's own namespace and /dev/mqueue: members share them. What is left \
         is made outside at commit, with its messages; where the name is used outside the commit is \
         refused. Files of /dev/shm likewise. Nothing is left of an abort.",
    ),
    plain(
        &["add_key", "request_key", "keyctl"],
        Refused,
        "Kernel keyrings belong to users and sessions outside: 134; nothing at commit or abort.",
    ),
];
