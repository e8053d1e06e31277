use std::{ffi::OsStr, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, Statx, StatxFlags, makedev, statx},
    io::Errno,
};
use txos_core::{Attrs, FileKind, ObjectId, Stamp};

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// The attributes of `name` in `dir`, not following a symbolic link; `None` if the name is absent.
///
/// # Errors
/// What `statx(2)` gives, except `ENOENT`.
pub fn attrs_at(dir: impl AsFd, name: &OsStr) -> Result<Option<Attrs>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(dir, name, flags, WANTED) {
        Ok(stat) => convert(&stat).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The attributes of an open object (also one opened with `O_PATH`).
///
/// # Errors
/// What `statx(2)` gives.
pub fn attrs_of(fd: impl AsFd) -> Result<Attrs, Errno> {
    convert(&statx(fd, c"", AtFlags::EMPTY_PATH, WANTED)?)
}

fn convert(stat: &Statx) -> Result<Attrs, Errno> {
    let mode = u32::from(stat.stx_mode);
    let kind = FileKind::from_mode(mode).ok_or(Errno::OPNOTSUPP)?;
    let has_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let stamp = |t: &rustix::fs::StatxTimestamp| Stamp { sec: t.tv_sec, nsec: t.tv_nsec };
    Ok(Attrs {
        id: ObjectId {
            dev: makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            birth: if has_birth { stamp(&stat.stx_btime) } else { Stamp::default() },
        },
        kind,
        perm: mode & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        rdev: match kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                makedev(stat.stx_rdev_major, stat.stx_rdev_minor)
            }
            _ => 0,
        },
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        mtime: stamp(&stat.stx_mtime),
        ctime: stamp(&stat.stx_ctime),
        atime: stamp(&stat.stx_atime),
    })
}
