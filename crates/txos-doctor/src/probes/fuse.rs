//! FUSE: the capture file system answers the view's first touches.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::geteuid;

use super::namespaces::{enter_user_namespace, private_mounts};
use crate::child::{At, Failed, in_child};
use crate::report::Probe;

pub(super) const ROOT: &str = "FUSE as root";
pub(super) const USER: &str = "FUSE in a user namespace";
const DEVICE: &str = "/dev/fuse";
const URING: &str = "FUSE over io_uring";

/// Is the device there, and for whom?
pub(super) fn device() -> Probe {
    let meta = match std::fs::metadata(DEVICE) {
        Ok(meta) if meta.file_type().is_char_device() => meta,
        Ok(_) => return Probe::missing(DEVICE, "not a character device", MODULE),
        Err(error) => return Probe::missing(DEVICE, error.to_string(), MODULE),
    };
    let mode = meta.mode() & 0o7777;
    match open() {
        Err(failed) => Probe::missing(DEVICE, format!("mode {mode:04o}, {failed}"), OPEN_TO_ALL),
        Ok(_) if mode & 0o006 != 0o006 => Probe::limited(
            DEVICE,
            format!("mode {mode:04o}: opens for the caller, not for every user"),
            OPEN_TO_ALL,
        ),
        Ok(_) => Probe::ok(DEVICE, format!("mode {mode:04o}, opens")),
    }
}

const MODULE: &str = "load the module: modprobe fuse; in a container, pass the device through";
const OPEN_TO_ALL: &str = "chmod 0666 /dev/fuse, the usual mode (a udev rule keeps it)";

/// Can root mount one?
pub(super) fn as_root(scratch: &Path) -> Probe {
    if !geteuid().is_root() {
        return Probe::missing(ROOT, "not tried: the caller is not root", "run txos as root");
    }
    outcome(ROOT, attempt(scratch, None))
}

/// Can a process in a user namespace of the caller's mount one?
pub(super) fn in_user_namespace(scratch: &Path) -> Probe {
    outcome(USER, attempt(scratch, Some(geteuid().as_raw())))
}

fn outcome(name: &'static str, tried: Result<(), Failed>) -> Probe {
    match tried {
        Ok(()) => Probe::ok(name, "mounts"),
        Err(failed) => {
            let remedy = if failed.step.starts_with("open") { OPEN_TO_ALL } else { MODULE };
            Probe::missing(name, failed.to_string(), remedy)
        }
    }
}

/// In the child the device takes the place of standard input, so that its number is known here.
const MOUNT_OPTIONS: &rustix::ffi::CStr = c"fd=0,rootmode=40000,user_id=0,group_id=0";

// Nobody answers on this mount: it is never walked into, and goes with the child's namespace.
fn attempt(scratch: &Path, user: Option<u32>) -> Result<(), Failed> {
    in_child(|| {
        if let Some(uid) = user {
            enter_user_namespace(uid)?;
        }
        private_mounts()?;
        rustix::stdio::dup2_stdin(open()?).at("dup2")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("txos-doctor", scratch, "fuse", flags, MOUNT_OPTIONS).at("mount fuse")?;
        Ok(0)
    })
    .map(drop)
}

fn open() -> Result<File, Failed> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(DEVICE)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .at("open /dev/fuse")
}

/// Does the kernel serve FUSE requests through io_uring (Linux 6.14)?
pub(super) fn over_uring() -> Probe {
    const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
    match std::fs::read_to_string(PARAMETER) {
        Ok(text) if text.trim() == "Y" => Probe::ok(URING, "enabled"),
        Ok(_) => Probe::limited(
            URING,
            "known to the kernel, not enabled; requests go through /dev/fuse",
            format!("echo Y > {PARAMETER}"),
        ),
        Err(_) => {
            Probe::missing(URING, "unknown to this kernel; /dev/fuse serves", "").without_remedy()
        }
    }
}
