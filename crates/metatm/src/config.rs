//! Every constant of the model, with its source.
//!
//! P: stated in the paper. D: deduced. O: left open by the paper, so a parameter here, and swept by
//! `metatm reproduce` (see `experiment::sweep`).

use crate::error::{Result, SimError};
use crate::htm::policy::Policy;

/// How long a restarted transaction waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// Uniform below `base << min(restarts, cap)` (P: exponential; base and cap O).
    Exponential,
    /// Uniform below `base * restarts`.
    Linear,
    /// At once.
    None,
}

/// Who wins when a non-transactional `xcas` meets transactions that hold the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XcasRule {
    /// The contention policy judges, the caller counting as a transaction of size 0 (P).
    Judge,
    /// Transactions always win: the paper's "certain policies" that deadlock in section 5.3.
    TransactionsWin,
    /// The caller always wins, as a plain store would.
    CallerWins,
}

/// What follows when a transaction outgrows L1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overflow {
    /// It goes on, paying `virt_cost` for each line that overflowed (TxLinux-SS).
    Virtualize,
    /// It restarts with NEED_EXCLUSIVE (P, section 5: best-effort hardware under cxspinlocks).
    Exclusive,
}

/// How many levels one I/O restart converts to mutual exclusion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoRestart {
    /// The outermost alone, so that depth restarts follow (P, section 7.4).
    PerLevel,
    /// All levels of the region at once (O).
    AllLevels,
}

/// Which of the paper's three kernels runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelKind {
    /// Unmodified Linux: locks only.
    Locks,
    /// TxLinux-SS: the subsystems of table 4, and sequence locks, use naked transactions.
    Ss,
    /// TxLinux-CX: nearly every spinlock is `cx_optimistic`.
    Cx,
}

/// Which scheduler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SchedKind {
    /// O(1), as in Linux 2.6.16.
    Default,
    /// The transaction-aware one of section 6.
    Aware,
}

/// A deliberate defect, to show that the checkers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Transactional reads don't enter the read set.
    ForgetReads,
    /// A restart does not put old values back.
    ForgetUndo,
}

