//! A deterministic multi-processor simulator with hardware transactional memory.
//!
//! After "TxLinux: Using and Managing Hardware Transactional Memory in an Operating System"
//! (SOSP 2007): MetaTM is the machine, TxLinux the kernel on it. See the crate's README for how
//! the parts fit together and `docs/metatm.md` for the model's rules.

pub mod bare;
pub mod cache;
pub mod config;
pub mod error;
pub mod experiment;
pub mod guest;
pub mod htm;
pub mod kernel;
pub mod litmus;
pub mod machine;
pub mod mem;
pub mod mesi;
pub mod report;
pub mod rng;
pub mod stats;
pub mod sync;
pub mod workload;

pub use config::Config;
pub use error::{Result, SimError};
pub use stats::Stats;

/// The README's example, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
