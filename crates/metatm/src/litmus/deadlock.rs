//! Section 5.3: a deadlock of transactions and locks that neither alone would have.
//!
//! Thread 1, in a transaction, enters and leaves the section of A, then wants B. Thread 2 holds B
//! and wants A. Flat nesting keeps A in thread 1's read set, so if transactions always win, each
//! waits for the other.

use super::{Case, LOCK_A, LOCK_B, Outcome, Table, ensure, expect, run, word};
use crate::bare::Bare;
use crate::config::{Config, XcasRule};
use crate::error::SimError;
use crate::htm::policy::Policy;
use crate::stats::Stats;
use crate::sync::cx::Irq;

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::Deadlock, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("reproduced", "transactions always win: the watchdog names both threads", reproduced),
        case!("resolved by the spinner rule", "xcas beats a transaction that spins", by_spinner),
        case!("resolved by an eager policy", "whoever asks wins, so the xcas does", by_eager),
        case!(
            "not resolved by age",
            "the transaction is older, so the default policy deadlocks too",
            by_age
        ),
        case!(
            "handler and its own thread",
            "a handler takes the lock that its suspended transaction reads",
            handler
        ),
        case!("locks alone", "the same path with locks does not deadlock", locks_alone),
        case!("naked xbegin", "around a cxspinlock that needs exclusion it livelocks", naked),
    ]
}

fn crossed(cfg: &Config) -> Result<(Stats, Vec<u32>), SimError> {
    let p = Bare::new()
        .cpu(|c| async move {
            c.atomic(async || {
                c.cx_optimistic(LOCK_A, Irq::Leave).await;
                let v = c.load(word(0)).await;
                c.store(word(0), v + 1).await;
                c.cx_end(LOCK_A).await;
                c.until(3_000).await;
                c.cx_optimistic(LOCK_B, Irq::Leave).await;
                let v = c.load(word(1)).await;
                c.store(word(1), v + 1).await;
                c.cx_end(LOCK_B).await;
            })
            .await;
        })
        .cpu(|c| async move {
            c.until(1_000).await;
            c.cx_exclusive(LOCK_B, Irq::Leave).await;
            c.until(2_000).await;
            c.cx_exclusive(LOCK_A, Irq::Leave).await;
            c.until(4_000).await;
            c.cx_end(LOCK_A).await;
            c.cx_end(LOCK_B).await;
        });
    let cfg = Config { watchdog: 100_000, ..cfg.clone() };
    run(&cfg, p, &[word(0), word(1)])
}

fn reproduced() -> Outcome {
    let cfg =
        Config { xcas: XcasRule::TransactionsWin, spinner_yields: false, ..Config::default() };
    match crossed(&cfg) {
        Err(SimError::NoProgress { what, .. }) => {
            ensure(
                "thread 0 spins on B",
                what.contains(&format!("spins in xtest on {LOCK_B:#x}")),
            )?;
            ensure(
                "thread 1 waits for A",
                what.contains(&format!("waits exclusively for {LOCK_A:#x}")),
            )
        }
        other => Err(format!("no deadlock: {other:?}")),
    }
}

fn resolved(cfg: &Config) -> Outcome {
    let (_, seen) = crossed(cfg).map_err(|e| e.to_string())?;
    expect("both sections done once", seen, vec![1, 1])
}

fn by_spinner() -> Outcome {
    resolved(&Config { xcas: XcasRule::TransactionsWin, ..Config::default() })
}

fn by_eager() -> Outcome {
    resolved(&Config { policy: Policy::Eager, spinner_yields: false, ..Config::default() })
}

fn by_age() -> Outcome {
    let cfg = Config { spinner_yields: false, ..Config::default() };
    match crossed(&cfg) {
        Err(SimError::NoProgress { .. }) => Ok(()),
        other => Err(format!("no deadlock: {other:?}")),
    }
}

/// Figure 2 disables interrupts after `xtest`, so a handler can come in between.
fn handler() -> Outcome {
    let p = Bare::new()
        .cpu(|c| async move {
            c.irq_flag(true).await;
            c.scope(async || {
                c.cx_optimistic(LOCK_A, Irq::Leave).await;
                let v = c.load(word(0)).await;
                c.store(word(0), v + 1).await;
                if c.host(|m| m.stats.interrupts) == 0 {
                    c.raise_after(10, crate::machine::Vector::Disk);
                }
                c.alu(500).await;
                c.cx_end(LOCK_A).await;
            })
            .await;
        })
        .on_interrupt(|c, _| async move {
            c.xpush().await;
            c.cx_exclusive(LOCK_A, Irq::Leave).await;
            let v = c.load(word(1)).await;
            c.store(word(1), v + 1).await;
            c.cx_end(LOCK_A).await;
            c.xpop().await;
        });
    let cfg = Config { watchdog: 100_000, ..Config::default() };
    let (stats, seen) = run(&cfg, p, &[word(0), word(1)]).map_err(|e| e.to_string())?;
    expect("the transaction restarts", stats.all_restarts(), 1)?;
    expect("both sections done once", seen, vec![1, 1])
}

fn locks_alone() -> Outcome {
    let p = Bare::new()
        .cpu(|c| async move {
            c.spin_lock(LOCK_A).await;
            c.spin_unlock(LOCK_A).await;
            c.until(3_000).await;
            c.spin_lock(LOCK_B).await;
            c.spin_unlock(LOCK_B).await;
        })
        .cpu(|c| async move {
            c.until(1_000).await;
            c.spin_lock(LOCK_B).await;
            c.until(2_000).await;
            c.spin_lock(LOCK_A).await;
            c.spin_unlock(LOCK_A).await;
            c.spin_unlock(LOCK_B).await;
        });
    let cfg = Config { watchdog: 100_000, ..Config::default() };
    run(&cfg, p, &[]).map(drop).map_err(|e| e.to_string())
}

fn naked() -> Outcome {
    let p = Bare::new().cpu(|c| async move {
        c.atomic(async || {
            c.cx_exclusive(LOCK_A, Irq::Leave).await;
            c.cx_end(LOCK_A).await;
        })
        .await;
    });
    let cfg = Config { watchdog: 100_000, ..Config::default() };
    match run(&cfg, p, &[]) {
        Err(SimError::NoProgress { .. }) => Ok(()),
        other => Err(format!("no livelock: {other:?}")),
    }
}
