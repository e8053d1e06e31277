//! Beginning, committing, aborting; and running a function as a transaction.

use std::{
    ffi::{c_int, c_uint, c_void},
    sync::Arc,
};

use ::api::{Error, Result, System, Transaction};

use super::{
    error::{EFAULT, code, remember},
    guarded, txos_tx,
};

/// The commit may be lost in a power cut, as a whole; towards all who are running it is atomic.
pub const TXOS_NONDURABLE: c_uint = 1;
/// [`txos_run`] gives up at the first conflict.
pub const TXOS_NO_RETRY: c_uint = 2;

const ALL: c_uint = TXOS_NONDURABLE | TXOS_NO_RETRY;

/// Refuses a thread that is in a transaction of sys_xbegin(2): what it commits here would be outside of that one.
fn inside() -> Option<c_int> {
    let why =
        "the thread is in a transaction of sys_xbegin: read and write files there by plain calls";
    crate::member::is_inside().then(|| remember(crate::ENOTXSUPPORT, why) as c_int)
}

/// Begins a transaction and puts its handle into `*tx`. `flags` is 0 or `TXOS_NONDURABLE`.
///
/// Returns 0, or a negative error number: `-EINVAL` for an unknown flag, `-ENOTXSUPPORT` in a thread that is in a
/// transaction of sys_xbegin(2).
///
/// # Safety
/// `tx` points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_begin(tx: *mut *mut txos_tx, flags: c_uint) -> c_int {
    if tx.is_null() {
        return remember(EFAULT, "there is no place for the transaction") as c_int;
    }
    // Whoever goes on after a failure has no handle.
    // SAFETY: `tx` points to a place for a pointer, says the caller.
    unsafe { tx.write(std::ptr::null_mut()) };
    if flags & !ALL != 0 {
        return remember(libc::EINVAL, "a flag is unknown") as c_int;
    }
    if let Some(refused) = inside() {
        return refused;
    }
    let durable = flags & TXOS_NONDURABLE == 0;
    let result = guarded(|| match System::shared().and_then(|system| system.begin()) {
        Ok(transaction) => {
            let handle = Box::new(txos_tx { transaction, durable });
            // SAFETY: `tx` points to a place for a pointer, says the caller.
            unsafe { tx.write(Box::into_raw(handle)) };
            0
        }
        Err(error) => code(&error),
    });
    result as c_int
}

/// Commits: all changes are made at once, if all that was read is still the same. The handle is
/// dead afterwards, whatever the result.
///
/// Returns 0; `-ECANCELED` if something that was read has changed: nothing was done, and the program
/// may begin again; or another negative error number.
///
/// # Safety
/// `tx` is null or a live handle from [`txos_begin`] that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_commit(tx: *mut txos_tx) -> c_int {
    if tx.is_null() {
        return remember(EFAULT, "the transaction is a null pointer") as c_int;
    }
    // SAFETY: it came from Box::into_raw in `txos_begin`, and is given up here.
    let handle = unsafe { Box::from_raw(tx) };
    let result = guarded(|| match handle.transaction.commit_as(handle.durable) {
        Ok(()) => 0,
        Err(error) => code(&error),
    });
    result as c_int
}

/// Forgets all changes. The handle is dead afterwards; null is ignored.
///
/// # Safety
/// `tx` is null or a live handle from [`txos_begin`] that no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_abort(tx: *mut txos_tx) {
    if !tx.is_null() {
        // SAFETY: it came from Box::into_raw in `txos_begin`, and is given up here.
        let handle = unsafe { Box::from_raw(tx) };
        guarded(|| {
            handle.transaction.abort();
            0
        });
    }
}

/// Runs `body(tx, argument)` as one transaction: if it returns 0 its changes are committed, and when
/// something that it had read has changed it is run again, from the start. Another result aborts.
/// The handle is the body's while it runs; it neither commits nor aborts it.
///
/// Returns 0; what the body returned if that was not 0 (`-ECANCELED`, which its own calls return when
/// the transaction has lost, makes it run again instead); `-EBUSY` after too many losses, or with
/// `TXOS_NO_RETRY` `-ECANCELED` at the first; or another negative error number.
///
/// # Safety
/// `body` may be called with a handle and `argument`, several times.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn txos_run(
    body: Option<unsafe extern "C" fn(tx: *mut txos_tx, argument: *mut c_void) -> c_int>,
    argument: *mut c_void,
    flags: c_uint,
) -> c_int {
    let Some(body) = body else {
        return remember(EFAULT, "the function is a null pointer") as c_int;
    };
    if flags & !ALL != 0 {
        return remember(libc::EINVAL, "a flag is unknown") as c_int;
    }
    if let Some(refused) = inside() {
        return refused;
    }
    let durable = flags & TXOS_NONDURABLE == 0;
    let mut once = |transaction: Transaction| -> Result<c_int> {
        let mut handle = txos_tx { transaction, durable };
        // SAFETY: the caller lets us call it; the handle lives until it returns.
        let answer = unsafe { body(&raw mut handle, argument) };
        match answer {
            0 => handle.transaction.commit_as(durable).map(|()| 0),
            code if code == -libc::ECANCELED => Err(Error::Conflict(Vec::new())),
            answer => Ok(answer),
        }
    };
    let attempts = |system: Arc<System>| {
        let once_only = flags & TXOS_NO_RETRY != 0;
        let retries = if once_only { 0 } else { system.options().retries };
        system.attempts_of(retries, &mut once)
    };
    let result = guarded(|| match System::shared().and_then(attempts) {
        Ok(answer) => i64::from(answer),
        Err(Error::Retries { .. }) if flags & TXOS_NO_RETRY != 0 => {
            remember(libc::ECANCELED, "something that the transaction had read has changed")
        }
        Err(error) => code(&error),
    });
    result as c_int
}
