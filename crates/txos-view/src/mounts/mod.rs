//! Putting the view together: capture, overlays, kernel file systems, devices, what is let through.

mod devices;
mod kernel;
mod overlay;
mod plants;

use std::{
    fs,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
        mount_remount, unmount,
    },
    process::{chdir, pivot_root},
};

use crate::{Channel, Credentials, FromView, Result, ViewError, ViewSpec};

/// Names in the scaffold.
const STABLE: &str = "stable";
const ROOT: &str = "root";
const EMPTY: &str = "empty";

/// Mounts the capture, on which everything else rests, and sends its device to the manager.
///
/// Done by `__enter` before init is forked, because the kernel reports the callers of a FUSE mount
/// by their pids in the pid namespace of the process that mounted it, and the manager wants them
/// in its own.
pub(crate) fn mount_base(spec: &ViewSpec, channel: &Channel) -> Result<()> {
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|errno| ViewError::mount("private propagation", root, errno))?;
    tmpfs(&spec.scaffold, "mode=0700")?;
    for name in [STABLE, ROOT, EMPTY] {
        make_dir(&spec.scaffold.join(name))?;
    }
    mount_capture(&spec.scaffold.join(STABLE), channel)
}

/// Mounts the rest of the view and makes it the root of this mount namespace. Gives the slave
/// side of the view's terminal where there is one.
pub(crate) fn assemble(spec: &ViewSpec, channel: &Channel) -> Result<Option<OwnedFd>> {
    let new_root = spec.scaffold.join(ROOT);
    overlay::mount_layers(spec, &spec.scaffold.join(STABLE), &new_root, "txos")?;
    plants::plant(spec, &new_root)?;
    kernel::mount_proc(&new_root)?;
    kernel::mount_sys(&new_root)?;
    let terminal = devices::mount_devices(spec, &new_root, channel)?;
    restrict_to_trees(spec, &new_root)?;
    for path in &spec.live {
        let_through(path, &new_root)?;
    }
    for (index, path) in spec.logs.iter().enumerate() {
        mount_log(index, path, &new_root, channel)?;
    }
    enter_root(&new_root)?;
    Ok(terminal)
}

/// Opens the FUSE device here, inside the user namespace that will own the mount (the kernel asks
/// for that), mounts it and sends it to the manager.
fn mount_capture(at: &Path, channel: &Channel) -> Result<()> {
    let device = open_device()?;
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},allow_other",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    // Read-only: a write to the mirror can only be a mistake, and with it the kernel asks for
    // fewer attributes again (reads move no access time).
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    // NOSUID and NODEV of the lower mount do not reach through the overlay.
    let text = cstring(&options)?;
    mount("txos", at, "fuse", flags, Some(text.as_c_str()))
        .map_err(|errno| ViewError::mount("the capture (FUSE)", at, errno))?;
    channel.send(&FromView::Capture, Some(device.as_fd()))
}

/// Mounts a file system of one file, which the manager serves, at the place of a log.
fn mount_log(index: usize, path: &Path, root: &Path, channel: &Channel) -> Result<()> {
    let (device, at) = (open_device()?, inside(root, path));
    let options = format!(
        "fd={},rootmode=100000,user_id={},group_id={},allow_other,default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    let text = cstring(&options)?;
    mount("txos-log", &at, "fuse", flags, Some(text.as_c_str()))
        .map_err(|errno| ViewError::mount(format!("the log {}", path.display()), &at, errno))?;
    channel.send(&FromView::ExemptLog { index }, Some(device.as_fd()))?;
    // The kernel has to learn the owner before it lets anybody write: until then it takes it for root,
    // who is not mapped in a user namespace.
    rustix::fs::stat(&at)
        .map(drop)
        .map_err(|errno| ViewError::step(format!("look at the log {}", path.display()), errno))
}

/// Opens the FUSE device.
pub(crate) fn open_device() -> Result<OwnedFd> {
    openat(CWD, "/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        ViewError::step("open /dev/fuse", errno).with_remedy(match errno {
            Errno::NOENT => "load the fuse module: modprobe fuse",
            Errno::ACCESS | Errno::PERM => {
                "give users access, as most distributions do: chmod 0666 /dev/fuse"
            }
            _ => "see `txos doctor`",
        })
    })
}

