use std::fs;

use rustix::{io::Errno, thread::UnshareFlags};

use crate::{Credentials, Result, ViewError, ViewSpec, sys};

/// Leaves the host's namespaces. What the calling process forks next is pid 1 of the new pid
/// namespace.
pub(crate) fn leave_host(spec: &ViewSpec) -> Result<()> {
    let Credentials::User { uid, gid } = spec.credentials else {
        unshare(spec, UnshareFlags::empty())?;
        return start_network(spec);
    };
    unshare(spec, UnshareFlags::NEWUSER)?;
    // Group ids can be mapped without privilege only once setgroups(2) is off (user_namespaces(7)).
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ViewError::step(format!("write /proc/self/{file}"), errno)
        })?;
    }
    start_network(spec)
}

/// In a network of its own a transaction has loopback. A kernel without internet sockets has none.
fn start_network(spec: &ViewSpec) -> Result<()> {
    if !spec.private_network {
        return Ok(());
    }
    match sys::loopback_up() {
        Ok(()) | Err(Errno::AFNOSUPPORT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(ViewError::step("bring up the view's loopback interface", errno)),
    }
}

fn unshare(spec: &ViewSpec, user: UnshareFlags) -> Result<()> {
    let mut flags = user
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWUTS;
    if spec.private_network {
        flags |= UnshareFlags::NEWNET;
    }
    sys::unshare(flags).map_err(|errno| {
        ViewError::step("make the namespaces of the view", errno).with_remedy(match errno {
            Errno::PERM if !user.is_empty() => {
                "unprivileged user namespaces are switched off here: run as root, or set \
                 kernel.unprivileged_userns_clone=1 and \
                 kernel.apparmor_restrict_unprivileged_userns=0"
            }
            Errno::NOSPC => "the limit in /proc/sys/user/max_*_namespaces is reached: raise it",
            Errno::PERM => "this needs CAP_SYS_ADMIN: run outside the container or as root",
            _ => "see `txos doctor`",
        })
    })
}
