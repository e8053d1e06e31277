//! The O(1) scheduler of Linux 2.6: two arrays of 140 lists with a bitmap, per processor.
//!
//! Invariants (checked by `audit`):
//! 1. A runnable task other than an idle one is in exactly one list of the run queue of its
//!    processor, the running one included; a sleeping one is in none.
//! 2. `NR` is the number of tasks in both arrays; bit p of a bitmap is set if list p is not empty.
//! 3. The run queue's lock is taken by the thread that leaves and released by the one that comes,
//!    which is why no kernel can turn it into a transaction (paper, section 5.1).
//!
//! The kernel is not preemptible: a switch happens in `schedule`, called by a thread that blocks,
//! by the idle thread, or when an interrupt returns to user code.

use super::map::{rq, task};
use super::prio::{LEVELS, NORMAL, conflict_priority};
use super::region::K;
use super::site::{Class, Treat};
use crate::config::SchedKind;
use crate::mem::Addr;
use crate::sync::cx::{FREE, Irq};

/// Most interactivity credit.
pub const CREDIT: u32 = 1000;

impl K {
    /// The task structure of the running thread.
    pub fn current(&self) -> Addr {
        self.map.task(self.id())
    }

    /// The run queue of this processor.
    pub(super) fn rq(&self) -> Addr {
        self.map.rqs[self.cpu()]
    }

    /// True for idle threads.
    pub(super) fn is_idle(&self, thread: usize) -> bool {
        thread < self.map.cpus
    }

    /// Simulated microseconds since boot, modulo 2^32.
    pub(super) fn micros(&self) -> u32 {
        self.host(|m| (m.now() / u64::from(m.cfg.cycles_per_us)) as u32)
    }

    /// Takes a run queue's lock, interrupts being off; another thread may release it.
    pub(super) async fn rq_lock(&self, rq: Addr) {
        if Class::RunQueue.treat(self.map.kernel) == Treat::Exclusive {
            self.cx_exclusive(rq, Irq::Leave).await;
            self.host(|m| m.thread().cx.pop());
        } else {
            self.spin_lock(rq).await;
        }
        self.host(|m| m.thread().preempt -= 1);
    }

    /// Releases a run queue's lock.
    pub(super) async fn rq_unlock(&self, rq: Addr) {
        self.store(rq + rq::LOCK, FREE).await;
    }

    /// Queues `task` in `array` of `rq`.
    pub(super) async fn enqueue(&self, rq: Addr, array: Addr, task: Addr) {
        let prio = self.load(task + task::PRIO).await;
        self.list_add_tail(array + rq::HEADS + 8 * prio, task + task::LINK).await;
        let word = array + rq::BITMAP + prio / 32 * 4;
        let bits = self.load(word).await;
        self.store(word, bits | 1 << (prio % 32)).await;
        let n = self.load(array).await;
        self.store(array, n + 1).await;
        self.store(task + task::ARRAY, array).await;
        let nr = self.load(rq + rq::NR).await;
        self.store(rq + rq::NR, nr + 1).await;
    }

    /// Takes `task` out of the array of `rq` in which it is queued.
    pub(super) async fn dequeue(&self, rq: Addr, task: Addr) {
        let array = self.load(task + task::ARRAY).await;
        let prio = self.load(task + task::PRIO).await;
        self.list_del(task + task::LINK).await;
        let head = array + rq::HEADS + 8 * prio;
        if self.load(head).await == head {
            let word = array + rq::BITMAP + prio / 32 * 4;
            let bits = self.load(word).await;
            self.store(word, bits & !(1 << (prio % 32))).await;
        }
        let n = self.load(array).await;
        self.store(array, n - 1).await;
        self.store(task + task::ARRAY, 0).await;
        let nr = self.load(rq + rq::NR).await;
        self.store(rq + rq::NR, nr - 1).await;
    }

    /// First task of the best list of `array`, 0 if it is empty.
    pub(super) async fn first(&self, array: Addr) -> Addr {
        for i in 0..LEVELS.div_ceil(32) {
            let bits = self.load(array + rq::BITMAP + 4 * i).await;
            self.alu(2).await;
            if bits != 0 {
                let prio = 32 * i + bits.trailing_zeros();
                return self.load(array + rq::HEADS + 8 * prio).await - task::LINK;
            }
        }
        0
    }

    /// The task to run next on `rq`, 0 if there is none.
    async fn pick(&self, rq: Addr) -> Addr {
        let active = self.load(rq + rq::ACTIVE).await;
        if self.load(active).await > 0 {
            return self.first(active).await;
        }
        let expired = self.load(rq + rq::EXPIRED).await;
        if self.load(expired).await == 0 {
            return 0;
        }
        self.store(rq + rq::ACTIVE, expired).await;
        self.store(rq + rq::EXPIRED, active).await;
        self.first(expired).await
    }

