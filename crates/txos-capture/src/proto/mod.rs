//! The FUSE wire protocol, as far as a read-only mirror and an append-only log need it (`linux/fuse.h`, 7.31 and later).
//!
//! A protocol layer of its own rather than the `fuser` crate, because the time of a first touch is
//! what capture costs, and the levers lie in this layer: workers that share one descriptor read it
//! without blocking before they sleep, a reply is written from the buffer that the file was read
//! into, READDIRPLUS answers some entries with attributes and some without, and the id of the
//! blocked caller decides what a GETATTR counts as.
//!
//! Integers are in the machine's byte order. A request is `fuse_in_header` (40 bytes) and a body;
//! a reply is `fuse_out_header` (16 bytes: length, negative error number, the request's unique
//! number) and a body.

mod opcode;
mod reply;
mod request;

pub(crate) use opcode::Opcode;
pub(crate) use reply::{NodeReply, Reply, WireAttr, WireStatfs};
pub(crate) use request::Request;

/// The protocol version spoken here. The kernel adapts to the lower minor number.
pub(crate) const VERSION: (u32, u32) = (7, 41);
/// The oldest minor number with everything that capture rests on (`FUSE_CACHE_SYMLINKS`,
/// `FUSE_NO_OPENDIR_SUPPORT`, `FUSE_MAX_PAGES`).
pub(crate) const OLDEST_MINOR: u32 = 29;

/// Flags of `FUSE_INIT`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u32 = 1;
    pub(crate) const EXPORT_SUPPORT: u32 = 1 << 4;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const POSIX_ACL: u32 = 1 << 20;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    pub(crate) const EXPLICIT_INVAL_DATA: u32 = 1 << 25;
}
