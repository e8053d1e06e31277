//! Open directories and files of the stable system, a bounded number of them.

mod lru;
mod watch;

pub(crate) use lru::Lru;
pub(crate) use watch::PathWatch;
