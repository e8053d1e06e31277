//! 32 finds, each over its own directory tree: list, open, read from disk, search the text.

use std::rc::Rc;

use super::{Plan, Script, Tree, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;

const INSTANCES: u32 = 32;
const SRC: u32 = 1;
const OWN: u32 = 100;
const DIRS: u32 = 3;
const FILES: u32 = 5;

struct Find {
    passes: u32,
    seed: u64,
}

pub(super) fn plan(_: &Config) -> Plan {
    Plan { workers: INSTANCES, children: 0, pages: 4096, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let src = tree.make(map.root, SRC, 0)?;
    for n in 0..INSTANCES {
        let own = tree.make(src, OWN + n, 0)?;
        for d in 0..DIRS {
            let dir = tree.make(own, 200 + d, 0)?;
            for f in 0..FILES {
                tree.make(dir, 300 + f, 1 + (n + d + f) % 4)?;
            }
        }
    }
    Ok(Rc::new(Find { passes: scaled(cfg, 8), seed: cfg.workload_seed }))
}

impl Script for Find {
    fn worker<'a>(&'a self, k: &'a K, n: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            for _ in 0..self.passes {
                for d in 0..DIRS {
                    let dir = [SRC, OWN + n, 200 + d];
                    k.list(&dir).await;
                    for f in 0..FILES {
                        let path = [SRC, OWN + n, 200 + d, 300 + f];
                        k.stat(&path).await;
                        let Some(file) = k.open(&path).await else { continue };
                        // Cold files come from disk in the first pass, then from the cache.
                        k.read(file, 1 + (n + d + f) % 4, f == 0).await;
                        k.user(3_000 + rng.below(2_000)).await;
                        k.close(file).await;
                    }
                }
            }
            k.syscall(async || k.net_send().await).await;
        })
    }
}
