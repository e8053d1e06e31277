//! The machine: processors, memory, caches, transactions, devices, and the clock.
//!
//! Order is exact. Each processor has its own clock; an instruction that touches shared state runs
//! only when its processor's clock is the smallest (ties go to the lower number). A data access
//! that misses first moves its clock by what the miss costs; it takes effect, and meets other
//! transactions, when it is due again and the line is there. All else takes effect at once and then
//! costs its cycles. So the interleaving is sequentially consistent and depends on nothing but the
//! configuration. Instructions that touch nothing shared (`alu`) only
//! move the clock.
//!
//! The machine does not know what runs on it: guests call the instructions in `ops`, `tx` and
//! `system` through [`crate::guest::Cx`], and [`exec`] decides whose turn it is. Each instruction
//! returns `Pending` when it is not its turn, without any effect, and is asked again.

pub mod conflict;
pub mod devices;
pub mod exec;
pub mod ops;
pub mod system;
pub mod tx;

use crate::config::Config;
use crate::error::{Result, SimError};
use crate::htm::status::Reason;
use crate::htm::{Htm, Slot};
use crate::mem::{Addr, LINE, Memory};
use crate::mesi::Hierarchy;
use crate::rng::Rng;
use crate::stats::{Mode, Stats};
use devices::Devices;

/// Interrupt vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vector {
    /// The local timer.
    Timer,
    /// A disk request has completed.
    Disk,
    /// A network packet was sent or has arrived.
    Net,
    /// Another processor asks for a reschedule.
    Resched,
}

/// One processor.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// The thread that runs here.
    pub thread: usize,
    /// Interrupts enabled.
    pub irq_on: bool,
    /// Interrupts to come, earliest first.
    pub irqs: Vec<(u64, Vector)>,
    /// Since when it waits in `halt`.
    pub halted: Option<u64>,
    /// Nothing will ever run here again.
    pub dead: bool,
    /// Saturating hardware count of restarts, reset when read.
    pub hw_restarts: u32,
    /// Cycles of backoff, reset when read.
    pub hw_backoff: u64,
    /// `xcas` refused in a row, and since when.
    pub refused: (u32, u64),
    /// The line whose miss has been waited for, and what the access wants to do with it.
    pub(crate) paid: Option<(u32, ops::Kind)>,
    /// Interrupt stack.
    pub irq_stack: Addr,
}

/// One thread of control, with the stack of transactions it has suspended.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Running transaction.
    pub tx: Option<Slot>,
    /// Suspended ones, `None` for an `xpush` without any.
    pub pushed: Vec<Option<Slot>>,
    /// Restart scopes entered.
    pub scopes: u32,
    /// Scope to which the running transaction must return.
    pub restart_to: Option<u32>,
    /// Interrupt handlers on top of it.
    pub frame: u32,
    /// What its cycles count as.
    pub mode: Mode,
    /// Conflict priority register, loaded when scheduled.
    pub prio: u8,
    /// Preemption count.
    pub preempt: u32,
    /// Bottom of its kernel stack.
    pub stack: Addr,
    /// Bytes of stack in use.
    pub sp: u32,
    /// Program counter window: first line, lines, byte offset.
    pub code: (u32, u32, u32),
    /// Waits for a device.
    pub io_wait: bool,
    /// All levels of the running region go exclusive (see `IoRestart::AllLevels`).
    pub all_exclusive: Option<Reason>,
    /// Critical regions that it is in, innermost last.
    pub regions: Vec<InRegion>,
    /// cxspinlocks held, innermost last.
    pub cx: Vec<crate::sync::cx::Held>,
    /// Instructions executed, handlers on top of it included.
    pub instrs: u64,
    /// What it waits for, for the watchdog's message.
    pub waits: Option<(&'static str, Addr)>,
    /// Has ended.
    pub gone: bool,
    /// Is giving its processor away for the last time; its slot can then be used again.
    pub exiting: bool,
}

