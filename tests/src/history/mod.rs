//! The history checker: what transactions saw, and whether a serial order explains it.
//!
//! # What is recorded
//!
//! Each transaction performs a few random operations and prints what it saw, a line each
//! ([`Event`]). Its output appears when it commits, so that only the attempt that committed counts.
//! [`Register`]s (the content of a file, the target of a link, the group of a file or of a directory
//! that is walked through, an extended attribute) hold the number of their last writer; a writer also
//! tells whose value it found. Names are made once, in directories by their numbers, and looked for one by one or by listing. An
//! outsider writes registers of its own, and makes names, in the midst of them.
//!
//! # What is checked
//!
//! The dependency graph after Adya: who read from whom (wr), who overwrote what one had read (rw), who
//! overwrote whom (ww), and who had ended before the other began (real time). A history is strictly
//! serializable if and only if it has no cycle.

mod event;
mod graph;
mod parallel;
mod register;

pub use event::Event;
pub use graph::{DIRECTORY, Record, cycle};
pub use parallel::{OUTSIDERS, Plan, name, perform};
pub use register::{EACH, Kind, Register, Writer};
