//! Pure logic of system transactions: identities, versions, facets, worksets, conflicts, reports.
//!
//! Nothing in this crate touches the operating system. The crates that do (`txos-host`,
//! `txos-capture`, `txos-store`) fill these types in and ask them for decisions, so that every
//! decision can be tested without a kernel.
//!
//! The words are those of ARCHITECTURE.md: a *transaction* reads the *stable* system through a
//! *view*; its *workset* holds each *facet* that it read with the *version* seen; its *delta* is
//! what it would change.

mod blind;
mod conflict;
pub mod contention;
mod facet;
mod ids;
mod object;
mod origin;
mod text;
mod touched;
pub mod workset;

pub use blind::blind_to;
pub use conflict::{Conflict, Detail, RIVAL, Seen};
pub use facet::Facet;
pub use ids::TxId;
pub use object::{Attrs, FileKind, ObjectId, Stamp};
pub use origin::{Origin, Origins};
pub use text::misleading;
pub use touched::Touched;
pub use workset::{NodeId, Workset};
