//! What can go wrong: each variant names the object and the remedy.

/// Why a run ended without a figure.
///
/// A simulator that guesses is worse than none, so every doubt about a run ends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// A parameter is outside of what the model can represent.
    #[error("parameter {name} = {value}: {reason}")]
    Parameter {
        /// The parameter's name, as `--set` takes it.
        name: String,
        /// The value given.
        value: String,
        /// What is allowed instead.
        reason: String,
    },
    /// No such workload, experiment or parameter.
    #[error("unknown {kind} \"{name}\"; try one of: {known}")]
    Unknown {
        /// What was looked up.
        kind: &'static str,
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A guest did something that no program may do on this machine.
    #[error("guest fault on CPU {cpu} in thread {thread} at cycle {cycle}: {what}; mend the guest")]
    Guest {
        /// The processor.
        cpu: usize,
        /// The thread it ran.
        thread: usize,
        /// When.
        cycle: u64,
        /// The fault.
        what: String,
    },
    /// The isolation checker found a committed transaction that was not isolated.
    #[error("isolation broken at cycle {cycle}: {what}; no figure of this run may be used")]
    Isolation {
        /// When the transaction tried to commit.
        cycle: u64,
        /// The transaction, the word, and both values.
        what: String,
    },
    /// A value that must hold in simulated memory does not.
    #[error("value check failed at cycle {cycle}: {what}; no figure of this run may be used")]
    Value {
        /// When it was seen.
        cycle: u64,
        /// The invariant and what was found.
        what: String,
    },
    /// The caches' coherence states contradict each other.
    #[error("coherence broken: {0}; no figure of this run may be used")]
    Coherence(String),
    /// Nothing moves any more: deadlock or livelock.
    #[error("no progress for {waited} cycles at cycle {cycle}: {what}")]
    NoProgress {
        /// When the watchdog barked.
        cycle: u64,
        /// How long nothing had moved.
        waited: u64,
        /// Who waits for what.
        what: String,
    },
    /// The run passed `max_cycles`.
    #[error("run passed max_cycles = {cycles} ({what}); raise it with --set max_cycles=N")]
    Limit {
        /// The limit.
        cycles: u64,
        /// Who was where.
        what: String,
    },
    /// A report could not be written.
    #[error("cannot write {path}: {reason}; choose another --out directory")]
    Output {
        /// The file.
        path: String,
        /// The system's words.
        reason: String,
    },
}

/// Result of a simulation.
pub type Result<T> = std::result::Result<T, SimError>;
