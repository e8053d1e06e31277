//! Lets a unit test act as the other threads at a chosen point of an operation.

use std::boxed::Box;
use std::cell::RefCell;

std::thread_local! {
    static BEFORE_COPY: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// The next copy of a slot by this thread comes after `f`.
pub(crate) fn set_before_copy(f: impl FnOnce() + 'static) {
    BEFORE_COPY.set(Some(Box::new(f)));
}

/// Called by `acquire` between the taking of a slot and the copy into it.
pub(crate) fn before_copy() {
    if let Some(f) = BEFORE_COPY.take() {
        f();
    }
}
