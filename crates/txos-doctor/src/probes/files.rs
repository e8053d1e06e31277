//! What the file system of the state directory, and the kernel's file calls, can do.

use std::fs::File;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::report::Probe;
use crate::sys;

pub(super) const OPENAT2: &str = "openat2";
pub(super) const TMPFILE: &str = "O_TMPFILE";
pub(super) const LEASE: &str = "read lease";
pub(super) const BIRTH_TIME: &str = "birth time";

/// Does the kernel refuse to follow a link out of a directory?
pub(super) fn openat2(scratch: &Path) -> Probe {
    const REMEDY: &str = "Linux 5.6 or newer; in a container, allow openat2 in its seccomp profile";
    let beneath = || -> rustix::io::Result<Errno> {
        let dir = File::open(scratch).map_err(|_| Errno::IO)?;
        rustix::fs::symlinkat("/", &dir, "link")?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&dir, "link", OFlags::PATH, Mode::empty(), resolve) {
            Ok(_) => Ok(Errno::from_raw_os_error(0)),
            Err(errno) => Ok(errno),
        }
    };
    match beneath() {
        Ok(Errno::LOOP | Errno::XDEV) => Probe::ok(OPENAT2, "a link out of a directory is refused"),
        Ok(errno) | Err(errno) => {
            Probe::missing(OPENAT2, format!("RESOLVE_BENEATH|RESOLVE_NO_SYMLINKS: {errno}"), REMEDY)
        }
    }
}

/// Can contents be staged in files without a name, which no crash leaves behind?
pub(super) fn tmpfile(scratch: &Path) -> Probe {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, scratch, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_) => Probe::ok(TMPFILE, "works in the state directory"),
        Err(errno) => Probe::limited(
            TMPFILE,
            format!("open(O_TMPFILE): {errno}; staged files get names"),
            "use a state directory on ext4, xfs, btrfs or tmpfs (TXOS_STATE)",
        ),
    }
}

/// Can writers of a file that was read be noticed, and held?
pub(super) fn lease(scratch: &Path) -> Probe {
    let path = scratch.join("leased");
    let tried = std::fs::write(&path, "").and_then(|()| File::open(&path));
    let tried = tried
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(sys::try_read_lease);
    match tried {
        Ok(()) if rustix::process::geteuid().is_root() => Probe::ok(LEASE, "F_RDLCK granted"),
        Ok(()) => Probe::limited(
            LEASE,
            "F_RDLCK granted on the caller's own files; on others the content is compared instead",
            "run txos as root, or give it CAP_LEASE",
        ),
        Err(errno) => Probe::missing(
            LEASE,
            format!("fcntl(F_SETLEASE): {errno}; the content is compared instead"),
            "sysctl fs.leases-enable=1, and a local file system",
        ),
    }
}

/// Does a file show when it was made? With it a reused inode number is told apart.
pub(super) fn birth_time(scratch: &Path) -> Probe {
    match rustix::fs::statx(CWD, scratch, AtFlags::empty(), StatxFlags::BTIME) {
        Ok(stat) if stat.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            Probe::ok(BIRTH_TIME, "kept by the state directory's file system")
        }
        Ok(_) => Probe::limited(
            BIRTH_TIME,
            "not kept: reused inode numbers are told apart by change time alone",
            "use ext4, xfs or btrfs",
        ),
        Err(errno) => Probe::missing(BIRTH_TIME, format!("statx: {errno}"), "Linux 4.11 or newer"),
    }
}
