//! Locks that cooperate with transactional memory.
//!
//! After the *cxspinlocks* of TxLinux (Rossbach et al., SOSP 2007): one critical section can be run
//! by many threads at once as transactions, or by one thread alone under mutual exclusion, and
//! which of the two is decided as late as in the middle of the section.
//!
//! * [`CxLock`]: sections as closures over transactional cells ([`TCell`]), on an [`Engine`]:
//!   [`Rtm`] (Intel's hardware transactions where they work, else plain locking), [`Stm`] (software,
//!   correct everywhere) or [`Plain`].
//! * [`CxMutex`]: a mutex for any data, with a guard, that elides itself in hardware.
//! * [`Transaction`]: software transactions without a lock, with a commit in two phases for a
//!   decision that another system makes.
//! * [`machine`]: the state machine behind all of it, as pure functions.
//!
//! ## What holds
//!
//! 1. A thread that holds a lock exclusively is alone in it: transactions inside restart (or, if
//!    they have only read, are ordered before it), and see nothing of what it does.
//! 2. Sections of the same lock are serializable; what a transaction reads is always one consistent
//!    state, also when it is doomed.
//! 3. Nothing that follows [`Section::io`] runs in a transaction.
//! 4. A section that keeps losing is run exclusively, so each one ends if the bodies do and the
//!    order in which locks are nested exclusively has no cycle.
//! 5. No fairness: a lock that becomes free goes to whoever is first, and exclusive threads can
//!    starve transactions until these run exclusively too.

mod cell;
#[cfg(all(test, not(loom)))]
mod conformance;
mod engine;
mod guard;
mod lock;
pub mod machine;
mod modes;
mod mutex;
mod raw;
mod restart;
mod section;
mod stats;
mod sync;
mod wait;
mod word;

pub use cell::{TCell, Value};
pub use engine::{
    Attempt, CommitError, Engine, Plain, Prepared, Rtm, RtmSupport, Stm, Transaction, atomically,
};
pub use guard::Exclusive;
pub use lock::CxLock;
pub use mutex::{CxMutex, CxMutexGuard};
pub use raw::Policy;
pub use restart::{Reason, Restart};
pub use section::Section;
pub use stats::Stats;
#[cfg(loom)]
pub use sync::model;
