//! The event loop: whose turn it is, interrupts, context switches, the watchdog.
//!
//! A guest thread is a stack of futures: its own, and one for each interrupt handler on top of it.
//! No host thread is involved; polling a future runs the guest up to the next instruction that is
//! not due yet. A context switch exchanges whole stacks, so a preempted thread keeps its handler.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{KEY_SHIFT, Machine, Vector};
use crate::error::{Result, SimError};
use crate::guest::Cx;
use crate::stats::{Mode, Stats};

/// A piece of guest code being executed.
pub type Frame = Pin<Box<dyn Future<Output = ()>>>;

/// The program on the machine.
pub trait Program {
    /// The code of thread `id`, called when it first runs.
    fn thread(&self, cx: Cx, id: usize) -> Frame;

    /// The handler of `vector`.
    fn interrupt(&self, cx: Cx, vector: Vector) -> Frame;

    /// Host-side check of the final memory.
    ///
    /// # Errors
    /// What does not hold.
    fn audit(&self, _machine: &Machine) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// A machine with a program on it.
pub struct Sim {
    machine: Rc<RefCell<Machine>>,
    stacks: Vec<Vec<Frame>>,
}

impl Sim {
    /// Puts a machine into its rack.
    pub fn new(machine: Machine) -> Self {
        let stacks = machine.threads.iter().map(|_| Vec::new()).collect();
        Self { machine: Rc::new(RefCell::new(machine)), stacks }
    }

    /// The machine, for looking at it before and after a run.
    pub fn machine(&self) -> &RefCell<Machine> {
        &self.machine
    }

    /// Runs `program` until it switches the machine off or all its threads have ended.
    ///
    /// # Errors
    /// A guest fault, a failed check, no progress, or the cycle limit.
    pub fn run(&mut self, program: &dyn Program) -> Result<Stats> {
        let outcome = self.run_loop(program);
        let mut m = self.machine.borrow_mut();
        m.off = true;
        drop(m);
        // Guards inside the futures look at the machine when they are dropped.
        self.stacks.iter_mut().for_each(|stack| while stack.pop().is_some() {});
        outcome?;
        let m = self.machine.borrow();
        m.caches.audit()?;
        program.audit(&m).map_err(|what| SimError::Value { cycle: m.stats.end, what })?;
        Ok(m.stats.clone())
    }

    fn run_loop(&mut self, program: &dyn Program) -> Result<()> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let tid = {
                let mut m = self.machine.borrow_mut();
                if !m.pick()? {
                    return Ok(());
                }
                if let Some(vector) = m.take_irq() {
                    let tid = m.thread_id();
                    m.threads[tid].frame += 1;
                    drop(m);
                    let cx = Cx::new(Rc::clone(&self.machine));
                    self.stacks[tid].push(program.interrupt(cx, vector));
                    tid
                } else {
                    m.thread_id()
                }
            };
            let stack = &mut self.stacks[tid];
            if stack.is_empty() {
                let cx = Cx::new(Rc::clone(&self.machine));
                stack.push(program.thread(cx, tid));
            }
            let Some(frame) = stack.last_mut() else { continue };
            let done = frame.as_mut().poll(&mut context) == Poll::Ready(());
            if done {
                stack.pop();
            }
            let mut m = self.machine.borrow_mut();
            if done {
                m.frame_done(tid);
            }
            if let Some(to) = m.switch.take() {
                m.exchange(tid, to);
                if m.threads[tid].exiting {
                    drop(m);
                    self.stacks[tid].clear();
                    m = self.machine.borrow_mut();
                    m.recycle(tid);
                }
            }
            if let Some(error) = m.error.take() {
                return Err(error);
            }
            if m.off {
                return Ok(());
            }
        }
    }
}

