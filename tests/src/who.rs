//! Who runs a scenario: root, or somebody without any privilege.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// The user and group that an ordinary user's scenario runs as when the suite runs as root. No such
/// user exists on the machine, which is as ordinary as it gets.
pub const USER: u32 = 12345;

/// A further group of that user, which his namespace does not map.
pub const USER_GROUP: u32 = 23456;

/// The two kinds of users that `txos` serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// User 0 with all capabilities.
    Root,
    /// Anybody else.
    User,
}

/// Whether the suite itself runs as root.
pub fn am_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Who {
    /// Why a scenario can't be run by this one here, if so.
    pub fn impossible(self) -> Option<&'static str> {
        match self {
            Who::Root if !am_root() => Some("needs root"),
            Who::User if am_root() && crate::exec::find("setpriv").is_none() => {
                Some("needs setpriv(1) to become an ordinary user")
            }
            _ => None,
        }
    }

    /// The user id by which the scenario's files are owned.
    pub fn uid(self) -> u32 {
        match self {
            Who::Root => 0,
            Who::User if am_root() => USER,
            Who::User => rustix::process::geteuid().as_raw(),
        }
    }

    /// What stands before a command so that this one runs it. `base` is a directory for what is
    /// needed: when `/dev/fuse` is closed to ordinary users (it is open on common distributions),
    /// the command gets a mount namespace in which it is open.
    ///
    /// # Panics
    /// If a device node can't be made.
    pub fn prefix(self, base: &Path) -> Vec<OsString> {
        if self == Who::Root || !am_root() {
            return Vec::new();
        }
        let become_user = format!(
            "exec setpriv --reuid {USER} --regid {USER} --groups {USER_GROUP} --inh-caps=-all -- \"$@\""
        );
        if device_is_open() {
            return ["sh", "-c", &become_user, "sh"].map(OsString::from).to_vec();
        }
        let node = base.join("fuse");
        if !node.exists() {
            let mode = Mode::from_raw_mode(0o666);
            mknodat(CWD, &node, FileType::CharacterDevice, mode, makedev(10, 229)).expect("mknod");
            fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).expect("chmod");
        }
        let script = format!("mount --bind \"$0\" /dev/fuse && {become_user}");
        let mut out: Vec<OsString> =
            ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c"]
                .map(OsString::from)
                .to_vec();
        out.push(script.into());
        out.push(node.into());
        out
    }
}

fn device_is_open() -> bool {
    fs::metadata("/dev/fuse").is_ok_and(|m| m.permissions().mode() & 0o006 == 0o006)
}
