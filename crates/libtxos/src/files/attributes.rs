//! Attributes other than content and names.

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use ::api::{Result, Stamp, Stat, Transaction};

use super::{
    bytes,
    contents::give,
    error::{EFAULT, remember},
    on_path, txos_tx, with,
};

/// What [`txos_stat`] shows of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct txos_stat_t {
    /// Type and permission bits, as `st_mode` of `stat(2)`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content: nanoseconds, 0 to 999,999,999.
    pub mtime_nsec: u32,
    /// Last change of the content: seconds since 1970.
    pub mtime_sec: i64,
    /// Size in bytes.
    pub size: u64,
    /// Number of names.
    pub nlink: u64,
    /// Inode number; 0 for an object that the transaction has made.
    pub ino: u64,
}

/// A point in time for [`txos_utimens`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct txos_time_t {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

fn shown(stat: &Stat) -> txos_stat_t {
    txos_stat_t {
        mode: stat.kind.mode_bits() | stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        mtime_nsec: stat.mtime.nsec,
        mtime_sec: stat.mtime.sec,
        size: stat.size,
        nlink: stat.nlink,
        ino: stat.ino,
    }
}

/// The attributes of an object, following symbolic links.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `stat` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_stat(
    tx: *mut txos_tx,
    path: *const c_char,
    stat: *mut txos_stat_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { examine(tx, path, stat, |tx, path| tx.stat(path)) }
}

/// The attributes of an object; of a symbolic link itself.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `stat` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_lstat(
    tx: *mut txos_tx,
    path: *const c_char,
    stat: *mut txos_stat_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { examine(tx, path, stat, |tx, path| tx.lstat(path)) }
}

/// Makes a call that examines an object.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `stat` is null or has room for the result.
unsafe fn examine(
    tx: *mut txos_tx,
    path: *const c_char,
    stat: *mut txos_stat_t,
    call: impl FnOnce(&mut Transaction, &Path) -> Result<Stat>,
) -> c_int {
    if stat.is_null() {
        return remember(EFAULT, "there is no place for the attributes") as c_int;
    }
    // SAFETY: as the caller promises.
    unsafe {
        on_path(tx, path, |tx, path| {
            stat.write(shown(&call(tx, path)?));
            Ok(())
        })
    }
}

/// Sets the permission bits of an object, following symbolic links, as `chmod(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_chmod(tx: *mut txos_tx, path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.set_mode(path, mode)) }
}

/// Sets owner and group, of a symbolic link itself, as `lchown(2)`; -1 leaves one as it is.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_lchown(
    tx: *mut txos_tx,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    let id = |id: u32| (id != u32::MAX).then_some(id);
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.set_owner(path, id(uid), id(gid))) }
}

/// Sets the times of the last access and of the last change, of a symbolic link itself; null leaves
/// one as it is.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, the times are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_utimens(
    tx: *mut txos_tx,
    path: *const c_char,
    atime: *const txos_time_t,
    mtime: *const txos_time_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let (atime, mtime) = unsafe { (atime.as_ref(), mtime.as_ref()) };
    let stamp = |time: &txos_time_t| Stamp { sec: time.sec, nsec: time.nsec };
    let (atime, mtime) = (atime.map(stamp), mtime.map(stamp));
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.set_times(path, atime, mtime)) }
}

/// Sets an extended attribute, of a symbolic link itself, as `lsetxattr(2)` without flags; null as
/// `value` removes it, as `lremovexattr(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` and `name` are strings, `value` is null or points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_setxattr(
    tx: *mut txos_tx,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
) -> c_int {
    if name.is_null() {
        return remember(EFAULT, "the name is a null pointer") as c_int;
    }
    // SAFETY: as the caller promises.
    let (name, content) = unsafe { (CStr::from_ptr(name), bytes(value.cast(), len)) };
    let content = if value.is_null() { None } else { content };
    let name = OsStr::from_bytes(name.to_bytes());
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.set_xattr(path, name, content)) }
}

/// Reads an extended attribute, of a symbolic link itself, into memory that `free(3)` gives back:
/// its address into `*value`, its size into `*len`.
///
/// Returns 0, or a negative error number (`-ENODATA` if there is none of this name); then nothing
/// was written.
///
/// # Safety
/// `tx` is a live handle, `path` and `name` are strings, `value` and `len` have room for what they
/// get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_getxattr(
    tx: *mut txos_tx,
    path: *const c_char,
    name: *const c_char,
    value: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    if name.is_null() || value.is_null() {
        return remember(EFAULT, "the name or the place for the value is a null pointer") as c_int;
    }
    // SAFETY: as the caller promises.
    let name = OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes());
    with_paths!(path => {
        // SAFETY: as the caller promises.
        unsafe {
            with(tx, |tx| {
                Ok(match tx.xattr(path, name)? {
                    Some(content) => give(&content, value, len),
                    None => remember(libc::ENODATA, "the object has no such attribute"),
                })
            }) as c_int
        }
    })
}
