//! From errors to error numbers and a text.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    ptr,
};

use ::api::Error;

pub(super) const EIO: c_int = libc::EIO;
pub(super) const EFAULT: c_int = libc::EFAULT;

thread_local! {
    static MESSAGE: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// What the last failed call of this thread has to say, with the object and the remedy; null if
/// none has failed. The text is valid until the thread's next failed call.
#[unsafe(no_mangle)]
pub extern "C" fn txos_message() -> *const c_char {
    MESSAGE.with_borrow(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr()))
}

/// Keeps the text, and gives the negative error number.
pub(super) fn remember(errno: c_int, text: &str) -> i64 {
    let clean: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    MESSAGE.set(CString::new(clean).ok());
    -i64::from(errno)
}

/// The negative error number of `error`, whose text is kept.
pub(super) fn code(error: &Error) -> i64 {
    let errno = match error {
        Error::Conflict(_) => libc::ECANCELED,
        Error::Retries { .. } => libc::EBUSY,
        error => error.errno().map_or(EIO, |errno| errno.raw_os_error()),
    };
    remember(errno, &error.to_string())
}
