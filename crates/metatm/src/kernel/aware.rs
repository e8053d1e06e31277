//! The transaction-aware scheduler (paper, sections 6.3 and 6.4).
//!
//! Each thread has a profile of moving averages of its restarts and backoff cycles, fed from the
//! processor's counters, which are reset whenever they are read. It is used twice: for dynamic
//! priority, and to deschedule a thread that wastes its quantum if a better one waits.

use super::map::{rq, task};
use super::region::K;
use crate::mem::Addr;

/// Levels within which a replacement must lie (P).
const WITHIN: u32 = 5;

/// Restarts in an interval, as a multiple of the average, that make a thread a candidate (P).
const BURST: u32 = 3;

/// Fixed point of the restart average.
const ONE: u32 = 16;

impl K {
    /// A moving average that was `old` after one more `sample`.
    fn averaged(&self, old: u32, sample: u32) -> u32 {
        let weight = self.host(|m| u64::from(m.cfg.average));
        ((weight * u64::from(old) + u64::from(sample)) / (weight + 1)) as u32
    }

    /// Reads the processor's counters into the profile of `me`.
    pub(super) async fn profile(&self, me: Addr) {
        let (restarts, backoff) = self.hw_profile().await;
        let each = (backoff / u64::from(restarts.max(1))).min(1 << 24) as u32;
        let average = self.load(me + task::BACKOFF).await;
        self.store(me + task::BACKOFF, self.averaged(average, each)).await;
        self.store(me + task::LAST, restarts * ONE).await;
        let size = self.hw_tx_size().await;
        let average = self.load(me + task::TX_SIZE).await;
        self.store(me + task::TX_SIZE, self.averaged(average, size)).await;
        self.alu(8).await;
    }

    /// Levels to add to a thread's priority for its transactions: an active one is rewarded, else
    /// restarts are penalized and large sets rewarded.
    pub(super) async fn transactional_bonus(&self, task: Addr) -> i32 {
        let active = task == self.current() && self.hw_tx_size().await > 0;
        let restarts = self.load(task + task::RESTARTS).await;
        let size = self.load(task + task::TX_SIZE).await;
        self.alu(4).await;
        self.host(|m| {
            let c = &m.cfg;
            let reward = if active {
                return -(c.reward_active as i32);
            } else if size >= c.large {
                c.reward_large
            } else {
                0
            };
            (restarts / ONE).min(c.penalty) as i32 - reward as i32
        })
    }

    /// Part of `scheduler_tick`: gives the processor away if much of the quantum would be wasted.
    pub(super) async fn reactive_tick(&self, rq: Addr, me: Addr) {
        self.profile(me).await;
        let wasteful = self.wasteful(me).await;
        let last = self.load(me + task::LAST).await;
        let average = self.load(me + task::RESTARTS).await;
        self.store(me + task::RESTARTS, self.averaged(average, last)).await;
        if !wasteful || !self.replacement(rq, me).await {
            return;
        }
        self.host(|m| m.stats.descheduled += 1);
        self.store(me + task::BACKOFF, 0).await;
        self.store(me + task::LAST, 0).await;
        // Behind everyone who still has a quantum; its own is kept.
        self.dequeue(rq, me).await;
        let expired = self.load(rq + rq::EXPIRED).await;
        self.enqueue(rq, expired, me).await;
        self.store(me + task::RESCHED, 1).await;
    }

    /// True if `task` is likely to waste its next interval: its backoff costs more than a context
    /// switch, or it restarted at least three times as often as it does on average.
    async fn wasteful(&self, task: Addr) -> bool {
        let backoff = self.load(task + task::BACKOFF).await;
        let last = self.load(task + task::LAST).await;
        let average = self.load(task + task::RESTARTS).await;
        self.alu(4).await;
        u64::from(backoff) > self.map.switch_cost() || last > 0 && last >= BURST * average
    }

    /// True if the best waiting task is close enough in priority and not wasteful itself.
    async fn replacement(&self, rq: Addr, me: Addr) -> bool {
        let limit = self.load(me + task::PRIO).await + WITHIN;
        let active = self.load(rq + rq::ACTIVE).await;
        // `me` itself is in the active array; the candidate is the first of the others.
        for i in 0..super::prio::LEVELS.div_ceil(32) {
            let mut bits = self.load(active + rq::BITMAP + 4 * i).await;
            while bits != 0 {
                let prio = 32 * i + bits.trailing_zeros();
                bits &= bits - 1;
                if prio > limit {
                    return false;
                }
                let head = active + rq::HEADS + 8 * prio;
                let mut link = self.load(head).await;
                while link != head {
                    let task = link - task::LINK;
                    if task != me && !self.wasteful(task).await {
                        return true;
                    }
                    link = self.load(link).await;
                }
            }
        }
        false
    }
}
