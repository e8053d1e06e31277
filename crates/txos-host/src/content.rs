use std::{
    ffi::OsStr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, pread},
};
use xxhash_rust::xxh3::Xxh3;

const CHUNK: usize = 256 * 1024;

/// Opens the regular file `name` in `dir` for reading, without moving its access time where the
/// caller may ask for that (its owner, or `CAP_FOWNER`), and never blocking on a FIFO.
///
/// # Errors
/// What `openat(2)` gives; `ELOOP` if the name is a symbolic link.
pub fn open_content(dir: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(&dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(&dir, name, flags, Mode::empty()),
        other => other,
    }
}

/// A 128-bit hash of all bytes of an open file. Its offset is not used.
///
/// # Errors
/// What `pread(2)` gives.
pub fn content_hash(file: impl AsFd) -> Result<u128, Errno> {
    let mut hasher = Xxh3::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        match pread(&file, &mut buffer, offset) {
            Ok(0) => return Ok(hasher.digest128()),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
