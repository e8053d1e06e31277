//! The view of a transaction: namespaces, overlay mounts and the processes that live in it.
//!
//! ```text
//! manager (host)                      __enter (a fresh process)
//!   spawn ───────────────────────────▶ user namespace, if unprivileged
//!                                      mount, pid, ipc, uts (and net) namespaces
//!                                      fork ──▶ init (pid 1 of the view)
//!   serve capture  ◀── /dev/fuse ──────          mount capture, overlays, /proc, /sys, /dev
//!                  ◀── Ready ──────────          pivot_root, old root detached
//!                  ─── Go ────────────▶          fork ──▶ CMD: filter, drop, exec
//!                  ◀── Exited, Ended ──          reap until nobody is left
//! ```
//!
//! # Invariants
//!
//! - Everything is mounted in a mount namespace of its own whose propagation is private: nothing
//!   of the view is visible outside, and all of it is gone when the last process of the view is.
//! - Each mount of the host has an overlay of its own at the same place, so that device numbers,
//!   `EXDEV` and mount options are what they are outside.
//! - The old root is detached before CMD runs: no path leads out of the overlays except what the
//!   specification names (`live`, `allow`).
//! - The processes of the view live in a pid namespace: outsiders cannot be named (`/proc/PID`,
//!   `ptrace`, `pidfd_open`, `kill`), and when init dies the kernel kills all of them. Init dies with
//!   `__enter`, and `__enter` with the manager (parent-death signal).
//! - Init holds no privilege that CMD could borrow: it is not dumpable, CMD lacks
//!   `CAP_SYS_PTRACE`, and every descriptor but the three standard ones is closed on exec.

mod capabilities;
mod command;
mod control;
mod device_guard;
mod enter;
mod error;
mod gateway;
mod groups;
mod handover;
mod init;
mod layers;
mod mounted;
mod mounts;
mod namespaces;
mod numbers;
mod paths;
mod signals;
mod spec;
mod sys;
mod warm;

pub use control::{Channel, FromView, ToView};
pub use device_guard::{DeviceGuard, sweep_groups};
pub use enter::{AtEnd, BeforeExec, enter};
pub use error::{Result, ViewError};
pub use layers::{PlannedLayer, plan_layers};
pub use namespaces::own_user_namespace;
pub use signals::{SignalState, keep_children, stop_as_by_key};
pub use spec::{Credentials, Layer, Original, Plant, ViewSpec};
pub use warm::{Detached, Warm, detached_capture, warm};
