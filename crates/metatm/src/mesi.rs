//! The memory hierarchy: private L1 I and D, a private inclusive L2 per processor, MESI on a
//! snooping bus (paper, section 7.1).
//!
//! Costs: an L1 hit is the instruction's own cycle; an L1 miss adds 16; an L2 miss adds 200 more.
//! The paper gives no cost for a transfer between caches or for an upgrade from shared to
//! modified; both are parameters (`c2c`, `upgrade`) and both are swept.
//!
//! Invariants, audited by [`Hierarchy::audit`]:
//! 1. A line that is Exclusive or Modified in one L2 is in no other L2.
//! 2. Whatever is in an L1 is in the same processor's L2, with the same state (L1 D).
//! 3. `owners` is what a bus snoop would find: one bit a processor, and a bit for exclusivity. It
//!    only spares the simulator from asking 31 caches, and changes no timing.

use crate::cache::{Array, Evicted, Mesi};
use crate::config::Config;
use crate::error::{Result, SimError};

const EXCLUSIVE: u64 = 1 << 63;

/// What an access cost and what it pushed out of L1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Cycles on top of the instruction's own.
    pub penalty: u32,
    /// True if it left the L2 (and so may be perturbed).
    pub bus: bool,
    /// The mark of the line that L1 D gave up, or 0.
    pub lost_mark: u32,
}

const HIT: Access = Access { penalty: 0, bus: false, lost_mark: 0 };

struct Core {
    l1i: Array<4>,
    l1d: Array<4>,
    l2: Array<8>,
}

/// All caches and the bus.
pub struct Hierarchy {
    cores: Vec<Core>,
    owners: Vec<u64>,
    l1_miss: u32,
    l2_miss: u32,
    c2c: u32,
    upgrade: u32,
}

impl Hierarchy {
    /// The caches that `cfg` describes over `lines` lines of memory.
    pub fn new(cfg: &Config, lines: usize) -> Self {
        let core = || Core {
            l1i: Array::new(cfg.l1_bytes, false),
            l1d: Array::new(cfg.l1_bytes, true),
            l2: Array::new(cfg.l2_bytes, false),
        };
        Self {
            cores: (0..cfg.cpus).map(|_| core()).collect(),
            owners: vec![0; lines],
            l1_miss: cfg.l1_miss,
            l2_miss: cfg.l2_miss,
            c2c: cfg.c2c,
            upgrade: cfg.upgrade,
        }
    }

    /// A data read of `line` by `cpu`, marked for a transaction if `mark` is not 0.
    #[inline]
    pub fn read(&mut self, cpu: usize, line: u32, mark: u32) -> Access {
        if self.cores[cpu].l1d.touch(line) != Mesi::Invalid {
            if mark != 0 {
                self.cores[cpu].l1d.mark(line, mark);
            }
            return HIT;
        }
        let (state, mut access) = self.fetch(cpu, line);
        self.fill(cpu, line, state, mark, &mut access);
        access
    }

    /// A data write (or locked read-modify-write) of `line` by `cpu`.
    #[inline]
    pub fn write(&mut self, cpu: usize, line: u32, mark: u32) -> Access {
        let state = self.cores[cpu].l1d.touch(line);
        let mut access = HIT;
        match state {
            Mesi::Modified => {}
            Mesi::Exclusive => self.dirty(cpu, line),
            Mesi::Shared => {
                access = self.take(cpu, line);
                self.dirty(cpu, line);
            }
            Mesi::Invalid => {
                let (state, fetched) = self.fetch_for_write(cpu, line);
                access = fetched;
                self.fill(cpu, line, state, mark, &mut access);
                if state != Mesi::Modified {
                    self.dirty(cpu, line);
                }
                return access;
            }
        }
        if mark != 0 {
            self.cores[cpu].l1d.mark(line, mark);
        }
        access
    }

    /// An instruction fetch.
    #[inline]
    pub fn fetch_code(&mut self, cpu: usize, line: u32) -> Access {
        if self.cores[cpu].l1i.touch(line) != Mesi::Invalid {
            return HIT;
        }
        let (_, access) = self.fetch(cpu, line);
        self.cores[cpu].l1i.insert(line, Mesi::Shared);
        access
    }

