//! Locks that a transaction holds on files outside, and waits for.

use serde::{Deserialize, Serialize};

/// A lock on a file, as flock(2) or fcntl(2) give it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileLock {
    /// The file, as text for people.
    pub path: String,
    /// Its device.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// The bytes, from the first up to the one behind the last; `None` for flock(2), whose locks don't
    /// meet those of fcntl(2).
    pub bytes: Option<(i64, i64)>,
    /// Whether it keeps off all others, and not only those who want it exclusive.
    pub exclusive: bool,
}

impl FileLock {
    /// Whether who wants `other` has to wait for the end of this one.
    pub fn keeps_off(&self, other: &FileLock) -> bool {
        let overlap = match (self.bytes, other.bytes) {
            (None, None) => true,
            (Some((from, to)), Some((other_from, other_to))) => from < other_to && other_from < to,
            _ => false,
        };
        (self.dev, self.ino) == (other.dev, other.ino)
            && overlap
            && (self.exclusive || other.exclusive)
    }
}

/// For which locks members of a transaction wait, and which ones it has, to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LockWait {
    /// What is waited for.
    pub wants: Vec<FileLock>,
    /// What others may wait for.
    pub holds: Vec<FileLock>,
}

impl LockWait {
    /// What `holder` has and this one waits for.
    pub fn needs(&self, holder: &LockWait) -> Option<&FileLock> {
        let held = |wanted: &&FileLock| holder.holds.iter().any(|held| held.keeps_off(wanted));
        self.wants.iter().find(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_meet() {
        let lock =
            |ino, bytes, exclusive| FileLock { path: String::new(), dev: 1, ino, bytes, exclusive };
        let all = Some((0, i64::MAX));
        assert!(lock(1, all, true).keeps_off(&lock(1, all, false)));
        assert!(lock(1, all, false).keeps_off(&lock(1, all, true)));
        assert!(!lock(1, all, false).keeps_off(&lock(1, all, false)), "both shared");
        assert!(!lock(1, all, true).keeps_off(&lock(2, all, true)), "other files");
        assert!(!lock(1, all, true).keeps_off(&lock(1, None, true)), "other kinds");
        assert!(
            !lock(1, Some((0, 5)), true).keeps_off(&lock(1, Some((5, 9)), true)),
            "other bytes"
        );
        assert!(lock(1, Some((0, 6)), true).keeps_off(&lock(1, Some((5, 9)), true)));
        assert!(lock(1, None, true).keeps_off(&lock(1, None, true)));
    }
}
