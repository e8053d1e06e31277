use std::path::{Path, PathBuf};

use txos_host::mounts::{self, Mount};

use crate::{Credentials, Layer, Result};

/// Directories that the view makes itself or shows as they are.
const OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// File systems whose files are an interface to the kernel: never shadowed. Where one is mounted
/// outside the directories of [`OWN`], the view shows the directory below it instead.
const KERNEL: [&str; 19] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Plans the overlays of a view: one for each mount of the calling process that holds files,
/// parents first, with upper and work directories `N/upper` and `N/work` below `at`.
///
/// # Errors
/// If the mount table cannot be read.
pub fn plan_layers(at: &Path, credentials: Credentials) -> Result<Vec<Layer>> {
    Ok(plan(mounts::visible()?, at, credentials, &|point| point.is_dir()))
}

fn plan(
    mut mounts: Vec<Mount>,
    at: &Path,
    credentials: Credentials,
    is_dir: &dyn Fn(&Path) -> bool,
) -> Vec<Layer> {
    mounts.retain(|mount| {
        let own = OWN.iter().any(|dir| mount.point.starts_with(dir));
        let kernel = KERNEL.contains(&mount.fs_type.as_str());
        // A file that is a mount point belongs to the layer of its directory.
        mount.point == Path::new("/") || !own && !kernel && is_dir(&mount.point)
    });
    mounts.sort_by(|a, b| a.point.cmp(&b.point));
    mounts.dedup_by(|a, b| a.point == b.point);
    let layer = |(index, mount): (usize, Mount)| {
        let writable = !mount.has_option("ro");
        let dir = |name: &str| writable.then(|| at.join(index.to_string()).join(name));
        let flag = |name: &str| mount.options.iter().any(|option| option == name);
        Layer {
            upper: dir("upper"),
            work: dir("work"),
            no_suid: flag("nosuid"),
            no_exec: flag("noexec"),
            no_dev: flag("nodev") || credentials != Credentials::Privileged,
            point: PathBuf::from(&mount.point),
        }
    };
    mounts.into_iter().enumerate().map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, fs_type: &str, options: &str) -> Mount {
        Mount {
            id: 0,
            parent: 0,
            dev: 0,
            root: "/".into(),
            point: point.into(),
            options: options.split(',').map(str::to_owned).collect(),
            fs_type: fs_type.into(),
            source: "none".into(),
            super_options: vec![],
        }
    }

    #[test]
    fn one_layer_for_each_mount_that_holds_files() {
        let mounts = vec![
            mount("/proc", "proc", "rw"),
            mount("/home/a", "tmpfs", "rw,nosuid"),
            mount("/", "ext4", "rw"),
            mount("/home", "ext4", "rw,nodev"),
            mount("/etc/hosts", "ext4", "rw"),
            mount("/cd", "iso9660", "ro,noexec"),
            mount("/dev/shm", "tmpfs", "rw"),
            mount("/run/bpf", "bpf", "rw"),
        ];
        let is_dir = |point: &Path| point != Path::new("/etc/hosts");
        let layers = plan(mounts, Path::new("/t"), Credentials::Privileged, &is_dir);
        let points: Vec<_> = layers.iter().map(|layer| layer.point.to_str().unwrap()).collect();
        assert_eq!(points, ["/", "/cd", "/home", "/home/a"]);
        assert!(layers[1].upper.is_none() && layers[1].no_exec);
        assert!(layers[2].no_dev && !layers[2].no_suid && layers[3].no_suid);
        assert_eq!(layers[3].upper.as_deref(), Some(Path::new("/t/3/upper")));
    }
}
