//! System transactions inside programs: the calls of TxOS on a stock kernel.
//!
//! A thread that begins a transaction enters a *view*, a private mount namespace that its session
//! prepared, and everything that it, the libraries it calls and the programs it starts do with files from
//! then on happens in the view's shadow. At the end it leaves the view, and the session commits what was
//! done there, or forgets it.
//!
//! ```text
//! flags         what can be asked for
//! files         the explicit API: transactions over files, without a view
//! api           the C functions
//! member        a thread's way through a transaction
//!   link          its connection to the session
//!   guard         system calls that a transaction does not support
//!   place         mount namespace, root, working directory
//!   descriptors   open files across the border
//!   conduits      pipes across the border
//!   locks         record locks, which cannot be carried
//!   checkpoint    rollback of the program itself
//!   stand_in      a thread that is inside while the one that began keeps its table of descriptors
//!   tables        what a stand-in's table of descriptors leaves behind
//!     registers, own, rseq, raw   what both of these are made of
//!   signal_calls  the calls by which a program takes signals
//!   limit_calls   the calls that show and change resource limits
//!   mappings      memory that would bypass a view
//!   task          whether the process has other threads
//!   phases        where the time goes
//! ```

mod api;
#[cfg(target_arch = "x86_64")]
mod checkpoint;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_checkpoint.rs"]
mod checkpoint;
mod conduits;
mod descriptors;
mod files;
mod flags;
mod guard;
#[cfg(target_arch = "x86_64")]
mod limit_calls;
mod link;
mod locks;
mod mappings;
mod member;
#[cfg(target_arch = "x86_64")]
mod own;
pub mod phases;
mod place;
#[cfg(target_arch = "x86_64")]
mod raw;
#[cfg(target_arch = "x86_64")]
mod registers;
#[cfg(target_arch = "x86_64")]
mod rseq;
#[cfg(target_arch = "x86_64")]
mod signal_calls;
#[cfg(target_arch = "x86_64")]
mod stand_in;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_stand_in.rs"]
mod stand_in;
mod sys;
mod tables;
mod task;

pub use self::api::*;
pub use ::api::{
    Conflict, Error, Facet, FileKind, Options, Result, Stamp, Stat, System, Transaction,
    transaction,
};
pub use files::*;
pub use flags::*;
