//! The paper's workloads (table 5) as scripts of system calls and user computation.
//!
//! A script says what each thread asks of the kernel: which calls, on which objects, with how much
//! user code between. What that costs, who contends and who restarts comes out of the run. The
//! scripts are synthetic: their mix is modelled on what the paper and the programs' manuals say the
//! programs do. Amounts are scaled down so that a run takes seconds.

mod bonnie;
mod config;
mod dpunish;
mod find;
mod mab;
mod mixed;
mod pipeline;
mod pmake;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::config::{Config, KernelKind};
use crate::error::{Result, SimError};
use crate::kernel::map::{BootObjects, Map};
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;
use crate::mem::Addr;
use crate::rng::Rng;
use crate::stats::Stats;

/// What a thread does until it is done.
pub type Work<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The code of a workload.
pub trait Script {
    /// Thread `n` of the workload.
    fn worker<'a>(&'a self, k: &'a K, n: u32, p: &'a mut Process) -> Work<'a>;

    /// A process that a worker forked, number `n` of its children.
    fn child<'a>(&'a self, _k: &'a K, _n: u32, _p: &'a mut Process) -> Work<'a> {
        Box::pin(std::future::ready(()))
    }

    /// Host-side check of the final memory, beyond the kernel's own.
    ///
    /// # Errors
    /// What does not hold.
    fn audit(&self, _map: &Map, _machine: &Machine) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Builds a script and its files at boot.
pub type Build = fn(&Map, &mut Machine, &Config) -> Result<Rc<dyn Script>>;

/// What a workload needs.
pub struct Plan {
    /// Threads.
    pub workers: u32,
    /// Most processes forked at once.
    pub children: u32,
    /// Pages of memory.
    pub pages: u32,
    /// Its script.
    pub script: Build,
}

/// A workload of table 5, or a micro-benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Create, stat and unlink of many small files; zero disk latency.
    Bonnie,
    /// Several configure scripts.
    Config,
    /// Directory lookups and renames.
    Dpunish,
    /// 32 finds that search file contents.
    Find,
    /// Modified Andrew Benchmark without its compile phase.
    Mab,
    /// A parallel make.
    Pmake,
    /// Long, contended transactions in phases.
    Pipeline,
    /// cxspinlocks in every mode, for the constants that the others do not exercise.
    Mixed,
}

impl Workload {
    /// The six of table 5, in the paper's order.
    pub const TABLE5: [Self; 6] =
        [Self::Bonnie, Self::Config, Self::Dpunish, Self::Find, Self::Mab, Self::Pmake];

    /// All.
    pub const ALL: [Self; 8] = [
        Self::Bonnie,
        Self::Config,
        Self::Dpunish,
        Self::Find,
        Self::Mab,
        Self::Pmake,
        Self::Pipeline,
        Self::Mixed,
    ];

    /// Its name in the paper's tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bonnie => "bonnie++",
            Self::Config => "config",
            Self::Dpunish => "dpunish",
            Self::Find => "find",
            Self::Mab => "mab",
            Self::Pmake => "pmake",
            Self::Pipeline => "pipeline",
            Self::Mixed => "mixed",
        }
    }

    /// The workload called `name`.
    ///
    /// # Errors
    /// No such workload; the message lists those that exist.
    pub fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|w| w.name() == name).ok_or_else(|| SimError::Unknown {
            kind: "workload",
            name: name.into(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }

    /// What it does, and how our script models it.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bonnie => {
                "32 threads, each in its own directory below /var/local: create, stat, unlink \
                 empty files; zero disk latency"
            }
            Self::Config => {
                "one script a processor: fork and exec of small tests, temporary files, a log, \
                 console output"
            }
            Self::Dpunish => {
                "two threads a processor: lookups and renames across 8 shared directories in memory"
            }
            Self::Find => {
                "32 threads, each over its own tree: list directories, open, read from disk and \
                 search files"
            }
            Self::Mab => "one instance a processor: make directories, copy, stat and read files",
            Self::Pmake => {
                "make -j (2 x processors) of 27 sources: stat, fork, exec, read headers, long user \
                 computation, write objects"
            }
            Self::Pipeline => {
                "4 threads a processor go through 8 phases of long transactions on data of the phase"
            }
            Self::Mixed => {
                "one thread a processor: optimistic, exclusive, crossing and I/O sections of 4 \
                 cxspinlocks"
            }
        }
    }

    /// Its plan on the machine of `cfg`.
    fn plan(self, cfg: &Config) -> Plan {
        match self {
            Self::Bonnie => bonnie::plan(cfg),
            Self::Config => config::plan(cfg),
            Self::Dpunish => dpunish::plan(cfg),
            Self::Find => find::plan(cfg),
            Self::Mab => mab::plan(cfg),
            Self::Pmake => pmake::plan(cfg),
            Self::Pipeline => pipeline::plan(cfg),
            Self::Mixed => mixed::plan(cfg),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// A parameter out of range, or whatever made the run's figures unusable.
    pub fn run(self, cfg: &Config) -> Result<Stats> {
        let mut cfg = cfg.clone();
        if self == Self::Bonnie {
            // "Run with 0ms of disk delay."
            cfg.disk_us = 0;
        }
        cfg.check()?;
        if matches!(self, Self::Pipeline | Self::Mixed) && cfg.kernel == KernelKind::Locks {
            return Err(SimError::Parameter {
                name: "kernel".into(),
                value: "locks".into(),
                reason: format!(
                    "{} uses transactions itself, and a kernel without any does not suspend them \
                     in interrupts; set kernel=ss or kernel=cx",
                    self.name()
                ),
            });
        }
        let plan = self.plan(&cfg);
        crate::kernel::system::run(&cfg, &plan)
    }
}

/// `n` items of a workload, scaled by the configuration; at least one.
fn scaled(cfg: &Config, n: u32) -> u32 {
    (u64::from(n) * u64::from(cfg.scale) / 100).clamp(1, u64::from(u32::MAX)) as u32
}

/// A thread's own stream of chance.
fn stream(seed: u64, n: u32) -> Rng {
    Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(n)))
}

/// Directories at boot, by path.
struct Tree<'a> {
    map: &'a Map,
    machine: &'a mut Machine,
    boot: BootObjects,
}

impl<'a> Tree<'a> {
    fn new(map: &'a Map, machine: &'a mut Machine) -> Self {
        Self { boot: BootObjects::new(map), map, machine }
    }

    /// Makes `name` in `parent` with `pages` pages of content on disk.
    fn make(&mut self, parent: Addr, name: u32, pages: u32) -> Result<Addr> {
        self.map.make(self.machine, &mut self.boot, parent, name, pages)
    }
}
