//! The session of programs that begin transactions themselves: warm views for their threads to enter, and
//! the commit of what they did there.
//!
//! ```text
//! program (libtxos)                session (a process of its own)
//!   thread ── connection ─────────▶ one thread a connection
//!     Begin                           takes a view from the pool ◀── builder
//!     ◀─ mount namespace, ids
//!     setns, …, setns back
//!     End                             extract → validate → commit (txos-store)
//!     ◀─ outcome                      the view is renewed, and goes back to the pool
//! ```
//!
//! # Invariants
//!
//! - One view, one transaction at a time. A view that was used is given out again only when nothing of
//!   it is in use any more, with an empty shadow layer and a capture that has forgotten everything; else
//!   it is dropped, and lives on as long as somebody has something open in it.
//! - A transaction commits when its last member has left it: by `sys_xend`, by ending, with whatever
//!   status. One that is killed by a signal aborts it.
//! - Validation and apply of all commits of one state directory follow one another (the lock of
//!   `txos-store`), so a transaction that commits has read what nobody changed until then.
//! - The session ends with its last connection. What it leaves then is nothing; what a crash of it
//!   leaves, recovery of the state directory removes.

mod commit;
mod contender;
mod control;
mod error;
mod guard;
mod order;
mod outsiders;
mod pipes;
mod pool;
mod process;
mod serve;
mod sys;
mod tracker;
mod view;

pub use error::{Result, SessionError};
pub use serve::Session;
pub use view::HOLDER;
