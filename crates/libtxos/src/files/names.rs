//! Names: made, removed, moved, listed.

use std::{
    ffi::{c_char, c_int, c_uint, c_void},
    os::unix::ffi::OsStrExt,
};

use super::{
    contents::give,
    error::{EFAULT, remember},
    on_path, on_paths, txos_tx, with,
};

/// Makes a new, empty file with `mode` less the umask; `-EEXIST` if the name is taken.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_create(tx: *mut txos_tx, path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.create(path, mode)) }
}

/// Makes a directory with `mode` less the umask, as `mkdir(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_mkdir(tx: *mut txos_tx, path: *const c_char, mode: c_uint) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.create_dir(path, mode)) }
}

/// Removes an empty directory, as `rmdir(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_rmdir(tx: *mut txos_tx, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.remove_dir(path)) }
}

/// Removes a name that is not of a directory, as `unlink(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_unlink(tx: *mut txos_tx, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.remove(path)) }
}

/// Gives an object another name, displacing what has it, as `rename(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_rename(
    tx: *mut txos_tx,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_paths(tx, from, to, |tx, one, other| tx.rename(one, other)) }
}

/// Gives an object another name, which must be free, as `renameat2(2)` with `RENAME_NOREPLACE`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_rename_new(
    tx: *mut txos_tx,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_paths(tx, from, to, |tx, one, other| tx.rename_new(one, other)) }
}

/// Gives the object at `path` the further name `name`, as `link(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_link(
    tx: *mut txos_tx,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_paths(tx, path, name, |tx, one, other| tx.link(one, other)) }
}

/// Makes a symbolic link at `path` that points to `target`, as `symlink(2)`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, the paths are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_symlink(
    tx: *mut txos_tx,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_paths(tx, target, path, |tx, one, other| tx.symlink(one, other)) }
}

/// Whether `path` leads to an object: 1 or 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_exists(tx: *mut txos_tx, path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    with_paths!(path => unsafe { with(tx, |tx| tx.exists(path)) as c_int })
}

/// Where a symbolic link points, as a string in memory that `free(3)` gives back.
///
/// Returns 0, or a negative error number; then `*target` is untouched.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `target` has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_readlink(
    tx: *mut txos_tx,
    path: *const c_char,
    target: *mut *mut c_char,
) -> c_int {
    if target.is_null() {
        return remember(EFAULT, "there is no place for the target") as c_int;
    }
    with_paths!(path => {
        // SAFETY: as the caller promises.
        unsafe {
            with(tx, |tx| {
                let link = tx.read_link(path)?;
                let data: *mut *mut c_void = target.cast();
                Ok(give(link.as_os_str().as_bytes(), data, std::ptr::null_mut()))
            }) as c_int
        }
    })
}

/// All names in a directory but `.` and `..`, sorted, each followed by a NUL, in memory that
/// `free(3)` gives back: its address into `*names`, the number of bytes into `*len`.
///
/// Returns how many names there are, or a negative error number; then nothing was written.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `names` and `len` have room for what they get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_list(
    tx: *mut txos_tx,
    path: *const c_char,
    names: *mut *mut c_char,
    len: *mut usize,
) -> isize {
    if names.is_null() {
        return remember(EFAULT, "there is no place for the names") as isize;
    }
    with_paths!(path => {
        // SAFETY: as the caller promises.
        unsafe {
            with(tx, |tx| {
                let listed = tx.list(path)?;
                let mut all = Vec::new();
                for name in &listed {
                    all.extend_from_slice(name.as_bytes());
                    all.push(0);
                }
                Ok(match give(&all, names.cast(), len) {
                    0 => listed.len() as i64,
                    failed => failed,
                })
            }) as isize
        }
    })
}
