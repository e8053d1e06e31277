//! Bytes kept in order: in memory up to a limit, beyond it in a file without a name.
//!
//! Invariant: the bytes are all in memory or all in the file, never split; what was appended once
//! reads back the same until [`Spool::clear`]. The file has no name, so it goes with the process.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Bytes kept in memory before they go to a file.
pub const DEFAULT_LIMIT: usize = 1 << 20;

/// A store for bytes.
#[derive(Debug)]
pub struct Spool {
    dir: PathBuf,
    limit: usize,
    memory: Vec<u8>,
    file: Option<File>,
    length: u64,
}

impl Spool {
    /// An empty store whose file, should it need one, goes to `dir`.
    pub fn new(dir: PathBuf, limit: usize) -> Spool {
        Spool { dir, limit, memory: Vec::new(), file: None, length: 0 }
    }

    /// Bytes kept.
    #[allow(clippy::len_without_is_empty)] // nobody asks that
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Appends; on an error nothing of `bytes` counts as kept.
    ///
    /// # Errors
    /// If the file cannot be made or written.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.file.is_none() && self.memory.len() + bytes.len() > self.limit {
            let mut file = tempfile::tempfile_in(&self.dir)?;
            file.write_all(&self.memory)?;
            self.file = Some(file);
            self.memory = Vec::new();
        }
        match &self.file {
            // At the known end, so that the torn rest of a failed append is written over.
            Some(file) => file.write_all_at(bytes, self.length)?,
            None => self.memory.extend_from_slice(bytes),
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Copies what is kept from `offset` on; returns how many bytes, 0 at the end.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let want = left.min(bytes.len());
        match &self.file {
            Some(file) => file.read_at(&mut bytes[..want], offset),
            None => {
                let from = self.memory.len() - left;
                bytes[..want].copy_from_slice(&self.memory[from..from + want]);
                Ok(want)
            }
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.memory, self.file, self.length) = (Vec::new(), None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_back_what_was_appended(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            limit in 0usize..200,
            reads in prop::collection::vec((0u64..900, 0usize..100), 0..20),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut spool = Spool::new(dir.path().to_owned(), limit);
            for part in &parts {
                spool.append(part).unwrap();
            }
            let all = parts.concat();
            prop_assert_eq!(spool.len(), all.len() as u64);
            for (offset, length) in reads {
                let mut bytes = vec![0; length];
                let read = spool.read_at(offset, &mut bytes).unwrap();
                let from = all.len().min(offset as usize);
                prop_assert_eq!(&bytes[..read], &all[from..all.len().min(from + length)]);
            }
            // The file never has a name.
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
            spool.clear();
            prop_assert_eq!(spool.read_at(0, &mut [0; 4]).unwrap(), 0);
        }
    }

    #[test]
    fn a_store_without_room_says_so_and_keeps_what_it_had() {
        let mut spool = Spool::new("/nowhere/at/all".into(), 4);
        spool.append(b"abc").unwrap();
        assert!(spool.append(b"de").is_err());
        let mut bytes = [0; 8];
        assert_eq!(spool.read_at(0, &mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"abc");
    }
}
