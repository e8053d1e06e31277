//! The table of effects: every system call of both architectures, and what becomes of it inside a
//! transaction, at its commit and at its abort.
//!
//! Invariants, each held by a test:
//! * Every call of [`NUMBERS`](crate::filter::numbers::NUMBERS) has exactly one row, and every call
//!   that the kernel headers of the building machine know is in `NUMBERS`. A call that is newer
//!   than the table is absent (`ENOSYS`) inside a transaction: see [`crate::filter`].
//! * The table and the filter's [rules](crate::filter::rules) agree: what is refused here by its
//!   registers is refused by the program, and nothing else is.
//!
//! The rows stand in [`rows`], by subject; a row can cover several calls whose sentence is the
//! same. The text forms are made in [`print`].

mod print;
mod rows;

pub use print::{markdown, text};

use crate::filter::Arch;
use serde::Serialize;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Acts on the view: seen by members at once, by all at commit, by nobody after an abort.
    Transactional,
    /// Acts on processes of the transaction, which end with it.
    ProcessPrivate,
    /// Takes effect at commit, and never after an abort.
    Deferred,
    /// Only reads, or changes nothing that outlives the call.
    Harmless,
    /// Made for real when a flag allows it, else refused.
    Flag,
    /// Fails with `ENOTXSUPPORT` (134), or with the error that its sentence names.
    Refused,
    /// Fails with `ENOSYS`, as on a kernel that does not have it: programs fall back.
    Absent,
}

impl Fate {
    /// All of them, in the order of the documentation.
    pub const ALL: [Fate; 7] = [
        Fate::Transactional,
        Fate::ProcessPrivate,
        Fate::Deferred,
        Fate::Harmless,
        Fate::Flag,
        Fate::Refused,
        Fate::Absent,
    ];

    /// The word that users read.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Transactional => "transactional",
            Fate::ProcessPrivate => "process-private",
            Fate::Deferred => "deferred",
            Fate::Harmless => "harmless",
            Fate::Flag => "flag",
            Fate::Refused => "refused",
            Fate::Absent => "absent",
        }
    }

    /// Whether the call keeps its whole meaning and the transaction its guarantees.
    fn is_whole(self) -> bool {
        !matches!(self, Fate::Flag | Fate::Refused | Fate::Absent)
    }
}

/// How a case is told from the plain call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// By registers, of which these are an example: `(argument, value)`, the others zero. The
    /// filter decides.
    Registers(&'static [(u8, u64)]),
    /// By memory or by what a descriptor is. The view, the kernel, or the supervisor decides.
    Elsewhere,
}

/// A way to make a call that has a fate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Which way: a flag, a command, a kind of object.
    pub when: &'static str,
    /// How it is told.
    pub sample: Sample,
    /// What becomes of it.
    pub fate: Fate,
    /// What happens inside, at commit, at abort.
    pub says: &'static str,
}

/// Calls that share a sentence, as they are written down.
struct Entry {
    calls: &'static [&'static str],
    fate: Fate,
    says: &'static str,
    cases: &'static [Case],
}

/// The row of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Name of the call, without prefix.
    pub call: &'static str,
    /// What becomes of the plain call.
    pub fate: Fate,
    /// What happens inside, at commit, at abort.
    pub says: &'static str,
    /// Where arguments decide otherwise.
    pub cases: &'static [Case],
}

/// How much of a call is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Support {
    /// Every form of it.
    Complete,
    /// Some forms of it.
    Partial,
    /// None.
    None,
}

impl Row {
    /// How much of the call is there.
    pub fn support(&self) -> Support {
        match (self.fate.is_whole(), self.cases.iter().all(|case| case.fate.is_whole())) {
            (true, true) => Support::Complete,
            (false, _) if self.cases.iter().all(|case| !case.fate.is_whole()) => Support::None,
            _ => Support::Partial,
        }
    }

    /// Numbers of the call: x86-64, arm64.
    pub fn numbers(&self) -> [Option<u32>; 2] {
        [Arch::X86_64, Arch::Aarch64].map(|arch| arch.number(self.call))
    }
}

/// All rows, sorted by name.
pub fn rows() -> Vec<Row> {
    let of_entry = |entry: &Entry| {
        let (fate, says, cases) = (entry.fate, entry.says, entry.cases);
        entry.calls.iter().map(move |call| Row { call, fate, says, cases })
    };
    let mut rows: Vec<Row> =
        rows::ALL.iter().flat_map(|part| part.iter()).flat_map(of_entry).collect();
    rows.sort_by_key(|row| row.call);
    rows
}

/// The row of one call, by its name as `strace` shows it.
pub fn row(call: &str) -> Option<Row> {
    rows().into_iter().find(|row| row.call == call)
}

/// How many rows there are of each kind of support: complete, partial, none.
pub fn totals() -> [usize; 3] {
    let rows = rows();
    [Support::Complete, Support::Partial, Support::None]
        .map(|support| rows.iter().filter(|row| row.support() == support).count())
}

#[cfg(test)]
mod test;
