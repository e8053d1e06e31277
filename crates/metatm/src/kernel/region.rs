//! Critical regions: one entry for the three kernels.
//!
//! `section(site, lock, body)` takes the lock, runs naked in a transaction, or uses a cxspinlock, as
//! the site's class and the configured kernel say; the body is written once. A body may run more
//! than once, so it keeps no state outside of simulated memory.

use std::ops::Deref;
use std::rc::Rc;

use super::map::Map;
use super::site::{Site, Treat};
use crate::guest::Cx;
use crate::machine::InRegion;
use crate::mem::Addr;
use crate::sync::cx::Irq;

/// Guest code's handle inside the kernel: instructions, and where things are.
#[derive(Clone)]
pub struct K {
    /// Instructions.
    pub cx: Cx,
    /// Addresses.
    pub map: Rc<Map>,
}

impl Deref for K {
    type Target = Cx;
    fn deref(&self) -> &Cx {
        &self.cx
    }
}

/// How the lock of a section is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Spin,
    Read,
    Write,
}

/// Counts a thread in a region.
struct Inside<'a> {
    k: &'a K,
    thread: usize,
    site: Site,
}

impl<'a> Inside<'a> {
    fn new(k: &'a K, site: Site) -> Self {
        let thread = k.id();
        k.host(|m| {
            let r = m.stats.region(site.id());
            r.inside += 1;
            r.most = r.most.max(r.inside);
            let t = &mut m.threads[thread];
            t.regions.push(InRegion { site: site.id(), frame: t.frame, io: false });
        });
        Self { k, thread, site }
    }

    /// True if I/O was done since it was entered.
    fn io(&self) -> bool {
        self.k.host(|m| m.threads[self.thread].regions.last().is_some_and(|r| r.io))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.k.host(|m| {
            m.stats.region(self.site.id()).inside -= 1;
            m.threads[self.thread].regions.pop();
        });
    }
}

impl K {
    /// Runs `body` in the critical region `site` under the spinlock `lock`.
    pub async fn section<R>(&self, site: Site, lock: Addr, body: impl AsyncFn() -> R) -> R {
        self.region(site, lock, Share::Spin, body).await
    }

    /// Runs `body` as a reader of the reader-writer lock `lock`.
    pub async fn read_section<R>(&self, site: Site, lock: Addr, body: impl AsyncFn() -> R) -> R {
        self.region(site, lock, Share::Read, body).await
    }

    /// Runs `body` as the writer of the reader-writer lock `lock`.
    pub async fn write_section<R>(&self, site: Site, lock: Addr, body: impl AsyncFn() -> R) -> R {
        self.region(site, lock, Share::Write, body).await
    }

    async fn region<R>(
        &self,
        site: Site,
        lock: Addr,
        share: Share,
        body: impl AsyncFn() -> R,
    ) -> R {
        let _code = self.code(site.code(), 8);
        let treat = site.class().treat(self.map.kernel);
        self.scope(async || {
            let was = self.enter(site, lock, treat, share).await;
            let inside = Inside::new(self, site);
            let r = body().await;
            let io = inside.io();
            drop(inside);
            let in_tx = self.host(|m| m.thread().tx.is_some());
            self.leave(lock, treat, share, was).await;
            self.host(|m| {
                let region = m.stats.region(site.id());
                region.entries += 1;
                region.tx_entries += u64::from(in_tx);
                region.io += u64::from(io);
            });
            r
        })
        .await
    }

    /// Disables interrupts if the site wants that; the flag to restore then.
    async fn irq_enter(&self, irq: Irq) -> Option<bool> {
        match irq {
            Irq::Leave => None,
            Irq::Disable => Some(self.irq_flag(false).await),
        }
    }

    async fn enter(&self, site: Site, lock: Addr, treat: Treat, share: Share) -> Option<bool> {
        let irq = site.irq();
        match treat {
            Treat::Lock => {
                let was = self.irq_enter(irq).await;
                match share {
                    Share::Spin => self.spin_lock(lock).await,
                    Share::Read => self.read_lock(lock).await,
                    Share::Write => self.write_lock(lock).await,
                }
                was
            }
            Treat::Transaction => {
                self.xbegin().await;
                self.irq_enter(irq).await
            }
            Treat::Optimistic => {
                if let Some(why) = self.cx_optimistic(lock, irq).await {
                    self.host(|m| m.stats.region(site.id()).exclusive[why.index()] += 1);
                }
                None
            }
            Treat::Exclusive => {
                self.cx_exclusive(lock, irq).await;
                None
            }
        }
    }

    async fn leave(&self, lock: Addr, treat: Treat, share: Share, was: Option<bool>) {
        match treat {
            Treat::Lock => match share {
                Share::Spin => self.spin_unlock(lock).await,
                Share::Read => self.read_unlock(lock).await,
                Share::Write => self.write_unlock(lock).await,
            },
            Treat::Transaction => self.xend().await,
            Treat::Optimistic | Treat::Exclusive => self.cx_end(lock).await,
        }
        if let Some(was) = was {
            self.irq_flag(was).await;
        }
    }

    /// The rest of a kernel path: about `n` instructions on the stack and in registers, scaled by
    /// the parameter `work`.
    pub async fn work(&self, n: u32) {
        let n = self.host(|m| (u64::from(n) * u64::from(m.cfg.work) / 100) as u32);
        let mut left = n;
        while left > 0 {
            let some = left.min(256);
            self.push().await;
            self.pop().await;
            self.alu(some.saturating_sub(2)).await;
            left -= some;
        }
    }

    /// Appends `node` to the circular list `head`; both are next and previous pointers.
    pub async fn list_add_tail(&self, head: Addr, node: Addr) {
        let prev = self.load(head + 4).await;
        self.store(node, head).await;
        self.store(node + 4, prev).await;
        self.store(prev, node).await;
        self.store(head + 4, node).await;
    }

    /// Puts `node` first in the circular list `head`.
    pub async fn list_add(&self, head: Addr, node: Addr) {
        let next = self.load(head).await;
        self.store(node, next).await;
        self.store(node + 4, head).await;
        self.store(next + 4, node).await;
        self.store(head, node).await;
    }

    /// Takes `node` out of its list.
    pub async fn list_del(&self, node: Addr) {
        let next = self.load(node).await;
        let prev = self.load(node + 4).await;
        self.store(prev, next).await;
        self.store(next + 4, prev).await;
    }
}