/// A critical region that a thread is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InRegion {
    /// Its number.
    pub site: u16,
    /// Interrupt nesting of the thread when it entered.
    pub frame: u32,
    /// I/O was done in it.
    pub io: bool,
}

/// A processor's key: clock, then number, so that keys never tie.
pub(crate) const KEY_SHIFT: u32 = 6;

/// Bytes of a kernel stack, and of one nesting level of an interrupt stack.
const STACK_BYTES: u32 = 1024;

/// All simulated state.
pub struct Machine {
    /// Parameters.
    pub cfg: Config,
    /// Memory.
    pub mem: Memory,
    /// Caches.
    pub caches: Hierarchy,
    /// Transactions.
    pub htm: Htm,
    /// Processors.
    pub cpus: Vec<Cpu>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// Counters.
    pub stats: Stats,
    /// Disk and network.
    pub devices: Devices,
    /// The processor whose turn it is.
    pub cur: usize,
    /// Why the run must end.
    pub error: Option<SimError>,
    /// Threads that can be started.
    pub free_threads: Vec<usize>,
    /// A kernel says what progress is.
    pub kernel_reports: bool,
    /// The guest has switched the machine off.
    pub off: bool,
    pub(crate) keys: Vec<u64>,
    pub(crate) horizon: u64,
    pub(crate) switch: Option<usize>,
    pub(crate) rng: Rng,
    pub(crate) progress: u64,
    pub(crate) enemies: Vec<Slot>,
    /// The access under way has waited for its miss.
    pub(crate) prepaid: bool,
    /// When the bus is free again.
    pub(crate) bus_free: u64,
    code_lines: u32,
    heap: Addr,
}

/// Bytes of simulated code, from address 0; stacks follow, then what guests allocate.
pub const CODE_BYTES: u32 = 512 << 10;

impl Machine {
    /// A machine with `threads` threads; thread `i` starts on processor `i` where there is one.
    ///
    /// # Errors
    /// `cfg` is out of range, or memory too small for the stacks.
    pub fn new(cfg: Config, threads: usize) -> Result<Self> {
        cfg.check()?;
        let mem = Memory::new(cfg.mem_bytes)?;
        let lines = mem.lines();
        let stacks = CODE_BYTES;
        let irq_stacks = stacks + threads as u32 * STACK_BYTES;
        let heap = irq_stacks + cfg.cpus as u32 * 4 * STACK_BYTES;
        if u64::from(heap) + u64::from(LINE) > cfg.mem_bytes {
            return Err(SimError::Parameter {
                name: "mem_bytes".into(),
                value: cfg.mem_bytes.to_string(),
                reason: format!("at least {heap} for {threads} threads"),
            });
        }
        let cpus = (0..cfg.cpus)
            .map(|i| Cpu {
                thread: i,
                irq_on: false,
                irqs: Vec::new(),
                halted: None,
                dead: i >= threads,
                hw_restarts: 0,
                hw_backoff: 0,
                refused: (0, 0),
                paid: None,
                irq_stack: irq_stacks + i as u32 * 4 * STACK_BYTES,
            })
            .collect();
        let threads = (0..threads)
            .map(|i| Thread {
                stack: stacks + i as u32 * STACK_BYTES,
                code: (LINE >> 6, 16, 0),
                ..Thread::default()
            })
            .collect();
        Ok(Self {
            caches: Hierarchy::new(&cfg, lines),
            htm: Htm::new(lines),
            cpus,
            threads,
            stats: Stats::default(),
            devices: Devices::default(),
            cur: 0,
            error: None,
            free_threads: Vec::new(),
            kernel_reports: false,
            off: false,
            keys: (0..cfg.cpus as u64).collect(),
            horizon: 0,
            switch: None,
            rng: Rng::new(cfg.seed),
            progress: 0,
            enemies: Vec::new(),
            prepaid: false,
            bus_free: 0,
            code_lines: CODE_BYTES >> 6,
            heap,
            mem,
            cfg,
        })
    }

