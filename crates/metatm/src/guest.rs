//! What guest code is written against: instructions as futures.
//!
//! Guest code is ordinary `async` Rust that reaches simulated memory only through a [`Cx`], so the
//! machine sees every load and store. Local variables are registers. A region that can restart is
//! a closure given to [`Cx::scope`]; the machine drops its future and calls the closure again,
//! which is how registers are restored.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use crate::htm::status::Status;
use crate::machine::devices::Port;
use crate::machine::{Machine, Vector};
use crate::mem::Addr;
use crate::stats::Mode;

/// A guest's access to the machine.
#[derive(Clone)]
pub struct Cx {
    machine: Rc<RefCell<Machine>>,
}

/// Leaves a restart scope when dropped.
struct Scope<'a> {
    cx: &'a Cx,
    thread: usize,
    id: u32,
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.cx.host(|m| {
            if !m.off {
                m.scope_leave(self.thread, self.id);
            }
        });
    }
}

/// Restores the program counter's window when dropped.
pub struct Code<'a> {
    cx: &'a Cx,
    thread: usize,
    old: (u32, u32, u32),
}

impl Drop for Code<'_> {
    fn drop(&mut self) {
        self.cx.host(|m| m.threads[self.thread].code = self.old);
    }
}

impl Cx {
    pub(crate) fn new(machine: Rc<RefCell<Machine>>) -> Self {
        Self { machine }
    }

    /// Lets the host look at or change the machine; costs the guest nothing.
    #[inline]
    pub fn host<T>(&self, f: impl FnOnce(&mut Machine) -> T) -> T {
        f(&mut self.machine.borrow_mut())
    }

    #[inline]
    fn op<T>(&self, mut f: impl FnMut(&mut Machine) -> Poll<T>) -> impl Future<Output = T> {
        poll_fn(move |_| f(&mut self.machine.borrow_mut()))
    }

    /// Loads the word at `a`.
    #[inline]
    pub fn load(&self, a: Addr) -> impl Future<Output = u32> {
        self.op(move |m| m.load(a))
    }

    /// Stores `v` at `a`.
    #[inline]
    pub fn store(&self, a: Addr, v: u32) -> impl Future<Output = ()> {
        self.op(move |m| m.store(a, v))
    }

    /// Locked add of `v` (wrapping) to the word at `a`; the value before.
    pub fn fetch_add(&self, a: Addr, v: u32) -> impl Future<Output = u32> {
        self.op(move |m| m.rmw(a, |old| old.wrapping_add(v)))
    }

    /// Locked compare and swap; the value before.
    pub fn cas(&self, a: Addr, old: u32, new: u32) -> impl Future<Output = u32> {
        self.op(move |m| m.rmw(a, |now| if now == old { new } else { now }))
    }

    /// `n` instructions that touch no memory.
    pub fn alu(&self, n: u32) -> impl Future<Output = ()> {
        let mut left = n;
        self.op(move |m| m.alu(&mut left))
    }

    /// `xbegin`; inside [`Self::scope`] only.
    pub fn xbegin(&self) -> impl Future<Output = Status> {
        let mut wait = None;
        self.op(move |m| m.xbegin(&mut wait))
    }

    /// `xend`.
    pub fn xend(&self) -> impl Future<Output = ()> {
        self.op(Machine::xend)
    }

    /// `xrestart(code)`; does not return.
    pub async fn xrestart(&self, code: u32) {
        match self.op(move |m| m.xrestart(code)).await {}
    }

    /// `xgettxid`.
    pub fn xgettxid(&self) -> impl Future<Output = u64> {
        self.op(Machine::xgettxid)
    }

    /// `xpush`.
    pub fn xpush(&self) -> impl Future<Output = ()> {
        self.op(Machine::xpush)
    }

    /// `xpop`.
    pub fn xpop(&self) -> impl Future<Output = ()> {
        self.op(Machine::xpop)
    }

    /// `xtest`.
    pub fn xtest(&self, a: Addr, v: u32) -> impl Future<Output = bool> {
        self.op(move |m| m.xtest(a, v))
    }

    /// `xcas`.
    pub fn xcas(&self, a: Addr, old: u32, new: u32) -> impl Future<Output = bool> {
        self.op(move |m| m.xcas(a, old, new))
    }

