//! The explicit API for C: small transactions over plain files, without a view.
//!
//! A thin skin over the crate `txos-api`, which explains what the calls guarantee. Paths are the
//! bytes of the caller up to the NUL; results are 0 or a count, or a negative error number.
//!
//! # Invariants
//!
//! - A handle is given out by [`txos_begin`] or to the body of [`txos_run`], and is dead after
//!   [`txos_commit`], [`txos_abort`] or the end of the body.
//! - No panic crosses into C: a call that panics fails with `EIO`.
//! - The text of [`txos_message`] belongs to the thread, and lives until its next failed call.

#![allow(unsafe_code)] // the boundary to C: pointers come from the caller

/// Gives `path`s to a call, or says that one is missing.
macro_rules! with_paths {
    ($($name:ident),+ => $call:expr) => {{
        // SAFETY: the function's own contract is that of `path`.
        match ($(unsafe { crate::files::path($name) },)+) {
            ($(Some($name),)+) => $call,
            _ => crate::files::error::remember(crate::files::error::EFAULT, "a path is a null pointer") as _,
        }
    }};
}

mod attributes;
mod contents;
mod error;
mod names;
mod run;

pub use attributes::*;
pub use contents::*;
pub use error::txos_message;
pub use names::*;
pub use run::*;

use std::{
    ffi::{CStr, OsStr, c_char, c_int},
    os::unix::ffi::OsStrExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

use ::api::{Result, Transaction};

use self::error::{EFAULT, EIO, remember};

/// A running transaction of the explicit API. One thread at a time may use it.
#[expect(non_camel_case_types, reason = "the name that C programs use")]
pub struct txos_tx {
    pub(self) transaction: Transaction,
    pub(self) durable: bool,
}

/// Makes a call of the transaction behind `tx`.
///
/// # Safety
/// `tx` is null or a live handle that no other thread uses meanwhile.
unsafe fn with<T: Into<i64>>(
    tx: *mut txos_tx,
    call: impl FnOnce(&mut Transaction) -> Result<T>,
) -> i64 {
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { tx.as_mut() }) else {
        return remember(EFAULT, "the transaction is a null pointer");
    };
    guarded(|| match call(&mut handle.transaction) {
        Ok(value) => value.into(),
        Err(error) => error::code(&error),
    })
}

/// Makes a call that takes a path and gives nothing.
///
/// # Safety
/// As [`with`], and `text` is null or a string.
unsafe fn on_path(
    tx: *mut txos_tx,
    text: *const c_char,
    call: impl FnOnce(&mut Transaction, &Path) -> Result<()>,
) -> c_int {
    with_paths!(text => {
        // SAFETY: as the caller promises. Error numbers are small.
        unsafe { with(tx, |tx| call(tx, text).map(|()| 0i64)) as c_int }
    })
}

/// Makes a call that takes two paths and gives nothing.
///
/// # Safety
/// As [`on_path`].
unsafe fn on_paths(
    tx: *mut txos_tx,
    one: *const c_char,
    other: *const c_char,
    call: impl FnOnce(&mut Transaction, &Path, &Path) -> Result<()>,
) -> c_int {
    with_paths!(one, other => {
        // SAFETY: as the caller promises. Error numbers are small.
        unsafe { with(tx, |tx| call(tx, one, other).map(|()| 0i64)) as c_int }
    })
}

/// Keeps a panic from unwinding into C.
fn guarded(call: impl FnOnce() -> i64) -> i64 {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| remember(EIO, "a defect in txos: the call panicked"))
}

/// The path that `text` holds.
///
/// # Safety
/// `text` is null or points to a string that ends in NUL and lives as long as the result is used.
unsafe fn path<'a>(text: *const c_char) -> Option<&'a Path> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    Some(Path::new(OsStr::from_bytes(bytes)))
}

/// The bytes at `data`.
///
/// # Safety
/// `data` is null or points to `len` bytes that live, unchanged, as long as the result is used.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> Option<&'a [u8]> {
    match (data.is_null(), len) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: as the caller promises.
        (false, _) => Some(unsafe { std::slice::from_raw_parts(data, len) }),
    }
}
