//! Hard caps by control groups, where the machine grants them.
//!
//! The limits themselves are kept by looking ([`super::limits`]), which anybody may; between two looks
//! a fork bomb or a greedy program could still take the machine. A cap lies some way above its limit,
//! so that in ordinary cases the look decides; and a cap that was hit counts as the limit exceeded, so
//! that the end is the same.
//!
//! Source: the kernel's `cgroup-v1/pids.rst`, `cgroup-v1/memory.rst`, `cgroup-v2.rst`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use txos_host::mounts;
use txos_view::sweep_groups;

use super::limits::Limits;

/// Memory that the kernel may count besides what a look sees, in bytes.
const SLACK: u64 = 64 << 20;

/// The control groups of one attempt; removed when dropped.
#[derive(Debug, Default)]
pub struct Caps {
    processes: Option<PathBuf>,
    memory: Option<PathBuf>,
}

impl Caps {
    /// Makes a control group `name` for each limit, as far as the machine grants it.
    pub fn new(limits: Limits, name: &str) -> Caps {
        let processes = limits.processes.and_then(|most| {
            // Threads count here and not in the limit.
            let cap = most.saturating_mul(8).saturating_add(64).to_string();
            group("pids", name, &[("pids.max", &cap)])
        });
        let memory = limits.memory.and_then(|most| {
            let cap = most.saturating_add(most / 4).saturating_add(SLACK).to_string();
            let (old, new) = (("memory.limit_in_bytes", &*cap), ("memory.max", &*cap));
            group("memory", name, &[old, new])
        });
        Caps { processes, memory }
    }

    /// The groups' directories; see [`txos_view::ViewSpec::groups`].
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        [&self.processes, &self.memory].into_iter().flatten().cloned()
    }

    /// Whether the cap of processes, and that of memory, was hit.
    pub fn hit(&self) -> [bool; 2] {
        let counted = |group: &Option<PathBuf>, files: [&str; 2], field: &str| {
            group
                .as_ref()
                .is_some_and(|group| files.iter().any(|file| counter(&group.join(file), field) > 0))
        };
        [
            counted(&self.processes, ["pids.events", "pids.events.local"], "max"),
            counted(&self.memory, ["memory.oom_control", "memory.events"], "oom_kill"),
        ]
    }
}

impl Drop for Caps {
    fn drop(&mut self) {
        for group in [&self.processes, &self.memory].into_iter().flatten() {
            // The kernel may need a moment to empty it after the last process was reaped.
            for _ in 0..50 {
                match fs::remove_dir(group) {
                    Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Makes a group below the caller's own and sets the first of `settings` that exists there.
fn group(controller: &str, name: &str, settings: &[(&str, &str)]) -> Option<PathBuf> {
    let parent = own_group(controller)?;
    sweep_groups(&parent);
    let path = parent.join(name);
    fs::create_dir(&path).ok()?;
    let set = settings.iter().find(|(file, _)| path.join(file).exists());
    match set.map(|(file, value)| fs::write(path.join(file), value)) {
        Some(Ok(())) => Some(path),
        _ => {
            let _ = fs::remove_dir(&path);
            None
        }
    }
}

/// The directory of the caller's own group in the hierarchy that has the controller.
fn own_group(controller: &str) -> Option<PathBuf> {
    let mounts = mounts::visible().ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let point = |kind: &str, option: &str| {
        let wanted = |mount: &&mounts::Mount| {
            mount.fs_type == kind
                && (option.is_empty() || mount.super_options.iter().any(|o| o == option))
        };
        mounts.iter().find(wanted).map(|mount| mount.point.clone())
    };
    let below = |point: PathBuf, controller| {
        Some(point.join(path_of(&own, controller)?.strip_prefix("/").ok()?))
    };
    point("cgroup", controller).and_then(|point| below(point, controller)).or_else(|| {
        let path = below(point("cgroup2", "")?, "")?;
        let enabled = fs::read_to_string(path.join("cgroup.subtree_control")).ok()?;
        enabled.split_whitespace().any(|name| name == controller).then_some(path)
    })
}

/// The group of a hierarchy in the text of `/proc/self/cgroup`; the unified one has no controllers.
fn path_of<'t>(text: &'t str, controller: &str) -> Option<&'t Path> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then(|| Path::new(path))
    })
}

/// The value of a field in a file of lines `field value`; 0 where it is not there.
fn counter(path: &Path, field: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(name, _)| *name == field).and_then(|(_, n)| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_in_both_kinds_of_hierarchies() {
        let text = "4:memory,pids:/a/b\n1:name=systemd:/x\n0::/c\n";
        assert_eq!(path_of(text, "pids"), Some(Path::new("/a/b")));
        assert_eq!(path_of(text, ""), Some(Path::new("/c")));
        assert_eq!(path_of(text, "cpu"), None);
    }

    #[test]
    fn groups_are_removed_with_their_owner_and_say_when_they_were_hit() {
        // What a txos that was killed has left: no process has so high a number.
        let stale = own_group("pids").map(|group| group.join("txos-4194304"));
        let made_stale = stale.as_ref().is_some_and(|stale| fs::create_dir(stale).is_ok());
        let limits = Limits { processes: Some(1), memory: Some(1 << 20), ..Limits::default() };
        let caps = Caps::new(limits, &format!("txos-test-{}", std::process::id()));
        assert!(!made_stale || !stale.unwrap().exists());
        assert_eq!(caps.hit(), [false, false]);
        let made: Vec<_> = [&caps.processes, &caps.memory].into_iter().flatten().cloned().collect();
        assert!(made.iter().all(|path| path.is_dir()));
        drop(caps);
        assert!(made.iter().all(|path| !path.exists()));
    }
}
