//! cgroup v2: freezing and killing a group of processes at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::child::reap;
use crate::report::Probe;
use crate::sys;

const NAME: &str = "cgroup v2 freezer";
const FREEZE_PATIENCE: Duration = Duration::from_millis(250);

/// Makes a group below the caller's own, puts one child there, freezes, thaws and kills it.
pub(super) fn freezer() -> Probe {
    let Some(mount) = mount_point() else {
        return Probe::missing(
            NAME,
            "no cgroup2 mounted",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2",
        );
    };
    let own = match own_group(&mount) {
        Ok(own) => own,
        Err(error) => {
            return Probe::missing(NAME, format!("/proc/self/cgroup: {error}"), DELEGATE);
        }
    };
    let group = own.join(format!("txos-doctor-{}", std::process::id()));
    if let Err(error) = fs::create_dir(&group) {
        return Probe::missing(NAME, format!("{}: {error}", group.display()), DELEGATE);
    }
    let tried = try_group(&group);
    let _ = fs::remove_dir(&group);
    match tried {
        Ok((took, true)) => Probe::ok(
            NAME,
            format!(
                "{}: froze one process in {} µs, cgroup.kill works",
                mount.display(),
                micros(took)
            ),
        ),
        Ok((took, false)) => Probe::limited(
            NAME,
            format!(
                "{}: froze one process in {} µs, no cgroup.kill",
                mount.display(),
                micros(took)
            ),
            "Linux 5.14 or newer",
        ),
        Err(error) => Probe::missing(NAME, format!("{}: {error}", group.display()), DELEGATE),
    }
}

const DELEGATE: &str = "run txos as root, or have the group delegated (systemd-run --user --scope \
                        -p Delegate=yes); in a container, mount /sys/fs/cgroup writable";

fn micros(took: Duration) -> u128 {
    took.as_micros()
}

/// Where a cgroup2 hierarchy is mounted, also beside version 1 ("hybrid").
fn mount_point() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(cgroup2_mount_point)
}

// proc_pid_mountinfo(5): ID PARENT DEV ROOT MOUNT-POINT OPTIONS [TAGS…] - TYPE SOURCE OPTIONS
fn cgroup2_mount_point(line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let kind = after.split(' ').next()?;
    (kind == "cgroup2").then(|| before.split(' ').nth(4).map(PathBuf::from))?
}

fn own_group(mount: &Path) -> io::Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    own.map(|own| mount.join(own)).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// How long the freeze took, and whether cgroup.kill ended the child.
fn try_group(group: &Path) -> io::Result<(Duration, bool)> {
    let child = match sys::fork()? {
        None => loop {
            std::thread::sleep(Duration::from_secs(10));
            // The one who would kill it may have died: it does not outlive its parent by long.
            if rustix::process::getppid().is_none_or(|parent| parent == Pid::INIT) {
                sys::exit_now()
            }
        },
        Some(child) => child,
    };
    let tried = try_child(group, child);
    // Whatever happened, the child is not left frozen and not left alive.
    let _ = fs::write(group.join("cgroup.freeze"), "0");
    let _ = kill_process(child, Signal::KILL);
    reap(child);
    tried
}

fn try_child(group: &Path, child: Pid) -> io::Result<(Duration, bool)> {
    fs::write(group.join("cgroup.procs"), child.as_raw_nonzero().to_string())?;
    let start = Instant::now();
    fs::write(group.join("cgroup.freeze"), "1")?;
    while !is_frozen(group)? {
        if start.elapsed() > FREEZE_PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "cgroup.freeze: does not freeze"));
        }
    }
    let took = start.elapsed();
    fs::write(group.join("cgroup.freeze"), "0")?;
    Ok((took, fs::write(group.join("cgroup.kill"), "1").is_ok()))
}

fn is_frozen(group: &Path) -> io::Result<bool> {
    let events = fs::read_to_string(group.join("cgroup.events"))?;
    Ok(events.lines().any(|line| line == "frozen 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hybrid_layout_is_found() {
        let line = "44 33 0:31 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(cgroup2_mount_point(line), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        let line = "34 33 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        assert_eq!(cgroup2_mount_point(line), None);
    }
}
