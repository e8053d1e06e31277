//! What is said between a transaction and the contention manager; a JSON value a packet.

use serde::{Deserialize, Serialize};
use txos_core::{
    Facet, RIVAL, TxId,
    contention::{Hold, LockWait, Policy, Standing},
};

use super::Stats;

/// What the manager is told or asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToManager {
    /// A transaction wants to run its attempt number `attempt`.
    Begin {
        /// Its rank.
        standing: Standing,
        /// Which attempt.
        attempt: u32,
        /// Whose it is, for people, and for those who wait for it.
        process: u32,
        /// What it runs, for people.
        command: String,
    },
    /// Its command has ended; with what it writes ([`txos_core::contention::Written`]) in a memory
    /// file.
    Ready {
        /// Objects read.
        read: u64,
        /// Objects and names written.
        written: u64,
    },
    /// A hold is set up.
    Answer {
        /// Which.
        hold: Hold,
        /// What had been read of it.
        met: Option<Met>,
        /// Objects read in all.
        read: u64,
    },
    /// It waits before it reads what is held.
    Touch {
        /// By which hold.
        hold: Hold,
        /// Objects read in all.
        read: u64,
    },
    /// It has read what is held, without waiting.
    Saw {
        /// By which hold.
        hold: Hold,
        /// Objects read in all.
        read: u64,
    },
    /// Ready, it has waited long enough for those who only come first by their rank.
    Impatient,
    /// Having lost, it reads nothing new any more.
    Stopped,
    /// It waits for something outside the order, or does not any more.
    Stuck(bool),
    /// Its members wait for file locks, or do not any more.
    Hangs(LockWait),
    /// Its attempt is over.
    End(Ended),
    /// Having lost, it waits for leave to run, but what runs then may be another's affair.
    Rest(Standing),
    /// It is over for good; the connection may begin another.
    Leave(Option<Ended>),
    /// How many objects it has read up to now; answers [`ToTransaction::Count`].
    Count {
        /// Objects read in all.
        read: u64,
    },
    /// Who runs?
    Table,
    /// What has been counted?
    Stats,
    /// Which policy is in force? Or: this one shall be.
    Policy(Option<Policy>),
}

/// What a reader had read of what another writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The object, as text for people.
    pub path: String,
    /// Which facet of it.
    pub facet: Facet,
}

/// Which way an attempt ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// Its delta was applied.
    Committed,
    /// It was kept for a decision.
    Kept,
    /// It was to change nothing.
    DryRun,
    /// Otherwise.
    #[default]
    Aborted,
}

/// How an attempt ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which way.
    pub ending: Ending,
    /// The facets that others than transactions changed, one for each conflict that was found.
    pub outside: Vec<Facet>,
    /// How long it waited prepared, in microseconds.
    pub waited_us: u64,
    /// How long the domain was paused, in microseconds; none if it was not.
    pub paused_us: Option<u64>,
}

/// What a transaction is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToTransaction {
    /// Set this hold up (its writes come in a memory file), then answer.
    Ask {
        /// Which.
        hold: Hold,
    },
    /// A hold is over.
    Release {
        /// Which.
        hold: Hold,
    },
    /// A hold need not be minded.
    Pass {
        /// Which.
        hold: Hold,
    },
    /// Say how much has been read.
    Count,
    /// About the attempt of this number:
    Attempt(u32, Word),
    /// Answers [`ToManager::Table`]: the rows come in a memory file, since there can be more of them
    /// than a packet holds.
    Table,
    /// Answers [`ToManager::Stats`].
    Stats(Box<Stats>),
    /// Answers [`ToManager::Policy`]: the one in force.
    Policy(Policy),
}

/// What is decided about an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// It may run.
    Start,
    /// It waits for this transaction.
    Wait(Rival),
    /// It may validate and apply.
    Grant,
    /// It has lost to this transaction, because of that.
    Doom(Rival, Option<Met>),
    /// It has lost to this transaction, which waits for its lock on that file.
    Locked(Rival, String),
}

/// A transaction, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rival {
    /// Its id.
    pub id: TxId,
    /// Process id of its `txos`, or of the program that began it.
    pub pid: u32,
    /// What it runs.
    pub command: String,
}

impl std::fmt::Display for Rival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = crate::text::printable(&self.command);
        write!(f, "{RIVAL}{} (process {}): {command}", self.id, self.pid)
    }
}

/// A running transaction, as `txos ps` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its rank.
    pub standing: Standing,
    /// How far it is, in a word.
    pub state: String,
    /// Whose it is.
    pub process: u32,
    /// What it runs.
    pub command: String,
    /// For whom it waits.
    pub waits_for: Vec<TxId>,
    /// Which attempt, from 0.
    pub attempt: u32,
    /// Objects read.
    pub read: u64,
    /// Objects and names written, once it is ready.
    pub written: Option<u64>,
}