    /// Gives the processor away; returns when this thread gets one again.
    pub async fn schedule(&self) {
        let _code = self.code(8, 16);
        if self.host(|m| m.thread().preempt) != 0 {
            self.host(|m| m.fault("scheduling while holding a lock"));
        }
        let was = self.irq_flag(false).await;
        let (start, me, id) = (self.host(|m| m.now()), self.current(), self.id());
        let mut rq = self.rq();
        self.rcu_switch().await;
        self.rq_lock(rq).await;
        self.store(me + task::RESCHED, 0).await;
        if !self.is_idle(id) && self.load(me + task::STATE).await != 0 {
            self.store(me + task::SLEPT, self.micros()).await;
            if self.load(me + task::ARRAY).await != 0 {
                self.dequeue(rq, me).await;
            }
        }
        if self.load(rq + rq::NR).await == 0 {
            self.rq_unlock(rq).await;
            self.pull().await;
            self.rq_lock(rq).await;
        }
        let mut next = self.pick(rq).await;
        if next == 0 {
            next = self.map.task(self.cpu());
        }
        if next != me {
            if self.map.sched == SchedKind::Aware {
                self.profile(me).await;
            }
            self.store(rq + rq::CURR, next).await;
            let to = self.map.thread_of(next);
            let prio = if self.is_idle(to) {
                0
            } else {
                conflict_priority(self.load(next + task::PRIO).await)
            };
            self.host(|m| m.set_prio(to, prio));
            self.map.switching(self.cpu(), start);
            self.switch_to(to).await;
            // Perhaps on another processor now.
            rq = self.rq();
        }
        self.switched(rq).await;
        self.irq_flag(was).await;
    }

    /// The second half of a switch, on the stack of the thread that came.
    pub(super) async fn switched(&self, rq: Addr) {
        self.rq_unlock(rq).await;
        let now = self.host(|m| m.now());
        self.map.switch_done(self.cpu(), now);
    }

    /// Wakes `task` if it sleeps.
    pub async fn wake(&self, task: Addr) {
        let _code = self.code(24, 8);
        let was = self.irq_flag(false).await;
        let (mut cpu, mut rq);
        loop {
            cpu = self.load(task + task::CPU).await as usize;
            rq = self.map.rqs[cpu];
            self.rq_lock(rq).await;
            if self.load(task + task::CPU).await as usize == cpu {
                break;
            }
            self.rq_unlock(rq).await;
        }
        if self.load(task + task::STATE).await == 1 {
            self.store(task + task::STATE, 0).await;
            if self.load(task + task::ARRAY).await == 0 {
                self.credit(task).await;
                let target = self.place(task, cpu, rq).await;
                if target != cpu {
                    self.store(task + task::CPU, target as u32).await;
                    self.rq_unlock(rq).await;
                    (cpu, rq) = (target, self.map.rqs[target]);
                    self.rq_lock(rq).await;
                }
                let active = self.load(rq + rq::ACTIVE).await;
                self.enqueue(rq, active, task).await;
                self.kick(cpu, rq, task).await;
            }
        }
        self.rq_unlock(rq).await;
        self.irq_flag(was).await;
    }

    /// The processor for a waking task: its own unless that is busy and another is idle.
    async fn place(&self, task: Addr, cpu: usize, rq: Addr) -> usize {
        let curr = self.load(rq + rq::CURR).await;
        if curr == task || self.is_idle(self.map.thread_of(curr)) {
            return cpu;
        }
        let idle = self.load(self.map.idle_mask).await;
        self.alu(2).await;
        if idle == 0 { cpu } else { idle.trailing_zeros() as usize }
    }

    /// Makes the processor `cpu` look at its run queue if `task` is better than what it runs.
    async fn kick(&self, cpu: usize, rq: Addr, task: Addr) {
        let curr = self.load(rq + rq::CURR).await;
        let idle = self.is_idle(self.map.thread_of(curr));
        let better =
            idle || self.load(task + task::PRIO).await < self.load(curr + task::PRIO).await;
        if better {
            self.store(curr + task::RESCHED, 1).await;
            if cpu != self.cpu() {
                self.ipi(cpu).await;
            }
        }
    }

    /// Credits a waking task for its sleep and recomputes its priority.
    async fn credit(&self, task: Addr) {
        let slept = self.micros().wrapping_sub(self.load(task + task::SLEPT).await);
        let credit = self.load(task + task::SLEEP_AVG).await;
        self.store(task + task::SLEEP_AVG, (credit + slept / 32).min(CREDIT)).await;
        let prio = self.effective_prio(task).await;
        self.store(task + task::PRIO, prio).await;
    }