    /// The first address free for guests, and the end of memory.
    pub fn heap(&self) -> (Addr, Addr) {
        (self.heap, self.cfg.mem_bytes as Addr)
    }

    /// The clock of the processor whose turn it is.
    #[inline]
    pub fn now(&self) -> u64 {
        self.keys[self.cur] >> KEY_SHIFT
    }

    /// The thread that runs on it.
    #[inline]
    pub fn thread_id(&self) -> usize {
        self.cpus[self.cur].thread
    }

    #[inline]
    pub(crate) fn thread(&mut self) -> &mut Thread {
        let t = self.thread_id();
        &mut self.threads[t]
    }

    /// Ends the run with `error`, unless an earlier one already did.
    pub fn fail(&mut self, error: SimError) {
        self.error.get_or_insert(error);
        self.horizon = 0;
    }

    /// Ends the run because the guest broke a rule of the machine.
    pub fn fault(&mut self, what: impl Into<String>) {
        let error = SimError::Guest {
            cpu: self.cur,
            thread: self.thread_id(),
            cycle: self.now(),
            what: what.into(),
        };
        self.fail(error);
    }

    /// Ends the run because a value is not what it must be.
    pub fn value_error(&mut self, what: impl Into<String>) {
        let error = SimError::Value { cycle: self.now(), what: what.into() };
        self.fail(error);
    }

    /// Moves this processor's clock and books the cycles.
    #[inline]
    pub(crate) fn advance(&mut self, cycles: u64) {
        let cur = self.cur;
        self.keys[cur] += cycles << KEY_SHIFT;
        let t = &self.threads[self.cpus[cur].thread];
        let mode = if t.frame > 0 { Mode::Irq } else { t.mode };
        self.stats.cycles[mode as usize] += cycles;
        if let Some(slot) = t.tx {
            self.htm.tx[slot].cycles += cycles;
        }
    }

    /// Notes that something moved, for the watchdog.
    #[inline]
    pub fn moved(&mut self) {
        self.progress = self.progress.max(self.now());
    }

    /// Notes a commit or an acquired lock. Under a kernel that is no progress: ticks go on in a
    /// livelock too, so there only system calls and user code count.
    #[inline]
    pub(crate) fn moved_bare(&mut self) {
        if !self.kernel_reports {
            self.moved();
        }
    }

    /// Number of the code line `n` lines into the guest's text.
    pub(crate) fn code_line(&self, n: u32) -> u32 {
        1 + n % (self.code_lines - 1)
    }
}

impl Machine {
    fn stack(&self) -> (Addr, u32) {
        let cpu = &self.cpus[self.cur];
        let t = &self.threads[cpu.thread];
        if t.frame == 0 {
            (t.stack, STACK_BYTES)
        } else {
            // Handlers run on the processor's own stack, one part for each nesting level.
            (cpu.irq_stack + (t.frame - 1).min(3) * STACK_BYTES, STACK_BYTES)
        }
    }

    /// The address of a push.
    pub(crate) fn stack_push(&mut self) -> Addr {
        let (base, size) = self.stack();
        let t = self.thread();
        t.sp = (t.sp + 4) % size;
        base + t.sp
    }

    /// The address of the last word pushed.
    pub(crate) fn stack_top(&mut self) -> Addr {
        self.stack().0 + self.thread().sp
    }

    /// Counts a lock acquired from cycle `start` to `end` after `retries` failed attempts.
    pub(crate) fn acquired(&mut self, start: u64, end: u64, retries: u64) {
        self.stats.acquires += 1;
        self.stats.test_and_set += retries;
        self.stats.contended += u64::from(retries > 0);
        self.stats.acquire_cycles += end.saturating_sub(start);
        self.moved_bare();
    }

    /// The address of a pop.
    pub(crate) fn stack_pop(&mut self) -> Addr {
        let (base, size) = self.stack();
        let t = self.thread();
        let a = base + t.sp;
        t.sp = t.sp.wrapping_sub(4) % size;
        a
    }
}
