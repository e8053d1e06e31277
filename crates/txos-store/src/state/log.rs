//! How transactions ended: one line of JSON each, only ever appended. A file that has grown past [`MOST`] takes
//! the place of the one before it, so that programs which commit all day fill no disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use txos_core::{Conflict, Stamp, TxId};

use super::StateDir;
use crate::{Result, StoreError};

/// The log before this one.
const OLDER: &str = "log.1";
/// Bytes of one file.
const MOST: u64 = 16 << 20;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Its delta was applied.
    Committed,
    /// It was given up by its command, its user or a signal.
    Aborted,
    /// It was given up because of what others changed.
    Conflicted,
    /// Its process died before the commit was decided; recovery removed what was left.
    Discarded,
    /// Its process died after the commit was decided; recovery finished it.
    Recovered,
    /// txos itself failed.
    Failed,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// Which transaction.
    pub id: TxId,
    /// How it ended.
    pub outcome: Outcome,
    /// What it ran, as words for a person.
    pub command: String,
    /// When it began, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Exit status of the command, where it ended by itself.
    pub status: Option<i32>,
    /// How many times it was started again.
    pub retries: u32,
    /// How many objects it changed.
    pub changes: u64,
    /// More, where there is more to say.
    pub note: String,
    /// Why it lost the last time, if it ever did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

impl LogEntry {
    /// A point in time, as entries have it.
    pub fn milliseconds(time: Stamp) -> u64 {
        u64::try_from(time.sec).unwrap_or(0) * 1000 + u64::from(time.nsec) / 1_000_000
    }
}

/// Why an attempt of a transaction lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Who caused it, in words for a person.
    pub by: String,
    /// What had been read and was changed; the first few.
    pub conflicts: Vec<Conflict>,
    /// Ids of attempts up to that one, where each attempt has one of its own; the last hundred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<TxId>,
}

impl Loss {
    /// A loss in attempt number `attempt` to `by`. Names that are no UTF-8 are told as well as text
    /// can.
    pub fn new(attempt: u32, by: String, conflicts: &[Conflict]) -> Loss {
        const FEW: usize = 10;
        let told = |conflict: &Conflict| Conflict {
            path: conflict.path.to_string_lossy().into_owned().into(),
            ..conflict.clone()
        };
        let conflicts = conflicts.iter().take(FEW).map(told).collect();
        Loss { attempt, by, conflicts, attempts: Vec::new() }
    }

    /// The same, as the loss of attempt `id` that followed those of `before`.
    #[must_use]
    pub fn after(mut self, before: Option<&Loss>, id: TxId) -> Loss {
        const LAST: usize = 100;
        let before = before.map(|loss| loss.attempts.as_slice()).unwrap_or_default();
        let from = before.len().saturating_sub(LAST - 1);
        self.attempts = before[from..].iter().copied().chain([id]).collect();
        self
    }
}

impl StateDir {
    /// Adds a line to the log. It is not flushed: the journal, not the log, decides.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn log(&self, entry: &LogEntry) -> Result<()> {
        self.log_up_to(MOST, entry)
    }

    fn log_up_to(&self, most: u64, entry: &LogEntry) -> Result<()> {
        let path = self.path.join("log");
        let mut line = serde_json::to_vec(entry).unwrap_or_default();
        line.push(b'\n');
        let mut append = || {
            let mut options = OpenOptions::new();
            let mut file = options.create(true).read(true).append(true).mode(0o600).open(&path)?;
            if is_torn(&file)? {
                line.insert(0, b'\n');
            }
            file.write_all(&line)?;
            if file.metadata()?.len() > most {
                self.begin_another_log(&file)?;
            }
            Ok(())
        };
        append().map_err(|error| StoreError::std("write", &path, &error))
    }

    /// Puts the log that is full in the place of the one before it, unless somebody else is at it.
    fn begin_another_log(&self, full: &File) -> io::Result<()> {
        let (path, older) = (self.path.join("log"), self.path.join(OLDER));
        if flock(full, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(());
        }
        match (full.metadata()?.ino(), fs::metadata(&path)?.ino()) {
            (full, now) if full == now => fs::rename(path, older),
            _ => Ok(()),
        }
    }

    /// All lines of the log that are kept, oldest first; a line that a crash tore is left out.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn history(&self) -> Result<Vec<LogEntry>> {
        loop {
            let now = || fs::metadata(self.path.join("log")).map(|about| about.ino()).ok();
            let first = now();
            let mut history = self.lines(OLDER)?;
            history.extend(self.lines("log")?);
            // Otherwise one took the other's place while they were read.
            if first == now() {
                return Ok(history);
            }
        }
    }

    fn lines(&self, name: &str) -> Result<Vec<LogEntry>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(text) => {
                let lines = text.split(|byte| *byte == b'\n');
                Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(StoreError::std("read", &path, &error)),
        }
    }
}

/// Whether the last line of the file was not written to its end.
fn is_torn(file: &File) -> io::Result<bool> {
    let Some(last) = file.metadata()?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Privilege;

    fn entry(id: u64) -> LogEntry {
        LogEntry {
            id: TxId(id),
            outcome: Outcome::Aborted,
            command: "false".to_owned(),
            started_ms: 1,
            ended_ms: 2,
            status: Some(1),
            retries: 0,
            changes: 0,
            note: String::new(),
            loss: None,
        }
    }

    #[test]
    fn a_log_that_is_full_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s"), Privilege::Root).unwrap();
        let line = serde_json::to_vec(&entry(1)).unwrap().len() as u64 + 1;
        for id in 1..=9 {
            // Full with the third line.
            state.log_up_to(line * 2, &entry(id)).unwrap();
        }
        let ids = |state: &StateDir| {
            state.history().unwrap().into_iter().map(|entry| entry.id.0).collect::<Vec<_>>()
        };
        assert_eq!(ids(&state), [7, 8, 9]);
        state.log(&entry(10)).unwrap();
        assert_eq!(ids(&state), [7, 8, 9, 10]);
    }

    #[test]
    fn a_torn_line_takes_no_other_along() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("state"), Privilege::User).unwrap();
        let path = state.path().join("log");
        state.log(&entry(1)).unwrap();
        // Torn within a character of two bytes.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole, &b"{\"command\":\"caf\xc3"[..]].concat()).unwrap();
        assert_eq!(state.history().unwrap(), [entry(1)]);
        state.log(&entry(2)).unwrap();
        assert_eq!(state.history().unwrap(), [entry(1), entry(2)]);
    }
}