    /// Dynamic priority: up to 5 levels better or worse for interactivity (real time: none); the
    /// transaction-aware scheduler adds its own terms.
    pub(super) async fn effective_prio(&self, task: Addr) -> u32 {
        let fixed = self.load(task + task::STATIC).await;
        if fixed < NORMAL {
            return fixed;
        }
        let credit = self.load(task + task::SLEEP_AVG).await;
        self.alu(6).await;
        let mut prio = fixed as i32 + 5 - (credit / (CREDIT / 10)) as i32;
        if self.map.sched == SchedKind::Aware {
            prio += self.transactional_bonus(task).await;
        }
        prio.clamp(NORMAL as i32, LEVELS as i32 - 1) as u32
    }

    /// `scheduler_tick`: charges the running task, and ends its quantum.
    pub(super) async fn scheduler_tick(&self) {
        let me = self.current();
        let rq = self.rq();
        if self.is_idle(self.id()) {
            if self.load(rq + rq::NR).await > 0 {
                self.store(me + task::RESCHED, 1).await;
            }
            return;
        }
        if self.load(me + task::STATIC).await < NORMAL {
            return;
        }
        self.rq_lock(rq).await;
        let credit = self.load(me + task::SLEEP_AVG).await;
        self.store(me + task::SLEEP_AVG, credit.saturating_sub(20)).await;
        let slice = self.load(me + task::SLICE).await.saturating_sub(1);
        self.store(me + task::SLICE, slice).await;
        let queued = self.load(me + task::ARRAY).await != 0;
        if slice == 0 && queued {
            self.expire(rq, me).await;
        } else if queued && self.map.sched == SchedKind::Aware {
            self.reactive_tick(rq, me).await;
        }
        self.rq_unlock(rq).await;
    }

    /// Moves `me` to the expired array with a fresh quantum and priority.
    pub(super) async fn expire(&self, rq: Addr, me: Addr) {
        self.dequeue(rq, me).await;
        let prio = self.effective_prio(me).await;
        self.store(me + task::PRIO, prio).await;
        let quantum = self.host(|m| m.cfg.quantum);
        self.store(me + task::SLICE, quantum).await;
        let expired = self.load(rq + rq::EXPIRED).await;
        self.enqueue(rq, expired, me).await;
        self.store(me + task::RESCHED, 1).await;
    }

    /// Takes a task from the busiest other run queue, for a processor that has none.
    async fn pull(&self) {
        let cpu = self.cpu();
        let (mut most, mut from) = (1, cpu);
        for (i, rq) in self.map.rqs.iter().enumerate() {
            let nr = self.load(rq + rq::NR).await;
            if i != cpu && nr > most {
                (most, from) = (nr, i);
            }
        }
        if from == cpu {
            return;
        }
        let (mine, theirs) = (self.map.rqs[cpu], self.map.rqs[from]);
        self.rq_lock(mine.min(theirs)).await;
        self.rq_lock(mine.max(theirs)).await;
        let curr = self.load(theirs + rq::CURR).await;
        for array in [rq::EXPIRED, rq::ACTIVE] {
            let array = self.load(theirs + array).await;
            let task = self.first(array).await;
            if task != 0 && task != curr {
                self.dequeue(theirs, task).await;
                self.store(task + task::CPU, cpu as u32).await;
                let active = self.load(mine + rq::ACTIVE).await;
                self.enqueue(mine, active, task).await;
                break;
            }
        }
        self.rq_unlock(mine).await;
        self.rq_unlock(theirs).await;
    }

    /// The idle thread.
    pub(super) async fn idle(&self) {
        loop {
            self.irq_flag(false).await;
            let (cpu, rq, me) = (self.cpu(), self.rq(), self.current());
            let bit = 1u32 << cpu;
            self.set_idle(bit, true).await;
            let nr = self.load(rq + rq::NR).await;
            if nr == 0 && self.load(me + task::RESCHED).await == 0 {
                self.halt().await;
            }
            self.set_idle(bit, false).await;
            self.irq_flag(true).await;
            self.schedule().await;
        }
    }

    async fn set_idle(&self, bit: u32, on: bool) {
        let mut old = self.load(self.map.idle_mask).await;
        loop {
            let new = if on { old | bit } else { old & !bit };
            let seen = self.cas(self.map.idle_mask, old, new).await;
            if seen == old {
                return;
            }
            old = seen;
        }
    }
}
