use std::path::{Path, PathBuf};

use rustix::{
    fs::{Access, AtFlags, CWD, accessat, stat},
    process::{getegid, geteuid},
};

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
/// parents first. Where the host's mount is writable, the caller gives the layer its upper and
/// work directories.
///
/// In a user namespace an overlay can copy up nothing whose owner is not mapped (`EOVERFLOW`), and
/// to change a file it copies up all directories above it, most of them root's. So there an overlay
/// of its own, whose root need not be copied up, is given to the topmost writable directory above
/// each path of `wanted`, and to each further one on the way whose parents it cannot copy up. A path may lead
/// through links and `..`, and need not be there: what counts is where it leads, and where its last name lies.
///
/// # Errors
/// If the mount table cannot be read.
pub fn plan_layers(credentials: Credentials, wanted: &[PathBuf]) -> Result<Vec<PlannedLayer>> {
    let mut layers = plan(mounts::visible()?, credentials, &|point| point.is_dir());
    if let Credentials::User { .. } = credentials {
        let both = |path: &PathBuf| [path.parent().map(real), Some(real(path))];
        let places = wanted.iter().flat_map(both).flatten();
        for path in places.filter(|path| !OWN.iter().any(|dir| path.starts_with(dir))) {
            let points = starts(&path, &examine);
            points.into_iter().for_each(|point| add_point(&mut layers, point));
        }
    }
    Ok(layers)
}

/// Where a path leads, without links and `..`: as far as anything is there.
fn real(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as the kernel follows (path_resolution(7)).
    let mut links = 40;
    loop {
        if let Ok(real) = path.canonicalize() {
            return real;
        }
        let Some(parent) = path.parent() else { return PathBuf::from("/") };
        // A link to what is not there yet is as good as that.
        let leads = path.read_link().ok().filter(|_| links > 0);
        links -= i32::from(leads.is_some());
        path = leads.map_or_else(|| parent.to_owned(), |to| parent.join(to));
    }
}

/// What a directory on the way to a place where a user writes is to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// They own it: an overlay can copy it up.
    own: bool,
    /// They may make names in it.
    writable: bool,
}

fn examine(dir: &Path) -> Option<Step> {
    let status = stat(dir).ok().filter(|_| dir.is_dir())?;
    let writable = accessat(CWD, dir, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    let own = status.st_uid == geteuid().as_raw() && status.st_gid == getegid().as_raw();
    Some(Step { own, writable })
}

/// The directories on the way from `/` to `path` at which an overlay has to begin, so that
/// whatever the user may write on that way can be copied up.
fn starts<'p>(path: &'p Path, examine: &dyn Fn(&Path) -> Option<Step>) -> Vec<&'p Path> {
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    let mut starts = Vec::new();
    // Whether an overlay has begun from which all that follows up to here can be copied up.
    let mut reached = false;
    for dir in way {
        let Some(step) = examine(dir) else { break };
        if step.writable && !(reached && step.own) {
            starts.push(dir);
        }
        reached = step.writable || reached && step.own;
    }
    starts
}

/// Adds a layer at `point`, like the one it lies on; nothing to do where there is one already.
fn add_point(layers: &mut Vec<PlannedLayer>, point: &Path) {
    if layers.iter().any(|planned| planned.layer.point == point) {
        return;
    }
    let below = layers
        .iter()
        .filter(|planned| point.starts_with(&planned.layer.point))
        .max_by_key(|planned| planned.layer.point.as_os_str().len());
    let Some(mut added) = below.filter(|planned| planned.writable).cloned() else { return };
    added.layer.point = point.to_owned();
    layers.push(added);
    layers.sort_by(|a, b| a.layer.point.cmp(&b.layer.point));
}

/// A layer without its directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLayer {
    /// Whether the host's mount can be written, so that the layer needs an upper directory.
    pub writable: bool,
    /// The layer, read-only as yet.
    pub layer: Layer,
}

