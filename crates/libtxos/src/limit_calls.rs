//! The calls that show and change resource limits: getrlimit(2), setrlimit(2), prlimit(2), and the same with `64`
//! in their names, which on this processor are no others. A program that is linked with this library gets them here,
//! before the C library's.
//!
//! Inside a transaction that can be rolled back they [note](limits) the lowering of a hard limit, which could not be
//! taken back. Outside, and for other processes, they do what the C library's do: the system call, and nothing
//! else, so that they are as fit for a child that was just forked.
#![allow(unsafe_code)] // exporting under the names of the C library

use std::{
    ffi::{c_int, c_uint},
    ptr::null_mut,
};

use crate::{
    checkpoint::{
        limits::{self, Limit},
        signals,
    },
    raw::syscall,
    sys::Mask,
};

/// See getrlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrlimit(resource: c_uint, limit: *mut Limit) -> c_int {
    // SAFETY: as the caller says.
    unsafe { prlimit(0, resource, null_mut(), limit) }
}

/// See getrlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrlimit64(resource: c_uint, limit: *mut Limit) -> c_int {
    // SAFETY: as the caller says.
    unsafe { prlimit(0, resource, null_mut(), limit) }
}

/// See setrlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const Limit) -> c_int {
    // SAFETY: as the caller says.
    unsafe { prlimit(0, resource, limit, null_mut()) }
}

/// See setrlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const Limit) -> c_int {
    // SAFETY: as the caller says.
    unsafe { prlimit(0, resource, limit, null_mut()) }
}

/// See prlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit64(
    process: libc::pid_t,
    resource: c_uint,
    new: *const Limit,
    old: *mut Limit,
) -> c_int {
    // SAFETY: as the caller says.
    unsafe { prlimit(process, resource, new, old) }
}

/// See prlimit(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit(
    process: libc::pid_t,
    resource: c_uint,
    new: *const Limit,
    old: *mut Limit,
) -> c_int {
    let own = process == 0 || process == rustix::process::getpid().as_raw_pid();
    let result = if own && signals::is_watching() {
        let mask = Mask::block_all();
        // SAFETY: the pointers are null or valid, as the caller says.
        let result = unsafe {
            limits::exchange(resource, new.as_ref().copied()).map(|before| {
                if let Some(old) = old.as_mut() {
                    *old = before;
                }
            })
        };
        mask.set();
        result.err().unwrap_or(0)
    } else {
        // SAFETY: as the caller says; the kernel looks at the pointers itself.
        unsafe { syscall!(libc::SYS_prlimit64, process, resource, new, old) }
    };
    if result < 0 {
        // SAFETY: the calling thread's own.
        unsafe { *libc::__errno_location() = -result as c_int };
        return -1;
    }
    0
}