impl Machine {
    /// Chooses the processor with the smallest key; false if all have ended.
    fn pick(&mut self) -> Result<bool> {
        let (mut first, mut second) = (u64::MAX, u64::MAX);
        for key in &self.keys {
            second = second.min(first.max(*key));
            first = first.min(*key);
        }
        if first == u64::MAX {
            if self.cpus.iter().all(|c| c.dead) {
                return Ok(false);
            }
            return Err(self.stuck("every processor is halted and no interrupt is due"));
        }
        self.cur = (first & ((1 << KEY_SHIFT) - 1)) as usize;
        self.horizon = second.saturating_add(u64::from(self.cfg.skew) << KEY_SHIFT);
        let now = first >> KEY_SHIFT;
        if now > self.cfg.max_cycles {
            let what = self.whereabouts("still running");
            return Err(SimError::Limit { cycles: self.cfg.max_cycles, what });
        }
        if now > self.progress + self.cfg.watchdog {
            return Err(self.stuck("processors run, but nothing gets done"));
        }
        let cpu = &mut self.cpus[self.cur];
        if let Some(since) = cpu.halted.take() {
            let waits = self.threads.iter().any(|t| t.io_wait);
            let mode = if waits { Mode::IoWait } else { Mode::Idle };
            self.stats.cycles[mode as usize] += now - since;
        }
        let cpu = &self.cpus[self.cur];
        if let (true, Some((at, _))) = (cpu.irq_on, cpu.irqs.first()) {
            self.horizon = self.horizon.min((*at).max(now) << KEY_SHIFT | self.cur as u64);
        }
        Ok(true)
    }

    /// Takes the interrupt that is due here, if interrupts are on; they are off in the handler.
    fn take_irq(&mut self) -> Option<Vector> {
        let now = self.now();
        let cpu = &mut self.cpus[self.cur];
        match cpu.irqs.first() {
            Some((at, vector)) if cpu.irq_on && *at <= now => {
                let vector = *vector;
                cpu.irqs.remove(0);
                cpu.irq_on = false;
                cpu.paid = None;
                self.stats.interrupts += 1;
                Some(vector)
            }
            _ => None,
        }
    }

    /// A handler has returned, or a thread has ended.
    fn frame_done(&mut self, tid: usize) {
        if self.threads[tid].frame > 0 {
            self.threads[tid].frame -= 1;
            let frame = self.threads[tid].frame;
            if let Some(slot) = self.threads[tid].tx
                && self.htm.tx[slot].frame > frame
            {
                self.fault("an interrupt handler returned inside its own transaction");
                return;
            }
            self.set_irq(true);
            self.resume_tx();
            return;
        }
        let cur = self.cur;
        if self.threads[tid].tx.is_some() {
            self.fault("a thread ended inside a transaction");
        }
        self.threads[tid].gone = true;
        self.cpus[cur].dead = true;
        self.stats.end = self.stats.end.max(self.now());
        self.keys[cur] = u64::MAX;
        self.moved_to_end();
    }

    fn moved_to_end(&mut self) {
        self.progress = self.progress.max(self.stats.end);
    }

    /// Puts thread `to` in the place of `from` on this processor.
    fn exchange(&mut self, from: usize, to: usize) {
        for (thread, parked) in [(from, true), (to, false)] {
            let t = &self.threads[thread];
            for slot in t.tx.iter().chain(t.pushed.iter().flatten()) {
                self.htm.tx[*slot].parked = parked;
            }
        }
        let cur = self.cur;
        self.cpus[cur].thread = to;
    }

    /// Makes the slot of an ended thread ready for the next.
    fn recycle(&mut self, tid: usize) {
        let t = &mut self.threads[tid];
        *t = super::Thread { stack: t.stack, code: t.code, ..super::Thread::default() };
        self.free_threads.push(tid);
    }

    /// The watchdog's report: who is where.
    fn stuck(&self, why: &str) -> SimError {
        let what = self.whereabouts(why);
        let cycle = self.keys.iter().min().map_or(0, |k| k >> KEY_SHIFT);
        SimError::NoProgress { cycle, waited: cycle.saturating_sub(self.progress), what }
    }

    fn whereabouts(&self, why: &str) -> String {
        let mut what = why.to_owned();
        for (i, cpu) in self.cpus.iter().enumerate().filter(|(_, c)| !c.dead) {
            let t = &self.threads[cpu.thread];
            what += &format!("; CPU {i}: thread {}", cpu.thread);
            if cpu.halted.is_some() {
                what += " halted";
            }
            if let Some((how, a)) = t.waits {
                what += &format!(" {how} {a:#x}");
                let holds = |t: &super::Thread| t.cx.iter().any(|h| h.lock == a);
                if let Some(holder) = self.threads.iter().position(holds) {
                    what += &format!(" of thread {holder}");
                }
            }
            if t.io_wait {
                what += " waits for a device";
            }
            if let Some(slot) = t.tx {
                let tx = &self.htm.tx[slot];
                what += &format!(
                    " in transaction {} (depth {}, {} restarts, last {:?})",
                    tx.id, tx.depth, tx.restarts, tx.status.reason
                );
            }
        }
        what
    }
}
