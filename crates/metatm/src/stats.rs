//! What a run counts. Every figure of a report is computed from these counters.

use crate::htm::status::Reason;

/// What a processor's cycle was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// User code.
    User = 0,
    /// System calls and kernel threads.
    #[default]
    Sys = 1,
    /// Interrupt handlers.
    Irq = 2,
    /// Nothing to run while some thread waits for a device.
    IoWait = 3,
    /// Nothing to run.
    Idle = 4,
}

/// Counters of one critical region (a place in the kernel's source that takes a lock).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Region {
    /// Executions completed.
    pub entries: u64,
    /// Of them in a transaction.
    pub tx_entries: u64,
    /// Threads in it now.
    pub inside: u32,
    /// Most threads in it at once.
    pub most: u32,
    /// Executions in which I/O was done, in the region itself or in one nested in it.
    pub io: u64,
    /// Executions that `cx_optimistic` made exclusive, by [`Reason::index`] of why: I/O that was
    /// cancelled, an overflow of L1, or (user) a `cx_exclusive` nested in it.
    pub exclusive: [u64; 5],
}

/// What decided a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The contention policy, between two transactions.
    Policy = 0,
    /// The contention policy (or the rule set by `xcas`), for an `xcas` outside of a transaction.
    Xcas = 1,
    /// The loser spun in `xtest`, waiting for a lock.
    Spinner = 2,
    /// The loser's thread was on no processor.
    Parked = 3,
    /// The loser was suspended under the winner, on the same thread.
    Own = 4,
    /// The winner was a plain access outside of any transaction.
    Plain = 5,
}

impl Rule {
    /// All, in the order of [`Stats::decided`].
    pub const ALL: [Self; 6] =
        [Self::Policy, Self::Xcas, Self::Spinner, Self::Parked, Self::Own, Self::Plain];

    /// What decided, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Policy => "policy, between transactions",
            Self::Xcas => "policy, for an xcas",
            Self::Spinner => "loser spun in xtest",
            Self::Parked => "loser's thread on no processor",
            Self::Own => "loser suspended under the winner",
            Self::Plain => "winner outside of any transaction",
        }
    }
}

/// Conflicts that one [`Rule`] decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decided {
    /// All of them.
    pub conflicts: u64,
    /// Of them won by the lower scheduling priority.
    pub inversions: u64,
    /// Of them won by a non-real-time thread against a real-time one.
    pub policy_inversions: u64,
}

/// Counters of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions executed by all processors.
    pub instrs: u64,
    /// Of them, references to data memory.
    pub refs: u64,
    /// Cycles by [`Mode`], summed over processors.
    pub cycles: [u64; 5],
    /// Cycle at which the run ended.
    pub end: u64,
    /// Misses.
    pub l1d_misses: u64,
    /// Instruction misses.
    pub l1i_misses: u64,
    /// Accesses that went to the bus.
    pub bus: u64,

    /// Spinlocks acquired.
    pub acquires: u64,
    /// Of them, those whose first attempt failed.
    pub contended: u64,
    /// Test-and-set iterations that failed.
    pub test_and_set: u64,
    /// Iterations of the inner loop on the cached value.
    pub tests: u64,
    /// Cycles from a spinlock's first instruction to its acquisition.
    pub acquire_cycles: u64,

    /// Outermost commits.
    pub commits: u64,
    /// Of them begun in interrupt context.
    pub commits_irq: u64,
    /// Instructions of committed attempts.
    pub commit_instrs: u64,
    /// Cycles of committed attempts.
    pub commit_cycles: u64,
    /// Commits of attempts that had overflowed L1.
    pub overflows: u64,
    /// Cycles paid for overflowed lines.
    pub virt_cycles: u64,
    /// Restarts by [`Reason::index`].
    pub restarts: [u64; 5],
    /// Cycles of attempts that restarted, by [`Reason::index`].
    pub wasted: [u64; 5],
    /// Cycles of backoff.
    pub backoff_cycles: u64,
    /// Most restarts of any one transaction.
    pub most_restarts: u32,

    /// Conflicts, by the [`Rule`] that decided them.
    pub decided: [Decided; 6],
    /// Judged `xcas` that transactions won.
    pub xcas_refused: u64,

    /// I/O operations done.
    pub io: u64,
    /// I/O operations cancelled inside a transaction.
    pub io_cancelled: u64,
    /// Sum of nesting depths at those.
    pub io_depth: u64,

    /// Context switches.
    pub switches: u64,
    /// Interrupts delivered.
    pub interrupts: u64,
    /// Threads descheduled by the transaction-aware scheduler.
    pub descheduled: u64,
    /// System calls completed.
    pub syscalls: u64,

    /// By region number.
    pub regions: Vec<Region>,
}

impl Stats {
    /// Cycles spent in the kernel, interrupts included.
    pub fn kernel(&self) -> u64 {
        self.cycles[Mode::Sys as usize] + self.cycles[Mode::Irq as usize]
    }

    /// Cycles lost to restarts of every kind, backoff included.
    pub fn restart_cycles(&self) -> u64 {
        self.wasted.iter().sum::<u64>() + self.backoff_cycles
    }

    /// Cycles lost to synchronization: acquiring spinlocks, restarting, overflowing.
    pub fn sync_cycles(&self) -> u64 {
        self.acquire_cycles + self.restart_cycles() + self.virt_cycles
    }

    /// Conflicts that `rule` decided.
    pub fn by(&self, rule: Rule) -> Decided {
        self.decided[rule as usize]
    }

    /// Conflicts that the contention manager saw: all but those with a plain access, which always
    /// wins and of which it is not asked (paper, section 6.2).
    pub fn managed(&self) -> Decided {
        let mut sum = Decided::default();
        for rule in Rule::ALL.into_iter().filter(|r| *r != Rule::Plain) {
            let d = self.by(rule);
            sum.conflicts += d.conflicts;
            sum.inversions += d.inversions;
            sum.policy_inversions += d.policy_inversions;
        }
        sum
    }

    /// Restarts for `reason`.
    pub fn restarts_for(&self, reason: Reason) -> u64 {
        self.restarts[reason.index()]
    }

    /// Restarts of every kind.
    pub fn all_restarts(&self) -> u64 {
        self.restarts.iter().sum()
    }

    /// The counters of region `id`.
    pub fn region(&mut self, id: u16) -> &mut Region {
        let id = usize::from(id);
        if self.regions.len() <= id {
            self.regions.resize(id + 1, Region::default());
        }
        &mut self.regions[id]
    }
}
