//! Bytes that are passed on in a memory file: to any number of others, and more than a packet holds.

use std::{
    fs::File,
    io::Write,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};

pub(crate) fn memory_file(bytes: &[u8]) -> Result<OwnedFd> {
    let fd = memfd_create("txos-contention", MemfdFlags::CLOEXEC)
        .context("cannot make a memory file")?;
    let mut file = File::from(fd);
    file.write_all(bytes).context("cannot fill a memory file")?;
    Ok(file.into())
}

pub(crate) fn read_all(fd: OwnedFd) -> Option<Vec<u8>> {
    let file = File::from(fd);
    let mut bytes = vec![0; usize::try_from(file.metadata().ok()?.len()).ok()?];
    // Others read from the same open file: no position is shared this way.
    file.read_exact_at(&mut bytes, 0).ok()?;
    Some(bytes)
}
