//! Analytic checks: the instruction counts of section 7.4 and the cache costs of section 7.1,
//! measured on the machine.

use std::cell::Cell;
use std::rc::Rc;

use super::{LOCK_A, run, word};
use crate::bare::Bare;
use crate::config::Config;
use crate::error::Result;
use crate::guest::Cx;
use crate::sync::cx::Irq;

/// Instructions and data references of one uncontended acquisition.
pub type Count = (u64, u64);

/// What was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// `cx_optimistic`.
    pub optimistic: Count,
    /// `cx_exclusive`.
    pub exclusive: Count,
    /// `spin_lock`.
    pub spin: Count,
    /// `spin_lock` on a held lock, instructions beyond the waiting.
    pub spin_contended: u64,
    /// Cycles of a load that hits L1, misses it, and misses L2.
    pub load: [u64; 3],
}

fn now(c: &Cx) -> Count {
    c.host(|m| (m.stats.instrs, m.stats.refs))
}

/// Measures all of them.
///
/// # Errors
/// A run failed.
pub fn counts() -> Result<Counts> {
    let found = Rc::new(Cell::new(Counts::default()));
    let out = Rc::clone(&found);
    let cfg = Config { icache: false, ..Config::default() };
    let p = Bare::new().cpu(move |c| async move {
        let mut r = Counts::default();
        let since = |c: &Cx, (i, m): Count| {
            let (i2, m2) = now(c);
            (i2 - i, m2 - m)
        };
        let before = now(&c);
        c.spin_lock(LOCK_A).await;
        r.spin = since(&c, before);
        c.spin_unlock(LOCK_A).await;
        let before = now(&c);
        c.cx_exclusive(LOCK_A, Irq::Disable).await;
        r.exclusive = since(&c, before);
        c.cx_end(LOCK_A).await;
        r.optimistic = c
            .scope(async || {
                let before = now(&c);
                c.cx_optimistic(LOCK_A, Irq::Disable).await;
                let count = since(&c, before);
                c.cx_end(LOCK_A).await;
                count
            })
            .await;
        let mut timed = [0; 3];
        for (i, lines) in [(2, 0), (0, 0), (1, 4)] {
            for k in 1..=lines {
                c.load(word(400) + k * 4096).await;
            }
            let t = c.host(|m| m.now());
            c.load(word(400)).await;
            timed[i] = c.host(|m| m.now()) - t;
        }
        r.load = timed;
        out.set(r);
    });
    run(&cfg, p, &[])?;
    let mut counts = found.get();
    counts.spin_contended = contended(&cfg)?;
    Ok(counts)
}

/// Instructions of a contended `spin_lock` besides the failed iterations of its inner loop.
fn contended(cfg: &Config) -> Result<u64> {
    let found = Rc::new(Cell::new(0));
    let out = Rc::clone(&found);
    let p = Bare::new()
        .cpu(|c| async move {
            c.spin_lock(LOCK_A).await;
            c.until(3_000).await;
            c.spin_unlock(LOCK_A).await;
        })
        .cpu(move |c| async move {
            c.until(1_000).await;
            let count = |c: &Cx| c.host(|m| m.threads[1].instrs - 3 * m.stats.tests);
            let before = count(&c);
            c.spin_lock(LOCK_A).await;
            out.set(count(&c) - before);
        });
    run(cfg, p, &[])?;
    Ok(found.get())
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_the_papers() {
        let c = super::counts().expect("run");
        assert_eq!(c.optimistic, (21, 9));
        assert_eq!(c.exclusive, (21, 8));
        assert_eq!(c.spin, (3, 2));
        assert_eq!(c.spin_contended, 9);
        assert_eq!(c.load, [1, 17, 217]);
    }
}
