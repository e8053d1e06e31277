//! Where no thread can stand in for another one: registers are known on x86-64 only.

use rustix::io::Errno;

/// See the module for x86-64. There is none here.
#[derive(Debug)]
pub(crate) enum StandIn {}

impl StandIn {
    /// Always fails.
    pub(crate) fn start() -> Result<StandIn, Errno> {
        Err(Errno::from_raw_os_error(crate::ENOTXSUPPORT))
    }

    /// See there.
    pub(crate) fn thread(&self) -> i32 {
        match *self {}
    }

    /// See there.
    pub(crate) fn is_here(&self) -> bool {
        match *self {}
    }

    /// See there.
    pub(crate) fn outside<R>(&self, _work: impl FnOnce() -> R) -> R {
        match *self {}
    }

    /// See there.
    pub(crate) fn end(self) {
        match self {}
    }
}
