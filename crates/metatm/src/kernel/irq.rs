//! Interrupt handlers. A TxLinux handler begins with `xpush` and ends with `xpop`, so that it can
//! use transactions without touching the interrupted one.

use super::map::task;
use super::region::K;
use crate::config::KernelKind;
use crate::machine::Vector;
use crate::stats::Mode;

impl K {
    /// Handles `vector`, and gives the processor away on the way back to user code if asked to.
    pub(super) async fn interrupt(&self, vector: Vector) {
        let push = self.map.kernel != KernelKind::Locks;
        if push {
            self.xpush().await;
        }
        let _code = self.code(164, 8);
        self.push().await;
        self.push().await;
        match vector {
            Vector::Timer => self.timer_interrupt().await,
            Vector::Disk => self.disk_interrupt().await,
            Vector::Net => self.net_interrupt().await,
            Vector::Resched => self.alu(10).await,
        }
        self.pop().await;
        self.pop().await;
        let from_user = self.host(|m| {
            let t = m.thread();
            t.mode == Mode::User && t.frame == 1
        });
        if from_user && self.load(self.current() + task::RESCHED).await != 0 {
            self.schedule().await;
        }
        if push {
            self.xpop().await;
        }
    }

    async fn timer_interrupt(&self) {
        let tick = self.host(|m| m.cfg.tick());
        self.work(600).await;
        self.raise_after(tick, Vector::Timer);
        if self.cpu() == 0 {
            self.clock_tick().await;
            self.alarm().await;
        }
        // No lookup can be under way in user code or in the idle thread.
        let quiescent = self.host(|m| {
            let id = m.thread_id();
            let t = &m.threads[id];
            t.frame == 1 && (t.mode == Mode::User || id < m.cpus.len())
        });
        self.scheduler_tick().await;
        self.timers_run().await;
        self.rcu_tick(quiescent).await;
    }

    /// Wakes the real-time daemon every few ticks.
    async fn alarm(&self) {
        if self.load(self.map.jiffies).await % self.host(|m| m.cfg.daemon_ticks) != 0 {
            return;
        }
        let daemon = self.map.task(self.map.daemon());
        self.store(daemon + task::WOKEN, 1).await;
        self.wake(daemon).await;
    }
}