fn plan(
    mut mounts: Vec<Mount>,
    credentials: Credentials,
    is_dir: &dyn Fn(&Path) -> bool,
) -> Vec<PlannedLayer> {
    mounts.retain(|mount| {
        let own = OWN.iter().any(|dir| mount.point.starts_with(dir));
        let kernel = KERNEL.contains(&mount.fs_type.as_str());
        // A file that is a mount point belongs to the layer of its directory.
        mount.point == Path::new("/") || !own && !kernel && is_dir(&mount.point)
    });
    mounts.sort_by(|a, b| a.point.cmp(&b.point));
    mounts.dedup_by(|a, b| a.point == b.point);
    let layer = |mount: Mount| {
        let flag = |name: &str| mount.options.iter().any(|option| option == name);
        PlannedLayer {
            writable: !mount.has_option("ro"),
            layer: Layer {
                upper: None,
                work: None,
                no_suid: flag("nosuid"),
                no_exec: flag("noexec"),
                no_dev: flag("nodev") || credentials != Credentials::Privileged,
                point: mount.point,
            },
        }
    };
    mounts.into_iter().map(layer).collect()
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
    fn a_writable_directory_gets_a_layer_like_the_one_below() {
        let mounts = vec![mount("/", "ext4", "rw"), mount("/cd", "iso9660", "ro")];
        let mut layers = plan(mounts, Credentials::User { uid: 1, gid: 1 }, &|_| true);
        for point in ["/home/a", "/cd/x", "/home/a"] {
            add_point(&mut layers, Path::new(point));
        }
        let points: Vec<_> = layers.iter().map(|planned| planned.layer.point.as_path()).collect();
        assert_eq!(points, [Path::new("/"), Path::new("/cd"), Path::new("/home/a")]);
        assert!(layers[2].writable && layers[2].layer.no_dev);
    }

    #[test]
    fn a_path_leads_where_its_links_do() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        for (name, to) in [
            ("absolute", base.join("a")),
            ("relative", "a/b".into()),
            ("dangling", "a/b/none/../x".into()),
            ("further", "dangling".into()),
            ("round", "round".into()),
        ] {
            std::os::unix::fs::symlink(to, base.join(name)).unwrap();
        }
        let cases = [
            ("a/b/../../a/./b/", "a/b"),
            ("absolute/b", "a/b"),
            ("relative/../b/none/x", "a/b"),
            ("dangling", "a/b"),
            ("further", "a/b"),
            ("round/x", ""),
            ("none/a", ""),
        ];
        for (path, leads) in cases {
            // `Path` takes two that differ by a last `/` for the same.
            assert_eq!(real(&base.join(path)), base.join(leads), "{path}");
        }
        assert_eq!(real(Path::new("/")), Path::new("/"));
    }

    #[test]
    fn overlays_begin_where_what_is_above_cannot_be_copied_up() {
        let theirs = Step { own: false, writable: false };
        let shared = Step { own: false, writable: true };
        let mine = Step { own: true, writable: true };
        let locked = Step { own: true, writable: false };
        let cases: &[(&[Step], &[&str])] = &[
            (&[theirs, theirs, mine, mine], &["/a/b"]),
            (&[theirs, shared, mine, mine], &["/a"]),
            (&[theirs, shared, theirs, mine], &["/a", "/a/b/c"]),
            (&[theirs, shared, shared, mine], &["/a", "/a/b"]),
            (&[theirs, mine, locked, mine], &["/a"]),
            (&[theirs, locked, mine, mine], &["/a/b"]),
            (&[shared, mine], &["/"]),
            (&[theirs, theirs], &[]),
        ];
        for (steps, points) in cases {
            let step = |dir: &Path| steps.get(dir.components().count() - 1).copied();
            let found: Vec<_> = starts(Path::new("/a/b/c"), &step);
            assert_eq!(found, points.iter().map(Path::new).collect::<Vec<_>>(), "{steps:?}");
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
        let planned = plan(mounts, Credentials::Privileged, &is_dir);
        let layers: Vec<_> = planned.iter().map(|planned| &planned.layer).collect();
        let points: Vec<_> = layers.iter().map(|layer| layer.point.to_str().unwrap()).collect();
        assert_eq!(points, ["/", "/cd", "/home", "/home/a"]);
        assert!(!planned[1].writable && planned[2].writable && layers[1].no_exec);
        assert!(layers[2].no_dev && !layers[2].no_suid && layers[3].no_suid);
    }
}
