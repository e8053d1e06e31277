use std::{os::fd::AsFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{MountFlags, mount, mount_bind, mount_bind_recursive},
};

use super::remount_read_only;
use crate::{Result, ViewError, sys};

/// Parts of `/proc` through which the whole machine could be changed.
const READ_ONLY: [&str; 8] =
    ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "latency_stats"];

/// Parts of `/proc` that show or consume what belongs to the machine and not to a view.
const MASKED: [&str; 5] = ["kcore", "kmsg", "keys", "key-users", "timer_list"];

/// A `/proc` of the view's own pid namespace: outsiders have no entry in it.
///
/// Called while the host's `/proc` is still mounted: in a user namespace the kernel allows a new
/// one only where an unhidden one can be seen.
pub(super) fn mount_proc(root: &Path) -> Result<()> {
    let at = root.join("proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &at, "proc", flags, None).map_err(|errno| {
        ViewError::mount("proc", &at, errno).with_remedy(
            "in a container whose /proc is partly hidden, the kernel refuses a new one: run \
             outside it, or with an unmasked /proc",
        )
    })?;
    for name in READ_ONLY {
        let path = at.join(name);
        match mount_bind(&path, &path) {
            Ok(()) => remount_read_only(&path, flags)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(ViewError::mount("read-only", &path, errno)),
        }
    }
    for name in MASKED {
        let path = at.join(name);
        match mount_bind("/dev/null", &path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(ViewError::mount("a mask", &path, errno)),
        }
    }
    Ok(())
}

/// The host's own `/proc`, for threads that stay in its pid namespace: as it is, but for what would change the
/// machine, which is read-only.
pub(crate) fn bind_proc(root: &Path) -> Result<()> {
    let at = root.join("proc");
    mount_bind_recursive("/proc", &at).map_err(|errno| ViewError::mount("/proc", &at, errno))?;
    for name in READ_ONLY {
        let path = at.join(name);
        let failed = |errno| ViewError::mount("read-only", &path, errno);
        match mount_bind_recursive(&path, &path) {
            Ok(()) => make_read_only(&path).map_err(failed)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}

/// Makes what is mounted at a path, and all below it, read-only.
fn make_read_only(at: &Path) -> std::result::Result<(), Errno> {
    let fd = openat(CWD, at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::read_only_recursively(fd.as_fd())
}

/// The host's `/sys` with all that is mounted below it, read-only.
pub(crate) fn mount_sys(root: &Path) -> Result<()> {
    let at = root.join("sys");
    if !Path::new("/sys").is_dir() {
        return Ok(());
    }
    mount_bind_recursive("/sys", &at).map_err(|errno| ViewError::mount("/sys", &at, errno))?;
    make_read_only(&at).map_err(|errno| ViewError::mount("/sys read-only", &at, errno))
}
