//! mixed: sections of few cxspinlocks in every mode, nested in every order.
//!
//! The application workloads hardly ever take a lock exclusively while others are inside, so what
//! the paper leaves open about that (who wins an `xcas`, whether a transaction that spins in
//! `xtest` gives way, how many levels an I/O restart converts) changes nothing there. Here most
//! sections are optimistic, some do I/O at the second level, some are exclusive two levels deep in
//! the order of the locks, and some enter and leave one lock and then want another within one
//! transaction, which with the exclusive ones is the deadlock of section 5.3.

use std::rc::Rc;

use super::{Plan, Script, Work, scaled, stream};
use crate::config::Config;
use crate::error::Result;
use crate::kernel::map::Map;
use crate::kernel::process::Process;
use crate::kernel::region::K;
use crate::machine::Machine;
use crate::machine::devices::Port;
use crate::mem::Addr;
use crate::sync::cx::{FREE, Irq};

/// Shared locks; each thread has one of its own besides.
const LOCKS: u32 = 4;

struct Mixed {
    rounds: u32,
    threads: u32,
    seed: u64,
}

pub(super) fn plan(cfg: &Config) -> Plan {
    Plan { workers: cfg.cpus as u32, children: 0, pages: 1024, script: build }
}

fn build(map: &Map, machine: &mut Machine, cfg: &Config) -> Result<Rc<dyn Script>> {
    let threads = cfg.cpus as u32;
    for n in 0..LOCKS + threads {
        machine.mem.set(lock(map, n), FREE);
    }
    Ok(Rc::new(Mixed { rounds: scaled(cfg, 400), threads, seed: cfg.workload_seed }))
}

/// Lock `n`; the shared ones come first.
fn lock(map: &Map, n: u32) -> Addr {
    map.scratch + 128 * n
}

/// The counter that lock `n` protects.
fn counter(map: &Map, n: u32) -> Addr {
    lock(map, n) + 64
}

impl Mixed {
    /// Counts in the section of lock `n`, which takes a while.
    async fn count(&self, k: &K, n: u32, work: u32) {
        let a = counter(&k.map, n);
        let v = k.load(a).await;
        k.alu(work).await;
        k.store(a, v + 1).await;
    }

    /// One section of lock `n`.
    async fn plain(&self, k: &K, n: u32) {
        k.scope(async || {
            k.cx_optimistic(lock(&k.map, n), Irq::Leave).await;
            self.count(k, n, 60).await;
            k.cx_end(lock(&k.map, n)).await;
        })
        .await;
    }

    /// Two levels, with I/O in the inner one.
    async fn with_io(&self, k: &K, n: u32) {
        let (outer, inner) = (lock(&k.map, n), lock(&k.map, n + 1));
        k.scope(async || {
            k.cx_optimistic(outer, Irq::Leave).await;
            self.count(k, n, 30).await;
            k.scope(async || {
                k.cx_optimistic(inner, Irq::Leave).await;
                self.count(k, n + 1, 30).await;
                k.io_write(Port::Other, 1).await;
                k.cx_end(inner).await;
            })
            .await;
            k.cx_end(outer).await;
        })
        .await;
    }

    /// Two locks exclusively, in their order.
    async fn exclusive(&self, k: &K, n: u32) {
        let (first, second) = (lock(&k.map, n), lock(&k.map, n + 1));
        k.cx_exclusive(first, Irq::Leave).await;
        self.count(k, n, 60).await;
        k.cx_exclusive(second, Irq::Leave).await;
        self.count(k, n + 1, 60).await;
        k.cx_end(second).await;
        k.cx_end(first).await;
    }

    /// Within one transaction, enters and leaves a lock and then enters one that comes before it.
    async fn crossing(&self, k: &K, me: u32, n: u32) {
        let own = lock(&k.map, LOCKS + me);
        k.scope(async || {
            k.cx_optimistic(own, Irq::Leave).await;
            for n in [n + 1, n] {
                k.cx_optimistic(lock(&k.map, n), Irq::Leave).await;
                self.count(k, n, 60).await;
                k.cx_end(lock(&k.map, n)).await;
            }
            k.cx_end(own).await;
        })
        .await;
    }
}

impl Script for Mixed {
    fn worker<'a>(&'a self, k: &'a K, me: u32, _: &'a mut Process) -> Work<'a> {
        Box::pin(async move {
            let mut rng = stream(self.seed, me);
            for _ in 0..self.rounds {
                let (kind, n) = (rng.below(100), rng.below(LOCKS - 1));
                let thinks = 500 + rng.below(8_000);
                k.syscall(async || match kind {
                    0..60 => self.plain(k, n).await,
                    60..75 => self.crossing(k, me, n).await,
                    75..85 => self.exclusive(k, n).await,
                    _ => self.with_io(k, n).await,
                })
                .await;
                k.user(thinks).await;
            }
        })
    }

    /// What the scripts count: one in a plain section, two in every other.
    fn audit(&self, map: &Map, m: &Machine) -> std::result::Result<(), String> {
        let mut wanted = vec![0; LOCKS as usize];
        for me in 0..self.threads {
            let mut rng = stream(self.seed, me);
            for _ in 0..self.rounds {
                let (kind, n) = (rng.below(100), rng.below(LOCKS - 1) as usize);
                rng.below(8_000);
                wanted[n] += 1;
                wanted[n + 1] += u32::from(kind >= 60);
            }
        }
        for (n, wanted) in wanted.into_iter().enumerate() {
            let seen = m.mem.get(counter(map, n as u32));
            if seen != wanted {
                return Err(format!("sections of lock {n}: {seen} counted, not {wanted}"));
            }
        }
        Ok(())
    }
}
