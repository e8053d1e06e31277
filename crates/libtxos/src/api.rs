//! The C functions. Their manual pages (section 2 and 3) say what holds; the comments here become the
//! comments of the header.
#![allow(unsafe_code)] // exporting under a C name is unsafe; no other code here is

use std::ffi::c_int;

use rustix::io::Errno;

use crate::{
    descriptors,
    member::{self, Place},
};

/// Begins a transaction: everything that this thread, the libraries it calls and the programs it starts
/// do with files until sys_xend() happens as one, or not at all.
///
/// `flags` is 0 (TX_DEFAULTS) or any of the TX_* bits. Inside a transaction it only counts.
///
/// Returns how many times the transaction was tried before, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xbegin(flags: c_int) -> c_int {
    member::begin(flags, None)
}

/// Like sys_xbegin(), for one of a group of transactions that become visible in the order of their
/// sequence numbers (0, 1, 2, …), whatever order they run in.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xbegin_ordered(flags: c_int, group: u64, sequence: u64) -> c_int {
    member::begin(flags, Some(Place { group, sequence }))
}

/// Ends the transaction and commits it.
///
/// Returns 0, or a negative error number: then nothing that was done in it has happened.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xend() -> c_int {
    member::end()
}

/// Gives the transaction up: nothing that was done in it has happened. It is not tried again if
/// `no_restart` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xabort(no_restart: c_int) {
    member::abort(no_restart != 0);
}

/// Whether the transaction can still commit, as far as is known.
///
/// Returns 0 if so, 1 if it is doomed and may as well give up, or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn sys_xstatus() -> c_int {
    member::status()
}

/// The transaction's number, for tx_join() in another process; -EINVAL outside.
#[unsafe(no_mangle)]
pub extern "C" fn tx_id() -> i64 {
    member::id()
}

/// Makes the calling thread a member of a running transaction of the same session. Its sys_xend() makes it
/// free again; the transaction commits when the last member has left.
///
/// Returns 0 or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn tx_join(id: i64) -> c_int {
    member::join(id)
}

/// Leaves a descriptor out of all transactions: what is written to it happens at once and stays, also
/// after an abort.
///
/// Returns 0 or a negative error number.
#[unsafe(no_mangle)]
pub extern "C" fn tx_exempt_fd(fd: c_int) -> c_int {
    if member::carries(fd) {
        return -Errno::BUSY.raw_os_error();
    }
    descriptors::exempt(fd).map_or_else(Errno::raw_os_error, |()| 0).wrapping_neg()
}

/// Sets how many lost conflicts in a row this process bears before it is told -EBUSY (100 unless set).
#[unsafe(no_mangle)]
pub extern "C" fn tx_set_max_retries(limit: u32) {
    member::set_limit(limit);
}
