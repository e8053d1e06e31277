//! The instructions of table 1.

use std::task::Poll;

use super::Machine;
use super::ops::Kind;
use crate::config::Backoff;
use crate::error::SimError;
use crate::htm::status::{Reason, Status};
use crate::mem::Addr;

impl Machine {
    /// `xbegin`: begins a transaction, or a flat-nested level of the running one.
    ///
    /// On a restart it first waits out the backoff; `wait` keeps what is left of it between polls.
    pub fn xbegin(&mut self, wait: &mut Option<u64>) -> Poll<Status> {
        if !self.due() {
            return Poll::Pending;
        }
        let id = self.thread_id();
        let Some(slot) = self.threads[id].tx else { return self.xbegin_first(id) };
        if self.htm.tx[slot].aborted.is_none() {
            if !self.turn() {
                return Poll::Pending;
            }
            self.htm.tx[slot].depth += 1;
            let status = self.htm.tx[slot].status;
            let cost = 1 + self.count(1);
            self.advance(cost);
            return Poll::Ready(status);
        }
        if self.threads[id].restart_to.is_some() {
            return Poll::Pending;
        }
        if wait.is_none() {
            let cycles = self.backoff(slot);
            *wait = Some(cycles);
            self.stats.backoff_cycles += cycles;
            let cur = self.cur;
            self.cpus[cur].hw_backoff += cycles;
        }
        if let Some(left) = wait
            && self.pass(left).is_pending()
        {
            return Poll::Pending;
        }
        if !self.due() {
            return Poll::Pending;
        }
        self.htm.fresh_mark(slot);
        let thread = self.thread();
        let (irq_frame, preempt, sp) = (thread.frame, thread.preempt, thread.sp);
        let irq_on = self.cpus[self.cur].irq_on;
        let tx = &mut self.htm.tx[slot];
        debug_assert_eq!(tx.frame, irq_frame);
        (tx.aborted, tx.depth, tx.waited, tx.overflowed) = (None, 1, 0, 0);
        (tx.instrs, tx.cycles) = (0, 0);
        (tx.irq_on, tx.preempt, tx.sp) = (irq_on, preempt, sp);
        tx.cx.clone_from(&self.threads[id].cx);
        let status = tx.status;
        let cost = 1 + self.count(1);
        self.advance(cost);
        Poll::Ready(status)
    }

    fn xbegin_first(&mut self, thread: usize) -> Poll<Status> {
        let t = &self.threads[thread];
        let (scope, frame, prio, preempt, sp) = (t.scopes, t.frame, t.prio, t.preempt, t.sp);
        if scope == 0 {
            self.fault("xbegin outside of a restart scope");
            return Poll::Pending;
        }
        let Some(slot) = self.htm.create() else {
            self.fault(format!("more than {} live transactions", crate::htm::SLOTS));
            return Poll::Pending;
        };
        let (born, irq_on) = (self.now(), self.cpus[self.cur].irq_on);
        let tx = &mut self.htm.tx[slot];
        (tx.thread, tx.frame, tx.scope, tx.depth) = (thread, frame, scope, 1);
        (tx.born, tx.prio, tx.irq_on, tx.preempt, tx.sp) = (born, prio, irq_on, preempt, sp);
        tx.cx.clone_from(&self.threads[thread].cx);
        self.threads[thread].tx = Some(slot);
        let cost = 1 + self.count(1);
        self.advance(cost);
        Poll::Ready(Status::default())
    }

    /// Cycles that a restarted transaction waits.
    fn backoff(&mut self, slot: usize) -> u64 {
        let tx = &self.htm.tx[slot];
        if !matches!(tx.aborted, Some(Reason::Conflict | Reason::Asymmetric)) {
            return 0;
        }
        let base = self.cfg.backoff_base;
        let most = match self.cfg.backoff {
            Backoff::None => return 0,
            Backoff::Linear => base.saturating_mul(tx.restarts),
            Backoff::Exponential => {
                let most = u64::from(base) << tx.restarts.min(self.cfg.backoff_cap);
                most.min(u64::from(u32::MAX)) as u32
            }
        };
        u64::from(self.rng.below(most))
    }

    /// `xend`: leaves one level; at the outermost, checks isolation and commits.
    pub fn xend(&mut self) -> Poll<()> {
        if !self.turn() {
            return Poll::Pending;
        }
        let Some(slot) = self.thread().tx else {
            self.fault("xend without a transaction");
            return Poll::Pending;
        };
        let cost = 1 + self.count(1);
        self.advance(cost);
        self.htm.tx[slot].depth -= 1;
        if self.htm.tx[slot].depth > 0 {
            return Poll::Ready(());
        }
        if let Some(what) = self.htm.violation(slot, &self.mem) {
            let cycle = self.now();
            self.fail(SimError::Isolation { cycle, what });
            return Poll::Pending;
        }
        let tx = &self.htm.tx[slot];
        self.stats.commits += 1;
        self.stats.commits_irq += u64::from(tx.frame > 0);
        self.stats.commit_instrs += tx.instrs;
        self.stats.commit_cycles += tx.cycles;
        self.stats.overflows += u64::from(tx.overflowed > 0);
        self.htm.retire(slot);
        self.thread().tx = None;
        self.moved_bare();
        Poll::Ready(())
    }

    /// `xrestart(code)`: restarts the running transaction; never ready.
    pub fn xrestart(&mut self, code: u32) -> Poll<std::convert::Infallible> {
        if !self.turn() {
            return Poll::Pending;
        }
        let Some(slot) = self.thread().tx else {
            self.fault("xrestart without a transaction");
            return Poll::Pending;
        };
        let cost = 1 + self.count(1);
        self.advance(cost);
        self.abort(slot, Reason::User);
        self.htm.tx[slot].status.code = code;
        Poll::Pending
    }

