//! What this machine grants to txos.
//!
//! A transaction rests on about a dozen kernel mechanisms, and whether each is there depends on
//! the kernel, its configuration, the container around it, the caller's privileges and the file
//! system below. Version numbers tell little about that, so every probe here *tries* its mechanism
//! in the way a transaction would use it and reports what happened.
//!
//! Invariants:
//!
//! 1. A probe changes nothing that outlives it. What needs a namespace, a mount or a filter happens
//!    in a forked child ([`child`]) whose end undoes it; what needs files happens in a
//!    [`scratch`] directory that is removed when the examination ends.
//! 2. A probe never fails: an error of the kernel *is* its answer.
//! 3. The verdict ([`Isolation`]) claims no more than the probes showed.

#![cfg(target_os = "linux")]

mod child;
mod isolation;
mod probes;
mod report;
mod scratch;
mod sys;

use std::path::Path;

pub use isolation::{Isolation, Level};
pub use report::{DoctorReport, Probe, Status};

/// Tries every mechanism and says what isolation follows, for the calling process's privileges and
/// for transactions whose state lives in `state_dir`.
///
/// `state_dir` need not exist: then its nearest existing parent stands for it, and nothing is
/// created in its place. Takes some tens of milliseconds; freezes and kills only processes that it
/// started itself.
pub fn examine(state_dir: &Path) -> DoctorReport {
    let scratch = scratch::Scratch::below(state_dir);
    let probes = probes::all(state_dir, scratch.as_ref().ok());
    let isolation = Isolation::follows_from(&probes, rustix::process::geteuid().is_root());
    DoctorReport { kernel: kernel(), user: user(), probes, isolation }
}

fn kernel() -> String {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {} {}", text(name.sysname()), text(name.release()), text(name.machine()))
}

fn user() -> String {
    match rustix::process::geteuid() {
        id if id.is_root() => "root".to_owned(),
        id => format!("user {}", id.as_raw()),
    }
}
