//! Where control groups of version 2 are, and which part of them is ours to use.
//!
//! The hierarchy may be mounted at `/sys/fs/cgroup`, or beside those of version 1 (the "hybrid"
//! layout), or anywhere: the mount table says it. Root makes its groups directly below the root
//! group. A user makes them below the topmost group, on the way from his own, that was delegated to
//! him: that is, whose `cgroup.procs` he may write.
//!
//! ```text
//! BASE/txos/d/NAME            a domain
//! BASE/txos/t/PID             a running transaction with its txos and watchdog: never frozen
//! …/txos.held.PID.N           members of a domain that are held, in the group that they came from
//! ```

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, access},
    io::Errno,
};
use txos_host::mounts;

use crate::{DomainError, Result, error::errno_of};

/// Our groups within the hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    mount: PathBuf,
    /// The caller's own group, relative to the mount.
    own: PathBuf,
    base: PathBuf,
}

const REMEDY: &str = "run txos as root, or in a delegated subtree (systemd-run --user --scope -p \
                      Delegate=yes); in a container, mount the cgroup v2 hierarchy writable";

impl Hierarchy {
    /// Finds the hierarchy and the group below which groups can be made. Makes nothing.
    ///
    /// # Errors
    /// [`DomainError::Unavailable`] if there is none, or none that this caller may write.
    pub fn find() -> Result<Hierarchy> {
        let unavailable = |reason: String| DomainError::Unavailable { reason, remedy: REMEDY };
        let mounts = mounts::visible().map_err(|error| unavailable(error.to_string()))?;
        let mount = mounts
            .iter()
            .find(|mount| mount.fs_type == "cgroup2")
            .ok_or_else(|| unavailable("no cgroup v2 hierarchy is mounted".to_owned()))?;
        if mount.has_option("ro") {
            let point = mount.point.display();
            return Err(unavailable(format!("the hierarchy at {point} is mounted read-only")));
        }
        let own = own_group(&mount.root)
            .ok_or_else(|| unavailable("this process is outside the hierarchy".to_owned()))?;
        let base = base(&mount.point, &own)
            .ok_or_else(|| unavailable("no group of it may be written by this user".to_owned()))?;
        Ok(Hierarchy { mount: mount.point.clone(), own, base })
    }

    /// Where it is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The group that the calling process was in, as a path that can be opened.
    pub fn own(&self) -> PathBuf {
        self.mount.join(&self.own)
    }

    /// The group that holds the domains; it need not exist yet.
    pub fn domains(&self) -> PathBuf {
        self.base.join("txos/d")
    }

    /// The group that holds the running transactions; it need not exist yet.
    pub fn transactions(&self) -> PathBuf {
        self.base.join("txos/t")
    }

    /// The group below which all of ours are: for root the root group.
    pub(crate) fn outside(&self) -> &Path {
        &self.base
    }

    /// The group of process `pid`, as a path that can be opened; `None` if it has ended, or is
    /// outside what is mounted.
    pub fn group_of(&self, pid: u32) -> Option<PathBuf> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        // The own group is read anew for the root of the mount, so that both are in its terms.
        Some(self.mount.join(unified(&text)?.strip_prefix("/")?))
    }
}

/// Makes a group and those above it, as far as they are missing.
pub(crate) fn make_group(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|error| match errno_of(&error) {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => DomainError::Unavailable {
            reason: format!("{} cannot be made: {error}", path.display()),
            remedy: REMEDY,
        },
        errno => DomainError::io("make the group", path, errno),
    })
}

fn own_group(mounted_root: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = Path::new(unified(&text)?);
    // In a container only a subtree may be mounted, while the paths begin at its top.
    let within = path.strip_prefix(mounted_root).or_else(|_| path.strip_prefix("/"));
    within.ok().map(Path::to_owned)
}

/// The path in the version 2 hierarchy, from the text of `/proc/PID/cgroup`. A removed group is
/// shown with " (deleted)" behind it.
fn unified(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'))
}

/// The topmost group from the root of the mount to the own one below which this caller may make
/// groups and move processes.
fn base(mount: &Path, own: &Path) -> Option<PathBuf> {
    let mut at = mount.to_owned();
    let mut steps = own.components();
    loop {
        let writable = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        if writable(&at) && writable(&at.join("cgroup.procs")) {
            return Some(at);
        }
        at.push(steps.next()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_path_is_found_beside_version_one() {
        assert_eq!(unified("4:memory:/a\n0::/x/y\n"), Some("/x/y"));
        assert_eq!(unified("4:memory:/a\n"), None);
    }

    #[test]
    fn the_topmost_writable_group_is_the_base() {
        let dir = tempfile::tempdir().unwrap();
        let own = Path::new("user.slice/user-7.slice/app");
        fs::create_dir_all(dir.path().join(own)).unwrap();
        for below in ["user.slice/user-7.slice", "user.slice/user-7.slice/app"] {
            fs::write(dir.path().join(below).join("cgroup.procs"), "").unwrap();
        }
        let found = base(dir.path(), own);
        assert_eq!(found, Some(dir.path().join("user.slice/user-7.slice")));
        assert_eq!(base(&dir.path().join("none"), own), None);
    }
}