/// All parameters of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Processors, 1 to 32 (P: 4 to 32).
    pub cpus: usize,
    /// Seed of the machine's chance: backoff and timing perturbation.
    pub seed: u64,
    /// Seed of the workload's script.
    pub workload_seed: u64,
    /// Bus accesses take up to this many cycles more (P: perturbed; amount O).
    pub perturb: u32,
    /// Simulated memory in bytes (P: 1 GB).
    pub mem_bytes: u64,
    /// L1 I and L1 D size in bytes, 4-way (P).
    pub l1_bytes: u32,
    /// L2 size in bytes, 8-way (P).
    pub l2_bytes: u32,
    /// Cycles that an L1 miss adds (P).
    pub l1_miss: u32,
    /// Cycles that an L2 miss adds (P).
    pub l2_miss: u32,
    /// Cycles that a transfer from another cache adds (O).
    pub c2c: u32,
    /// Cycles of an upgrade from shared (O).
    pub upgrade: u32,
    /// Cycles that each data access on the bus occupies it (O; 0: no two accesses ever meet).
    pub bus: u32,
    /// Cycles by which a processor may run ahead of the slowest (O; 0: exact order).
    pub skew: u32,
    /// A data access takes effect at the end of its miss, not at its begin (O).
    pub late: bool,
    /// Model instruction fetches through L1 I.
    pub icache: bool,
    /// Simulated cycles in a microsecond (O; low, so that a run holds many disk accesses).
    pub cycles_per_us: u32,
    /// Timer ticks in a simulated second (O).
    pub hz: u32,
    /// Disk latency in microseconds (P: 5500; 0 under bonnie++).
    pub disk_us: u32,
    /// Network latency in microseconds (P: 100).
    pub net_us: u32,
    /// Microseconds of PCI bus time for one disk request (O; 4 KB at 133 MB/s).
    pub dma_us: u32,
    /// Microseconds of wire time for one packet (O; 1500 bytes at 1 Gbit/s).
    pub wire_us: u32,
    /// Contention policy (P: SizeMatters).
    pub policy: Policy,
    /// Restarts after which size no longer counts, only age (D).
    pub fallback_restarts: u32,
    /// Kind of backoff.
    pub backoff: Backoff,
    /// Backoff base in cycles (O).
    pub backoff_base: u32,
    /// Backoff cap as a power of two times the base (O).
    pub backoff_cap: u32,
    /// First wait that the polite policy grants, in cycles; doubled each time (O).
    pub polite_base: u32,
    /// Waits that the polite policy grants before it insists (O).
    pub polite_waits: u32,
    /// Cycles to put a transaction's old values back, and the same for each word (O).
    pub abort_cost: u32,
    /// Cycles for each line that overflowed L1 (O).
    pub virt_cost: u32,
    /// What follows an overflow; `None` lets the kernel kind choose.
    pub overflow: Option<Overflow>,
    /// Judgement of `xcas`.
    pub xcas: XcasRule,
    /// A waiter that sees its spinlock free pauses for up to this many cycles and looks again before
    /// it tries (0: Linux's spinlock).
    pub spin_backoff: u32,
    /// A transaction that spins in `xtest` loses every judged conflict (D: resolves section 5.3).
    pub spinner_yields: bool,
    /// What one I/O restart converts.
    pub io_restart: IoRestart,
    /// Kernel.
    pub kernel: KernelKind,
    /// Scheduler.
    pub sched: SchedKind,
    /// Ticks of a thread's quantum (O).
    pub quantum: u32,
    /// Ticks between two runs of the real-time daemon (O).
    pub daemon_ticks: u32,
    /// Aware scheduler: weight of old samples in a moving average, against 1 for a new one (O).
    pub average: u32,
    /// Aware scheduler: words from which a transaction counts as large (O).
    pub large: u32,
    /// Aware scheduler: levels by which an active transaction is rewarded (O).
    pub reward_active: u32,
    /// Aware scheduler: levels by which large transactions are rewarded (O).
    pub reward_large: u32,
    /// Aware scheduler: most levels by which restarts are penalized (O).
    pub penalty: u32,
    /// Directories that the 32 instances of bonnie++ share among them (O; 32: each its own).
    pub bonnie_dirs: u32,
    /// Reads of the clock in each system call, besides those of the workload (O).
    pub clock_reads: u32,
    /// Scale of the workload: work items asked of each thread, in percent of the standard.
    pub scale: u32,
    /// Length of the kernel's paths outside of its critical regions, in percent (O; calibrated).
    pub work: u32,
    /// Cycles without any progress after which the watchdog ends the run.
    pub watchdog: u64,
    /// Cycles after which a run is ended as unfinished.
    pub max_cycles: u64,
    /// A deliberate defect.
    pub sabotage: Option<Sabotage>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cpus: 16,
            seed: 1,
            workload_seed: 1,
            perturb: 0,
            mem_bytes: 1 << 30,
            l1_bytes: 16 << 10,
            l2_bytes: 4 << 20,
            l1_miss: 16,
            l2_miss: 200,
            c2c: 200,
            upgrade: 200,
            bus: 0,
            skew: 0,
            late: true,
            icache: true,
            cycles_per_us: 100,
            hz: 1000,
            disk_us: 5500,
            net_us: 100,
            dma_us: 30,
            wire_us: 12,
            policy: Policy::SizeMatters,
            fallback_restarts: 32,
            backoff: Backoff::Exponential,
            backoff_base: 64,
            backoff_cap: 8,
            polite_base: 32,
            polite_waits: 4,
            abort_cost: 20,
            virt_cost: 500,
            overflow: None,
            xcas: XcasRule::Judge,
            spin_backoff: 0,
            spinner_yields: true,
            io_restart: IoRestart::PerLevel,
            kernel: KernelKind::Locks,
            sched: SchedKind::Default,
            quantum: 10,
            daemon_ticks: 3,
            average: 3,
            large: 64,
            reward_active: 2,
            reward_large: 1,
            penalty: 3,
            bonnie_dirs: 32,
            clock_reads: 0,
            scale: 100,
            work: 700,
            watchdog: 20_000_000,
            max_cycles: 4_000_000_000,
            sabotage: None,
        }
    }
}

fn parameter(name: &str, value: &str, reason: &str) -> SimError {
    SimError::Parameter { name: name.into(), value: value.into(), reason: reason.into() }
}

