//! Blocking: sleeping until woken, semaphores, parents that wait for children.
//!
//! A semaphore is a count, a first and a last waiter around the spinlock that guards them, and a
//! number of tokens. The fast paths only touch the count. An `up` that finds a negative count but
//! nobody in the list yet leaves a token for the one on its way.

use super::map::task;
use super::region::K;
use super::site::Site;
use crate::mem::Addr;

const FIRST: u32 = 4;
const LOCK: u32 = 8;
const LAST: u32 = 12;
const TOKENS: u32 = 16;

impl K {
    /// Sleeps until the word at `flag` is not 0; whoever sets it calls [`Self::wake`].
    pub async fn sleep_until(&self, flag: Addr, device: bool) {
        let me = self.current();
        loop {
            self.store(me + task::STATE, 1).await;
            if self.load(flag).await != 0 {
                break;
            }
            self.host(|m| m.thread().io_wait = device);
            self.schedule().await;
            self.host(|m| m.thread().io_wait = false);
        }
        self.store(me + task::STATE, 0).await;
    }

    /// Takes the semaphore at `sem`.
    pub async fn down(&self, sem: Addr) {
        if self.fetch_add(sem, 1u32.wrapping_neg()).await as i32 > 0 {
            return;
        }
        let me = self.current();
        let waits = self
            .section(Site::SemDown, sem + LOCK, async || {
                let tokens = self.load(sem + TOKENS).await;
                if tokens > 0 {
                    self.store(sem + TOKENS, tokens - 1).await;
                    return false;
                }
                self.store(me + task::WOKEN, 0).await;
                self.store(me + task::WAIT_NEXT, 0).await;
                let last = self.load(sem + LAST).await;
                let link = if last == 0 { sem + FIRST } else { last + task::WAIT_NEXT };
                self.store(link, me).await;
                self.store(sem + LAST, me).await;
                true
            })
            .await;
        if waits {
            self.sleep_until(me + task::WOKEN, false).await;
        }
    }

    /// Releases the semaphore at `sem`.
    pub async fn up(&self, sem: Addr) {
        if self.fetch_add(sem, 1).await as i32 >= 0 {
            return;
        }
        let first = self
            .section(Site::SemUp, sem + LOCK, async || {
                let first = self.load(sem + FIRST).await;
                if first == 0 {
                    let tokens = self.load(sem + TOKENS).await;
                    self.store(sem + TOKENS, tokens + 1).await;
                    return 0;
                }
                let next = self.load(first + task::WAIT_NEXT).await;
                self.store(sem + FIRST, next).await;
                if next == 0 {
                    self.store(sem + LAST, 0).await;
                }
                self.store(first + task::WOKEN, 1).await;
                first
            })
            .await;
        if first != 0 {
            self.wake(first).await;
        }
    }
}
