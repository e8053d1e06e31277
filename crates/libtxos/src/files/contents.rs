//! Contents of files.

use std::{
    ffi::{c_char, c_int, c_void},
    path::Path,
};

use ::api::{Result, Transaction};

use super::{
    bytes,
    error::{EFAULT, remember},
    on_path, txos_tx, with,
};

/// Reads at most `len` bytes of a file from `offset` on into `buffer`.
///
/// Returns how many, fewer where the file ends before; or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_pread(
    tx: *mut txos_tx,
    path: *const c_char,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
) -> isize {
    if buffer.is_null() && len > 0 {
        return remember(EFAULT, "the buffer is a null pointer") as isize;
    }
    with_paths!(path => {
        // SAFETY: as the caller promises; at most `len` bytes are read, and copied.
        unsafe {
            with(tx, |tx| {
                let read = tx.read_range(path, offset, len)?;
                std::ptr::copy_nonoverlapping(read.as_ptr(), buffer.cast(), read.len());
                Ok(read.len() as i64)
            }) as isize
        }
    })
}

/// Reads a whole file into memory that `free(3)` gives back, with a NUL after the last byte: its
/// address into `*data`, its size without the NUL into `*len`, which may be null.
///
/// Returns 0, or a negative error number; then `*data` is untouched.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `data` and `len` have room for what they get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_read(
    tx: *mut txos_tx,
    path: *const c_char,
    data: *mut *mut c_void,
    len: *mut usize,
) -> c_int {
    if data.is_null() {
        return remember(EFAULT, "there is no place for the data") as c_int;
    }
    with_paths!(path => {
        // SAFETY: as the caller promises.
        unsafe {
            with(tx, |tx| {
                let read = tx.read(path)?;
                Ok(give(&read, data, len))
            }) as c_int
        }
    })
}

/// Puts a copy of `content` where the caller finds it, in memory of `malloc(3)`.
///
/// # Safety
/// `data` has room for a pointer; `len` is null or has room for a size.
pub(super) unsafe fn give(content: &[u8], data: *mut *mut c_void, len: *mut usize) -> i64 {
    // SAFETY: malloc may be called with any size above 0; the copy fits what it gave.
    unsafe {
        let memory = libc::malloc(content.len() + 1).cast::<u8>();
        if memory.is_null() {
            return remember(libc::ENOMEM, "no memory is left for the data");
        }
        std::ptr::copy_nonoverlapping(content.as_ptr(), memory, content.len());
        memory.add(content.len()).write(0);
        data.write(memory.cast());
        if !len.is_null() {
            len.write(content.len());
        }
    }
    0
}

/// Makes these bytes the whole content of a file: an existing one keeps its inode, mode and other
/// names, an absent one is made with mode 0666 less the umask.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_write(
    tx: *mut txos_tx,
    path: *const c_char,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { with_bytes(tx, path, data, len, |tx, path, data| tx.write(path, data)) }
}

/// Writes into an existing file at `offset`.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_pwrite(
    tx: *mut txos_tx,
    path: *const c_char,
    data: *const c_void,
    len: usize,
    offset: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { with_bytes(tx, path, data, len, |tx, path, data| tx.write_range(path, offset, data)) }
}

/// Appends to a file, which is made if it is absent. Two transactions that append to one file
/// without reading it both commit.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_append(
    tx: *mut txos_tx,
    path: *const c_char,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { with_bytes(tx, path, data, len, |tx, path, data| tx.append(path, data)) }
}

/// Makes a call with a path and bytes.
///
/// # Safety
/// `tx` is a live handle, `path` a string, `data` points to `len` bytes.
unsafe fn with_bytes(
    tx: *mut txos_tx,
    path: *const c_char,
    data: *const c_void,
    len: usize,
    call: impl FnOnce(&mut Transaction, &Path, &[u8]) -> Result<()>,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let Some(data) = bytes(data.cast(), len) else {
            return remember(EFAULT, "the data is a null pointer") as c_int;
        };
        on_path(tx, path, |tx, path| call(tx, path, data))
    }
}

/// Sets the size of an existing file.
///
/// Returns 0, or a negative error number.
///
/// # Safety
/// `tx` is a live handle, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_truncate(tx: *mut txos_tx, path: *const c_char, size: u64) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { on_path(tx, path, |tx, path| tx.truncate(path, size)) }
}