    /// `xgettxid`: the running transaction's identifier, 0 if there is none.
    pub fn xgettxid(&mut self) -> Poll<u64> {
        if !self.turn() {
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        let id = self.thread().tx.map_or(0, |s| self.htm.tx[s].id);
        Poll::Ready(id)
    }

    /// `xpush`: suspends the running transaction, if any.
    pub fn xpush(&mut self) -> Poll<()> {
        if !self.due() {
            return Poll::Pending;
        }
        let t = self.thread();
        let (tx, frame) = (t.tx, t.frame);
        if t.restart_to.is_some() && tx.is_some_and(|s| self.htm.tx[s].frame == frame) {
            return Poll::Pending;
        }
        let t = self.thread();
        t.pushed.push(tx);
        t.tx = None;
        t.restart_to = None;
        let cost = 1 + self.count(1);
        self.advance(cost);
        Poll::Ready(())
    }

    /// `xpop`: resumes what the last `xpush` suspended.
    ///
    /// If that was told to restart meanwhile, it restarts now, or on the interrupt's return.
    pub fn xpop(&mut self) -> Poll<()> {
        if !self.due() {
            return Poll::Pending;
        }
        if self.thread().tx.is_some() {
            self.fault("xpop inside a transaction; end it first");
            return Poll::Pending;
        }
        let cost = 1 + self.count(1);
        self.advance(cost);
        let Some(tx) = self.thread().pushed.pop() else {
            self.fault("xpop without xpush");
            return Poll::Pending;
        };
        self.thread().tx = tx;
        self.resume_tx();
        Poll::Ready(())
    }

    /// Sends the thread to its scope if the transaction it resumes must restart here.
    pub(crate) fn resume_tx(&mut self) {
        let t = self.thread_id();
        let Some(slot) = self.threads[t].tx else { return };
        let tx = &self.htm.tx[slot];
        if tx.aborted.is_some() && tx.frame == self.threads[t].frame {
            self.threads[t].restart_to = Some(tx.scope);
        }
    }

    /// `xtest(a, v)`: true and in the read set if `*a == v`; else false and not in the set.
    pub fn xtest(&mut self, a: Addr, v: u32) -> Poll<bool> {
        if !self.ready(a, Kind::Read) {
            return Poll::Pending;
        }
        let equal = self.mem.get(a) == v;
        let slot = self.thread().tx;
        if let Some(slot) = slot {
            self.htm.tx[slot].spinning = !equal;
            if equal {
                self.htm.add_read(slot, a, v);
            }
        }
        let cost = 1 + self.count(1) + self.cached(a, Kind::Read, slot.filter(|_| equal));
        self.advance(cost);
        Poll::Ready(equal)
    }

    /// `xcas(a, old, new)`: compare and swap; outside a transaction the contention manager first
    /// judges the caller against the transactions that hold `a`, and may refuse.
    pub fn xcas(&mut self, a: Addr, old: u32, new: u32) -> Poll<bool> {
        if self.thread().tx.is_some() {
            if !self.ready(a, Kind::Write) {
                return Poll::Pending;
            }
        } else {
            if !self.turn() {
                return Poll::Pending;
            }
            if let Some(what) = self.mem.fault(a) {
                self.fault(what);
                return Poll::Pending;
            }
            self.prepaid = false;
            if !self.bus_granted(a, Kind::Write) || !self.arrived(a, Kind::Write) {
                return Poll::Pending;
            }
            self.htm.enemies(a, true, None, &mut self.enemies);
            if !self.enemies.is_empty() && !self.contend_xcas() {
                let cost = 1 + self.count(1) + self.cached(a, Kind::Read, None);
                self.advance(cost);
                return Poll::Ready(false);
            }
        }
        let now = self.mem.get(a);
        if let Some(slot) = self.thread().tx {
            self.htm.add_read(slot, a, now);
        }
        self.put(a, if now == old { new } else { now }, 1);
        Poll::Ready(now == old)
    }

    /// Enters a restart scope; its number.
    pub(crate) fn scope_enter(&mut self) -> u32 {
        let t = self.thread();
        t.scopes += 1;
        t.scopes
    }

    /// Leaves the innermost scope of `thread`.
    pub(crate) fn scope_leave(&mut self, thread: usize, scope: u32) {
        let t = &mut self.threads[thread];
        t.scopes = scope - 1;
        let tx = t.tx;
        if let Some(slot) = tx
            && self.htm.tx[slot].scope == scope
            && self.htm.tx[slot].aborted.is_none()
            && !self.off
        {
            self.fault("a transaction outlived its restart scope; end it with xend");
        }
    }

    /// True if `scope` must be run again.
    pub(crate) fn must_restart(&mut self, scope: u32) -> bool {
        self.thread().restart_to == Some(scope)
    }

    /// Restores what the hardware restores at a restart: interrupt flag, preemption count, stack.
    pub(crate) fn restarted(&mut self) {
        let cur = self.cur;
        self.cpus[cur].paid = None;
        let t = self.thread();
        t.restart_to = None;
        let Some(slot) = t.tx else { return };
        let tx = &self.htm.tx[slot];
        let (irq_on, preempt, sp, scope) = (tx.irq_on, tx.preempt, tx.sp, tx.scope);
        let id = self.thread_id();
        let t = &mut self.threads[id];
        (t.preempt, t.sp, t.scopes, t.waits) = (preempt, sp, scope, None);
        t.cx.clone_from(&tx.cx);
        self.set_irq(irq_on);
    }
}
