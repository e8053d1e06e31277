//! bonnie++ -d /var/local -n 1, 32 instances: files are created in order, listed, and looked at and
//! removed at random.
//!
//! Every call walks /var/local, so all threads count references to the same two directories up and
//! down; the paper finds its pathology there (dput, section 7.2). Each makes its files in a directory of its
//! own, as bonnie++ does, unless `bonnie_dirs` makes them share.

use std::rc::Rc;

use super::{Plan, Script, Tree, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;

const INSTANCES: u32 = 32;
const VAR: u32 = 1;
const LOCAL: u32 = 2;
const OWN: u32 = 100;
const FILES: u32 = 10_000;

/// Names kept apart for each instance; above what the largest scale asks for.
const EACH: u32 = 10_000;

struct Bonnie {
    files: u32,
    dirs: u32,
    seed: u64,
}

pub(super) fn plan(_: &Config) -> Plan {
    Plan { workers: INSTANCES, children: 0, pages: 4096, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let mut tree = Tree::new(map, machine);
    let var = tree.make(map.root, VAR, 0)?;
    let local = tree.make(var, LOCAL, 0)?;
    for n in 0..cfg.bonnie_dirs {
        tree.make(local, OWN + n, 0)?;
    }
    Ok(Rc::new(Bonnie { files: scaled(cfg, 64), dirs: cfg.bonnie_dirs, seed: cfg.workload_seed }))
}

impl Bonnie {
    async fn round(&self, k: &K, dir: &[u32; 3], first: u32, order: &[u32]) {
        for f in 0..self.files {
            if let Some(file) = k.create(dir, first + f).await {
                k.close(file).await;
            }
            k.user(1_500).await;
        }
        for f in order {
            k.stat(&[dir[0], dir[1], dir[2], first + f]).await;
            k.user(1_000).await;
        }
        k.list(dir).await;
        for f in order {
            k.unlink(dir, first + f).await;
            k.user(1_000).await;
        }
    }
}

impl Script for Bonnie {
    fn worker<'a>(&'a self, k: &'a K, n: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, n);
            let dir = [VAR, LOCAL, OWN + n % self.dirs];
            let mut order: Vec<u32> = (0..self.files).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i as u32 + 1) as usize);
            }
            self.round(k, &dir, FILES + n * EACH, &order).await;
            k.gettimeofday().await;
        })
    }
}
