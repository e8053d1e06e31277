//! The system calls that rustix does not wrap: fanotify and file handles.
#![allow(unsafe_code)] // Reason: raw system calls; each function below is safe to call.

use std::{
    ffi::CStr,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
};

use rustix::io::Errno;

/// Largest handle that the kernel makes (`MAX_HANDLE_SZ`).
pub(crate) const HANDLE: usize = 128;

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn owned(fd: RawFd) -> Result<OwnedFd, Errno> {
    match fd {
        ..0 => Err(last()),
        // SAFETY: the kernel has just returned this descriptor to us, nothing else owns it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

/// A new notification group.
pub(crate) fn fanotify_init(flags: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes numbers only.
    owned(unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_CLOEXEC) as u32) })
}

/// Adds to the marks of what `path`, relative to `at`, leads to.
pub(crate) fn fanotify_add(
    group: impl AsFd,
    flags: u32,
    mask: u64,
    at: impl AsFd,
    path: &CStr,
) -> Result<(), Errno> {
    mark(group, libc::FAN_MARK_ADD | flags, mask, at, path)
}

/// Takes from the marks of what `path`, relative to `at`, leads to.
pub(crate) fn fanotify_remove(
    group: impl AsFd,
    flags: u32,
    mask: u64,
    at: impl AsFd,
    path: &CStr,
) -> Result<(), Errno> {
    mark(group, libc::FAN_MARK_REMOVE | flags, mask, at, path)
}

fn mark(group: impl AsFd, flags: u32, mask: u64, at: impl AsFd, path: &CStr) -> Result<(), Errno> {
    let (group, at) = (group.as_fd().as_raw_fd(), at.as_fd().as_raw_fd());
    // SAFETY: `path` is a NUL-terminated string that lives through the call; the rest are numbers.
    match unsafe { libc::fanotify_mark(group, flags, mask, at, path.as_ptr()) } {
        0 => Ok(()),
        _ => Err(last()),
    }
}

/// A descriptor that the kernel has put into an event of a group of this process.
pub(crate) fn from_event(fd: i32) -> Option<OwnedFd> {
    // SAFETY: the reader of an event owns the descriptors in it, and each is taken once.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE],
}

/// Opens the object of a handle (`O_PATH`), on the file system in which `mount` is open.
pub(crate) fn open_by_handle(mount: impl AsFd, kind: i32, handle: &[u8]) -> Result<OwnedFd, Errno> {
    let mut all = FileHandle { bytes: handle.len() as u32, kind, handle: [0; HANDLE] };
    all.handle.get_mut(..handle.len()).ok_or(Errno::INVAL)?.copy_from_slice(handle);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: `all` is laid out as `struct file_handle` with `bytes` bytes of handle behind its
    // head, all of them initialised and within the array; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), &raw mut all, flags)
    };
    owned(fd as RawFd)
}

/// The identity of the file system in which `fd` is open, as events name it.
pub(crate) fn fsid(fd: impl AsFd) -> Result<[u8; 8], Errno> {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel fills the structure on success, and it is read only then; `fsid_t` is
    // eight bytes of plain integers.
    unsafe {
        match libc::fstatfs(fd.as_fd().as_raw_fd(), found.as_mut_ptr()) {
            0 => Ok(std::mem::transmute::<libc::fsid_t, [u8; 8]>(found.assume_init().f_fsid)),
            _ => Err(last()),
        }
    }
}
