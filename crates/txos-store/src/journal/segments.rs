//! Segments: where records are written, flushed together, and where the next ones go.

use std::{os::fd::AsFd, sync::atomic::Ordering::SeqCst};

use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, pread, retry_on_intr},
};
use txos_core::TxId;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Journal, REMEDY, Turn, UNRECOVERED,
    frame::{self, Frame, Kind, VERSION},
};
use crate::{
    Result, StoreError,
    sys::{Flush, boot_id, flush_open, write_all},
};

/// What a segment begins with: this, its sequence, and the hash of both.
const MAGIC: &[u8; 16] = b"txos journal  2\n";
const HEADER: usize = 32;
/// Where its records begin.
pub(super) const FIRST: u64 = 4096;
/// How long a segment is, unless one record alone is longer, in bytes.
pub(super) const SEGMENT: u64 = 512 * 1024;

/// A record that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Where it begins and ends in its segment.
    pub at: u64,
    pub end: u64,
    tx: TxId,
}

impl Journal {
    /// Makes the shared page agree with this boot and the segments.
    pub(super) fn begin(&self, turn: &Turn<'_>) -> Result<()> {
        if self.control.is_of(boot_id()) {
            return Ok(());
        }
        self.count_waiting()?;
        let sequences = [self.header(0)?, self.header(1)?];
        match sequences.iter().flatten().max() {
            Some(sequence) => {
                self.control.begin(boot_id(), *sequence, FIRST, FIRST);
                self.control.poisoned.store(UNRECOVERED, SeqCst);
                // An empty journal needs no recovery.
                let replay = self.replay(turn)?;
                self.control.end.store(replay.end, SeqCst);
                self.control.checkpointed.store(replay.checkpointed, SeqCst);
                if replay.is_clean() && !super::legacy_path(&self.dir).exists() {
                    self.control.poisoned.store(0, SeqCst);
                }
            }
            None => {
                self.require_unused()?;
                self.control.begin(boot_id(), 0, FIRST, FIRST);
                self.rotate(turn, 0)?;
                if super::legacy_path(&self.dir).exists() {
                    self.control.poisoned.store(UNRECOVERED, SeqCst);
                }
            }
        }
        Ok(())
    }

    /// The sequence of a segment; `None` if it has no whole header.
    fn header(&self, index: usize) -> Result<Option<u64>> {
        let mut bytes = [0; HEADER];
        let length = pread(&self.segments[index], &mut bytes, 0)
            .map_err(|errno| self.failed("read", errno))?;
        if length < HEADER || xxh3_64(&bytes[..24]).to_le_bytes() != bytes[24..] {
            return Ok(None);
        }
        if &bytes[..MAGIC.len()] != MAGIC {
            return Err(StoreError::damaged(
                &self.dir,
                "it is of another version",
                "recover with the version of txos that wrote it",
            ));
        }
        Ok(bytes[16..24].try_into().ok().map(u64::from_le_bytes))
    }

    /// Without any header there must be nothing at all: making the first segment was interrupted.
    fn require_unused(&self) -> Result<()> {
        for file in &self.segments {
            let mut bytes = vec![0; SEGMENT as usize];
            let length = pread(file, &mut bytes, 0).map_err(|errno| self.failed("read", errno))?;
            let records = bytes[..length].get(FIRST as usize..).unwrap_or_default();
            if frame::any(records).next().is_some() {
                let detail = "its header is broken, and records follow it";
                return Err(StoreError::damaged(&self.dir, detail, REMEDY));
            }
        }
        Ok(())
    }

    pub(super) fn active(&self) -> &std::fs::File {
        &self.segments[(self.control.sequence.load(SeqCst) % 2) as usize]
    }

    /// Whether a record with so much payload has room in the active segment, besides a checkpoint.
    pub(crate) fn has_room(&self, payload: usize) -> Result<bool> {
        let needed = (frame::size(payload) + frame::size(0)) as u64;
        Ok(self.control.end.load(SeqCst) + needed <= self.length(self.active())?)
    }

    /// How full the active segment is, from 0 to 1.
    pub(crate) fn fill(&self) -> f64 {
        self.control.end.load(SeqCst) as f64 / SEGMENT as f64
    }

    fn length(&self, file: &std::fs::File) -> Result<u64> {
        let meta = file.metadata();
        Ok(meta.map_err(|error| StoreError::std("examine", &self.dir, &error))?.len())
    }

