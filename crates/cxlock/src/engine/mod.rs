//! Engines: how a section becomes a transaction.
//!
//! The functions are the instructions of MetaTM (table 1 of the paper), so that the lock above is
//! written once: `begin` is `xbegin`, `commit` is `xend`, `restart` is `xrestart`, `subscribe` is
//! `xtest`, `acquire` is `xcas`.
//!
//! What every engine guarantees, and the lock relies on:
//!
//! 1. *Isolation*: what an attempt wrote becomes visible at `commit`, all at once, or never.
//! 2. *Opacity*: every value that an attempt reads, also one that is doomed, belongs to one
//!    consistent state of the cells that its subscribed locks protect.
//! 3. *Subscription*: once a word was subscribed, a later `acquire` of it by anyone keeps the
//!    attempt from seeing anything that the acquirer does, and from committing if it has written.
//!    (One that only read can be ordered before the acquirer.)
//! 4. *Visibility*: who acquired a word sees all that was committed under it before.

mod plain;
pub(crate) mod rtm;
mod stm;

pub use plain::Plain;
pub use rtm::{Rtm, RtmSupport};
pub use stm::{Attempt, CommitError, Prepared, Stm, Transaction, atomically};

use crate::cell::Slot;
use crate::restart::Reason;
use crate::word::{Stamp, Word};

/// A way to run sections: [`Rtm`], [`Stm`] or [`Plain`].
///
/// Closed to other crates: [`CxMutex`](crate::CxMutex) lends out plain references on the strength of
/// what the engines guarantee.
pub trait Engine: Instructions {
    /// For reports.
    const NAME: &'static str;

    /// Whether sections can run as transactions on this machine.
    fn available() -> bool;
}

/// What an engine can do; see the module's essay for what it must guarantee. Not reachable from
/// outside: a commit at the wrong moment would break the isolation of a running section.
pub trait Instructions: Sized + 'static {
    /// Whether the contention manager can see who is inside of a lock: needed to wait for them.
    const VISIBLE: bool;

    /// Lost conflicts after which a section is run under mutual exclusion.
    const ATTEMPTS: u32;

    /// What each cell carries for the engine.
    type Meta: Default + Send + Sync;

    /// A transaction between `begin` and `commit`, over words and cells that live for `'c`.
    type Tx<'c>: Default;

    /// Starts a fresh attempt with `tx`, whatever was in it.
    ///
    /// An engine in hardware returns from here once more for each attempt that fails later, then
    /// with the reason.
    ///
    /// # Errors
    /// Why there is no attempt.
    fn begin(tx: &mut Self::Tx<'_>) -> Result<(), Reason>;

    /// Enters `word` into the attempt's read set if it is free: `true`. A held word is left out of
    /// the set: `false`.
    ///
    /// # Errors
    /// The attempt is over.
    fn subscribe<'c>(tx: &mut Self::Tx<'c>, word: &'c Word) -> Result<bool, Reason>;

    /// The value of a cell as the attempt sees it.
    ///
    /// # Errors
    /// The attempt is over.
    fn read<'c>(tx: &mut Self::Tx<'c>, slot: &'c Slot<Self::Meta>) -> Result<u64, Reason>;

    /// Changes a cell, for the attempt alone.
    ///
    /// # Errors
    /// The attempt is over.
    fn write<'c>(
        tx: &mut Self::Tx<'c>,
        slot: &'c Slot<Self::Meta>,
        value: u64,
    ) -> Result<(), Reason>;

    /// Ends the attempt for the given reason, which comes back; in hardware it arrives at `begin`.
    fn restart(tx: &mut Self::Tx<'_>, reason: Reason) -> Reason;

    /// Makes the attempt's writes visible.
    ///
    /// # Errors
    /// The attempt is over, without effect.
    fn commit(tx: &mut Self::Tx<'_>) -> Result<(), Reason>;

    /// Takes a lock word that was free when `seen`.
    fn acquire(word: &Word, seen: Stamp) -> bool;

    /// Frees a lock word that this thread acquired and gives what it was.
    fn release(word: &Word) -> Stamp;

    /// The value of a cell for the holder of a lock.
    fn read_held(slot: &Slot<Self::Meta>) -> u64;

    /// Changes a cell at once, for the holder of a lock.
    fn write_held(slot: &Slot<Self::Meta>, value: u64);
}