/// A name for each value of an enum, for the command line.
macro_rules! named {
    ($ty:ident, $kind:literal, $($name:literal => $value:expr),+) => {
        impl $ty {
            /// All names that [`Self::parse`] takes.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The value called `name`.
            ///
            /// # Errors
            /// No such name; the message lists those that exist.
            pub fn parse(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok($value),)+
                    _ => Err(SimError::Unknown {
                        kind: $kind,
                        name: name.into(),
                        known: Self::NAMES.join(", "),
                    }),
                }
            }

            /// The name of this value.
            pub fn name(self) -> &'static str {
                $(if self == $value { return $name; })+
                ""
            }
        }
    };
}

named!(Backoff, "backoff", "exponential" => Self::Exponential, "linear" => Self::Linear, "none" => Self::None);
named!(XcasRule, "rule for xcas", "judge" => Self::Judge, "tx-wins" => Self::TransactionsWin,
    "caller-wins" => Self::CallerWins);
named!(Overflow, "overflow rule", "virtualize" => Self::Virtualize, "exclusive" => Self::Exclusive);
named!(IoRestart, "I/O restart rule", "per-level" => Self::PerLevel, "all-levels" => Self::AllLevels);
named!(KernelKind, "kernel", "locks" => Self::Locks, "ss" => Self::Ss, "cx" => Self::Cx);
named!(SchedKind, "scheduler", "default" => Self::Default, "aware" => Self::Aware);
named!(Policy, "policy", "size-matters" => Self::SizeMatters, "timestamp" => Self::Timestamp,
    "os-prio" => Self::OsPrio, "eager" => Self::Eager, "polite" => Self::Polite);

