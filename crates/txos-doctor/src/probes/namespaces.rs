//! Namespaces: a view is a mount namespace; without privilege it needs a user namespace around it.

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, set_thread_gid, set_thread_groups, set_thread_uid};

use crate::child::{At, Failed, in_child};
use crate::report::Probe;
use crate::sys;

const USER: &str = "user namespace";
const UNPRIVILEGED: &str = "user namespace, ordinary user";
const MOUNT: &str = "mount namespace";
const PID: &str = "pid namespace";

/// The overflow user of every Linux system, taken for "some ordinary user".
const NOBODY: u32 = 65534;

/// May the caller make a user namespace, and how many?
pub(super) fn user() -> Probe {
    let uid = geteuid().as_raw();
    match in_child(move || enter_user_namespace(uid).map(|()| 0)) {
        Ok(_) => Probe::ok(USER, format!("works; {}", maximum())),
        Err(failed) => Probe::missing(USER, format!("{failed}; {}", maximum()), remedy(&failed)),
    }
}

/// May an ordinary user make one, with privilege inside it? Root tries in that user's place.
pub(super) fn user_unprivileged() -> Probe {
    let uid = geteuid();
    let tried = in_child(move || {
        let uid = if uid.is_root() { become_nobody()? } else { uid.as_raw() };
        enter_user_namespace(uid)?;
        private_mounts()?;
        Ok(0)
    });
    match tried {
        Ok(_) => Probe::ok(UNPRIVILEGED, "works, with its own mounts"),
        Err(failed) => Probe::missing(UNPRIVILEGED, failed.to_string(), remedy(&failed)),
    }
}

/// A mount namespace with the caller's own privilege.
pub(super) fn mount() -> Probe {
    match in_child(|| private_mounts().map(|()| 0)) {
        Ok(_) => Probe::ok(MOUNT, "works with the caller's privilege"),
        Err(failed) if geteuid().is_root() => Probe::missing(
            MOUNT,
            failed.to_string(),
            "give CAP_SYS_ADMIN (in a container: run it privileged), or use txos as a user",
        ),
        Err(failed) => Probe::limited(
            MOUNT,
            format!("{failed}; only inside a user namespace"),
            "run txos as root for a view with full ownership",
        ),
    }
}

/// A pid namespace, in a user namespace where the caller has no privilege.
pub(super) fn pid() -> Probe {
    let uid = geteuid();
    let tried = in_child(move || {
        if !uid.is_root() {
            enter_user_namespace(uid.as_raw())?;
        }
        sys::unshare(UnshareFlags::NEWPID).at("unshare(CLONE_NEWPID)")?;
        Ok(0)
    });
    match tried {
        Ok(_) => Probe::ok(PID, "works"),
        Err(failed) => Probe::missing(PID, failed.to_string(), remedy(&failed)),
    }
}

/// In a forked child: a user namespace in which the caller's user `uid` appears as root.
pub(super) fn enter_user_namespace(uid: u32) -> Result<(), Failed> {
    let gid = rustix::process::getegid().as_raw();
    sys::unshare(UnshareFlags::NEWUSER).at("unshare(CLONE_NEWUSER)")?;
    write_own("setgroups", "deny")?;
    write_own("uid_map", &format!("0 {uid} 1"))?;
    write_own("gid_map", &format!("0 {gid} 1"))
}

/// In a forked child: a mount namespace from which nothing propagates out.
pub(super) fn private_mounts() -> Result<(), Failed> {
    sys::unshare(UnshareFlags::NEWNS).at("unshare(CLONE_NEWNS)")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("mount(\"/\", MS_REC|MS_PRIVATE)")
}

fn become_nobody() -> Result<u32, Failed> {
    set_thread_groups(&[]).at("setgroups")?;
    set_thread_gid(Gid::from_raw(NOBODY)).at("setgid")?;
    set_thread_uid(Uid::from_raw(NOBODY)).at("setuid")?;
    // A process that gave up root is undumpable, and /proc/self/uid_map closed to it.
    set_dumpable_behavior(DumpableBehavior::Dumpable).at("prctl(PR_SET_DUMPABLE)")?;
    Ok(NOBODY)
}

fn write_own(file: &str, text: &str) -> Result<(), Failed> {
    let path = format!("/proc/self/{file}");
    std::fs::write(&path, text)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .at(&format!("write \"{text}\" to {path}"))
}

fn maximum() -> String {
    match std::fs::read_to_string("/proc/sys/user/max_user_namespaces") {
        Ok(text) => format!("at most {}", text.trim()),
        Err(_) => "no limit known".to_owned(),
    }
}

fn remedy(failed: &Failed) -> &'static str {
    let forbidden =
        |path| std::fs::read_to_string(path).is_ok_and(|text: String| text.trim() == "1");
    if forbidden("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") {
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for txos \
         with the line \"userns,\""
    } else if failed.errno == Errno::NOSPC || failed.errno == Errno::USERS {
        "raise the sysctl user.max_user_namespaces"
    } else {
        "sysctl kernel.unprivileged_userns_clone=1 where it exists; in a container, allow unshare \
         in its seccomp profile"
    }
}
