//! Overlay: the shadow of a transaction is its upper layer.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::geteuid;

use super::namespaces::{enter_user_namespace, private_mounts};
use crate::child::{At, Failed, in_child};
use crate::report::Probe;

pub(super) const ROOT: &str = "overlay as root";
pub(super) const USER: &str = "overlay in a user namespace";

/// The options that give a transaction root's semantics: renamed directories, metadata without a
/// copy of the contents, hard links that stay links.
const ROOT_OPTIONS: &str = "redirect_dir=on,metacopy=on,index=on";

/// With privilege and all the options that it may use.
pub(super) fn as_root(scratch: &Path) -> Probe {
    if !geteuid().is_root() {
        return Probe::missing(
            ROOT,
            "not tried: the caller is not root",
            "run txos as root for directory renames and hard links inside transactions",
        );
    }
    match attempt(&scratch.join("overlay-root"), ROOT_OPTIONS, None) {
        Ok(()) => Probe::ok(ROOT, format!("{ROOT_OPTIONS}: mounts, a directory is renamed")),
        Err(failed) => match attempt(&scratch.join("overlay-plain"), "redirect_dir=off", None) {
            Ok(()) => Probe::limited(
                ROOT,
                format!("{failed} with {ROOT_OPTIONS}; without them it works"),
                "use a state directory on ext4, xfs or btrfs (TXOS_STATE)",
            ),
            Err(failed) => Probe::missing(ROOT, failed.to_string(), remedy(&failed)),
        },
    }
}

/// In a user namespace, with `userxattr`.
pub(super) fn in_user_namespace(scratch: &Path) -> Probe {
    match attempt(&scratch.join("overlay-user"), "userxattr", Some(geteuid().as_raw())) {
        Ok(()) => Probe::ok(USER, "userxattr: mounts and takes changes"),
        // The directory rename is the last step: all before it worked.
        Err(failed) if failed.errno == Errno::XDEV => Probe::limited(
            USER,
            "userxattr: mounts and takes changes; renaming a directory gives EXDEV, a hard link \
             of a changed file keeps the old content",
            "run txos as root",
        ),
        Err(failed) => Probe::missing(USER, failed.to_string(), remedy(&failed)),
    }
}

/// Mounts it in a child, changes a file and renames a directory in it.
fn attempt(place: &Path, options: &str, user: Option<u32>) -> Result<(), Failed> {
    prepare(place)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .at("mkdir")?;
    let dir = |name: &str| place.join(name);
    let merged = dir("merged");
    let options = format!(
        "lowerdir={},upperdir={},workdir={},{options}\0",
        dir("lower").display(),
        dir("upper").display(),
        dir("work").display(),
    );
    in_child(move || {
        if let Some(uid) = user {
            enter_user_namespace(uid)?;
        }
        private_mounts()?;
        let options = rustix::ffi::CStr::from_bytes_until_nul(options.as_bytes())
            .map_err(|_| Errno::INVAL)
            .at("mount options")?;
        mount("overlay", &merged, "overlay", MountFlags::empty(), options).at("mount overlay")?;
        let io = |step: &str, result: std::io::Result<()>| {
            result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)).at(step)
        };
        io("write in the overlay", fs::write(merged.join("file"), "new"))?;
        io("rename a directory", fs::rename(merged.join("dir"), merged.join("renamed")))?;
        Ok(0)
    })
    .map(drop)
}

fn prepare(place: &Path) -> std::io::Result<()> {
    for name in ["lower/dir", "upper", "work", "merged"] {
        fs::create_dir_all(place.join(name))?;
    }
    fs::write(place.join("lower/file"), "old")?;
    fs::write(place.join("lower/dir/inside"), "")
}

fn remedy(failed: &Failed) -> &'static str {
    match failed.errno {
        Errno::NODEV => "load the module: modprobe overlay",
        Errno::INVAL => {
            "use a state directory on a file system with extended attributes and file types in \
             listings (ext4, xfs, btrfs), not itself an overlay (TXOS_STATE)"
        }
        _ => "allow mounts: root with CAP_SYS_ADMIN, or user namespaces",
    }
}