    /// Goes on in the other segment, with room for a record with so much payload. All records of
    /// the one before are checkpointed.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] and others before anything is changed.
    pub(crate) fn rotate(&self, _turn: &Turn<'_>, payload: usize) -> Result<()> {
        let sequence = self.control.sequence.load(SeqCst) + 1;
        let next = &self.segments[(sequence % 2) as usize];
        let wanted = SEGMENT.max(FIRST + (frame::size(payload) + frame::size(0)) as u64);
        let wanted = wanted.next_multiple_of(4096);
        let failed = |errno| self.failed("write", errno);
        let length = self.length(next)?;
        if length < wanted {
            let zeros = vec![0; 1 << 16];
            let mut at = length;
            while at < wanted {
                let part = (wanted - at).min(zeros.len() as u64);
                write_all(next, &zeros[..part as usize], at).map_err(failed)?;
                at += part;
            }
            flush_open(next, Flush::All).map_err(failed)?;
            let dir = std::fs::File::open(&self.dir)
                .map_err(|error| StoreError::std("open", &self.dir, &error))?;
            flush_open(&dir, Flush::All).map_err(failed)?;
        }
        let mut header = Vec::with_capacity(HEADER);
        header.extend(MAGIC);
        header.extend(sequence.to_le_bytes());
        header.extend(xxh3_64(&header).to_le_bytes());
        // What an earlier life left at the first place is of another sequence; yet a header that is
        // lost must not bring it back as damage.
        write_all(next, &header, 0).map_err(failed)?;
        if let Err(errno) = flush_open(next, Flush::Data) {
            self.poison();
            return Err(failed(errno));
        }
        let control = &self.control;
        control.flushed.store(FIRST, SeqCst);
        control.checkpointed.store(FIRST, SeqCst);
        control.end.store(FIRST, SeqCst);
        control.sequence.store(sequence, SeqCst);
        Ok(())
    }

    /// Writes a record at the end of the active segment, which has room for it.
    pub(crate) fn append(
        &self,
        _turn: &Turn<'_>,
        kind: Kind,
        tx: TxId,
        payload: &[u8],
    ) -> Result<Written> {
        let at = self.control.end.load(SeqCst);
        let bytes = frame::encode(&self.frame(kind, tx, payload));
        if let Err(errno) = write_all(self.active(), &bytes, at) {
            // A part of it may be there; it is no whole record, and the next one goes over it.
            let _ = write_all(self.active(), &[0; 4], at);
            return Err(self.failed("write", errno));
        }
        let end = at + bytes.len() as u64;
        self.control.end.store(end, SeqCst);
        Ok(Written { at, end, tx })
    }

    fn frame<'a>(&self, kind: Kind, tx: TxId, payload: &'a [u8]) -> Frame<'a> {
        Frame {
            kind,
            tx,
            sequence: self.control.sequence.load(SeqCst),
            flushed: self.control.flushed.load(SeqCst),
            payload,
            version: VERSION,
        }
    }

    /// Returns when all up to `end` of the active segment is on disk: at once where another's flush
    /// has taken it along. Whoever comes here while a flush is under way waits for it and then, if
    /// it began too early, makes the next for all who wait. The caller holds a seat, or the lock:
    /// the segment stays the same.
    pub(crate) fn flush_to(&self, end: u64) -> Result<(), Errno> {
        let control = &self.control;
        if control.flushed.load(SeqCst) >= end {
            return Ok(());
        }
        let _guard = self.flushing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Of threads that waited here most find that the flush before took theirs along.
        if control.flushed.load(SeqCst) >= end {
            return Ok(());
        }
        retry_on_intr(|| flock(&self.flush, FlockOperation::LockExclusive))?;
        let done = || {
            if control.flushed.load(SeqCst) >= end {
                return Ok(());
            }
            if control.poisoned.load(SeqCst) & super::POISONED != 0 {
                return Err(Errno::IO);
            }
            let upto = control.end.load(SeqCst);
            match flush_open(self.active(), Flush::Data) {
                Ok(()) => {
                    control.flushed.fetch_max(upto, SeqCst);
                    Ok(())
                }
                Err(errno) => {
                    self.poison();
                    Err(errno)
                }
            }
        };
        let outcome = done();
        let _ = flock(&self.flush, FlockOperation::Unlock);
        outcome
    }

    /// Flushes a commit record. From then on the transaction is committed.
    ///
    /// # Errors
    /// What flushing gives, if the record could be made void: it was not committed.
    /// [`StoreError::Undecided`] otherwise. Nothing is committed any more until a recovery.
    pub(crate) fn make_lasting(&self, written: &Written) -> Result<()> {
        let Err(errno) = self.flush_to(written.end) else { return Ok(()) };
        self.poison();
        match self.void(written) {
            Ok(()) => Err(self.failed("flush", errno)),
            Err(_) => Err(StoreError::Undecided { path: self.dir.clone(), errno }),
        }
    }

    /// The id of a commit that has no other: the place of its record.
    pub(crate) fn number(&self, _turn: &Turn<'_>) -> TxId {
        let (sequence, end) = (self.control.sequence.load(SeqCst), self.control.end.load(SeqCst));
        TxId(sequence * 1_000_000_000 + end)
    }

    /// Makes a record whose flush failed void, so that no recovery finds it whole; tries to get
    /// that onto the disk.
    ///
    /// # Errors
    /// If even that fails: then only a recovery will tell whether it was decided.
    fn void(&self, written: &Written) -> Result<(), Errno> {
        let length = (written.end - written.at) as usize - frame::size(0);
        let payload = vec![0; length];
        let bytes = frame::encode(&self.frame(Kind::Void, written.tx, &payload));
        write_all(self.active(), &bytes, written.at)?;
        flush_open(self.active().as_fd(), Flush::Data)
    }

    /// Writes that all before is done; `durable` flushes that.
    pub(crate) fn write_checkpoint(&self, turn: &Turn<'_>, durable: bool) -> Result<()> {
        let written = self.append(turn, Kind::Checkpoint, TxId(0), &[])?;
        self.control.checkpointed.store(written.end, SeqCst);
        if durable {
            self.flush_to(written.end).map_err(|errno| self.failed("flush", errno))?;
        }
        Ok(())
    }
}