impl Config {
    /// Sets the parameter `key` from text, as `--set key=value` does.
    ///
    /// # Errors
    /// No such parameter, or a value that it cannot have.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T> {
            value.parse().map_err(|_| parameter(key, value, "a non-negative whole number"))
        }
        macro_rules! keys {
            (numbers: $($n:ident),+; names: $($e:ident: $ty:ident),+) => {
                match key {
                    $(stringify!($n) => self.$n = number(key, value)?,)+
                    $(stringify!($e) => self.$e = $ty::parse(value)?,)+
                    "overflow" => self.overflow = Some(Overflow::parse(value)?),
                    "icache" | "late" | "spinner_yields" => {
                        let on = match value {
                            "true" => true,
                            "false" => false,
                            _ => return Err(parameter(key, value, "true or false")),
                        };
                        match key {
                            "icache" => self.icache = on,
                            "late" => self.late = on,
                            _ => self.spinner_yields = on,
                        }
                    }
                    _ => return Err(SimError::Unknown {
                        kind: "parameter",
                        name: key.into(),
                        known: [$(stringify!($n),)+ $(stringify!($e),)+
                            "overflow", "icache", "late", "spinner_yields"].join(", "),
                    }),
                }
            };
        }
        keys!(numbers: cpus, seed, workload_seed, perturb, mem_bytes, l1_bytes, l2_bytes, l1_miss,
            l2_miss, c2c, upgrade, bus, skew, spin_backoff, cycles_per_us, hz, disk_us, net_us, dma_us, wire_us, fallback_restarts,
            backoff_base, backoff_cap, polite_base, polite_waits, quantum, daemon_ticks, average,
            large, reward_active, reward_large, penalty, bonnie_dirs, clock_reads, abort_cost, virt_cost, scale, work, watchdog, max_cycles;
            names: policy: Policy, backoff: Backoff, xcas: XcasRule, io_restart: IoRestart,
            kernel: KernelKind, sched: SchedKind);
        Ok(())
    }

    /// Refuses what the model cannot represent.
    ///
    /// # Errors
    /// The first parameter out of range.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, v: u64, low: u64, high: u64| {
            if (low..=high).contains(&v) {
                Ok(())
            } else {
                Err(parameter(name, &v.to_string(), &format!("between {low} and {high}")))
            }
        };
        range("cpus", self.cpus as u64, 1, 32)?;
        range("l1_miss", u64::from(self.l1_miss), 0, 10_000)?;
        range("l2_miss", u64::from(self.l2_miss), 0, 100_000)?;
        range("c2c", u64::from(self.c2c), 0, 100_000)?;
        range("upgrade", u64::from(self.upgrade), 0, 100_000)?;
        range("bus", u64::from(self.bus), 0, 10_000)?;
        range("skew", u64::from(self.skew), 0, 100_000)?;
        range("spin_backoff", u64::from(self.spin_backoff), 0, 100_000)?;
        range("perturb", u64::from(self.perturb), 0, 10_000)?;
        range("cycles_per_us", u64::from(self.cycles_per_us), 1, 10_000)?;
        range("hz", u64::from(self.hz), 1, 100_000)?;
        range("disk_us", u64::from(self.disk_us), 0, 1_000_000)?;
        range("net_us", u64::from(self.net_us), 0, 1_000_000)?;
        range("backoff_base", u64::from(self.backoff_base), 1, 1 << 20)?;
        range("backoff_cap", u64::from(self.backoff_cap), 0, 20)?;
        range("dma_us", u64::from(self.dma_us), 0, 1_000_000)?;
        range("wire_us", u64::from(self.wire_us), 0, 1_000_000)?;
        range("fallback_restarts", u64::from(self.fallback_restarts), 0, 20_000)?;
        range("polite_base", u64::from(self.polite_base), 1, 1 << 20)?;
        range("polite_waits", u64::from(self.polite_waits), 0, 20)?;
        range("quantum", u64::from(self.quantum), 1, 10_000)?;
        range("daemon_ticks", u64::from(self.daemon_ticks), 1, 10_000)?;
        range("average", u64::from(self.average), 0, 1_000)?;
        range("large", u64::from(self.large), 0, 1 << 20)?;
        range("reward_active", u64::from(self.reward_active), 0, 10)?;
        range("reward_large", u64::from(self.reward_large), 0, 10)?;
        range("penalty", u64::from(self.penalty), 0, 10)?;
        range("bonnie_dirs", u64::from(self.bonnie_dirs), 1, 32)?;
        range("clock_reads", u64::from(self.clock_reads), 0, 100)?;
        range("abort_cost", u64::from(self.abort_cost), 0, 100_000)?;
        range("virt_cost", u64::from(self.virt_cost), 0, 1_000_000)?;
        range("work", u64::from(self.work), 0, 10_000)?;
        range("scale", u64::from(self.scale), 1, 10_000)?;
        range("watchdog", self.watchdog, 10_000, u64::MAX)?;
        for (name, bytes, ways) in [("l1_bytes", self.l1_bytes, 4), ("l2_bytes", self.l2_bytes, 8)]
        {
            if !bytes.is_power_of_two() || bytes < ways * 64 || bytes > 1 << 26 {
                return Err(parameter(
                    name,
                    &bytes.to_string(),
                    &format!("a power of two from {} to 64 MB", ways * 64),
                ));
            }
        }
        if self.l2_bytes < self.l1_bytes * 2 {
            return Err(parameter(
                "l2_bytes",
                &self.l2_bytes.to_string(),
                "at least twice l1_bytes, because L2 includes both L1s",
            ));
        }
        if self.tick() < 1000 {
            return Err(parameter("hz", &self.hz.to_string(), "a tick of at least 1000 cycles"));
        }
        Ok(())
    }

    /// Cycles between timer ticks.
    pub fn tick(&self) -> u64 {
        u64::from(self.cycles_per_us) * 1_000_000 / u64::from(self.hz)
    }

    /// What follows an overflow in the configured kernel.
    pub fn overflow_rule(&self) -> Overflow {
        self.overflow.unwrap_or(match self.kernel {
            KernelKind::Cx => Overflow::Exclusive,
            _ => Overflow::Virtualize,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_set_by_name_and_checked() {
        let mut c = Config::default();
        c.set("cpus", "8").expect("cpus");
        c.set("policy", "os-prio").expect("policy");
        c.set("icache", "false").expect("icache");
        assert_eq!((c.cpus, c.policy, c.icache), (8, Policy::OsPrio, false));
        assert!(c.set("cpus", "many").is_err());
        assert!(c.set("policy", "loud").expect_err("policy").to_string().contains("os-prio"));
        assert!(c.set("cpu", "8").expect_err("key").to_string().contains("cpus"));
        c.check().expect("good");
    }

    #[test]
    fn nonsense_is_refused() {
        for (key, value) in [
            ("cpus", "0"),
            ("cpus", "33"),
            ("l1_bytes", "3000"),
            ("l2_bytes", "16384"),
            ("backoff_base", "0"),
            ("hz", "0"),
            ("scale", "0"),
            ("watchdog", "5"),
        ] {
            let mut c = Config::default();
            c.set(key, value).expect("a number");
            let said = c.check().expect_err(key).to_string();
            assert!(said.contains(key), "{said}");
        }
    }
}
