//! Views that wait for a thread to enter them, for transactions inside programs.
//!
//! A view of `txos run` is made for one command and has namespaces of its own for everything. A thread
//! that begins a transaction stays the process that it is, with its pid, its network and its children;
//! only what it sees of the file system changes. So a warm view is a mount namespace and nothing else:
//!
//! ```text
//! session  detached capture mount ──┐ (kept for as many views as follow one another)
//!          thread: unshare(NEWNS)   │
//!                  overlays over ───┘, /proc, /sys and /dev bound, pivot_root
//!                  descriptor of the namespace ──▶ the thread that begins: setns(2)
//! ```
//!
//! # Invariants
//!
//! - The capture is mounted in no namespace: no path leads to it but through an overlay.
//! - The namespace lives as long as a descriptor of it or a process in it.
//! - `/proc`, `/sys` and `/dev` are the host's, and the machine's settings in them are read-only. A program
//!   that uses the API is not locked in, as a command of `txos run` is: it asked for the transaction itself.
//!
//! Sources: fsopen(2), fsmount(2), mount_namespaces(7), setns(2); overlayfs of Linux 6.15 and later takes a
//! detached mount as its lower layer.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, fsconfig_create,
        fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change,
    },
    thread::UnshareFlags,
};

use crate::{Result, ViewError, ViewSpec, mounts, sys};

/// A capture mount that is mounted nowhere.
#[derive(Debug)]
pub struct Detached {
    /// The mount.
    pub mount: OwnedFd,
    /// The device on which its requests come. Whoever serves it holds the only copy.
    pub device: OwnedFd,
}

/// A view that a thread can enter.
#[derive(Debug)]
pub struct Warm {
    /// Its mount namespace.
    pub namespace: OwnedFd,
    /// Its root directory, by which others can walk through it.
    pub root: OwnedFd,
    /// The mount ids of its overlays (`STATX_MNT_ID`): what is open on one of them is the view's.
    pub mounts: Vec<u32>,
}

/// Mounts a capture, detached. Its device must be served before an overlay is mounted over it.
///
/// # Errors
/// If the kernel refuses the mount or there is no `/dev/fuse`.
pub fn detached_capture() -> Result<Detached> {
    let device = mounts::open_device()?;
    let failed = |errno| ViewError::mount("the capture (FUSE)", Path::new("(detached)"), errno);
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed)?;
    let set = |key: &str, value: String| fsconfig_set_string(&context, key, value);
    set("source", "txos".to_owned()).map_err(failed)?;
    set("fd", device.as_raw_fd().to_string()).map_err(failed)?;
    set("rootmode", "40000".to_owned()).map_err(failed)?;
    set("user_id", rustix::process::getuid().as_raw().to_string()).map_err(failed)?;
    set("group_id", rustix::process::getgid().as_raw().to_string()).map_err(failed)?;
    for flag in ["allow_other", "ro"] {
        fsconfig_set_flag(&context, flag).map_err(failed)?;
    }
    fsconfig_create(&context).map_err(failed)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOATIME;
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed)?;
    Ok(Detached { mount, device })
}

/// Makes a warm view over the capture at `stable`. The mount table shows `source` for its overlays, by
/// which a program that is started in the view can tell where it is. The calling thread is left inside the view: it is one
/// that was started for this and ends with it. Of the descriptors that it has it needs `stable` alone.
///
/// # Errors
/// If a mount fails.
pub fn warm(spec: &ViewSpec, stable: BorrowedFd<'_>, source: &str) -> Result<Warm> {
    sys::unshare(UnshareFlags::NEWNS)
        .map_err(|errno| ViewError::step("make the mount namespace of a view", errno))?;
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|errno| ViewError::mount("private propagation", root, errno))?;
    // The thread's: its table of descriptors may be its own.
    let stable = PathBuf::from(format!("/proc/thread-self/fd/{}", stable.as_raw_fd()));
    let new_root = mounts::scaffold(spec)?;
    mounts::overlays(spec, &stable, &new_root, source)?;
    mounts::kernels_own(&new_root)?;
    mounts::enter_root(&new_root)?;
    let failed = |errno| ViewError::step("look at the new view", errno);
    let open = |name| openat(CWD, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let namespace = open("/proc/thread-self/ns/mnt").map_err(failed)?;
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, "/", path, Mode::empty()).map_err(failed)?;
    let mut table = String::new();
    File::from(open("/proc/thread-self/mountinfo").map_err(failed)?)
        .read_to_string(&mut table)
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(Warm { namespace, root, mounts: overlay_ids(&table, source) })
}

/// The ids of the overlays that have this source, from a table of mounts (proc_pid_mountinfo(5)).
fn overlay_ids(table: &str, source: &str) -> Vec<u32> {
    let kind_wanted = format!("overlay {source} ");
    let of_line = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        kind.starts_with(&kind_wanted).then(|| mount.split(' ').next()?.parse().ok())?
    };
    table.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_ids_of_the_overlays() {
        let table = "23 27 0:22 / /sys rw shared:1 - sysfs sysfs rw\n\
                     90 80 0:77 / / rw,relatime - overlay txos rw,lowerdir=/x\n\
                     91 80 0:78 / /m rw - overlay overlay rw\n";
        assert_eq!(super::overlay_ids(table, "txos"), [90]);
    }
}
