//! Synchronization primitives of the three kernels, written as guest code.

pub mod cx;
pub mod rw;
pub mod seq;
pub mod spin;
