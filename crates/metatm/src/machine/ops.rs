//! Ordinary instructions: loads, stores, atomics, arithmetic.

use std::task::Poll;

use super::{KEY_SHIFT, Machine};
use crate::cache::Mesi;
use crate::htm::Slot;
use crate::mem::{Addr, LINE_SHIFT};

/// Longest stretch of arithmetic between two looks at the interrupts.
const CHUNK: u64 = 2048;

/// Names the kind of access for conflict detection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Machine {
    /// True if this processor may execute now; every instruction asks first.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        if self.keys[self.cur] > self.horizon || self.error.is_some() {
            return false;
        }
        let t = &self.threads[self.cpus[self.cur].thread];
        if let Some(slot) = t.tx {
            if self.htm.tx[slot].frame != t.frame {
                self.fault(
                    "an interrupt handler ran instructions inside the interrupted transaction; \
                     begin it with xpush and end it with xpop",
                );
                return false;
            }
            if t.restart_to.is_some() {
                return false;
            }
            if self.htm.tx[slot].aborted.is_some() {
                self.fault("a restarted region did not begin with xbegin");
                return false;
            }
        }
        true
    }

    /// True if this processor is due, whatever its thread's transaction is doing.
    #[inline]
    pub(crate) fn due(&self) -> bool {
        self.keys[self.cur] <= self.horizon && self.error.is_none()
    }

    /// Counts `n` instructions and fetches their code; the penalty of the fetches.
    #[inline]
    pub(crate) fn count(&mut self, n: u32) -> u64 {
        self.stats.instrs += u64::from(n);
        let cur = self.cur;
        let t = &mut self.threads[self.cpus[cur].thread];
        t.instrs += u64::from(n);
        if let Some(slot) = t.tx {
            self.htm.tx[slot].instrs += u64::from(n);
        }
        if !self.cfg.icache {
            return 0;
        }
        let (base, lines, at) = t.code;
        let end = at + 4 * n;
        if at >> LINE_SHIFT == end >> LINE_SHIFT {
            t.code.2 = end;
            return 0;
        }
        let window = lines << LINE_SHIFT;
        t.code.2 = end % window;
        // A loop longer than its window fetches each line once.
        let crossed = ((end >> LINE_SHIFT) - (at >> LINE_SHIFT)).min(lines);
        let mut penalty = 0;
        for i in 1..=crossed {
            let line = base + ((at >> LINE_SHIFT) + i) % lines;
            let access = self.caches.fetch_code(cur, line);
            if access.penalty > 0 {
                self.stats.l1i_misses += 1;
                penalty += u64::from(access.penalty);
            }
        }
        penalty
    }

    /// The cache's cost of a data access, transactional bookkeeping included.
    #[inline]
    pub(crate) fn cached(&mut self, a: Addr, kind: Kind, slot: Option<Slot>) -> u64 {
        let line = a >> LINE_SHIFT;
        let mark = slot.map_or(0, |s| self.htm.tx[s].mark);
        let access = match kind {
            Kind::Read => self.caches.read(self.cur, line, mark),
            Kind::Write => self.caches.write(self.cur, line, mark),
        };
        if std::mem::take(&mut self.prepaid) {
            // What was waited for; if another took the line meanwhile, it is back for free.
            return if access.lost_mark != 0 { self.overflow(access.lost_mark) } else { 0 };
        }
        self.stats.refs += 1;
        let mut cost = u64::from(access.penalty);
        if cost > 0 {
            self.stats.l1d_misses += 1;
            if access.bus {
                self.stats.bus += 1;
                self.bus_free = self.now() + u64::from(self.cfg.bus);
                if self.cfg.perturb > 0 {
                    cost += u64::from(self.rng.below(self.cfg.perturb + 1));
                }
            }
        }
        if access.lost_mark != 0 {
            cost += self.overflow(access.lost_mark);
        }
        cost
    }

    /// Refuses an address that no access may have.
    #[inline]
    fn addressed(&mut self, a: Addr) -> bool {
        if let Some(what) = self.mem.fault(a) {
            self.fault(what);
            return false;
        }
        true
    }

    /// True if the access to `a` needs no bus or may have it now; else time passes until the bus is
    /// free, when the first to ask again gets it.
    #[inline]
    pub(crate) fn bus_granted(&mut self, a: Addr, kind: Kind) -> bool {
        let now = self.now();
        if self.cfg.bus == 0 || self.bus_free <= now {
            return true;
        }
        let state = self.caches.state(self.cur, a >> LINE_SHIFT);
        let needs = match kind {
            Kind::Read => state == Mesi::Invalid,
            Kind::Write => matches!(state, Mesi::Invalid | Mesi::Shared),
        };
        if needs {
            self.advance(self.bus_free - now);
        }
        !needs
    }

    /// True if the access to `a` may take effect: at once, or with `late` when its miss is over.
    #[inline]
    pub(crate) fn arrived(&mut self, a: Addr, kind: Kind) -> bool {
        if !self.cfg.late {
            return true;
        }
        let line = a >> LINE_SHIFT;
        if self.cpus[self.cur].paid.take() == Some((line, kind)) {
            self.prepaid = true;
            return true;
        }
        if self.caches.hits(self.cur, line, kind == Kind::Write) {
            return true;
        }
        let cost = self.cached(a, kind, None);
        let cur = self.cur;
        self.cpus[cur].paid = Some((line, kind));
        self.advance(cost);
        false
    }

    /// Common start of an access; `false` means not now (or never again in this attempt).
    #[inline]
    pub(crate) fn ready(&mut self, a: Addr, kind: Kind) -> bool {
        self.prepaid = false;
        if !self.turn()
            || !self.addressed(a)
            || !self.bus_granted(a, kind)
            || !self.arrived(a, kind)
        {
            return false;
        }
        let slot = self.threads[self.cpus[self.cur].thread].tx;
        self.htm.enemies(a, kind == Kind::Write, slot, &mut self.enemies);
        self.enemies.is_empty() || self.contend(slot)
    }

    /// Loads the word at `a`.
    #[inline]
    pub fn load(&mut self, a: Addr) -> Poll<u32> {
        if !self.ready(a, Kind::Read) {
            return Poll::Pending;
        }
        let slot = self.thread().tx;
        let value = self.mem.get(a);
        if let Some(slot) = slot {
            self.htm.tx[slot].spinning = false;
            if self.cfg.sabotage != Some(crate::config::Sabotage::ForgetReads) {
                self.htm.add_read(slot, a, value);
            } else {
                self.htm.tx[slot].reads.push((a / 4, value));
            }
        }
        let cost = 1 + self.count(1) + self.cached(a, Kind::Read, slot);
        self.advance(cost);
        Poll::Ready(value)
    }

    /// Writes `new` over the word at `a`, which was found writable; `n` instructions.
    #[inline]
    pub(crate) fn put(&mut self, a: Addr, new: u32, n: u32) {
        let slot = self.thread().tx;
        if let Some(slot) = slot {
            self.htm.tx[slot].spinning = false;
            self.htm.add_write(slot, a, self.mem.get(a), new);
        }
        self.mem.set(a, new);
        let cost = u64::from(n) + self.count(n) + self.cached(a, Kind::Write, slot);
        self.advance(cost);
    }

    /// Stores `v` at `a`.
    #[inline]
    pub fn store(&mut self, a: Addr, v: u32) -> Poll<()> {
        if !self.ready(a, Kind::Write) {
            return Poll::Pending;
        }
        self.put(a, v, 1);
        Poll::Ready(())
    }

    /// One locked read-modify-write of the word at `a`; the value before.
    #[inline]
    pub fn rmw(&mut self, a: Addr, f: impl FnOnce(u32) -> u32) -> Poll<u32> {
        if !self.ready(a, Kind::Write) {
            return Poll::Pending;
        }
        let old = self.mem.get(a);
        if let Some(slot) = self.thread().tx {
            self.htm.add_read(slot, a, old);
        }
        self.put(a, f(old), 1);
        Poll::Ready(old)
    }

    /// Executes up to `*left` instructions that touch no memory; ready when none is left.
    ///
    /// They need no turn: nobody can see when they happen. Interrupts are looked at every 2048.
    pub fn alu(&mut self, left: &mut u32) -> Poll<()> {
        if self.error.is_some() {
            return Poll::Pending;
        }
        let t = &self.threads[self.cpus[self.cur].thread];
        if t.tx.is_some() && !self.turn() {
            return Poll::Pending;
        }
        while *left > 0 {
            let room = self.until_irq();
            if room == 0 {
                return Poll::Pending;
            }
            let n = u64::from(*left).min(room).min(CHUNK) as u32;
            let cost = u64::from(n) + self.count(n);
            self.advance(cost);
            *left -= n;
            if u64::from(n) == CHUNK {
                return if *left == 0 { Poll::Ready(()) } else { Poll::Pending };
            }
        }
        Poll::Ready(())
    }

    /// Lets `*left` cycles pass without instructions (backoff); ready when none is left.
    pub(crate) fn pass(&mut self, left: &mut u64) -> Poll<()> {
        while *left > 0 {
            let room = self.until_irq();
            if room == 0 || self.error.is_some() {
                return Poll::Pending;
            }
            let n = (*left).min(room);
            self.advance(n);
            *left -= n;
        }
        Poll::Ready(())
    }

    /// Cycles until an enabled interrupt is due here.
    fn until_irq(&self) -> u64 {
        let cpu = &self.cpus[self.cur];
        match cpu.irqs.first() {
            Some((at, _)) if cpu.irq_on => at.saturating_sub(self.now()),
            _ => u64::MAX,
        }
    }

    /// Moves a thread's window of code; the window it had.
    pub fn enter_code(&mut self, first: u32, lines: u32) -> (u32, u32, u32) {
        let base = self.code_line(first);
        let old = self.thread().code;
        self.thread().code = (base, lines.max(1), 0);
        old
    }

    /// Wakes processor `cpu` at cycle `at` if it is halted, and shortens the current stretch.
    pub(crate) fn hasten(&mut self, cpu: usize, at: u64) {
        let key = at << KEY_SHIFT | cpu as u64;
        if let Some(since) = self.cpus[cpu].halted {
            // Not before it halted, which may lie ahead of this processor's time if `skew` is set.
            self.keys[cpu] = self.keys[cpu].min(key.max(since << KEY_SHIFT | cpu as u64));
        }
        self.horizon = self.horizon.min(key);
    }
}