    /// True if a read (or write) of `line` by `cpu` would cost nothing.
    #[inline]
    pub fn hits(&self, cpu: usize, line: u32, write: bool) -> bool {
        match self.cores[cpu].l1d.peek(line) {
            Mesi::Invalid => false,
            Mesi::Shared => !write,
            Mesi::Exclusive | Mesi::Modified => true,
        }
    }

    /// The state of `line` in the L2 of `cpu`.
    pub fn state(&self, cpu: usize, line: u32) -> Mesi {
        self.cores[cpu].l2.peek(line)
    }

    fn fill(&mut self, cpu: usize, line: u32, state: Mesi, mark: u32, access: &mut Access) {
        if let Some(Evicted { mark: lost, .. }) = self.cores[cpu].l1d.insert(line, state) {
            // At most one of L1 and L2 pushes out a line of a running transaction; either will do.
            access.lost_mark = access.lost_mark.max(lost);
        }
        if mark != 0 {
            self.cores[cpu].l1d.mark(line, mark);
        }
    }

    /// Brings `line` into L2 for reading; its state there.
    fn fetch(&mut self, cpu: usize, line: u32) -> (Mesi, Access) {
        let here = self.cores[cpu].l2.touch(line);
        if here != Mesi::Invalid {
            return (here, Access { penalty: self.l1_miss, bus: false, lost_mark: 0 });
        }
        let owners = self.owners[line as usize];
        let bit = 1u64 << cpu;
        let (state, cost) = if owners & EXCLUSIVE != 0 {
            self.demote(owners, line);
            self.owners[line as usize] = (owners & !EXCLUSIVE) | bit;
            (Mesi::Shared, self.c2c)
        } else if owners != 0 {
            self.owners[line as usize] = owners | bit;
            (Mesi::Shared, self.l2_miss)
        } else {
            self.owners[line as usize] = bit | EXCLUSIVE;
            (Mesi::Exclusive, self.l2_miss)
        };
        let lost_mark = self.install(cpu, line, state);
        (state, Access { penalty: self.l1_miss + cost, bus: true, lost_mark })
    }

    /// Brings `line` into L2 with the right to write it.
    fn fetch_for_write(&mut self, cpu: usize, line: u32) -> (Mesi, Access) {
        match self.cores[cpu].l2.touch(line) {
            Mesi::Invalid => {}
            Mesi::Shared => {
                let mut access = self.take(cpu, line);
                access.penalty += self.l1_miss;
                return (Mesi::Exclusive, access);
            }
            state => {
                return (state, Access { penalty: self.l1_miss, bus: false, lost_mark: 0 });
            }
        }
        let owners = self.owners[line as usize];
        let cost = if owners & EXCLUSIVE != 0 { self.c2c } else { self.l2_miss };
        self.invalidate_others(cpu, line);
        self.owners[line as usize] = 1 << cpu | EXCLUSIVE;
        let lost_mark = self.install(cpu, line, Mesi::Exclusive);
        (Mesi::Exclusive, Access { penalty: self.l1_miss + cost, bus: true, lost_mark })
    }

    /// Shared to exclusive: an invalidation on the bus.
    fn take(&mut self, cpu: usize, line: u32) -> Access {
        self.invalidate_others(cpu, line);
        self.owners[line as usize] = 1 << cpu | EXCLUSIVE;
        self.cores[cpu].l2.set_state(line, Mesi::Exclusive);
        self.cores[cpu].l1d.set_state(line, Mesi::Exclusive);
        Access { penalty: self.upgrade, bus: true, lost_mark: 0 }
    }

    fn dirty(&mut self, cpu: usize, line: u32) {
        self.cores[cpu].l1d.set_state(line, Mesi::Modified);
        self.cores[cpu].l2.set_state(line, Mesi::Modified);
    }

    /// Puts `line` into L2; the mark of the L1 line that had to leave with L2's victim, or 0.
    fn install(&mut self, cpu: usize, line: u32, state: Mesi) -> u32 {
        let Some(Evicted { line: old, .. }) = self.cores[cpu].l2.insert(line, state) else {
            return 0;
        };
        let core = &mut self.cores[cpu];
        let mark = core.l1d.mark_of(old);
        core.l1d.set_state(old, Mesi::Invalid);
        core.l1i.set_state(old, Mesi::Invalid);
        self.owners[old as usize] &= !(1 << cpu | EXCLUSIVE);
        mark
    }

