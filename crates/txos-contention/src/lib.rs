//! The contention manager: one process for each state directory, started by whoever needs it, which
//! holds the table of the transactions that run and decides their conflicts
//! ([`txos_core::contention`]).
//!
//! ```text
//!   txos run ──┐ begin, ready (what it writes), answers, touches, end
//!   txos run ──┼────────────▶ txos __manager ◀──────────── txos ps, stats, policy
//!   txos run ──┘ ◀─ hold, start, wait, grant, doom, release
//! ```
//!
//! # Invariants
//!
//! - The worksets stay with the transactions. What one writes is passed to all others, in a memory
//!   file, and each holds it against what it has read itself.
//! - *Nothing depends on it for safety.* A commit is made under the lock of the state directory and
//!   validates all that was read. Without a word of the manager a transaction does not go on, but
//!   one that was granted finishes whatever becomes of the manager.
//! - *It cannot be waited for in vain.* A transaction whose connection closes has left. One that does
//!   not answer is given up after [`server::PATIENCE`]. If the manager ends, every connection closes,
//!   and what runs is aborted.
//! - *One at a time.* Who starts it holds `manager.lock` and makes the socket, and both pass to the
//!   process that is started; so two that start at once agree, and a connection is made at once.
//! - It believes only processes of its own user (`SO_PEERCRED`, unix(7)).
//! - It ends by itself when nobody has been connected for a while ([`server::grace`]).

mod committer;
mod link;
mod memory;
mod message;
mod query;
mod rank;
mod server;
mod socket;
mod stats;
pub mod text;

pub use committer::{Commit, Committer, Committers, LONGEST, OWN_LONGEST};
pub use link::{GONE, Link, Lost, OnWait, PATIENCE, Verdict};
pub use message::{Ended, Ending, Row};
pub use query::{policy, set_policy, stats, table};
pub use rank::{standing, standing_of};
pub use server::run;
pub use stats::Stats;
