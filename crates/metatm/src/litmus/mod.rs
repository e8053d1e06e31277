//! Litmus tests: one small run for each instruction of table 1, each cell of tables 2 and 3, the
//! deadlock of section 5.3, and the counts of section 7.4.
//!
//! They are part of the library because the report shows their outcome beside the paper's tables.

mod checks;
mod conflicts;
mod counts;
mod deadlock;
mod table1;
mod table2;
mod table3;

pub use counts::{Counts, counts};

use std::cell::RefCell;
use std::rc::Rc;

use crate::bare::Bare;
use crate::config::{Backoff, Config};
use crate::error::SimError;
use crate::mem::Addr;
use crate::stats::Stats;
use crate::sync::cx::FREE;

/// Which table of the paper a case belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Instructions and concepts.
    One,
    /// Lock kinds from transactional and non-transactional threads.
    Two,
    /// State transitions of a cxspinlock.
    Three,
    /// The deadlock of section 5.3.
    Deadlock,
    /// The simulator's own checkers.
    Checks,
}

/// One litmus test.
pub struct Case {
    /// The table it shows.
    pub table: Table,
    /// The row or cell.
    pub name: &'static str,
    /// What must be seen.
    pub claim: &'static str,
    /// Runs it.
    pub run: fn() -> Outcome,
}

/// What a case found: nothing, or what contradicts its claim.
pub type Outcome = std::result::Result<(), String>;

/// All cases.
pub fn all() -> Vec<Case> {
    [
        table1::cases(),
        conflicts::cases(),
        table2::cases(),
        table3::cases(),
        deadlock::cases(),
        checks::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// First of the words that cases use; each has a line of its own.
const AREA: Addr = 0x20_0000;

/// The `n`th such word.
fn word(n: u32) -> Addr {
    AREA + 64 * n
}

/// Lock A, initially free.
const LOCK_A: Addr = AREA + 64 * 100;

/// Lock B, initially free.
const LOCK_B: Addr = AREA + 64 * 101;

/// What guests saw and when; read back in the order of simulated time.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<Event>>>);

/// When, what, and a value.
type Event = (u64, &'static str, u64);

impl Log {
    fn note(&self, c: &crate::guest::Cx, what: &'static str, value: impl Into<u64>) {
        let now = c.host(|m| m.now());
        self.0.borrow_mut().push((now, what, value.into()));
    }

    fn values(&self, what: &str) -> Vec<u64> {
        let mut log = self.0.borrow().clone();
        log.sort_by_key(|(time, _, _)| *time);
        log.iter().filter(|(_, w, _)| *w == what).map(|(_, _, v)| *v).collect()
    }

    fn times(&self, what: &str) -> Vec<u64> {
        let mut times: Vec<u64> =
            self.0.borrow().iter().filter(|(_, w, _)| *w == what).map(|(t, _, _)| *t).collect();
        times.sort_unstable();
        times
    }

    fn time(&self, what: &str) -> Result<u64, String> {
        self.times(what).first().copied().ok_or_else(|| format!("\"{what}\" never happened"))
    }
}

/// Runs a case's program with both locks free.
fn run(cfg: &Config, program: Bare, look: &[Addr]) -> Result<(Stats, Vec<u32>), SimError> {
    program.run(
        cfg,
        |m| {
            m.mem.set(LOCK_A, FREE);
            m.mem.set(LOCK_B, FREE);
        },
        look,
    )
}

/// The same, with the error as a message.
fn ran(cfg: &Config, program: Bare, look: &[Addr]) -> Result<(Stats, Vec<u32>), String> {
    run(cfg, program, look).map_err(|e| e.to_string())
}

/// A machine on which restarts don't wait.
fn quiet() -> Config {
    Config { backoff: Backoff::None, ..Config::default() }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Outcome {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}")) }
}

fn ensure(what: &str, holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_holds() {
        let failed: Vec<String> = super::all()
            .iter()
            .filter_map(|c| (c.run)().err().map(|e| format!("{:?}/{}: {e}", c.table, c.name)))
            .collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
