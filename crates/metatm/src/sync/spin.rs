//! Spinlocks as in Linux 2.6 on x86: a locked decrement, and a loop on the cached value.
//!
//! Uncontended: 3 instructions with 2 memory references; contended: 9 instructions besides the
//! waiting (paper, section 7.4). The word is 1 when free, so a cxspinlock is laid out the same.

use super::cx::{FREE, Irq};
use crate::guest::Cx;
use crate::mem::Addr;

impl Cx {
    /// `spin_lock`.
    pub async fn spin_lock(&self, lock: Addr) {
        let start = self.host(|m| m.now());
        let mut retries = 0;
        while self.fetch_add(lock, 1u32.wrapping_neg()).await != FREE {
            retries += 1;
            self.host(|m| m.thread().waits = Some(("spins on", lock)));
            self.alu(1).await; // sign taken
            loop {
                let v = self.load(lock).await;
                self.alu(2).await; // pause, branch
                if v as i32 > 0 {
                    let pause = self.host(|m| match m.cfg.spin_backoff {
                        0 => 0,
                        most => m.rng.below(most),
                    });
                    if pause == 0 {
                        break;
                    }
                    self.alu(pause).await;
                    if self.load(lock).await as i32 > 0 {
                        break;
                    }
                }
                self.host(|m| m.stats.tests += 1);
            }
            self.alu(1).await; // jump back
        }
        self.alu(1).await; // sign not taken
        self.ret().await;
        self.host(|m| {
            let end = m.now();
            m.acquired(start, end, retries);
            let t = m.thread();
            t.waits = None;
            t.preempt += 1;
        });
    }

    /// `spin_unlock`: one store, inlined.
    pub async fn spin_unlock(&self, lock: Addr) {
        self.store(lock, FREE).await;
        self.host(|m| m.thread().preempt -= 1);
    }

    /// `spin_lock_irqsave` (for [`Irq::Disable`]); what [`Self::spin_unlock_irq`] restores.
    pub async fn spin_lock_irq(&self, lock: Addr, irq: Irq) -> Option<bool> {
        let was = match irq {
            Irq::Leave => None,
            Irq::Disable => Some(self.irq_flag(false).await),
        };
        self.spin_lock(lock).await;
        was
    }

    /// The inverse of [`Self::spin_lock_irq`].
    pub async fn spin_unlock_irq(&self, lock: Addr, was: Option<bool>) {
        self.spin_unlock(lock).await;
        if let Some(was) = was {
            self.irq_flag(was).await;
        }
    }
}
