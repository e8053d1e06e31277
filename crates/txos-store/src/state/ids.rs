//! Transaction ids are given once, also after a power cut, without a flush for each.
//!
//! The file holds `NEXT BOUND BOOT`: the next id, the first id that is not reserved on disk, and the
//! boot in which that was written. Ids are reserved 64 at a time, with a flush; in between only
//! NEXT moves, unflushed. After a reboot NEXT may be stale, so it starts again at BOUND.

use std::fs::{self, File};

use txos_core::TxId;

use super::{StateDir, overwrite};
use crate::{Result, StoreError, sys};

const RESERVE: u64 = 64;

impl StateDir {
    /// Gives the next id; it is never given again in this state directory.
    ///
    /// # Errors
    /// If the file that holds it cannot be read or written, or is damaged.
    pub fn next_id(&self) -> Result<TxId> {
        let _table = self.table()?;
        let file = self.path.join("ids");
        let boot: String = sys::boot_id().iter().map(|byte| format!("{byte:02x}")).collect();
        let (next, bound) = match fs::read_to_string(&file) {
            Ok(text) => {
                let mut words = text.split_whitespace();
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
                let (Some(next), Some(bound)) = (number(), number()) else {
                    let remedy = "write \"N N 0\" to it, N being larger than any id in the log";
                    return Err(StoreError::damaged(&file, "it holds no two numbers", remedy));
                };
                if words.next() == Some(&boot) { (next, bound) } else { (bound, bound) }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (1, 1),
            Err(error) => return Err(StoreError::std("read", &file, &error)),
        };
        let reserve = next >= bound;
        let bound = if reserve { next + RESERVE } else { bound };
        let text = format!("{} {bound} {boot}\n", next + 1);
        let write = || {
            let open = overwrite(&file, text.as_bytes())?;
            if reserve {
                open.sync_all()?;
                File::open(&self.path)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|error| StoreError::std("write", &file, &error))?;
        Ok(TxId(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Privilege;

    #[test]
    fn ids_go_on_and_skip_what_a_lost_boot_may_have_given() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
        assert_eq!(state.next_id().unwrap(), TxId(1));
        assert_eq!(state.next_id().unwrap(), TxId(2));
        fs::write(state.path().join("ids"), "2 65 00\n").unwrap();
        assert_eq!(state.next_id().unwrap(), TxId(65));
        assert_eq!(state.next_id().unwrap(), TxId(66));
        fs::write(state.path().join("ids"), "nonsense").unwrap();
        assert!(matches!(state.next_id(), Err(StoreError::Damaged { .. })));
    }
}
