//! Table 2: what each kind of lock does from transactional and non-transactional threads.

use super::{Case, LOCK_A, Log, Outcome, Table, ensure, expect, ran, word};
use crate::bare::Bare;
use crate::config::{Config, XcasRule};
use crate::guest::Cx;
use crate::htm::status::Reason;
use crate::machine::devices::Port;
use crate::sync::cx::{HELD, Irq};

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::Two, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "spinlock, non-transactional",
            "gets it at once and kicks transactions out",
            spin_plain
        ),
        case!("spinlock, transactional", "one transaction at a time: all write the lock", spin_tx),
        case!(
            "cx_exclusive, non-transactional",
            "the manager decides: waits or preempts",
            exclusive_plain
        ),
        case!(
            "cx_exclusive, transactional",
            "the outer transaction restarts exclusively",
            exclusive_tx
        ),
        case!(
            "cx_optimistic, non-transactional",
            "several transactions inside at once",
            optimistic_plain
        ),
        case!("cx_optimistic, transactional", "nests flat; I/O makes it exclusive", optimistic_tx),
    ]
}

/// An optimistic section from `from` to `to` that writes its own word.
pub(super) fn optimistic(
    log: &Log,
    own: u32,
    from: u64,
    to: u64,
) -> impl FnOnce(Cx) -> std::pin::Pin<Box<dyn Future<Output = ()>>> + 'static {
    let log = log.clone();
    move |c| {
        Box::pin(async move {
            c.until(from).await;
            c.scope(async || {
                c.cx_optimistic(LOCK_A, Irq::Leave).await;
                log.note(&c, "optimistic in", own);
                c.store(word(own), 1).await;
                c.until(to).await;
                c.cx_end(LOCK_A).await;
            })
            .await;
            log.note(&c, "optimistic out", own);
        })
    }
}

/// An exclusive section of `length` cycles from `from`.
pub(super) fn exclusive(
    log: &Log,
    own: u32,
    from: u64,
    length: u32,
) -> impl FnOnce(Cx) -> std::pin::Pin<Box<dyn Future<Output = ()>>> + 'static {
    let log = log.clone();
    move |c| {
        Box::pin(async move {
            c.until(from).await;
            c.cx_exclusive(LOCK_A, Irq::Leave).await;
            log.note(&c, "exclusive in", own);
            log.note(&c, "lock", c.load(LOCK_A).await);
            c.store(word(own), 1).await;
            c.alu(length).await;
            log.note(&c, "exclusive out", own);
            c.cx_end(LOCK_A).await;
        })
    }
}

fn spin_section(
    log: &Log,
    in_tx: bool,
    from: u64,
    length: u32,
) -> impl FnOnce(Cx) -> std::pin::Pin<Box<dyn Future<Output = ()>>> + 'static {
    let log = log.clone();
    move |c| {
        Box::pin(async move {
            c.until(from).await;
            let section = async || {
                c.spin_lock(LOCK_A).await;
                log.note(&c, "in", 0u32);
                c.alu(length).await;
                log.note(&c, "out", 0u32);
                c.spin_unlock(LOCK_A).await;
            };
            if in_tx {
                c.atomic(section).await
            } else {
                section().await
            }
            log.note(&c, "done", in_tx);
        })
    }
}

fn spin_plain() -> Outcome {
    let log = Log::default();
    let p = Bare::new()
        .cpu(spin_section(&log, true, 0, 5_000))
        .cpu(spin_section(&log, false, 2_000, 1_000));
    let (stats, seen) = ran(&Config::default(), p, &[LOCK_A])?;
    ensure("the transaction was not kicked out", stats.restarts_for(Reason::Asymmetric) > 0)?;
    expect("who ended first: the non-transactional thread", log.values("done"), vec![0, 1])?;
    ensure("it did not get in at once", log.times("in")[1] < 3_000)?;
    expect("lock free at the end", seen[0], 1)
}

fn spin_tx() -> Outcome {
    let log = Log::default();
    let p = Bare::new()
        .cpu(spin_section(&log, true, 0, 3_000))
        .cpu(spin_section(&log, true, 1_000, 3_000));
    let (stats, seen) = ran(&Config::default(), p, &[LOCK_A])?;
    ensure("no conflict on the lock variable", stats.restarts_for(Reason::Conflict) > 0)?;
    let done = log.times("done");
    ensure("both committed within one section's time", done[1] >= done[0] + 3_000)?;
    expect("lock free at the end", seen[0], 1)
}

fn exclusive_plain() -> Outcome {
    for (rule, restarts) in [(XcasRule::TransactionsWin, false), (XcasRule::CallerWins, true)] {
        let log = Log::default();
        let p = Bare::new().cpu(optimistic(&log, 1, 0, 5_000)).cpu(exclusive(&log, 2, 2_000, 500));
        let cfg = Config { xcas: rule, ..Config::default() };
        let (stats, _) = ran(&cfg, p, &[])?;
        expect("transactions restarted", stats.all_restarts() > 0, restarts)?;
        let (inside, end) = (log.time("exclusive in")?, log.time("optimistic out")?);
        expect("entered before the transaction's end", inside < end, restarts)?;
        expect("locked inside", log.values("lock"), vec![u64::from(HELD)])?;
    }
    Ok(())
}

fn exclusive_tx() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.scope(async || {
            c.cx_optimistic(LOCK_A, Irq::Leave).await;
            l.note(&c, "outer", c.xgettxid().await == 0);
            c.cx_exclusive(super::LOCK_B, Irq::Leave).await;
            l.note(&c, "inner", c.xgettxid().await == 0);
            l.note(&c, "locks", c.load(LOCK_A).await + c.load(super::LOCK_B).await);
            c.cx_end(super::LOCK_B).await;
            c.cx_end(LOCK_A).await;
        })
        .await;
    });
    let (stats, seen) = ran(&Config::default(), p, &[LOCK_A, super::LOCK_B])?;
    expect("outer exclusive at each attempt", log.values("outer"), vec![0, 1])?;
    expect("inner exclusive", log.values("inner"), vec![1])?;
    expect("both locks held", log.values("locks"), vec![0])?;
    expect("restarts", stats.restarts_for(Reason::User), 1)?;
    expect("both free at the end", seen, vec![1, 1])
}

fn optimistic_plain() -> Outcome {
    let log = Log::default();
    let mut p = Bare::new();
    for i in 0..4 {
        p = p.cpu(optimistic(&log, i, 100 * u64::from(i), 6_000));
    }
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("restarts: different words, and nobody writes the lock", stats.all_restarts(), 0)?;
    let last_in = log.times("optimistic in").into_iter().max().unwrap_or(u64::MAX);
    ensure("not all were inside at once", last_in < log.time("optimistic out")?)
}

fn optimistic_tx() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.scope(async || {
            c.cx_optimistic(LOCK_A, Irq::Leave).await;
            c.scope(async || {
                c.cx_optimistic(super::LOCK_B, Irq::Leave).await;
                l.note(&c, "attempt", c.host(|m| m.thread().cx.len() as u32));
                c.io_write(Port::Other, 1).await;
                c.cx_end(super::LOCK_B).await;
            })
            .await;
            c.cx_end(LOCK_A).await;
        })
        .await;
    });
    let (stats, seen) = ran(&Config::default(), p, &[LOCK_A, super::LOCK_B])?;
    expect("one restart for each level, then the I/O", log.values("attempt"), vec![2, 2, 2])?;
    expect(
        "cancelled at depth 2 then 1; done",
        (stats.io_cancelled, stats.io_depth, stats.io),
        (2, 3, 1),
    )?;
    expect("both free at the end", seen, vec![1, 1])
}
