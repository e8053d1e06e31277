use std::fs;

use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, UnshareFlags, capabilities,
        configure_capability_in_ambient_set, set_capabilities,
    },
};

use crate::{Credentials, Result, ViewError, ViewSpec, sys};

/// Leaves the host's namespaces. What the calling process forks next is pid 1 of the new pid
/// namespace.
pub(crate) fn leave_host(spec: &ViewSpec) -> Result<()> {
    let Credentials::User { uid, gid } = spec.credentials else {
        unshare(spec, UnshareFlags::empty())?;
        return start_network(spec);
    };
    unshare(spec, UnshareFlags::NEWUSER)?;
    map_one(uid, gid)?;
    start_network(spec)
}

/// Gives the calling process, which has one thread, a user and a mount namespace of its own, in which an
/// ordinary user may make views; and what it executes from then on the capabilities to enter them.
///
/// # Errors
/// If the kernel grants no user namespaces.
pub fn own_user_namespace(uid: u32, gid: u32) -> Result<()> {
    sys::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)
        .map_err(|errno| ViewError::step("make a user namespace", errno))?;
    map_one(uid, gid)?;
    let failed = |errno| ViewError::step("keep capabilities for programs", errno);
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    let sets = capabilities(None).map_err(failed)?;
    let sets = CapabilitySets { inheritable: sets.inheritable | wanted, ..sets };
    set_capabilities(None, sets).map_err(failed)?;
    for one in wanted.iter() {
        configure_capability_in_ambient_set(one, true).map_err(failed)?;
    }
    Ok(())
}

/// Maps one user and one group to themselves.
fn map_one(uid: u32, gid: u32) -> Result<()> {
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
    Ok(())
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
