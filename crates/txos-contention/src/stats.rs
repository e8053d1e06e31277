//! What the contention manager has counted, over all of its lives.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use txos_core::Facet;

use super::message::{Ended, Ending};

/// Name of the file in the state directory.
pub const FILE: &str = "stats";

/// Counters since the state directory was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Attempts that were begun.
    pub attempts: u64,
    /// Transactions that committed.
    pub committed: u64,
    /// Attempts that were kept for a decision.
    pub kept: u64,
    /// Attempts that were to change nothing.
    pub dry_runs: u64,
    /// Attempts that ended otherwise, those that lost included.
    pub aborted: u64,
    /// Attempts that lost to another transaction.
    pub lost: u64,
    /// Conflicts between transactions, by what was read.
    pub between: BTreeMap<String, u64>,
    /// Conflicts with others than transactions, by what was read.
    pub outside: BTreeMap<String, u64>,
    /// Transactions that waited, ready, for the end of another.
    pub waits: u64,
    /// How long they waited in all, in microseconds.
    pub waited_us: u64,
    /// The longest wait, in microseconds.
    pub longest_wait_us: u64,
    /// Pauses of a domain: how many took at most 2^n microseconds and more than half of that.
    pub pauses: BTreeMap<u32, u64>,
}

impl Stats {
    /// What was counted up to the end of the last manager; nothing where that cannot be read.
    pub fn load(path: &Path) -> Stats {
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Writes it whole.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut aside = PathBuf::from(path).into_os_string();
        aside.push(".new");
        let text = serde_json::to_vec(self)?;
        fs::write(&aside, text).context("cannot write the counters")?;
        fs::rename(&aside, path).context("cannot replace the counters")
    }

    /// An attempt has begun.
    pub fn began(&mut self) {
        self.attempts += 1;
    }

    /// A transaction lost to another because of `facet`, where that is known.
    pub fn lost(&mut self, facet: Option<Facet>) {
        self.lost += 1;
        if let Some(facet) = facet {
            *self.between.entry(facet.to_string()).or_default() += 1;
        }
    }

    /// An attempt has ended.
    pub fn ended(&mut self, ended: &Ended) {
        match ended.ending {
            Ending::Committed => self.committed += 1,
            Ending::Kept => self.kept += 1,
            Ending::DryRun => self.dry_runs += 1,
            Ending::Aborted => self.aborted += 1,
        }
        for facet in &ended.outside {
            *self.outside.entry(facet.to_string()).or_default() += 1;
        }
        if ended.waited_us > 0 {
            self.waits += 1;
            self.waited_us += ended.waited_us;
            self.longest_wait_us = self.longest_wait_us.max(ended.waited_us);
        }
        if let Some(paused) = ended.paused_us {
            *self.pauses.entry(paused.max(1).next_power_of_two().ilog2()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_last() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut stats = Stats::load(&path);
        stats.began();
        stats.lost(Some(Facet::Listing));
        let (ending, paused_us) = (Ending::Committed, Some(900));
        stats.ended(&Ended { ending, waited_us: 7, paused_us, ..Ended::default() });
        stats.ended(&Ended { outside: vec![Facet::Content, Facet::Content], ..Ended::default() });
        stats.save(&path).unwrap();
        let again = Stats::load(&path);
        assert_eq!(again, stats);
        assert_eq!((again.committed, again.aborted, again.waits, again.lost), (1, 1, 1, 1));
        assert_eq!(again.outside["content"], 2);
        assert_eq!(again.pauses, BTreeMap::from([(10, 1)]));
        fs::write(&path, "{ not").unwrap();
        assert_eq!(Stats::load(&path), Stats::default());
    }
}
