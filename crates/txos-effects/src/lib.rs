//! Effects.
mod error;
pub mod filter;
mod handover;
mod policy;
pub mod services;
pub mod streams;
pub mod supervisor;
mod sys;
pub use error::Error;
pub use handover::{recv_fd, send_fd};
pub use policy::{ENOTXSUPPORT, OnUnsupported, Policy};
