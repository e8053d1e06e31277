//! dpunish: lookups and renames across several directories in memory, as fast as they go.

use std::rc::Rc;

use super::{Plan, Script, Tree, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;

const MNT: u32 = 1;
const DIRS: u32 = 8;
const OWN: u32 = 10_000;
const STATIC: u32 = 500;
const NR_STATIC: u32 = 6;

struct Dpunish {
    rounds: u32,
    seed: u64,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    Plan { workers: 2 * cfg.cpus as u32, children: 0, pages: 2048, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let mnt = tree.make(map.root, MNT, 0)?;
    for d in 0..DIRS {
        let dir = tree.make(mnt, 10 + d, 0)?;
        for f in 0..NR_STATIC {
            tree.make(dir, STATIC + f, 0)?;
        }
    }
    Ok(Rc::new(Dpunish { rounds: scaled(cfg, 24), seed: cfg.workload_seed }))
}

impl Script for Dpunish {
    fn worker<'a>(&'a self, k: &'a K, n: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            let mut at = rng.below(DIRS);
            let name = OWN + n;
            if let Some(f) = k.create(&[MNT, 10 + at], name).await {
                k.close(f).await;
            }
            for _ in 0..self.rounds {
                for _ in 0..6 {
                    let d = rng.below(DIRS);
                    k.stat(&[MNT, 10 + d, STATIC + rng.below(NR_STATIC)]).await;
                    k.user(300).await;
                }
                let to = rng.below(DIRS);
                if to != at && k.rename((&[MNT, 10 + at], name), (&[MNT, 10 + to], name)).await {
                    at = to;
                }
                k.user(300).await;
            }
            k.unlink(&[MNT, 10 + at], name).await;
        })
    }

    fn audit(&self, map: &Map, m: &Machine) -> std::result::Result<(), String> {
        match m.mem.get(map.dcache_lru + 12) {
            0 => Ok(()),
            n => Err(format!("{n} renamed files were lost: their threads could not unlink them")),
        }
    }
}
