//! Keeping dangerous devices closed with the device controller of cgroup v1.
//!
//! A transaction of root may make device nodes, and a chroot inside it needs its `/dev/null`; yet
//! a node of the disk would be a way out. Where the controller is there, the processes of the view
//! get a cgroup in which all devices may be made and only harmless ones opened; else the overlays
//! are mounted `nodev`.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use rustix::fs::{major, minor};
use txos_host::mounts;

/// Which devices may be opened: null, zero, full, random, urandom, tty, console, ptmx, terminals;
/// and FUSE, which the view opens for its own mount when it is in the cgroup already (nothing inside
/// can mount with it).
const ALLOWED: [&str; 11] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:1 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
    "c 10:229 rwm",
    "a *:* m",
];

/// A cgroup of the device controller, removed when dropped.
#[derive(Debug)]
pub struct DeviceGuard {
    path: PathBuf,
}

impl DeviceGuard {
    /// Makes the cgroup `name`, in which also the devices that `live` names or has below `/dev` may be
    /// opened; `None` where the controller is missing or not writable.
    pub fn new(name: &str, live: &[PathBuf]) -> Option<DeviceGuard> {
        let mounts = mounts::visible().ok()?;
        let controller = mounts.iter().find(|mount| {
            mount.fs_type == "cgroup" && mount.super_options.iter().any(|o| o == "devices")
        })?;
        let own = own_cgroup(&fs::read_to_string("/proc/self/cgroup").ok()?)?;
        let parent = controller.point.join(own.strip_prefix("/").ok()?);
        sweep_groups(&parent);
        let path = parent.join(name);
        fs::create_dir(&path).ok()?;
        let guard = DeviceGuard { path };
        fs::write(guard.path.join("devices.deny"), "a").ok()?;
        for rule in ALLOWED {
            // "a *:* m" is understood only as two rules.
            let rules = match rule.strip_prefix("a ") {
                Some(rest) => vec![format!("b {rest}"), format!("c {rest}")],
                None => vec![rule.to_owned()],
            };
            for rule in rules {
                fs::write(guard.path.join("devices.allow"), rule).ok()?;
            }
        }
        for rule in live.iter().flat_map(|path| devices_at(path)) {
            fs::write(guard.path.join("devices.allow"), rule).ok()?;
        }
        Some(guard)
    }

    /// Where the cgroup is; see [`crate::ViewSpec::groups`].
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        // The kernel may need a moment to empty it after the last process was reaped.
        for _ in 0..50 {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(std::time::Duration::from_millis(2));
                }
                _ => return,
            }
        }
    }
}

/// Removes the groups `txos-PID` below `parent` whose txos was killed before it could remove them. One
/// that still holds processes stays: the kernel refuses.
pub fn sweep_groups(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("txos-")?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Rules for the device at `path`; for those below it, where it is a directory of devices.
fn devices_at(path: &Path) -> Vec<String> {
    let Ok(meta) = fs::metadata(path) else { return Vec::new() };
    let (major, minor) = (major(meta.rdev()), minor(meta.rdev()));
    match meta.file_type() {
        kind if kind.is_char_device() => vec![format!("c {major}:{minor} rwm")],
        kind if kind.is_block_device() => vec![format!("b {major}:{minor} rwm")],
        kind if kind.is_dir() && path.starts_with("/dev") => {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            // A link leads elsewhere, and nobody has named that.
            let own =
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
            own.flat_map(|entry| devices_at(&entry.path())).collect()
        }
        _ => Vec::new(),
    }
}

/// The caller's group in the device controller's hierarchy, from `/proc/self/cgroup`.
fn own_cgroup(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let controllers = fields.nth(1)?;
        let path = fields.next()?;
        controllers.split(',').any(|name| name == "devices").then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_devices_at_a_path() {
        assert_eq!(devices_at(Path::new("/dev/null")), ["c 1:3 rwm"]);
        assert!(devices_at(Path::new("/dev")).contains(&"c 1:3 rwm".to_owned()));
        assert!(devices_at(Path::new("/etc")).is_empty());
        assert!(devices_at(Path::new("/dev/absent")).is_empty());
    }

    #[test]
    fn finds_the_group_of_the_device_controller() {
        let text = "5:devices:/a/b\n1:name=systemd:/x\n0::/c\n";
        assert_eq!(own_cgroup(text), Some(PathBuf::from("/a/b")));
        assert_eq!(own_cgroup("0::/c\n"), None);
    }
}
