//! Reading the stable system: paths resolved beneath pinned directories, versions, listings,
//! hashes, leases, mounts; bells, by which threads wake each other, and doors, by which connections come.
//!
//! # Invariants
//!
//! - A path of the stable system is walked with `openat2(2)`, `RESOLVE_BENEATH |
//!   RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`, from a pinned directory: nobody who swaps a
//!   parent for a link can lead the walk elsewhere. A swapped parent is an error, never followed.
//! - Reading leaves no trace: access times are not moved where the kernel permits (`O_NOATIME`).
//! - No descriptor is kept for an object: the descriptor limit of the process must not bound what
//!   a transaction may touch.

mod attrs;
mod bell;
mod clock;
mod content;
mod door;
mod error;
mod lease;
mod listing;
pub mod mounts;
mod tree;
mod walk;
mod xattr;

pub use attrs::{attrs_at, attrs_of};
pub use bell::Bell;
pub use clock::{ChangeClock, change_clock, multigrain};
pub use content::{content_hash, open_content};
pub use door::Door;
pub use error::{HostError, Result};
pub use lease::{Lease, WriterProbe, ignore_lease_breaks, probe_writers};
pub use listing::{Entry, Listing, read_listing};
pub use tree::Tree;
pub use walk::open_dir_below;
pub use xattr::{XattrSet, read_xattrs_at, sized, xattrs_hash};