/// The kernel's own file systems in a warm view: the machine's, of which nothing that is not a process's own
/// can be changed.
pub(crate) fn kernels_own(root: &Path) -> Result<()> {
    if Path::new("/proc/self").exists() && root.join("proc").is_dir() {
        kernel::bind_proc(root)?;
    }
    if root.join("sys").is_dir() {
        kernel::mount_sys(root)?;
    }
    let (from, at) = (Path::new("/dev"), root.join("dev"));
    if from.is_dir() && at.is_dir() {
        mount_bind_recursive(from, &at).map_err(|errno| ViewError::mount("/dev", &at, errno))?;
    }
    Ok(())
}

/// The scaffold of a warm view (see [`crate::warm`]); gives the place of its root.
pub(crate) fn scaffold(spec: &ViewSpec) -> Result<PathBuf> {
    tmpfs(&spec.scaffold, "mode=0700")?;
    for name in [ROOT, EMPTY] {
        make_dir(&spec.scaffold.join(name))?;
    }
    Ok(spec.scaffold.join(ROOT))
}

/// Mounts the overlays of a warm view at `root` over the capture at `stable`.
pub(crate) fn overlays(spec: &ViewSpec, stable: &Path, root: &Path, source: &str) -> Result<()> {
    overlay::mount_layers(spec, stable, root, source)
}

/// `--tree`: everything becomes read-only but the named directories.
fn restrict_to_trees(spec: &ViewSpec, root: &Path) -> Result<()> {
    if spec.trees.is_empty() {
        return Ok(());
    }
    // The trees first get mounts of their own, which the read-only flag of the others leaves alone.
    let trees: Vec<PathBuf> = spec.trees.iter().map(|tree| inside(root, tree)).collect();
    for tree in &trees {
        mount_bind_recursive(tree, tree)
            .map_err(|errno| ViewError::mount("the tree", tree, errno))?;
    }
    for layer in &spec.layers {
        let at = inside(root, &layer.point);
        if trees.iter().any(|tree| at.starts_with(tree)) {
            continue;
        }
        remount_read_only(&at, mount_flags(layer.no_suid, layer.no_exec, true))?;
    }
    Ok(())
}

/// Shows a path of the host as it is, for reading and writing.
fn let_through(path: &Path, root: &Path) -> Result<()> {
    let at = inside(root, path);
    mount_bind_recursive(path, &at).map_err(|errno| {
        ViewError::mount(format!("the live path {}", path.display()), &at, errno)
            .with_remedy("the path must exist before the transaction begins")
    })
}

pub(crate) fn enter_root(root: &Path) -> Result<()> {
    chdir(root).map_err(|errno| ViewError::step("enter the view", errno))?;
    // pivot_root(2): with both paths the same, the old root ends up on top of the new one, from
    // where it is detached; then no path leads to it any more.
    pivot_root(".", ".").map_err(|errno| ViewError::step("make the view the root", errno))?;
    unmount(".", UnmountFlags::DETACH)
        .map_err(|errno| ViewError::step("detach the host's root", errno))?;
    chdir("/").map_err(|errno| ViewError::step("enter the view's root", errno))
}

/// `path` of the host as it lies below `root` while the view is put together.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn tmpfs(at: &Path, options: &str) -> Result<()> {
    let text = cstring(options)?;
    mount("txos", at, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(text.as_c_str()))
        .map_err(|errno| ViewError::mount("a tmpfs", at, errno))
}

fn make_dir(at: &Path) -> Result<()> {
    fs::create_dir(at).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        ViewError::step(format!("make the directory {}", at.display()), errno)
    })
}

fn make_file(at: &Path) -> Result<()> {
    fs::write(at, []).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        ViewError::step(format!("make the file {}", at.display()), errno)
    })
}

/// Makes one mount read-only, keeping the flags that it has.
fn remount_read_only(at: &Path, flags: MountFlags) -> Result<()> {
    mount_remount(at, MountFlags::BIND | MountFlags::RDONLY | flags, "")
        .map_err(|errno| ViewError::mount("read-only", at, errno))
}

fn mount_flags(no_suid: bool, no_exec: bool, no_dev: bool) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, no_suid);
    flags.set(MountFlags::NOEXEC, no_exec);
    flags.set(MountFlags::NODEV, no_dev);
    flags
}

fn layer_flags(spec: &ViewSpec, layer: &crate::Layer) -> MountFlags {
    let usable = spec.devices_guarded && spec.credentials == Credentials::Privileged;
    mount_flags(layer.no_suid, layer.no_exec, layer.no_dev || !usable)
}

fn cstring(text: &str) -> Result<std::ffi::CString> {
    std::ffi::CString::new(text)
        .map_err(|_| ViewError::step(format!("pass the mount options {text:?}"), Errno::INVAL))
}
