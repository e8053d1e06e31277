//! Read-copy-update (kernel/rcupdate.c): an object is freed when every processor has been through
//! a quiescent state since it was unlinked.
//!
//! Each processor has a list of new callbacks and one that waits for a batch. A tick in user code,
//! in the idle thread, or after a context switch is quiescent; lookups hold no lock at all.

use super::map::{Slab, dentry};
use super::region::K;
use super::site::Site;
use crate::mem::Addr;

const CURRENT: u32 = 64;
const COMPLETED: u32 = 68;
const MASK: u32 = 72;
const PENDING: u32 = 76;
const NEW: u32 = 0;
const WAITING: u32 = 4;
const BATCH: u32 = 8;
const SEEN: u32 = 12;
const PASSED: u32 = 16;

impl K {
    /// Frees the directory entry `d` (not its inode) after a grace period.
    pub async fn call_rcu(&self, d: Addr) {
        let was = self.irq_flag(false).await;
        let mine = self.map.rcu_cpus[self.cpu()];
        let first = self.load(mine + NEW).await;
        self.store(d + dentry::RCU_NEXT, first).await;
        self.store(mine + NEW, d).await;
        self.irq_flag(was).await;
    }

    /// A context switch is a quiescent state.
    pub(super) async fn rcu_switch(&self) {
        self.store(self.map.rcu_cpus[self.cpu()] + PASSED, 1).await;
    }

    /// The tick's part: reports quiescence, frees what is due, asks for a new batch. `quiescent`:
    /// the tick came while no lookup could be under way here.
    pub(super) async fn rcu_tick(&self, quiescent: bool) {
        let _code = self.code(56, 8);
        let (rcu, cpu) = (self.map.rcu, self.cpu());
        let (mine, bit) = (self.map.rcu_cpus[cpu], 1u32 << cpu);
        let current = self.load(rcu + CURRENT).await;
        if self.load(mine + SEEN).await != current {
            // A new batch: what was passed before it does not count.
            self.store(mine + SEEN, current).await;
            self.store(mine + PASSED, 0).await;
        }
        let passed = quiescent || self.load(mine + PASSED).await != 0;
        if passed && self.load(rcu + MASK).await & bit != 0 {
            self.section(Site::RcuQuiet, rcu, async || {
                let mask = self.load(rcu + MASK).await & !bit;
                self.store(rcu + MASK, mask).await;
                if mask == 0 {
                    let current = self.load(rcu + CURRENT).await;
                    self.store(rcu + COMPLETED, current).await;
                    if self.load(rcu + PENDING).await != 0 {
                        self.start_batch().await;
                    }
                }
            })
            .await;
        }
        let waiting = self.load(mine + WAITING).await;
        if waiting != 0 {
            let done = self.load(rcu + COMPLETED).await;
            if done.wrapping_sub(self.load(mine + BATCH).await) as i32 >= 0 {
                self.store(mine + WAITING, 0).await;
                self.free_list(waiting, self.map.dentries).await;
            }
        }
        let new = self.load(mine + NEW).await;
        if self.load(mine + WAITING).await == 0 && new != 0 {
            self.store(mine + NEW, 0).await;
            self.store(mine + WAITING, new).await;
            let batch = self
                .section(Site::RcuStart, rcu, async || {
                    let current = self.load(rcu + CURRENT).await;
                    if self.load(rcu + MASK).await == 0 {
                        self.start_batch().await;
                    } else {
                        // One is under way already: wait for the one after it.
                        self.store(rcu + PENDING, 1).await;
                    }
                    let running = self.load(rcu + MASK).await != 0;
                    let now = self.load(rcu + CURRENT).await;
                    if running && now == current { current + 1 } else { now }
                })
                .await;
            self.store(mine + BATCH, batch).await;
        }
    }

    async fn start_batch(&self) {
        let rcu = self.map.rcu;
        let current = self.load(rcu + CURRENT).await;
        self.store(rcu + CURRENT, current + 1).await;
        self.store(rcu + PENDING, 0).await;
        let all = if self.map.cpus == 32 { u32::MAX } else { (1 << self.map.cpus) - 1 };
        self.store(rcu + MASK, all).await;
    }

    async fn free_list(&self, mut d: Addr, cache: Slab) {
        while d != 0 {
            let next = self.load(d + dentry::RCU_NEXT).await;
            self.kmem_free(cache, d).await;
            d = next;
        }
    }
}
