//! Table 3: the state transitions of a cxspinlock, a cell a case.

use super::table2::{exclusive, optimistic};
use super::{Case, LOCK_A, Log, Outcome, Table, ensure, expect, ran, run, word};
use crate::bare::Bare;
use crate::config::{Config, XcasRule};
use crate::error::SimError;
use crate::guest::Cx;
use crate::htm::status::Reason;
use crate::machine::devices::Port;
use crate::sync::cx::{FREE, HELD, Irq};

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::Three, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("free, cx_exclusive", "proceeds; exclusive", free_exclusive),
        case!("free, cx_optimistic", "proceeds; transactional", free_optimistic),
        case!("free, cx_end", "invalid: a guest fault", free_end),
        case!("free, I/O", "no section, so no transition: it is simply done", free_io),
        case!(
            "transactional, cx_exclusive, waits",
            "the manager makes it wait",
            tx_exclusive_waits
        ),
        case!(
            "transactional, cx_exclusive, restarts",
            "transactions restart; exclusive",
            tx_exclusive_wins
        ),
        case!("transactional, cx_optimistic", "enters beside the others", tx_optimistic),
        case!("transactional, cx_end, last", "free", tx_end_free),
        case!("transactional, cx_end, one waits", "that one gets it; exclusive", tx_end_waiter),
        case!("transactional, I/O", "restarts; exclusive", tx_io),
        case!("exclusive, cx_exclusive", "waits", excl_exclusive),
        case!("exclusive, cx_optimistic", "waits, its transaction untouched", excl_optimistic),
        case!("exclusive, cx_end, none waits", "free", excl_end_free),
        case!("exclusive, cx_end, exclusive waiters", "releases one", excl_end_one),
        case!("exclusive, cx_end, optimistic waiters", "releases all", excl_end_all),
        case!("exclusive, I/O", "allowed", excl_io),
        case!("irq-safe forms", "nested sections restore the flag that each found", irq_forms),
        case!("release out of order", "cx_end leaves the section it names", out_of_order),
    ]
}

fn free_exclusive() -> Outcome {
    let log = Log::default();
    let (stats, seen) =
        ran(&Config::default(), Bare::new().cpu(exclusive(&log, 1, 0, 10)), &[LOCK_A])?;
    expect("lock inside", log.values("lock"), vec![u64::from(HELD)])?;
    expect("acquired, committed", (stats.acquires, stats.commits), (1, 0))?;
    expect("free after", seen[0], FREE)
}

fn free_optimistic() -> Outcome {
    let log = Log::default();
    let (stats, seen) =
        ran(&Config::default(), Bare::new().cpu(optimistic(&log, 1, 0, 10)), &[LOCK_A])?;
    expect("acquired, committed", (stats.acquires, stats.commits), (0, 1))?;
    expect("lock never written", seen[0], FREE)
}

fn free_end() -> Outcome {
    let p = Bare::new().cpu(|c| async move { c.cx_end(LOCK_A).await });
    match run(&Config::default(), p, &[]) {
        Err(SimError::Guest { what, .. }) => {
            ensure("the fault names the lock", what.contains("cx_end"))
        }
        other => Err(format!("not a guest fault: {other:?}")),
    }
}

fn free_io() -> Outcome {
    let p = Bare::new().cpu(|c| async move { c.io_write(Port::Other, 1).await });
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("done, cancelled", (stats.io, stats.io_cancelled), (1, 0))
}

fn tx_exclusive(rule: XcasRule) -> Result<(Log, u64), String> {
    let log = Log::default();
    let p = Bare::new()
        .cpu(optimistic(&log, 1, 0, 5_000))
        .cpu(optimistic(&log, 2, 0, 5_000))
        .cpu(exclusive(&log, 3, 2_000, 500));
    let cfg = Config { xcas: rule, ..Config::default() };
    let (stats, _) = ran(&cfg, p, &[])?;
    Ok((log, stats.restarts_for(Reason::Conflict)))
}

fn tx_exclusive_waits() -> Outcome {
    let (log, restarts) = tx_exclusive(XcasRule::Judge)?;
    expect("restarts", restarts, 0)?;
    let out = log.times("optimistic out").into_iter().max().unwrap_or(0);
    ensure(
        "did not wait for both transactions",
        log.time("exclusive in")? >= out.saturating_sub(50),
    )
}

fn tx_exclusive_wins() -> Outcome {
    let (log, restarts) = tx_exclusive(XcasRule::CallerWins)?;
    expect("restarts of both transactions", restarts, 2)?;
    let (inside, out) = (log.time("exclusive in")?, log.time("exclusive out")?);
    ensure("entered at once", inside < 3_000)?;
    let meanwhile =
        log.times("optimistic in").into_iter().filter(|t| (inside..out).contains(t)).count();
    expect("transactions inside meanwhile", meanwhile, 0)
}

fn tx_optimistic() -> Outcome {
    let log = Log::default();
    let p = Bare::new().cpu(optimistic(&log, 1, 0, 5_000)).cpu(optimistic(&log, 2, 1_000, 5_000));
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("restarts", stats.all_restarts(), 0)?;
    ensure("second waited", log.times("optimistic in")[1] < 2_000)
}

fn tx_end_free() -> Outcome {
    let log = Log::default();
    let p = Bare::new().cpu(optimistic(&log, 1, 0, 1_000)).cpu(exclusive(&log, 2, 2_000, 10));
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("refusals: nobody was left in it", stats.xcas_refused, 0)?;
    expect("restarts", stats.all_restarts(), 0)
}

