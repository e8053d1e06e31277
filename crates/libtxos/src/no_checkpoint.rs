//! Where the program's own state cannot be rolled back: transactions with `TX_NO_USER_ROLLBACK` only.

use rustix::io::Errno;

/// See the module for x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// See there.
    First,
    /// See there.
    Again(i32),
}

/// Always fails: registers are saved on x86-64 only.
pub(crate) fn take(_ask: [i32; 2], _high: i32) -> Result<Taken, Errno> {
    Err(Errno::from_raw_os_error(crate::ENOTXSUPPORT))
}

/// There is nothing to release.
pub(crate) fn release() {}

/// Never called, since nothing is ever taken.
pub(crate) fn rollback(_value: i32) -> ! {
    std::process::abort()
}

/// Nothing is noted, since nothing is rolled back.
pub(crate) mod signals {
    /// See the module for x86-64.
    pub(crate) fn watch() {}

    /// See there.
    pub(crate) fn unwatch() {}

    /// See there.
    pub(crate) fn forget(_is_member: impl Fn(i32) -> bool) {}

    /// See there.
    pub(crate) fn miss_bell() {}

    /// See there.
    pub(crate) fn settle(_is_blocked: impl Fn(i32) -> bool) {}
}

/// No limit is noted, since nothing is rolled back.
pub(crate) mod limits {
    /// There is nothing to tell children.
    pub(crate) fn hook() -> Result<(), rustix::io::Errno> {
        Ok(())
    }
}

/// See the module for x86-64.
#[derive(Debug)]
pub(crate) struct Before;

impl Before {
    /// There is no attempt to look at.
    pub(crate) fn look() -> Result<Before, Errno> {
        Ok(Before)
    }

    /// Nothing is rolled back.
    pub(crate) fn restore(&self, _deferred: bool) {}
}
