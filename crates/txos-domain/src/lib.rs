//! Domains: groups of processes towards which isolation is strong, because they stand still while
//! a transaction validates and applies.
//!
//! A domain is a subtree of the version 2 control group hierarchy. A *pause* freezes it for the
//! short time between the last validation of a commit and the end of its apply, so that each system
//! call of its processes comes before or after the whole transaction. A *hold* freezes single
//! offenders for a whole attempt, after a transaction has lost to them several times.
//!
//! # Invariants
//!
//! 1. *No freeze without a watchdog.* A group is frozen only after a watchdog, a process outside
//!    the domain, has confirmed that it holds what is needed to thaw it, and until when it may last.
//! 2. *Any death thaws.* The watchdog sees the death of txos as the end of a connection; the
//!    watchdog's second sees the death of the watchdog in the same way, and takes its place. When all
//!    three die at once, nobody is left who could: whoever uses a domain next finds a pause without
//!    a living owner, and ends it ([`sweep`]).
//! 3. *The limit binds until the decision.* Before it writes the commit record, txos asks the
//!    watchdog ([`Pause::decide`]). Either the watchdog agrees, or the limit is over, the domain is
//!    thawed, and the commit does not take place. After that the domain is thawed when the apply has
//!    ended, by txos, or by recovery in the watchdog if txos died.
//! 4. *Pauses are counted.* Each pause holds a shared lock on one file for each group; only who
//!    finds no other lock thaws. A group that was frozen when the first pause began stays frozen.
//!    The locks are the kernel's, so they count the living only.
//! 5. *Nobody is frozen on whom the commit could wait.* txos, its transactions and its watchdogs
//!    leave the domain for a group of their own before they begin ([`leave`]); a domain that holds a
//!    FUSE server or a fanotify permission listener, or whoever shows txos's terminal, is refused
//!    ([`members::obstacles`]).
//! 6. *A hold ends by itself*, after its own limit, in the same ways as a pause.
//! 7. Only groups that txos made are frozen, and, where the whole system is the domain, the groups
//!    that [`plan_system`] finds safe; never the root group, which the kernel does not freeze.
//!
//! # What a pause is not
//!
//! It stops system calls and user code of the members; asynchronous input and output that is in
//! flight goes on, and so do the kernel's own threads. docs/domain.md says what a paused program
//! notices.
//!
//! Sources: the kernel's `cgroup-v2.rst`, sections "Core Interface Files" (`cgroup.freeze`,
//! `cgroup.events`) and "Delegation"; `cgroups(7)`.

mod error;
mod group;
mod hierarchy;
mod hold;
mod leave;
mod ledger;
pub mod members;
mod name;
mod pause;
mod plan;
mod priority;
mod registry;
mod watchdog;
mod wire;

pub use error::{DomainError, Result};
pub use group::Group;
pub use hierarchy::Hierarchy;
pub use hold::{Held, Hold};
pub use leave::leave;
pub use ledger::sweep;
pub use members::Obstacle;
pub use name::DomainName;
pub use pause::{Pause, Pauser, PauserSpec};
pub use plan::{SystemPlan, plan_system};
pub use priority::Priority;
pub use registry::{Domains, Listed};
pub use watchdog::{Watchdog, serve};
