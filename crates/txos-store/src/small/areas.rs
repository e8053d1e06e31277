//! Mount points by mount id: finding one takes a walk up the tree, done once for each.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fd::AsFd,
    fs::{AtFlags, OFlags, StatxFlags, statx},
    io::Errno,
};
use txos_host::Tree;

use crate::sys::{FsIdentity, identity_of};

/// A mount: where it is, and which file system with which directory of it is mounted there.
#[derive(Debug)]
pub(super) struct Mount {
    pub point: PathBuf,
    pub fs: FsIdentity,
}

/// The mounts that were met. They are known by ids that the kernel never gives again, so that
/// nothing here becomes wrong.
#[derive(Default)]
pub(super) struct Mounts(Mutex<HashMap<u64, Arc<Mount>>>);

/// The unique id of the mount by which `fd` was reached (`statx(2)`, `STATX_MNT_ID_UNIQUE`).
///
/// # Errors
/// What `statx(2)` gives; `ENOSYS` before Linux 6.8.
fn mount_of(fd: impl AsFd) -> Result<u64, Errno> {
    // rustix does not name STATX_MNT_ID_UNIQUE.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, UNIQUE)?;
    if stat.stx_mask & UNIQUE.bits() == 0 {
        return Err(Errno::NOSYS);
    }
    Ok(stat.stx_mnt_id)
}

impl Mounts {
    /// The mount that the open directory `dir`, at the absolute path `path`, is on.
    pub(super) fn of(&self, root: &Tree, dir: impl AsFd, path: &Path) -> Result<Arc<Mount>, Errno> {
        let id = mount_of(&dir);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(id) = id
            && let Some(mount) = known.get(&id)
        {
            return Ok(mount.clone());
        }
        let plain = crate::sys::mount_id(&dir)?;
        let mut point = path.to_owned();
        for above in path.ancestors().skip(1) {
            let dir = root.open_at(above, OFlags::PATH | OFlags::DIRECTORY)?;
            if crate::sys::mount_id(&dir)? != plain {
                break;
            }
            point = above.to_owned();
        }
        let mounted = root.open_at(&point, OFlags::PATH | OFlags::DIRECTORY)?;
        let mount = Arc::new(Mount { point, fs: identity_of(&mounted)? });
        if let Ok(id) = id {
            known.insert(id, mount.clone());
        }
        Ok(mount)
    }
}
