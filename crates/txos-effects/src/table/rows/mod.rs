//! The rows, by subject.

mod files;
mod ipc;
mod machine;
mod memory;
mod network;
mod processes;
mod signals;
mod streams;

use super::{Case, Entry, Fate, Sample};

/// Every part of the table.
pub(super) const ALL: [&[Entry]; 8] = [
    files::ROWS,
    streams::ROWS,
    network::ROWS,
    ipc::ROWS,
    processes::ROWS,
    memory::ROWS,
    signals::ROWS,
    machine::ROWS,
];

/// Calls without cases.
const fn plain(calls: &'static [&'static str], fate: Fate, says: &'static str) -> Entry {
    Entry { calls, fate, says, cases: &[] }
}

/// Calls with cases.
const fn cases(
    calls: &'static [&'static str],
    fate: Fate,
    says: &'static str,
    cases: &'static [Case],
) -> Entry {
    Entry { calls, fate, says, cases }
}

/// A case that the filter tells by registers.
const fn by(
    when: &'static str,
    registers: &'static [(u8, u64)],
    fate: Fate,
    says: &'static str,
) -> Case {
    Case { when, sample: Sample::Registers(registers), fate, says }
}

/// A case that is told elsewhere.
const fn when(when: &'static str, fate: Fate, says: &'static str) -> Case {
    Case { when, sample: Sample::Elsewhere, fate, says }
}
