//! Modified Andrew Benchmark without its compile phase, one instance a processor: create files,
//! copy, stat recursively, read everything; then remove the copies.

use std::rc::Rc;

use super::{Plan, Script, Tree, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;

const SRC: u32 = 1;
const TMP: u32 = 2;
const OWN: u32 = 100;
const SOURCES: u32 = 14;
const COPY: u32 = 10_000;

/// Every so many-th source is not cached.
const COLD: u32 = 5;

struct Mab {
    rounds: u32,
    seed: u64,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    Plan { workers: cfg.cpus as u32, children: 0, pages: 8192, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let src = tree.make(map.root, SRC, 0)?;
    let tmp = tree.make(map.root, TMP, 0)?;
    for n in 0..cfg.cpus as u32 {
        tree.make(tmp, OWN + n, 0)?;
        let own = tree.make(src, OWN + n, 0)?;
        for f in 0..SOURCES {
            tree.make(own, 200 + f, 1 + f % 3)?;
        }
    }
    Ok(Rc::new(Mab { rounds: scaled(cfg, 4), seed: cfg.workload_seed }))
}

impl Mab {
    async fn round(&self, k: &K, n: u32, p: &mut Process, rng: &mut crate::rng::Rng) {
        let dir = [TMP, OWN + n];
        for f in 0..SOURCES {
            let pages = 1 + f % 3;
            let Some(from) = k.open(&[SRC, OWN + n, 200 + f]).await else { continue };
            // Most sources are still cached from the run before; some come from disk.
            k.read(from, pages, f % COLD == 0).await;
            if let Some(to) = k.create(&dir, COPY + f).await {
                k.write(to, pages).await;
                k.close(to).await;
            }
            k.close(from).await;
            k.user(3_000 + rng.below(1_000)).await;
        }
        for f in 0..SOURCES {
            k.stat(&[TMP, OWN + n, COPY + f]).await;
            k.user(1_000).await;
        }
        k.list(&dir).await;
        k.fault(p).await;
        for f in 0..SOURCES {
            if let Some(file) = k.open(&[TMP, OWN + n, COPY + f]).await {
                k.read(file, 1 + f % 3, false).await;
                k.close(file).await;
            }
            k.user(4_000).await;
        }
        for f in 0..SOURCES {
            k.unlink(&dir, COPY + f).await;
        }
        k.gettimeofday().await;
        k.syscall(async || k.tty_write().await).await;
    }
}

impl Script for Mab {
    fn worker<'a>(&'a self, k: &'a K, n: u32, p: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            for _ in 0..self.rounds {
                self.round(k, n, p, &mut rng).await;
            }
        })
    }
}
