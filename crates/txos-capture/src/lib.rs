//! Capture: a read-only FUSE mirror of the stable tree that records what a transaction reads.
//!
//! The view of a transaction lies over this mirror. Whatever a program touches for the first time
//! arrives here as one request; the answer is recorded in the workset with the version that it
//! shows, and from then on the kernel's own caches answer. Names, absent names, file attributes
//! and link targets never expire: isolation keeps them true, not a timeout.
//!
//! # What a request counts as
//!
//! | request | facets |
//! |---|---|
//! | LOOKUP | *binding*, present or absent; *attrs* of what it is bound to (a `stat` cannot be told from a read); of a directory *perms* |
//! | GETATTR | *attrs*, again |
//! | READDIR | *listing* |
//! | READ, LSEEK | *content* |
//! | READLINK | *link* |
//! | GETXATTR, LISTXATTR | *xattrs*; nothing for overlayfs's own names, which no lower object has |
//! | STATFS, ACCESS, IOCTL | nothing |
//!
//! The times, size and link count of a directory are shown as they were at its first touch, and are
//! not validated: they move with every name that anybody makes in it, and nearly every program is
//! shown them without asking ([`txos_core::Attrs::same_shown`]). So two creations in one directory
//! do not conflict, and the copy-up of a directory, which asks for its attributes too, counts for
//! nothing.
//!
//! Until [`Capture::begin_recording`] objects and names are learned, but of listings, contents and
//! extended attributes nothing counts: the mounting of the view asks too.
//!
//! # Invariants
//!
//! - The version is recorded before the bytes are read. A change after that moves the change time,
//!   and validation finds it; a change that had begun before, and may still be writing, is found
//!   by the lease probe, and then the bytes themselves are hashed as they are served
//!   (see `content`).
//! - A name, an attribute set, a listing or a byte that was served once is served again or not at
//!   all. Where the stable system shows something else by then, the transaction is doomed, at once.
//! - No descriptor is held for an object. Directories and files are reopened by name when they
//!   fell out of a bounded cache, and are checked to be the same objects.
//! - Nothing that the stable system holds can look like overlayfs's own marks: a character device
//!   0:0 is shown with another device number ([`WHITEOUT_STAND_IN`]), and attributes named
//!   `*.overlay.*` are not shown.
//!
//! # What is measured
//!
//! docs/capture.md has the figures, and the levers that were tried.
//!
//! # Limits
//!
//! - A view's programs see no birth times, and in a view of an ordinary user no ACLs: only the mode
//!   bits are checked there.
//! - `trusted.overlay.*` and `user.overlay.*` attributes of stable files do not exist in a view. A
//!   file that is replaced there loses them.

mod awake;
mod caller;
mod capture;
mod content;
mod counts;
mod crew;
mod device;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod holds;
mod idmap;
mod log;
mod mirror;
mod nudge;
mod objects;
mod origin;
mod proto;
mod serve;
mod spec;
mod touched;
mod validate;
mod wire;

pub use capture::{Capture, Captured};
pub use counts::Requests;
pub use error::{CaptureError, Result};
pub use holds::{Answer as HoldAnswer, Holds, OnFirst, OnTouch};
pub use idmap::IdMap;
pub use log::serve_log;
pub use origin::parse_origin;
pub use serve::ORIGIN_MARK;
pub use spec::{CaptureSpec, OnDoom};
pub use touched::Judge;
pub use validate::{
    ValidateOptions, read_ahead_only, validate, validate_probing, validate_touched,
};
pub use wire::WHITEOUT_STAND_IN;
