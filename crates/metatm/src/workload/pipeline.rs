//! pipeline: 4 threads a processor work through 8 phases; the data of a phase is its own.
//!
//! Threads in one phase conflict almost always, threads in different phases hardly ever. The
//! transactions run in user code, so a tick can suspend one and the scheduler can put another
//! thread in its place.

use std::rc::Rc;

use super::{Plan, Script, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;
use crate::mem::Addr;
use crate::stats::Mode;

const PHASES: u32 = 8;

/// Words of a phase's data; each on a line of its own.
const WORDS: u32 = 24;

/// Words that a transaction reads, and of which it increments every second.
const TOUCHED: u32 = 12;

struct Pipeline {
    rounds: u32,
    threads: u32,
    seed: u64,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    Plan { workers: 4 * cfg.cpus as u32, children: 0, pages: 1024, script: build }
}

fn build(_: &Map, _: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let threads = 4 * cfg.cpus as u32;
    Ok(Rc::new(Pipeline { rounds: scaled(cfg, 60), threads, seed: cfg.workload_seed }))
}

fn word(map: &Map, phase: u32, n: u32) -> Addr {
    map.scratch + 64 * (phase * WORDS + n % WORDS)
}

impl Script for Pipeline {
    fn worker<'a>(&'a self, k: &'a K, n: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            k.mode(Mode::User);
            for phase in 0..PHASES {
                for _ in 0..self.rounds {
                    let first = rng.below(WORDS);
                    k.atomic(async || {
                        for i in 0..TOUCHED {
                            let a = word(&k.map, phase, first + i);
                            let v = k.load(a).await;
                            k.alu(150).await;
                            if i % 2 == 0 {
                                k.store(a, v + 1).await;
                            }
                        }
                    })
                    .await;
                    k.user(600).await;
                }
            }
        })
    }

    fn audit(&self, map: &Map, m: &Machine) -> std::result::Result<(), String> {
        for phase in 0..PHASES {
            let sum: u32 = (0..WORDS).map(|i| m.mem.get(word(map, phase, i))).sum();
            let wanted = self.threads * self.rounds * TOUCHED / 2;
            if sum != wanted {
                return Err(format!("increments in phase {phase}: {sum}, not {wanted}"));
            }
        }
        Ok(())
    }
}
