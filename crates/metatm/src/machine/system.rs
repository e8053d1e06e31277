//! Privileged instructions: interrupts, halt, context switch, I/O, hardware registers.

use std::task::Poll;

use super::devices::Port;
use super::{KEY_SHIFT, Machine, Vector};
use crate::htm::status::Reason;

impl Machine {
    /// Sets the interrupt flag of this processor.
    pub(crate) fn set_irq(&mut self, on: bool) {
        let cur = self.cur;
        let cpu = &mut self.cpus[cur];
        if on && !cpu.irq_on && !cpu.irqs.is_empty() {
            // Something may be due: the next instruction yields so that it is looked at.
            self.horizon = self.horizon.min(self.keys[cur]);
        }
        cpu.irq_on = on;
    }

    /// Sets the interrupt flag; the flag before. One instruction.
    pub fn irq_flag(&mut self, on: bool) -> Poll<bool> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        let was = self.cpus[self.cur].irq_on;
        self.set_irq(on);
        Poll::Ready(was)
    }

    /// Queues `vector` for processor `cpu` at cycle `at`.
    pub fn raise(&mut self, cpu: usize, at: u64, vector: Vector) {
        let irqs = &mut self.cpus[cpu].irqs;
        let i = irqs.partition_point(|e| *e <= (at, vector));
        irqs.insert(i, (at, vector));
        self.hasten(cpu, at.max(self.keys[self.cur] >> KEY_SHIFT));
    }

    /// Sends a reschedule interrupt to `cpu`, which arrives one bus access later.
    pub fn ipi(&mut self, cpu: usize) -> Poll<()> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        let at = self.now() + u64::from(self.cfg.l2_miss);
        self.raise(cpu, at, Vector::Resched);
        Poll::Ready(())
    }

    /// Enables interrupts and stops this processor until one comes (`sti; hlt`); `halting` tells a first poll from a wake-up.
    pub fn halt(&mut self, halting: &mut bool) -> Poll<()> {
        if *halting {
            return if self.cpus[self.cur].halted.is_none() {
                Poll::Ready(())
            } else {
                Poll::Pending
            };
        }
        if !self.turn() {
            return Poll::Pending;
        }
        *halting = true;
        let (cur, now) = (self.cur, self.now());
        self.cpus[cur].irq_on = true;
        self.cpus[cur].halted = Some(now);
        self.keys[cur] = match self.cpus[cur].irqs.first() {
            Some((at, _)) => (*at).max(now) << KEY_SHIFT | cur as u64,
            None => u64::MAX,
        };
        self.horizon = 0;
        Poll::Pending
    }

    /// Gives this processor to thread `to`; ready when somebody gives one back to the caller.
    ///
    /// Suspended transactions stay with their thread.
    pub fn switch_to(&mut self, to: usize, switched: &mut bool) -> Poll<()> {
        if *switched {
            return Poll::Ready(());
        }
        if !self.turn() {
            return Poll::Pending;
        }
        if self.thread().tx.is_some() {
            self.fault("context switch inside a transaction; xpush first");
            return Poll::Pending;
        }
        if to >= self.threads.len() || self.threads[to].gone {
            self.fault(format!("context switch to thread {to}, which does not exist"));
            return Poll::Pending;
        }
        if to != self.thread_id() && self.cpus.iter().any(|c| c.thread == to && !c.dead) {
            self.fault(format!("context switch to thread {to}, which runs elsewhere"));
            return Poll::Pending;
        }
        // Registers and stack are exchanged: a handful of instructions.
        let cost = 20 + self.count(20);
        self.advance(cost);
        *switched = true;
        self.stats.switches += 1;
        self.switch = Some(to);
        self.horizon = 0;
        Poll::Pending
    }

    /// Port or memory-mapped I/O; `None` for a read. Inside a transaction it is cancelled before
    /// it has an effect and the transaction restarts with NEED_EXCLUSIVE.
    pub fn io(&mut self, port: Port, write: Option<u32>) -> Poll<u32> {
        if !self.turn() {
            return Poll::Pending;
        }
        if let Some(slot) = self.thread().tx {
            self.stats.io_cancelled += 1;
            self.stats.io_depth += u64::from(self.htm.tx[slot].depth);
            let cost = 1 + self.count(1);
            self.advance(cost);
            self.abort(slot, Reason::Io);
            return Poll::Pending;
        }
        self.stats.io += 1;
        let t = self.thread();
        // Not the regions that the interrupt of this handler found.
        let frame = t.frame;
        t.regions.iter_mut().filter(|r| r.frame == frame).for_each(|r| r.io = true);
        // An uncached access costs a trip to the bus.
        let cost = 1 + u64::from(self.cfg.l2_miss) + self.count(1);
        self.advance(cost);
        match write {
            Some(value) => {
                self.port_write(port, value);
                Poll::Ready(0)
            }
            None => Poll::Ready(self.port_read(port)),
        }
    }

    /// Reads and resets the restart and backoff counters of this processor (section 6.3).
    pub fn hw_profile(&mut self) -> Poll<(u32, u64)> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 2 + self.count(2);
        self.advance(cost);
        let cpu = &mut self.cpus[self.cur];
        Poll::Ready((std::mem::take(&mut cpu.hw_restarts), std::mem::take(&mut cpu.hw_backoff)))
    }

    /// Words in the transactions that this thread has suspended, 0 if none is live.
    pub fn hw_tx_size(&mut self) -> Poll<u32> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        let t = &self.threads[self.thread_id()];
        let size = t.pushed.iter().flatten().map(|s| self.htm.tx[*s].size()).sum();
        Poll::Ready(size)
    }

    /// Writes the conflict priority register of `thread`; transactions begun later carry it.
    pub fn set_prio(&mut self, thread: usize, prio: u8) {
        self.threads[thread].prio = prio;
    }

    /// The cycle counter.
    pub fn rdtsc(&mut self) -> Poll<u64> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        Poll::Ready(self.now())
    }

    /// Switches the machine off: the run has ended well.
    pub fn power_off(&mut self) {
        self.off = true;
        self.stats.end = self.now();
        self.horizon = 0;
    }
}
