//! Contention: whose conflict is it, who goes on, who retries, who waits.
//!
//! A transaction that is ready to commit tells what it would write ([`Written`]). That is *held*
//! until it has ended, against the worksets of all others: against what they have read
//! ([`Written::meets`]), and against what they touch from then on. Where they meet, the [`Arbiter`]
//! decides by the [`Policy`].
//!
//! # The rules
//!
//! 1. *Held before asked.* A reader puts a writer's set up before it answers whether it meets it.
//!    So each pair of a write and a read is seen exactly once: by the answer, or by the touch.
//! 2. *Nobody is granted before all have answered.* One that never answers (stopped, say) is given
//!    up after a while: then the validation at its commit finds what the arbiter missed.
//! 3. *A granted writer is met by nobody*: who had read what it writes is doomed, who touches it
//!    waits until it has ended. So those that are granted at a time don't meet, and no reader sees
//!    an apply half-way.
//! 4. *The order decides.* Of a writer and the reader that it meets the one of higher rank goes on.
//!    If that is the writer, the reader is doomed as soon as nothing else keeps the writer, and
//!    runs again when the writer has ended. If it is the reader, the writer waits, ready, until the
//!    reader has ended: the reader read the old state, and comes first.
//! 5. *A touch of what is held* by one of lower rank that still waits goes through, and is met as
//!    in rule 4; by one of higher rank, or one that is granted, waits for its end.
//! 6. *Who hangs outside loses.* A transaction that waits for something outside the order, such as
//!    a file lock of another process, is no reason for anybody to wait.
//! 7. *Who holds each other's file locks*: of a circle of transactions of which each waits for a lock
//!    that the next one has until its end, the lowest is doomed. It rests until the one has ended that
//!    waited for it.
//!
//! # Why nobody waits for ever, and nobody retries for ever
//!
//! Each policy is a total order that a transaction keeps across its retries (with `sizematters`:
//! as long as it waits, since what a ready one has read does not grow, and who waits for it had
//! less). A ready writer waits for readers of higher rank, a touch for writers of higher rank, or
//! either for one that is granted, which waits for nobody. So each chain of waits ascends in the
//! order and ends at one that is granted or runs.
//!
//! One is doomed only by a writer that is granted in the same step, or in a circle of locks. Each
//! restart of the first kind is thus paid with a commit, or with one that outsiders broke; after one of
//! the second kind the loser holds nothing until one that ranks higher has ended. The highest of all is
//! never doomed.
//!
//! Who is never arbitrated for because of rule 2 is not wrong, only late: the safety of all rests
//! on the validation at the commit.

mod arbiter;
mod locks;
mod rank;
mod written;

#[cfg(test)]
mod explore;

pub use arbiter::{Action, Arbiter, Hold, Overview, Phase};
pub use locks::{FileLock, LockWait};
pub use rank::{Policy, Standing};
pub use written::{BadWritten, Meeting, Written};