    fn demote(&mut self, owners: u64, line: u32) {
        let owner = (owners & !EXCLUSIVE).trailing_zeros() as usize;
        self.cores[owner].l1d.set_state(line, Mesi::Shared);
        self.cores[owner].l2.set_state(line, Mesi::Shared);
    }

    fn invalidate_others(&mut self, cpu: usize, line: u32) {
        let mut others = self.owners[line as usize] & !(EXCLUSIVE | 1 << cpu);
        while others != 0 {
            let core = &mut self.cores[others.trailing_zeros() as usize];
            core.l1d.set_state(line, Mesi::Invalid);
            core.l1i.set_state(line, Mesi::Invalid);
            core.l2.set_state(line, Mesi::Invalid);
            others &= others - 1;
        }
    }

    /// Checks the invariants over all caches.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn audit(&self) -> Result<()> {
        let mut seen: std::collections::HashMap<u32, u64> = std::collections::HashMap::new();
        for (cpu, core) in self.cores.iter().enumerate() {
            for (line, state) in core.l2.lines() {
                let entry = seen.entry(line).or_insert(0);
                *entry |= 1 << cpu;
                if matches!(state, Mesi::Exclusive | Mesi::Modified) {
                    *entry |= EXCLUSIVE;
                }
            }
            for (line, state) in core.l1d.lines() {
                if core.l2.peek(line) != state {
                    return Err(SimError::Coherence(format!(
                        "line {line:#x} is {state:?} in L1 of CPU {cpu}, {:?} in its L2",
                        core.l2.peek(line)
                    )));
                }
            }
            if let Some((line, _)) =
                core.l1i.lines().find(|(line, _)| core.l2.peek(*line) == Mesi::Invalid)
            {
                return Err(SimError::Coherence(format!(
                    "code line {line:#x} is in L1 of CPU {cpu} but not in its L2"
                )));
            }
        }
        for (line, bits) in &seen {
            if bits & EXCLUSIVE != 0 && (bits & !EXCLUSIVE).count_ones() != 1 {
                return Err(SimError::Coherence(format!("line {line:#x} has owners {bits:#x}")));
            }
            if self.owners[*line as usize] != *bits {
                return Err(SimError::Coherence(format!(
                    "line {line:#x}: caches say {bits:#x}, the bus {:#x}",
                    self.owners[*line as usize]
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy() -> Hierarchy {
        let cfg = Config { cpus: 4, ..Config::default() };
        Hierarchy::new(&cfg, 1 << 16)
    }

    #[test]
    fn costs_are_the_papers() {
        let mut h = hierarchy();
        assert_eq!(h.read(0, 100, 0).penalty, 216);
        assert_eq!(h.read(0, 100, 0).penalty, 0);
        for i in 1..=4 {
            h.read(0, 100 + 64 * i, 0);
        }
        assert_eq!(h.read(0, 100, 0).penalty, 16, "left L1, still in L2");
    }

    #[test]
    fn states_follow_mesi() {
        let mut h = hierarchy();
        h.read(0, 5, 0);
        assert_eq!(h.state(0, 5), Mesi::Exclusive);
        h.read(1, 5, 0);
        assert_eq!((h.state(0, 5), h.state(1, 5)), (Mesi::Shared, Mesi::Shared));
        h.write(1, 5, 0);
        assert_eq!((h.state(0, 5), h.state(1, 5)), (Mesi::Invalid, Mesi::Modified));
        h.read(2, 5, 0);
        assert_eq!((h.state(1, 5), h.state(2, 5)), (Mesi::Shared, Mesi::Shared));
        h.write(3, 5, 0);
        assert_eq!(h.state(3, 5), Mesi::Modified);
        assert_eq!(h.state(2, 5), Mesi::Invalid);
        h.audit().expect("coherent");
    }

    #[test]
    fn random_traffic_stays_coherent_and_the_audit_can_fail() {
        let mut h = hierarchy();
        let mut rng = crate::rng::Rng::new(3);
        for _ in 0..200_000 {
            let (cpu, line) = (rng.below(4) as usize, rng.below(3000) * 17);
            match rng.below(3) {
                0 => h.write(cpu, line, 0),
                1 => h.read(cpu, line, 0),
                _ => h.fetch_code(cpu, line),
            };
        }
        h.audit().expect("coherent");
        h.write(0, 8, 0);
        h.cores[1].l2.insert(8, Mesi::Modified);
        assert!(matches!(h.audit(), Err(SimError::Coherence(_))));
    }
}
