//! State directory, delta, staging, journal, apply and recovery.
//!
//! The way of a transaction through this crate: a [`TxDir`] holds the [`Layer`]s of its view; when
//! its processes have ended, [`Delta::extract`] says what it would change; [`Prepared::stage`]
//! makes that ready; [`Prepared::commit`] decides and applies it, [`Prepared::abort`] forgets it,
//! [`Prepared::keep`] lets it wait. What a crash leaves at any point, [`recover`] finishes or
//! discards.
//!
//! Who needs no view commits through a [`Store`]: a few changes from memory at once, all of them in
//! one record ([`Store::commit_small`]).

mod apply;
mod commit;
mod delta;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod journal;
mod keep;
pub mod names;
mod plan;
mod recover;
mod small;
mod stage;
mod state;
mod sys;
mod verify;
mod written;

pub use apply::Kept;
pub use commit::{Committed, Domain, NoDomain, Phase, Prepared, Validate};
pub use delta::{AttrChange, Change, ChangeKind, Delta, ExtractOptions};
pub use error::{Result, StoreError};
pub use recover::{
    Finished, Pending, RecoveryReport, closed_paths, give_up, recover, recover_locked,
};
pub use small::{
    Commits, Exclusive, Key, SmallCommitted, SmallOp, SmallOptions, Store, ValidateSmall, ViewCount,
};
pub use state::{
    ExclusiveLock, Holder, Layer, LogEntry, Loss, Outcome, Privilege, StateDir, TxDir, TxMeta,
    TxState, TxStatus, default_directory,
};
pub use sys::maps_for_itself;

#[cfg(test)]
mod tests;
