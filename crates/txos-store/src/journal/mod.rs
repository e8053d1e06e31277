//! The journal: which transactions are committed and may not be wholly applied yet.
//!
//! One file in the state directory, records one after the other (see `frame`, and docs/journal.md).
//! A commit record that is whole decides: the transaction is committed from then on, whatever
//! happens. A done record, or an empty journal, says that all is applied and flushed.
//!
//! # What the disk is trusted to do
//!
//! - What was written before a successful `fdatasync(2)` is there after a crash.
//! - What was not may be there in part, in any order: so a record at the end that is not whole was
//!   never decided, and is discarded. A record that is not whole but is followed by a whole one
//!   cannot come from a crash: it is damage, is reported, and stops all commits.
//! - A truncation of the journal and later changes of names on the same file system become lasting
//!   in this order. So it needs no flush of its own to mark the end of a transaction.

pub(crate) mod codec;
pub(crate) mod frame;
pub(crate) mod plan;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use txos_core::TxId;

use self::frame::{Found, Frame, Kind};
use crate::{Result, StateDir, StoreError, plan::Plan, sys};

/// The open journal of a state directory.
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Plans that are committed and not done.
    pub pending: BTreeMap<TxId, Plan>,
    /// Bytes at the end that are no whole record.
    pub torn: u64,
    /// Where the torn tail begins.
    end: u64,
}

/// What the file begins with. It stays when all records go: a file that keeps its first block
/// neither frees nor gets one at each small commit.
const HEADER: &[u8; 16] = b"txos journal  1\n";

/// Name of the file that says that a flush has failed.
const POISON: &str = "poisoned";

const REMEDY: &str = "copy the state directory aside, find out what harmed the disk, \
                      and then remove the journal to go on without what it says";

impl Replay {
    /// Whether the journal is empty.
    pub(crate) fn is_clean(&self) -> bool {
        self.end <= HEADER.len() as u64 && self.torn == 0
    }
}

impl Journal {
    /// Opens the journal, which is created empty where there is none. The caller holds the lock.
    pub(crate) fn open(state: &StateDir) -> Result<Journal> {
        let path = state.path().join("journal");
        let known = path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| StoreError::std("open", &path, &error))?;
        if !known {
            // Its name must be lasting before any record in it is.
            File::open(state.path())
                .and_then(|dir| dir.sync_all())
                .map_err(|error| StoreError::std("flush", state.path(), &error))?;
        }
        Ok(Journal { file, path })
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for anything that a crash does not explain.
    pub(crate) fn replay(&mut self) -> Result<Replay> {
        let mut bytes = Vec::new();
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.read_to_end(&mut bytes))
            .map_err(|error| StoreError::std("read", &self.path, &error))?;
        let damaged = |detail: String| StoreError::damaged(&self.path, detail, REMEDY);
        let mut replay = Replay::default();
        if !bytes.starts_with(HEADER) {
            // A crash may have come before the header was there; nothing was decided before it.
            let begun = HEADER.starts_with(&bytes) || bytes.iter().all(|byte| *byte == 0);
            if !begun || bytes.len() > HEADER.len() {
                return Err(damaged("it does not begin as a journal does".to_owned()));
            }
            replay.torn = bytes.len() as u64;
            return Ok(replay);
        }
        let mut at = HEADER.len();
        while at < bytes.len() {
            match frame::decode(&bytes[at..]) {
                Found::Frame(frame, length) => {
                    match frame.kind {
                        Kind::Commit => {
                            let plan = plan::decode(frame.payload)
                                .map_err(|error| damaged(format!("at byte {at}: {}", error.0)))?;
                            if plan.tx != frame.tx {
                                return Err(damaged(format!(
                                    "at byte {at}: two ids in one record"
                                )));
                            }
                            replay.pending.insert(frame.tx, plan);
                        }
                        Kind::Done => {
                            replay.pending.remove(&frame.tx);
                        }
                        Kind::Prepared => {
                            return Err(damaged(format!("at byte {at}: a record out of place")));
                        }
                    }
                    at += length;
                }
                Found::Unknown(version) => {
                    return Err(StoreError::damaged(
                        &self.path,
                        format!("at byte {at}: a record of version {version}"),
                        "recover with the version of txos that wrote it",
                    ));
                }
                Found::Broken if frame::any(&bytes[at + 1..]) => {
                    return Err(damaged(format!(
                        "at byte {at}: a broken record before a whole one"
                    )));
                }
                Found::Broken => {
                    replay.torn = (bytes.len() - at) as u64;
                    break;
                }
            }
        }
        replay.end = at as u64;
        Ok(replay)
    }

    /// Cuts a torn tail off, so that nothing is written behind it.
    pub(crate) fn cut_torn(&mut self, replay: &Replay) -> Result<()> {
        if replay.torn == 0 {
            return Ok(());
        }
        self.file
            .set_len(replay.end)
            .map_err(|error| StoreError::std("cut the torn end off", &self.path, &error))
    }

    /// Trusts the journal again if the disk takes a flush.
    pub(crate) fn trust_again(&mut self) -> Result<()> {
        let poison = self.path.with_file_name(POISON);
        if !poison.exists() {
            return Ok(());
        }
        self.file
            .sync_all()
            .and_then(|()| std::fs::remove_file(&poison))
            .map_err(|error| StoreError::std("flush", &self.path, &error))
    }

    /// Adds a commit record. From its flush on, or without `durable` from its writing on, the
    /// transaction is committed.
    pub(crate) fn commit(&mut self, plan: &Plan, durable: bool) -> Result<()> {
        let poison = self.path.with_file_name(POISON);
        if poison.exists() {
            let reason =
                "an earlier flush of the journal failed, and nothing is trusted to it since";
            return Err(StoreError::refused(&self.path, reason, "see to the disk; txos recover"));
        }
        let payload = plan::encode(plan);
        if u32::try_from(payload.len()).is_err() {
            let reason = "the transaction is too large for one record";
            return Err(StoreError::refused(&self.path, reason, "split it"));
        }
        self.append(&Frame { kind: Kind::Commit, tx: plan.tx, payload: &payload }, durable)
    }

    /// Says that a transaction is applied and flushed. With `last`, no other is pending and the
    /// journal becomes empty.
    pub(crate) fn done(&mut self, tx: TxId, last: bool) -> Result<()> {
        if !last {
            return self.append(&Frame { kind: Kind::Done, tx, payload: &[] }, false);
        }
        sys::step()?;
        self.file
            .set_len(HEADER.len() as u64)
            .map_err(|error| StoreError::std("truncate", &self.path, &error))
    }

    fn append(&mut self, frame: &Frame<'_>, durable: bool) -> Result<()> {
        let bytes = frame::encode(frame);
        sys::step()?;
        let end = self
            .file
            .seek(SeekFrom::End(0))
            .map_err(|error| StoreError::std("seek in", &self.path, &error))?;
        let header: &[u8] = if end == 0 { HEADER } else { &[] };
        let write = self
            .file
            .write_all(&[header, &bytes].concat())
            .and_then(|()| if durable { self.file.sync_data() } else { Ok(()) });
        write.map_err(|error| {
            // The record was not decided: it must not be found whole by a later recovery. Whether
            // the disk knows that is not known; so no further commit until recovery has asked it.
            let _ = self.file.set_len(end);
            let _ = File::create(self.path.with_file_name(POISON));
            StoreError::std("write", &self.path, &error)
        })
    }
}