fn tx_end_waiter() -> Outcome {
    let log = Log::default();
    let p = Bare::new()
        .cpu(optimistic(&log, 1, 0, 4_000))
        .cpu(exclusive(&log, 2, 1_000, 500))
        .cpu(exclusive(&log, 3, 1_000, 500));
    let (stats, _) = ran(&Config::default(), p, &[])?;
    ensure("nobody was refused", stats.xcas_refused > 0)?;
    let (ins, outs) = (log.times("exclusive in"), log.times("exclusive out"));
    ensure("more than one was released", ins[1] > outs[0])
}

fn tx_io() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.scope(async || {
            c.cx_optimistic(LOCK_A, Irq::Leave).await;
            l.note(&c, "lock", c.host(|m| m.mem.get(LOCK_A)));
            c.store(word(0), 5).await;
            c.io_write(Port::Other, 1).await;
            c.cx_end(LOCK_A).await;
        })
        .await;
    });
    let (stats, seen) = ran(&Config::default(), p, &[word(0), LOCK_A])?;
    expect("free at first, then held", log.values("lock"), vec![u64::from(FREE), u64::from(HELD)])?;
    expect("cancelled, done", (stats.io_cancelled, stats.io), (1, 1))?;
    expect("after", seen, vec![5, FREE])
}

fn excl_exclusive() -> Outcome {
    let log = Log::default();
    let p = Bare::new().cpu(exclusive(&log, 1, 0, 3_000)).cpu(exclusive(&log, 2, 1_000, 100));
    ran(&Config::default(), p, &[])?;
    ensure("did not wait", log.times("exclusive in")[1] > log.times("exclusive out")[0])
}

fn excl_optimistic() -> Outcome {
    let log = Log::default();
    let p = Bare::new().cpu(exclusive(&log, 1, 0, 3_000)).cpu(optimistic(&log, 2, 1_000, 0));
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("restarts while waiting and at the release", stats.all_restarts(), 0)?;
    ensure("did not wait", log.time("optimistic in")? > log.time("exclusive out")?)
}

fn excl_end_free() -> Outcome {
    let log = Log::default();
    let p = Bare::new().cpu(exclusive(&log, 1, 0, 100)).cpu(exclusive(&log, 2, 5_000, 100));
    let (stats, seen) = ran(&Config::default(), p, &[LOCK_A])?;
    expect("tests of a held lock", stats.tests, 0)?;
    expect("free", seen[0], FREE)
}

fn excl_end_one() -> Outcome {
    let log = Log::default();
    let mut p = Bare::new().cpu(exclusive(&log, 1, 0, 3_000));
    for i in 2..5 {
        p = p.cpu(exclusive(&log, i, 1_000, 1_000));
    }
    ran(&Config::default(), p, &[])?;
    let (ins, outs) = (log.times("exclusive in"), log.times("exclusive out"));
    ensure("two were inside at once", ins.iter().skip(1).zip(&outs).all(|(i, o)| i > o))?;
    expect("all got in", ins.len(), 4)
}

fn excl_end_all() -> Outcome {
    let log = Log::default();
    let mut p = Bare::new().cpu(exclusive(&log, 1, 0, 3_000));
    for i in 2..6 {
        p = p.cpu(optimistic(&log, i, 1_000, 6_000));
    }
    let (stats, _) = ran(&Config::default(), p, &[])?;
    let last_in = log.times("optimistic in").into_iter().max().unwrap_or(u64::MAX);
    ensure("not all were released together", last_in < log.time("optimistic out")?)?;
    expect("restarts", stats.all_restarts(), 0)
}

fn excl_io() -> Outcome {
    let p = Bare::new().cpu(|c| async move {
        c.cx_exclusive(LOCK_A, Irq::Leave).await;
        c.io_write(Port::Other, 1).await;
        c.cx_end(LOCK_A).await;
    });
    let (stats, _) = ran(&Config::default(), p, &[])?;
    expect("done, cancelled", (stats.io, stats.io_cancelled), (1, 0))
}

fn flag(log: &Log, c: &Cx) {
    log.note(c, "flag", c.host(|m| m.cpus[m.cur].irq_on));
}

fn irq_forms() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.irq_flag(true).await;
        c.cx_exclusive(LOCK_A, Irq::Disable).await;
        flag(&l, &c);
        c.scope(async || {
            c.cx_optimistic(super::LOCK_B, Irq::Disable).await;
            flag(&l, &c);
            c.cx_end(super::LOCK_B).await;
        })
        .await;
        flag(&l, &c);
        c.cx_end(LOCK_A).await;
        flag(&l, &c);
    });
    ran(&Config::default(), p, &[])?;
    expect("flag", log.values("flag"), vec![0, 0, 0, 1])
}

fn out_of_order() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.cx_exclusive(LOCK_A, Irq::Leave).await;
        c.scope(async || {
            c.cx_optimistic(super::LOCK_B, Irq::Leave).await;
            c.store(word(0), 1).await;
            c.cx_end(LOCK_A).await;
            l.note(&c, "still in B", c.xgettxid().await != 0);
            c.store(word(1), 1).await;
            c.cx_end(super::LOCK_B).await;
        })
        .await;
        l.note(&c, "left B", c.xgettxid().await == 0);
    });
    let (_, seen) = ran(&Config::default(), p, &[word(0), word(1), LOCK_A, super::LOCK_B])?;
    expect("B's section goes on", log.values("still in B"), vec![1])?;
    expect("and ends", log.values("left B"), vec![1])?;
    expect("values, locks", seen, vec![1, 1, FREE, FREE])
}
