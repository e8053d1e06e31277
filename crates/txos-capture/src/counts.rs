use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::proto::Opcode;

/// How many requests of each kind the kernel sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Names looked up.
    pub lookup: u64,
    /// Attributes asked for.
    pub getattr: u64,
    /// Link targets.
    pub readlink: u64,
    /// Pieces of contents.
    pub read: u64,
    /// Pieces of listings.
    pub readdir: u64,
    /// Extended attributes and lists of them, overlayfs's own included.
    pub xattr: u64,
    /// Batches of objects that the kernel has forgotten.
    pub forget: u64,
    /// Anything else.
    pub other: u64,
}

impl Requests {
    /// All of them.
    pub fn total(&self) -> u64 {
        [self.lookup, self.getattr, self.readlink, self.read, self.readdir, self.xattr]
            .iter()
            .sum::<u64>()
            + self.forget
            + self.other
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests (lookup {}, getattr {}, readlink {}, read {}, readdir {}, xattr {}, \
             forget {}, other {})",
            self.total(),
            self.lookup,
            self.getattr,
            self.readlink,
            self.read,
            self.readdir,
            self.xattr,
            self.forget,
            self.other
        )
    }
}

/// The counters behind [`Requests`], which the workers share.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; 8]);

impl Counters {
    pub(crate) fn count(&self, opcode: Opcode) {
        let place = match opcode {
            Opcode::Lookup => 0,
            Opcode::Getattr => 1,
            Opcode::Readlink => 2,
            Opcode::Read => 3,
            Opcode::Readdir | Opcode::Readdirplus => 4,
            Opcode::Getxattr | Opcode::Listxattr => 5,
            Opcode::Forget | Opcode::BatchForget => 6,
            _ => 7,
        };
        self.0[place].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Requests {
        let [lookup, getattr, readlink, read, readdir, xattr, forget, other] =
            self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        Requests { lookup, getattr, readlink, read, readdir, xattr, forget, other }
    }
}