    /// Sets the interrupt flag; the flag before.
    pub fn irq_flag(&self, on: bool) -> impl Future<Output = bool> {
        self.op(move |m| m.irq_flag(on))
    }

    /// Waits for an interrupt.
    pub fn halt(&self) -> impl Future<Output = ()> {
        let mut halting = false;
        self.op(move |m| m.halt(&mut halting))
    }

    /// Gives the processor to thread `to`.
    pub fn switch_to(&self, to: usize) -> impl Future<Output = ()> {
        let mut switched = false;
        self.op(move |m| m.switch_to(to, &mut switched))
    }

    /// Reads a device register.
    pub fn io_read(&self, port: Port) -> impl Future<Output = u32> {
        self.op(move |m| m.io(port, None))
    }

    /// Writes a device register.
    pub async fn io_write(&self, port: Port, v: u32) {
        self.op(move |m| m.io(port, Some(v))).await;
    }

    /// Interrupts processor `cpu`.
    pub fn ipi(&self, cpu: usize) -> impl Future<Output = ()> {
        self.op(move |m| m.ipi(cpu))
    }

    /// Reads and resets the transaction counters of this processor.
    pub fn hw_profile(&self) -> impl Future<Output = (u32, u64)> {
        self.op(Machine::hw_profile)
    }

    /// Words in the suspended transactions of this thread.
    pub fn hw_tx_size(&self) -> impl Future<Output = u32> {
        self.op(Machine::hw_tx_size)
    }

    /// The cycle counter.
    pub fn rdtsc(&self) -> impl Future<Output = u64> {
        self.op(Machine::rdtsc)
    }

    /// Runs `body`, which begins with `xbegin`, and again after every restart.
    pub async fn scope<R>(&self, body: impl AsyncFn() -> R) -> R {
        let id = self.host(Machine::scope_enter);
        let scope = Scope { cx: self, thread: self.id(), id };
        loop {
            let mut attempt = pin!(body());
            let done = poll_fn(|cx| {
                if self.host(|m| m.must_restart(scope.id)) {
                    return Poll::Ready(None);
                }
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(r) => Poll::Ready(Some(r)),
                    Poll::Pending if self.host(|m| m.must_restart(scope.id)) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await;
            if let Some(r) = done {
                return r;
            }
            self.host(Machine::restarted);
        }
    }

    /// Runs `body` in one transaction.
    pub async fn atomic<R>(&self, body: impl AsyncFn() -> R) -> R {
        self.scope(async || {
            self.xbegin().await;
            let r = body().await;
            self.xend().await;
            r
        })
        .await
    }

    /// The following instructions come from the code window `first`, `lines` lines long.
    pub fn code(&self, first: u32, lines: u32) -> Code<'_> {
        let old = self.host(|m| m.enter_code(first, lines));
        Code { cx: self, thread: self.id(), old }
    }

    /// Pushes a word onto the stack (a call's return address, a saved register).
    pub async fn push(&self) {
        let a = self.host(|m| m.stack_push());
        self.store(a, 0).await;
    }

    /// Returns from a leaf function: reads the return address that the caller's call pushed.
    pub async fn ret(&self) {
        let a = self.host(|m| m.stack_top());
        self.load(a).await;
    }

    /// Pops a word.
    pub async fn pop(&self) {
        let a = self.host(|m| m.stack_pop());
        self.load(a).await;
    }

    /// What the following cycles of this thread count as.
    pub fn mode(&self, mode: Mode) {
        self.host(|m| m.thread().mode = mode);
    }

    /// Lets time pass until cycle `at`, without instructions; interrupts are taken.
    pub async fn until(&self, at: u64) {
        let mut left = at.saturating_sub(self.host(|m| m.now()));
        self.op(move |m| m.pass(&mut left)).await;
    }

    /// The number of the processor that this runs on.
    pub fn cpu(&self) -> usize {
        self.host(|m| m.cur)
    }

    /// The number of the thread that this is.
    pub fn id(&self) -> usize {
        self.host(|m| m.thread_id())
    }

    /// Queues an interrupt on this processor `after` cycles from now.
    pub fn raise_after(&self, after: u64, vector: Vector) {
        self.host(|m| {
            let (cur, at) = (m.cur, m.now() + after);
            m.raise(cur, at, vector);
        });
    }
}
