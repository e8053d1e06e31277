//! Services: what package scripts ask of the service manager is recorded, and asked after commit.
//!
//! A service that a script restarts inside a transaction would run on state that may never be
//! committed, in a view that ends with the transaction. So the commands through which scripts reach
//! the service manager are covered, in the view, by this program under their names (shims):
//!
//! * `policy-rc.d`, which `invoke-rc.d` and `deb-systemd-invoke` ask first: answers "not now" (101),
//!   which both take as success;
//! * `systemctl` and its other names: what would act on the running system is recorded; what only
//!   changes files (enable, mask, …) is done by the real one, offline, on the view's files; what
//!   asks about running units is answered as on a machine where none runs;
//! * `service`: recorded.
//!
//! Each request is one JSON line appended to the *sink*, a file outside the view's tree that is
//! bound into it. After the commit [`run_deferred`] makes the requests for real. It never fails
//! the transaction, which is committed by then: what did not work is reported.
//!
//! Members could write lines of their own. So a line only ever names one of the verbs below and its
//! operands; anything else is dropped, not run. (A member of root's transaction could have the same
//! effect by a file in `/etc`; the rule keeps accidents out, not root.)

mod request;
mod run;
mod shim;
mod systemctl;

#[cfg(any(test, fuzzing))]
pub use request::fuzz;
pub use request::{ServiceRequest, Tool, read_requests};
pub use run::{ServiceOutcome, run_deferred};
pub use shim::{ShimPaths, shim_main};

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A path that the view has to cover with this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimTarget {
    /// The name that the program is called by there.
    pub name: &'static str,
    /// Absolute path on the host, symlinks resolved.
    pub path: PathBuf,
    /// Whether it is there. One that is not must be made as an excluded name, never part of a delta.
    pub exists: bool,
}

const COVERED: [(&str, &str); 6] = [
    ("policy-rc.d", "usr/sbin/policy-rc.d"),
    ("systemctl", "usr/bin/systemctl"),
    ("systemctl", "bin/systemctl"),
    ("service", "usr/sbin/service"),
    ("service", "usr/bin/service"),
    ("service", "sbin/service"),
];

/// The paths to cover below `host_root`. `policy-rc.d` is always among them, because scripts look
/// for it whether or not the machine has one; the others only where they exist. Names that lead to
/// one file are covered once.
pub fn shim_targets(host_root: &Path) -> Vec<ShimTarget> {
    let mut seen = HashSet::new();
    let mut targets = Vec::new();
    for (name, path) in COVERED {
        let path = host_root.join(path);
        match (fs::canonicalize(&path), fs::metadata(&path)) {
            (Ok(path), Ok(status))
                if status.is_file() && seen.insert((status.dev(), status.ino())) =>
            {
                targets.push(ShimTarget { name, path, exists: true });
            }
            (Err(_), _) if name == "policy-rc.d" && path.parent().is_some_and(Path::is_dir) => {
                targets.push(ShimTarget { name, path, exists: false });
            }
            _ => {}
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn one_file_is_covered_once_and_an_absent_policy_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("usr/sbin")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        fs::write(root.join("usr/bin/systemctl"), "").unwrap();
        let names =
            |targets: &[ShimTarget]| targets.iter().map(|t| (t.name, t.exists)).collect::<Vec<_>>();
        let found = shim_targets(root);
        assert_eq!(names(&found), [("policy-rc.d", false), ("systemctl", true)]);
        fs::write(root.join("usr/sbin/service"), "").unwrap();
        fs::write(root.join("usr/sbin/policy-rc.d"), "").unwrap();
        let found = shim_targets(root);
        assert_eq!(names(&found), [("policy-rc.d", true), ("systemctl", true), ("service", true)]);
    }

    #[test]
    fn a_root_without_sbin_has_nothing_to_cover() {
        let root = tempfile::tempdir().unwrap();
        assert!(shim_targets(root.path()).is_empty());
    }
}
