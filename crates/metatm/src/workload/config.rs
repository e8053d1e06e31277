//! Parallel configure scripts, one a processor: each test writes a small program, forks a compiler
//! for it, looks at the result, cleans up and says so on the console and in a log.

use std::rc::Rc;

use super::{Plan, Script, Tree, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::kernel::system::Role;
use crate::machine::Machine;
use crate::mem::Addr;

const USR: u32 = 1;
const BIN: u32 = 2;
const INCLUDE: u32 = 3;
const HOME: u32 = 4;
const CC: u32 = 20;
const HEADERS: u32 = 30;
const NR_HEADERS: u32 = 12;
const OWN: u32 = 100;
const SOURCE: u32 = 10_000;
const OBJECT: u32 = 10_001;

struct Configure {
    tests: u32,
    seed: u64,
    cc: Addr,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    let n = cfg.cpus as u32;
    Plan { workers: n, children: n + 4, pages: 8192, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let usr = tree.make(map.root, USR, 0)?;
    let bin = tree.make(usr, BIN, 0)?;
    let include = tree.make(usr, INCLUDE, 0)?;
    let home = tree.make(map.root, HOME, 0)?;
    let cc = tree.make(bin, CC, 8)?;
    for h in 0..NR_HEADERS {
        tree.make(include, HEADERS + h, 2)?;
    }
    for n in 0..cfg.cpus as u32 {
        tree.make(home, OWN + n, 0)?;
    }
    Ok(Rc::new(Configure { tests: scaled(cfg, 10), seed: cfg.workload_seed, cc }))
}

impl Script for Configure {
    fn worker<'a>(&'a self, k: &'a K, n: u32, p: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            let dir = [HOME, OWN + n];
            for test in 0..self.tests {
                k.user(4_000 + rng.below(4_000)).await;
                k.fault(p).await;
                if let Some(f) = k.create(&dir, SOURCE).await {
                    k.write(f, 1).await;
                    k.close(f).await;
                }
                let parent = k.current();
                let role = Role::Child { parent, n: n * 1000 + test };
                while !k.fork(role).await {
                    k.user(2_000).await;
                }
                k.wait().await;
                k.stat(&[HOME, OWN + n, OBJECT]).await;
                k.unlink(&dir, OBJECT).await;
                k.unlink(&dir, SOURCE).await;
                k.syscall(async || k.tty_write().await).await;
                k.gettimeofday().await;
            }
        })
    }

    fn child<'a>(&'a self, k: &'a K, n: u32, p: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed ^ 77, n);
            let owner = n / 1000;
            let inode = k.d_inode(self.cc).await;
            k.exec(p, inode).await;
            for _ in 0..3 {
                let header = HEADERS + rng.below(NR_HEADERS);
                if let Some(f) = k.open(&[USR, INCLUDE, header]).await {
                    k.read(f, 2, true).await;
                    k.close(f).await;
                }
                k.user(6_000 + rng.below(6_000)).await;
                k.fault(p).await;
            }
            if let Some(f) = k.create(&[HOME, OWN + owner], OBJECT).await {
                k.write(f, 1).await;
                k.close(f).await;
            }
        })
    }
}
