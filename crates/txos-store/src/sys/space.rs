use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, StatxFlags, fstatvfs, statx},
    io::Errno,
};

/// Bytes that the caller may still allocate on the file system of `fd`.
pub(crate) fn free_bytes(fd: impl AsFd) -> Result<u64, Errno> {
    let stat = fstatvfs(fd)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The id of the mount that an open directory was reached by (`statx(2)`, `STATX_MNT_ID`).
pub(crate) fn mount_id(fd: impl AsFd) -> Result<u64, Errno> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(stat.stx_mnt_id)
}

/// Whether a rename from `one` to `other` is possible: the same file system through the same
/// mount (`rename(2)`, `EXDEV`).
pub(crate) fn same_mount(one: impl AsFd, other: impl AsFd) -> Result<bool, Errno> {
    Ok(mount_id(one)? == mount_id(other)?)
}
