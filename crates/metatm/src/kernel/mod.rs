//! The kernel model.

pub mod prio;
