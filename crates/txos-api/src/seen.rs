//! What a transaction has read of an object, facet by facet, and whether it still holds.
//!
//! # Invariants
//!
//! - Everything is compared by value: bindings by identity, contents by the hash of just the ranges
//!   that were read, listings by the names. Somebody's write to another range of a file, or a
//!   change and its undoing, is no conflict.
//! - A content is hashed again even if no time has moved: on ext4 the change time moves before
//!   the bytes do, so an unchanged time is not proof against a writer that was at work.

use std::{ffi::OsString, os::fd::AsFd};

use rustix::io::{Errno, pread};
use txos_store::Key;
use xxhash_rust::xxh3::Xxh3;

use crate::shadow::Shadow;

/// Bytes of a file that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub from: u64,
    pub to: u64,
    /// Hash of what was there; a range past the end of the file holds what there was.
    pub hash: u128,
}

/// The facets of a stable object that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Mode and owner, by walking through it or by asking for them.
    pub perms: bool,
    /// All that `stat` shows.
    pub attrs: bool,
    /// The size alone.
    pub size: bool,
    /// Parts of the content.
    pub ranges: Vec<Range>,
    /// All names, sorted.
    pub listing: Option<Vec<OsString>>,
    /// The target of a symbolic link.
    pub link: Option<OsString>,
    /// Hash of all extended attributes.
    pub xattrs: Option<u64>,
}

/// What was read, in the words in which the store tells commits apart that have nothing to do with
/// each other.
pub(crate) fn keys(shadow: &Shadow) -> Vec<Key> {
    let mut keys = Vec::new();
    for (ix, node) in shadow.iter() {
        let Some(stable) = &node.stable else { continue };
        if stable.seen != Seen::default() {
            keys.push(Key::object(&stable.attrs.id));
        }
        let Some(body) = shadow.dir(ix).filter(|body| !body.names.is_empty()) else { continue };
        let Some(path) = shadow.original(ix) else { continue };
        keys.extend(body.names.keys().map(|name| Key::name(&path.join(name))));
        if stable.seen.listing.is_some() {
            keys.push(Key::listing(&path));
        }
    }
    keys
}

/// Reads the bytes from `from` to `to`, or to the end of the file if that comes first.
pub(crate) fn read_range(file: impl AsFd, from: u64, to: u64) -> Result<Vec<u8>, Errno> {
    const LARGEST: u64 = 1 << 20;
    // Most files are small, and memory that is not needed costs more than the call.
    let mut step = 4096;
    let mut bytes = Vec::new();
    let mut at = from;
    while at < to {
        let have = bytes.len();
        bytes.resize(have + (to - at).min(step) as usize, 0);
        match pread(&file, &mut bytes[have..], at) {
            Ok(count) => {
                bytes.truncate(have + count);
                if count == 0 {
                    break;
                }
                at += count as u64;
                step = (step * 4).min(LARGEST);
            }
            Err(Errno::INTR) => bytes.truncate(have),
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}

/// The hash by which ranges are compared.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(bytes);
    hasher.digest128()
}
