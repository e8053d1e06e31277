//! Reader-writer spinlocks as in Linux 2.6 on x86: a biased counter.
//!
//! The word is `BIAS` when free; each reader takes 1, a writer takes all of it.

use crate::guest::Cx;
use crate::mem::Addr;

/// Value of a free lock; more readers than this at once are impossible.
pub const BIAS: u32 = 0x0100_0000;

impl Cx {
    /// `read_lock`.
    pub async fn read_lock(&self, lock: Addr) {
        self.take(lock, 1, |v| v as i32 > 0).await;
    }

    /// `read_unlock`.
    pub async fn read_unlock(&self, lock: Addr) {
        self.fetch_add(lock, 1).await;
        self.host(|m| m.thread().preempt -= 1);
    }

    /// `write_lock`.
    pub async fn write_lock(&self, lock: Addr) {
        self.take(lock, BIAS, |v| v == BIAS).await;
    }

    /// `write_unlock`.
    pub async fn write_unlock(&self, lock: Addr) {
        self.fetch_add(lock, BIAS).await;
        self.host(|m| m.thread().preempt -= 1);
    }

    async fn take(&self, lock: Addr, share: u32, free: impl Fn(u32) -> bool) {
        let start = self.host(|m| m.now());
        let mut retries = 0;
        loop {
            let old = self.fetch_add(lock, share.wrapping_neg()).await;
            if free(old) {
                break;
            }
            retries += 1;
            self.fetch_add(lock, share).await;
            self.host(|m| m.thread().waits = Some(("spins on rwlock", lock)));
            while !free(self.load(lock).await) {
                self.alu(2).await;
                self.host(|m| m.stats.tests += 1);
            }
        }
        self.alu(1).await;
        self.ret().await;
        self.host(|m| {
            let end = m.now();
            m.acquired(start, end, retries);
            let t = m.thread();
            t.waits = None;
            t.preempt += 1;
        });
    }
}
