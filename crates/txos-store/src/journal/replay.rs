//! Reading the active segment.

use std::{fs, sync::atomic::Ordering::SeqCst};

use rustix::io::pread;

use super::{
    Journal, REMEDY, Turn,
    frame::{self, Found, Kind},
    legacy, legacy_path, plan,
    segments::FIRST,
};
use crate::{Result, StoreError, plan::Plan};

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Plans that are committed and not checkpointed, each with the place of its record; one from a
    /// journal of version 1 has place 0.
    pub pending: Vec<(u64, Plan)>,
    /// Bytes behind the last whole record that are not as they were before any.
    pub torn: u64,
    /// Where the last whole record ends.
    pub end: u64,
    /// Where the last checkpoint record ends.
    pub checkpointed: u64,
}

impl Replay {
    /// Whether nothing is pending and nothing was cut short.
    pub(crate) fn is_clean(&self) -> bool {
        self.pending.is_empty() && self.torn == 0
    }
}

impl Journal {
    /// Reads all of the active segment.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] for anything that a crash does not explain.
    pub(crate) fn replay(&self, _turn: &Turn<'_>) -> Result<Replay> {
        let bytes = self.bytes(FIRST, u64::MAX)?;
        let mut replay = Replay { end: FIRST, checkpointed: FIRST, ..Replay::default() };
        let sequence = self.control.sequence.load(SeqCst);
        let mut at = 0;
        while at < bytes.len() {
            let place = FIRST + at as u64;
            let damaged = |detail: &str| {
                StoreError::damaged(&self.dir, format!("at {place}: {detail}"), REMEDY)
            };
            match frame::decode(&bytes[at..]) {
                // What an earlier life of the segment left.
                Found::Frame(frame, _) if frame.sequence != sequence => break,
                Found::Frame(frame, length) => {
                    match frame.kind {
                        Kind::Commit => {
                            let plan = plan::decode(frame.payload, frame.version)
                                .map_err(|error| damaged(error.0))?;
                            if plan.tx != frame.tx {
                                return Err(damaged("two ids in one record"));
                            }
                            replay.pending.push((place, plan));
                        }
                        Kind::Checkpoint => {
                            replay.pending.clear();
                            replay.checkpointed = place + length as u64;
                        }
                        Kind::Void => {}
                        Kind::Done | Kind::Prepared => {
                            return Err(damaged("a record out of place"));
                        }
                    }
                    at += length;
                    replay.end = FIRST + at as u64;
                }
                Found::Unknown(version) => {
                    return Err(StoreError::damaged(
                        &self.dir,
                        format!("at {place}: a record of version {version}"),
                        "recover with the version of txos that wrote it",
                    ));
                }
                Found::Broken => break,
            }
        }
        self.check_tail(&bytes[at..], sequence, &mut replay)?;
        self.add_legacy(&mut replay)?;
        Ok(replay)
    }

    /// Behind the last whole record a crash may have left anything, as long as no record there says
    /// that this place was on disk already.
    fn check_tail(&self, tail: &[u8], sequence: u64, replay: &mut Replay) -> Result<()> {
        let ours = |found: &Found<'_>| match found {
            Found::Frame(frame, _) => {
                Some(*frame).filter(|frame| frame.sequence == sequence).map(|frame| frame.flushed)
            }
            _ => None,
        };
        let mut cut = false;
        for found in frame::any(tail) {
            if ours(&found).is_some_and(|flushed| flushed > replay.end) {
                let detail = format!("at {}: a broken record before a flushed one", replay.end);
                return Err(StoreError::damaged(&self.dir, detail, REMEDY));
            }
            cut |= ours(&found).is_some();
        }
        // A record that was begun shows its magic, or a later one of this life.
        let begun = tail.len() >= 28
            && &tail[..4] == b"TXJR"
            && frame::decode(tail) == Found::Broken
            && tail[20..28] == sequence.to_le_bytes();
        if begun || cut {
            let used = tail.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            replay.torn = used as u64;
        }
        Ok(())
    }

    fn add_legacy(&self, replay: &mut Replay) -> Result<()> {
        let path = legacy_path(&self.dir);
        match fs::read(&path) {
            Ok(bytes) => {
                let (plans, torn) = legacy::replay(&path, &bytes)?;
                replay.torn += torn;
                replay.pending.splice(0..0, plans.into_iter().map(|plan| (0, plan)));
                Ok(())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::std("read", &path, &error)),
        }
    }

    /// The plans of whole commit records from `from` on, up to the end that all processes know.
    pub(crate) fn plans_from(&self, _turn: &Turn<'_>, from: u64) -> Result<Vec<(u64, Plan)>> {
        let end = self.control.end.load(SeqCst);
        let bytes = self.bytes(from, end)?;
        let mut plans = Vec::new();
        let mut at = 0;
        while let Found::Frame(frame, length) = frame::decode(&bytes[at..]) {
            if frame.kind == Kind::Commit {
                let plan = plan::decode(frame.payload, frame.version).map_err(|error| {
                    StoreError::damaged(&self.dir, format!("at {at}: {}", error.0), REMEDY)
                })?;
                plans.push((from + at as u64, plan));
            }
            at += length;
        }
        Ok(plans)
    }

    /// What the segment holds from one place to another, or to its end.
    fn bytes(&self, from: u64, to: u64) -> Result<Vec<u8>> {
        let file = self.active();
        let length =
            file.metadata().map_err(|error| StoreError::std("examine", &self.dir, &error))?.len();
        let mut bytes = vec![0; length.min(to).saturating_sub(from) as usize];
        let mut done = 0;
        while done < bytes.len() {
            match pread(file, &mut bytes[done..], from + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(self.failed("read", errno)),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Removes the journal of the version before, all of which is done.
    pub(crate) fn forget_legacy(&self) -> Result<()> {
        let path = legacy_path(&self.dir);
        for path in [path.clone(), path.with_file_name("poisoned")] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StoreError::std("remove", &path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
