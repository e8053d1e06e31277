//! Cooperative transactional spinlocks (paper, section 4 and figure 2).
//!
//! A lock is a word: 1 free, 0 held. Optimistic sections begin a transaction and put the free lock
//! into its read set; an exclusive section takes the lock with `xcas`, which restarts them or, if
//! the contention manager says so, waits for them. I/O inside an optimistic section restarts it
//! with NEED_EXCLUSIVE, and it takes the lock instead.
//!
//! Deduced, because the paper's figure leaves it open:
//! - `cx_end` takes the mode in which *that lock* was entered from a per-thread stack. The
//!   figure's `xgettxid` would end the wrong section in `cx_exclusive(A); cx_optimistic(B);
//!   cx_end(A)`.
//! - Interrupt flags nest: each section saves the flag that it found and restores that.
//! - A restart is at the outermost level and converts that level alone; the next I/O converts the
//!   next ([`IoRestart::PerLevel`], what section 7.4 counts), or all at once (`AllLevels`).
//!
//! Instruction counts are the paper's (section 7.4): uncontended `cx_optimistic` 21 instructions
//! with 9 memory references, `cx_exclusive` 21 with 8. The order of instructions is ours.

use crate::config::IoRestart;
use crate::guest::Cx;
use crate::htm::status::{NEED_EXCLUSIVE, Reason};
use crate::mem::Addr;

/// Value of a free lock.
pub const FREE: u32 = 1;

/// Value of a held lock.
pub const HELD: u32 = 0;

/// How a cxspinlock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In a transaction.
    Optimistic,
    /// By mutual exclusion.
    Exclusive,
}

/// An entry of a thread's stack of held cxspinlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// The lock.
    pub lock: Addr,
    /// How it is held.
    pub mode: Mode,
    /// The interrupt flag found, for the irq-safe forms.
    pub irq_was_on: Option<bool>,
}

/// Whether a section disables interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Irq {
    /// The plain form.
    Leave,
    /// The irq-safe form.
    Disable,
}

impl Cx {
    /// `cx_optimistic(lock)`: enters the section in a transaction, or exclusively if the last
    /// attempt needed that; the reason why then. Must begin a [`Cx::scope`].
    pub async fn cx_optimistic(&self, lock: Addr, irq: Irq) -> Option<Reason> {
        let status = self.xbegin().await; // 1
        self.push().await; // return address: 2, 1 reference
        self.push().await; // frame pointer: 3, 2
        self.push().await; // saved register: 4, 3
        self.alu(3).await; // frame, argument, status: 7
        self.push().await; // status spilled: 8, 4
        self.alu(2).await; // compare, branch: 10
        let all = self.host(|m| m.thread().all_exclusive);
        if status.need_exclusive() || all.is_some() {
            let reason = all.or(status.reason);
            self.xend().await;
            if self.xgettxid().await != 0 {
                self.xrestart(NEED_EXCLUSIVE).await;
            }
            if self.host(|m| m.cfg.io_restart) == IoRestart::AllLevels {
                self.host(|m| m.thread().all_exclusive = reason);
            }
            self.cx_exclusive(lock, irq).await;
            return reason;
        }
        self.host(|m| m.thread().waits = Some(("spins in xtest on", lock)));
        while !self.xtest(lock, FREE).await {
            self.alu(3).await; // test, pause, branch
            self.host(|m| m.stats.tests += 1);
        } // 11, 5
        self.host(|m| m.thread().waits = None);
        self.alu(2).await; // test, branch: 13
        let irq_was_on = match irq {
            Irq::Leave => {
                self.alu(1).await;
                None
            }
            Irq::Disable => Some(self.irq_flag(false).await),
        }; // 14
        self.alu(3).await; // preemption count, epilogue: 17
        self.pop().await; // status: 18, 6
        self.pop().await; // saved register: 19, 7
        self.pop().await; // frame pointer: 20, 8
        self.pop().await; // return: 21, 9
        self.host(|m| {
            let t = m.thread();
            t.preempt += 1;
            t.cx.push(Held { lock, mode: Mode::Optimistic, irq_was_on });
        });
        None
    }

    /// `cx_exclusive(lock)`: enters the section by mutual exclusion; inside a transaction that one
    /// is restarted so that its outermost section becomes exclusive first.
    pub async fn cx_exclusive(&self, lock: Addr, irq: Irq) {
        let start = self.host(|m| m.now());
        self.push().await; // return address: 1, 1 reference
        self.push().await; // frame pointer: 2, 2
        self.push().await; // saved register: 3, 3
        self.alu(3).await; // frame, argument: 6
        if self.xgettxid().await != 0 {
            self.xrestart(NEED_EXCLUSIVE).await;
        } // 7
        self.alu(2).await; // test, branch: 9
        let mut retries = 0;
        let irq_was_on = loop {
            self.host(|m| m.thread().waits = Some(("waits exclusively for", lock)));
            while self.load(lock).await != FREE {
                self.alu(2).await; // pause, branch
                self.host(|m| m.stats.tests += 1);
            } // 10, 4
            self.alu(2).await; // compare, branch: 12
            let was = match irq {
                Irq::Leave => {
                    self.alu(1).await;
                    None
                }
                Irq::Disable => Some(self.irq_flag(false).await),
            }; // 13
            self.host(|m| m.thread().preempt += 1);
            if self.xcas(lock, FREE, HELD).await {
                break was;
            } // 14, 5
            retries += 1;
            self.host(|m| m.thread().preempt -= 1);
            if let Some(was) = was {
                self.irq_flag(was).await;
            }
        };
        self.alu(4).await; // test, branch, preemption count, epilogue: 18
        self.pop().await; // saved register: 19, 6
        self.pop().await; // frame pointer: 20, 7
        self.pop().await; // return: 21, 8
        self.host(|m| {
            let end = m.now();
            m.acquired(start, end, retries);
            let t = m.thread();
            t.waits = None;
            t.cx.push(Held { lock, mode: Mode::Exclusive, irq_was_on });
        });
    }

    /// `cx_end(lock)`: leaves the section of `lock`, in whichever mode it was entered.
    pub async fn cx_end(&self, lock: Addr) {
        self.alu(2).await; // look the lock up in the thread's stack of modes
        let held = self.host(|m| {
            let t = m.thread();
            let i = t.cx.iter().rposition(|h| h.lock == lock)?;
            Some(t.cx.remove(i))
        });
        let Some(held) = held else {
            self.host(|m| m.fault(format!("cx_end of {lock:#x}, which this thread does not hold")));
            // Ends the poll; the run is over.
            return self.alu(1).await;
        };
        match held.mode {
            Mode::Optimistic => self.xend().await,
            Mode::Exclusive => self.store(lock, FREE).await,
        }
        self.host(|m| {
            let t = m.thread();
            t.preempt = t.preempt.saturating_sub(1);
            if t.cx.is_empty() {
                t.all_exclusive = None;
            }
        });
        if let Some(was) = held.irq_was_on {
            self.irq_flag(was).await;
        }
    }
}
