//! Who runs a scenario: root, or somebody without any privilege.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

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
            _ if crate::txos::native_only() => None,
            _ => self.lack(),
        }
    }

    /// What the machine does not grant this one, though no transaction runs without it.
    fn lack(self) -> Option<&'static str> {
        static LACKS: [OnceLock<Option<String>>; 2] = [OnceLock::new(), OnceLock::new()];
        let find = || {
            let closed = || !DEVICES.iter().all(|node| is_open(&Path::new("/dev").join(node.0)));
            let opened_by_root = self == Who::User && am_root() && closed();
            let by = if opened_by_root { &[Who::Root, self][..] } else { &[self] };
            closed_device().or_else(|| by.iter().find_map(|who| who.refused_mount()))
        };
        LACKS[usize::from(self == Who::User)].get_or_init(find).as_deref()
    }

    /// Why this one can't mount anything in a namespace of his own, if so.
    fn refused_mount(self) -> Option<String> {
        let mut words = ["unshare", "--mount"].to_vec();
        let number = USER.to_string();
        if self == Who::User {
            words.extend(["--user", "--map-root-user"]);
            if am_root() {
                let become_user = ["setpriv", "--reuid", &number, "--regid", &number];
                let no_more = ["--clear-groups", "--inh-caps=-all", "--"];
                words.splice(0..0, become_user.into_iter().chain(no_more));
            }
        }
        words.extend(["mount", "-t", "tmpfs", "none", "/tmp"]);
        let tried = Command::new(words[0]).args(&words[1..]).env("LC_ALL", "C").output();
        let said = match tried {
            Ok(tried) if tried.status.success() => return None,
            Ok(tried) => String::from_utf8_lossy(&tried.stderr).trim().replace('\n', "; "),
            Err(error) => format!("{}: {error}", words[0]),
        };
        let whom = if self == Who::Root { "root" } else { "an ordinary user" };
        Some(format!("{whom} may not mount anything here: {said}"))
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
    /// needed: a device node that is closed to ordinary users here, and open on common distributions
    /// ([`DEVICES`]), is replaced by an open one in a mount namespace of the command's own.
    ///
    /// # Panics
    /// If a device node can't be made.
    pub fn prefix(self, base: &Path) -> Vec<OsString> {
        if self == Who::Root || !am_root() {
            return Vec::new();
        }
        let mut script = String::new();
        let mut nodes: Vec<OsString> = Vec::new();
        for (name, major, minor) in DEVICES {
            let device = Path::new("/dev").join(name);
            if is_open(&device) {
                continue;
            }
            let node = base.join(name);
            if !node.exists() {
                let (mode, number) = (Mode::from_raw_mode(0o666), makedev(major, minor));
                mknodat(CWD, &node, FileType::CharacterDevice, mode, number).expect("mknod");
                fs::set_permissions(&node, fs::Permissions::from_mode(0o666)).expect("chmod");
            }
            script.push_str(&format!("mount --bind \"$1\" {} && shift && ", device.display()));
            nodes.push(node.into());
        }
        script.push_str(&format!(
            "exec setpriv --reuid {USER} --regid {USER} --groups {USER_GROUP} --inh-caps=-all -- \"$@\""
        ));
        let own_mounts = ["unshare", "--mount", "--propagation", "private", "--"];
        let own_mounts = if nodes.is_empty() { &[][..] } else { &own_mounts[..] };
        let mut out: Vec<OsString> = own_mounts.iter().map(OsString::from).collect();
        out.extend(["sh", "-c", &script, "sh"].map(OsString::from));
        out.extend(nodes);
        out
    }
}

/// Device nodes that an ordinary user's scenario opens, with their numbers.
const DEVICES: [(&str, u32, u32); 2] = [("fuse", 10, 229), ("null", 1, 3)];

/// Whether everybody may read and write it.
fn is_open(device: &Path) -> bool {
    fs::metadata(device).is_ok_and(|m| m.permissions().mode() & 0o006 == 0o006)
}

/// Why `/dev/fuse` can't be used, not even by who runs the suite, if so.
fn closed_device() -> Option<String> {
    let opened = fs::File::options().read(true).write(true).open("/dev/fuse");
    opened.err().map(|error| format!("/dev/fuse can't be opened here: {error}"))
}
