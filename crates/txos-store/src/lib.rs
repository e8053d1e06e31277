//! State directory, delta, staging, journal, apply and recovery.
//!
//! The way of a transaction through this crate: a [`TxDir`] holds the [`Layer`]s of its view; when
//! its processes have ended, [`Delta::extract`] says what it would change; [`Prepared::stage`]
//! makes that ready; [`Prepared::commit`] decides and applies it, [`Prepared::abort`] forgets it,
//! [`Prepared::keep`] lets it wait. What a crash leaves at any point, [`recover`] finishes or
//! discards.

mod apply;
mod commit;
mod delta;
mod error;
mod journal;
mod keep;
pub mod names;
mod plan;
mod recover;
mod stage;
mod state;
mod sys;
mod verify;

pub use apply::Kept;
pub use commit::{Committed, Domain, NoDomain, Phase, Prepared, Validate};
pub use delta::{AttrChange, Change, ChangeKind, Delta, ExtractOptions};
pub use error::{Result, StoreError};
pub use recover::{Finished, Pending, RecoveryReport, recover, recover_locked};
pub use state::{
    ExclusiveLock, Holder, Layer, LogEntry, Outcome, Privilege, StateDir, TxDir, TxMeta, TxState,
    TxStatus,
};

#[cfg(test)]
mod tests;
