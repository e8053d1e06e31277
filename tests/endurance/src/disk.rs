//! What a power cut leaves of a disk with a volatile cache.
//!
//! The emulator logs each write and flush of a disk in the format of the kernel's dm-log-writes target
//! (`Documentation/admin-guide/device-mapper/log-writes.rst`): a super block, then entries of one
//! sector, each followed by its data. From the disk as it was at the start and that log, the disk
//! after the cut is made anew:
//!
//! - All that was written before the last flush that completed is there, and so is every write
//!   that was forced through the cache (FUA).
//! - Of the writes after it, all, none, or any subset is there, as a random number says.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use anyhow::{Context, Result, ensure};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: u64 = 512;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;

/// One entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where on the disk, in bytes.
    pub at: u64,
    /// How much, in bytes.
    pub len: u64,
    /// Where in the log the data is, in bytes.
    pub data: u64,
    /// A flush completed here.
    pub flush: bool,
    /// It is on the disk when it completes.
    pub forced: bool,
    /// The bytes are given up.
    pub discard: bool,
}

/// What a cut did to a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Writes that were safe.
    pub safe: usize,
    /// Writes that were not, and stayed.
    pub kept: usize,
    /// Writes that were not, and were lost.
    pub lost: usize,
}

/// Reads a log; an entry that the cut tore ends it.
///
/// # Errors
/// If the file is no such log, or cannot be read.
pub fn read_log(log: &Path) -> Result<Vec<Entry>> {
    let file = File::open(log).with_context(|| format!("cannot open {}", log.display()))?;
    let end = file.metadata()?.len();
    let mut header = [0; 32];
    if end < SECTOR {
        return Ok(Vec::new());
    }
    file.read_exact_at(&mut header, 0)?;
    let word = |bytes: &[u8], number: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[number * 8..][..8]);
        u64::from_le_bytes(word)
    };
    if header.iter().all(|byte| *byte == 0) {
        return Ok(Vec::new());
    }
    ensure!(word(&header, 0) == MAGIC, "{} is no log of writes", log.display());
    let sector = u64::from(u32::from_le_bytes([header[24], header[25], header[26], header[27]]));
    ensure!(sector.is_power_of_two() && sector >= SECTOR, "its sectors have {sector} bytes");
    let mut entries = Vec::new();
    let mut at = sector;
    while at + sector <= end {
        let mut entry = [0; 32];
        file.read_exact_at(&mut entry, at)?;
        let (place, sectors, flags) = (word(&entry, 0), word(&entry, 1), word(&entry, 2));
        if (sectors, flags) == (0, 0) {
            break;
        }
        let discard = flags & DISCARD != 0;
        let len = sectors * sector;
        let data = at + sector;
        let stored = if discard { 0 } else { len };
        if data + stored > end {
            break;
        }
        entries.push(Entry {
            at: place * sector,
            len,
            data,
            flush: flags & FLUSH != 0,
            forced: flags & FUA != 0,
            discard,
        });
        at = data + stored;
    }
    Ok(entries)
}

/// Makes `disk`, which is as it was when `log` began, what a cut at the end of the log leaves.
/// `random` gives numbers to choose by.
///
/// # Errors
/// If one of the files cannot be read or written.
pub fn cut(disk: &Path, log: &Path, random: &mut dyn FnMut() -> u64) -> Result<Cut> {
    let entries = read_log(log)?;
    let flushed = entries.iter().rposition(|entry| entry.flush).map_or(0, |last| last + 1);
    let source = File::open(log)?;
    let target = OpenOptions::new().read(true).write(true).open(disk)?;
    let mood = random() % 4;
    let mut cut = Cut::default();
    for (number, entry) in entries.iter().enumerate() {
        if entry.len == 0 {
            continue;
        }
        let safe = number < flushed || entry.forced;
        let stays = safe
            || match mood {
                0 => true,
                1 => false,
                2 => random().is_multiple_of(2),
                _ => !random().is_multiple_of(8),
            };
        match (safe, stays) {
            (true, _) => cut.safe += 1,
            (false, true) => cut.kept += 1,
            (false, false) => cut.lost += 1,
        }
        if stays {
            put(&source, &target, entry)?;
        }
    }
    Ok(cut)
}

fn put(source: &File, target: &File, entry: &Entry) -> io::Result<()> {
    let mut data = vec![0; entry.len as usize];
    if !entry.discard {
        source.read_exact_at(&mut data, entry.data)?;
    }
    target.write_all_at(&data, entry.at)
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    fn log(path: &Path, entries: &[(u64, u8, u64)]) {
        let mut file = File::create(path).unwrap();
        let mut sector = |words: &[u64]| {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.resize(512, 0);
            file.write_all(&bytes).unwrap();
        };
        sector(&[MAGIC, 1, 0, 512]);
        for (at, byte, flags) in entries {
            let sectors = u64::from(*flags & FLUSH == 0);
            sector(&[*at, sectors, *flags]);
            if sectors > 0 {
                sector(&[u64::from_le_bytes([*byte; 8]); 64]);
            }
        }
    }

    #[test]
    fn what_was_flushed_or_forced_stays_and_of_the_rest_what_chance_says() {
        let dir = tempfile::tempdir().unwrap();
        let (disk, logged) = (dir.path().join("disk"), dir.path().join("log"));
        log(&logged, &[(0, 1, 0), (0, 0, FLUSH), (1, 2, 0), (2, 3, FUA), (3, 4, 0)]);
        for (mood, shown) in [(0, [1, 2, 3, 4]), (1, [1, 0, 3, 0])] {
            fs::write(&disk, vec![0; 4 * 512]).unwrap();
            let cut = cut(&disk, &logged, &mut || mood).unwrap();
            assert_eq!(cut.safe, 2);
            assert_eq!(cut.kept + cut.lost, 2);
            let bytes = fs::read(&disk).unwrap();
            assert_eq!([0, 1, 2, 3].map(|sector| bytes[sector * 512 + 100]), shown);
        }
    }

    #[test]
    fn a_torn_entry_ends_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let logged = dir.path().join("log");
        log(&logged, &[(0, 1, 0), (1, 2, 0)]);
        let all = fs::read(&logged).unwrap();
        fs::write(&logged, &all[..all.len() - 100]).unwrap();
        assert_eq!(read_log(&logged).unwrap().len(), 1);
        fs::write(&logged, "something else, and long enough".repeat(40)).unwrap();
        assert!(read_log(&logged).is_err());
    }
}
