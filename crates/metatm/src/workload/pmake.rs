//! make -j (2 x processors): 27 sources are compiled by children; most time is user code.

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

const SRC: u32 = 1;
const OBJ: u32 = 2;
const BIN: u32 = 3;
const INCLUDE: u32 = 4;
const CC: u32 = 20;
const NR_HEADERS: u32 = 10;
const SOURCES: u32 = 27;

struct Pmake {
    passes: u32,
    jobs: u32,
    seed: u64,
    cc: Addr,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    let jobs = 2 * cfg.cpus as u32;
    Plan { workers: 1, children: jobs + 4, pages: 16_384, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let src = tree.make(map.root, SRC, 0)?;
    tree.make(map.root, OBJ, 0)?;
    let bin = tree.make(map.root, BIN, 0)?;
    let include = tree.make(map.root, INCLUDE, 0)?;
    let cc = tree.make(bin, CC, 8)?;
    for h in 0..NR_HEADERS {
        tree.make(include, 100 + h, 2)?;
    }
    for f in 0..SOURCES {
        tree.make(src, 200 + f, 2)?;
    }
    Ok(Rc::new(Pmake {
        passes: scaled(cfg, 3),
        jobs: 2 * cfg.cpus as u32,
        seed: cfg.workload_seed,
        cc,
    }))
}

impl Script for Pmake {
    fn worker<'a>(&'a self, k: &'a K, _: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut running = 0;
            for n in 0..self.passes * SOURCES {
                k.stat(&[SRC, 200 + n % SOURCES]).await;
                k.stat(&[OBJ, 10_000 + n]).await;
                k.user(1_000).await;
                if running == self.jobs {
                    k.wait().await;
                    running -= 1;
                }
                let role = Role::Child { parent: k.current(), n };
                while !k.fork(role).await {
                    k.wait().await;
                    running -= 1;
                }
                running += 1;
                k.syscall(async || k.tty_write().await).await;
            }
            for _ in 0..running {
                k.wait().await;
            }
            for n in 0..self.passes * SOURCES {
                k.unlink(&[OBJ], 10_000 + n).await;
            }
        })
    }

    fn child<'a>(&'a self, k: &'a K, n: u32, p: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            let inode = k.d_inode(self.cc).await;
            k.exec(p, inode).await;
            if let Some(f) = k.open(&[SRC, 200 + n % SOURCES]).await {
                k.read(f, 2, true).await;
                k.close(f).await;
            }
            for _ in 0..8 {
                if let Some(f) = k.open(&[INCLUDE, 100 + rng.below(NR_HEADERS)]).await {
                    k.read(f, 2, true).await;
                    k.close(f).await;
                }
                for _ in 0..2 {
                    k.user(20_000 + rng.below(20_000)).await;
                    k.fault(p).await;
                }
            }
            if let Some(f) = k.create(&[OBJ], 10_000 + n).await {
                k.write(f, 2).await;
                k.close(f).await;
            }
        })
    }
}
