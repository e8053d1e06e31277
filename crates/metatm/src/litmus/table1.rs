//! Table 1: the instructions and the status word.

use super::{Case, Log, Outcome, Table, ensure, expect, quiet, ran, word};
use crate::bare::Bare;
use crate::config::{Config, XcasRule};
use crate::guest::Cx;
use crate::htm::policy::Policy;
use crate::htm::status::Reason;
use crate::machine::devices::Port;

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::One, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("xbegin", "begins a transaction; the first status word is 0", begin),
        case!("xend", "writes become visible at the outermost xend, all at once", end),
        case!("xrestart", "undoes memory, flag and stack; status carries the code", restart),
        case!("xgettxid", "0 outside, one number through nesting, a new one next time", gettxid),
        case!("xpush", "suspends: other accesses are not part of the transaction", push),
        case!("xpop", "resumes in LIFO order; a conflict meanwhile restarts it there", pop),
        case!("xpush in an interrupt", "a handler runs its own transaction", interrupt),
        case!("xtest", "enters the word into the read set only if equal", test),
        case!("xcas", "a non-transactional caller is judged; a refused swap does nothing", cas),
        case!("xcas in a transaction", "is an ordinary transactional swap", cas_inside),
        case!("status word", "tells conflict, asymmetric, user, I/O and overflow apart", status),
    ]
}

fn begin() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.scope(async || {
            let s = c.xbegin().await;
            l.note(&c, "status", s.word());
            c.store(word(0), 1).await;
            c.xend().await;
        })
        .await;
    });
    let (stats, seen) = ran(&quiet(), p, &[word(0)])?;
    expect("status", log.values("status"), vec![0])?;
    expect("commits", stats.commits, 1)?;
    expect("value", seen[0], 1)
}

fn end() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new()
        .cpu(|c| async move {
            c.atomic(async || {
                c.store(word(0), 1).await;
                c.atomic(async || c.store(word(1), 1).await).await;
                // The inner level has ended; nothing may be visible before the outer one does.
                c.until(5_000).await;
            })
            .await;
        })
        .cpu(move |c| async move {
            c.until(3_000).await;
            let pair = c.atomic(async || (c.load(word(0)).await, c.load(word(1)).await)).await;
            l.note(&c, "pair", pair.0 * 2 + pair.1);
        });
    let (stats, seen) = ran(&quiet(), p, &[word(0), word(1)])?;
    let pair = log.values("pair");
    ensure("a reader saw half of a transaction", pair == [0] || pair == [3])?;
    expect("commits", stats.commits, 2)?;
    expect("values", seen, vec![1, 1])
}

fn restart() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.irq_flag(true).await;
        c.store(word(0), 7).await;
        c.scope(async || {
            let mut register = 0u32;
            let s = c.xbegin().await;
            l.note(&c, "flag", c.host(|m| m.cpus[0].irq_on));
            l.note(&c, "before", c.load(word(0)).await);
            if s.reason.is_none() {
                register += 1;
                c.irq_flag(false).await;
                c.store(word(0), 8).await;
                c.xrestart(42).await;
            }
            l.note(&c, "register", register);
            l.note(&c, "code", s.code);
            l.note(&c, "user", s.reason == Some(Reason::User));
            c.xend().await;
        })
        .await;
    });
    ran(&quiet(), p, &[])?;
    expect("memory at each attempt", log.values("before"), vec![7, 7])?;
    expect("interrupt flag at each attempt", log.values("flag"), vec![1, 1])?;
    expect("register", log.values("register"), vec![0])?;
    expect("code", log.values("code"), vec![42])?;
    expect("reason", log.values("user"), vec![1])
}

fn gettxid() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        l.note(&c, "id", c.xgettxid().await);
        for _ in 0..2 {
            c.atomic(async || {
                l.note(&c, "id", c.xgettxid().await);
                c.atomic(async || l.note(&c, "id", c.xgettxid().await)).await;
            })
            .await;
        }
        l.note(&c, "id", c.xgettxid().await);
    });
    ran(&quiet(), p, &[])?;
    let ids = log.values("id");
    expect("how many", ids.len(), 6)?;
    expect("outside", (ids[0], ids[5]), (0, 0))?;
    ensure("nested levels share an identifier", ids[1] == ids[2] && ids[3] == ids[4])?;
    ensure("identifiers are not reused", ids[1] != ids[3] && ids[1] != 0)
}

/// One thread suspends a transaction until 5000; `other` runs from 3000.
fn suspended<F>(other: impl FnOnce(Cx) -> F + 'static) -> Result<(Log, Vec<u32>), String>
where
    F: Future<Output = ()> + 'static,
{
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new()
        .cpu(move |c| async move {
            c.scope(async || {
                let s = c.xbegin().await;
                l.note(&c, "status", s.word());
                let v = c.load(word(0)).await;
                c.store(word(1), v + 1).await;
                c.xpush().await;
                l.note(&c, "inside", c.xgettxid().await);
                c.store(word(2), 9).await;
                c.until(5_000).await;
                c.xpop().await;
                c.xend().await;
            })
            .await;
        })
        .cpu(move |c| async move {
            c.until(3_000).await;
            other(c).await;
        });
    let (_, seen) = ran(&quiet(), p, &[word(0), word(1), word(2)])?;
    Ok((log, seen))
}

fn push() -> Outcome {
    let (log, seen) = suspended(|c| async move { c.store(word(2), 3).await })?;
    expect("transaction id while suspended", log.values("inside"), vec![0])?;
    expect(
        "attempts: a store outside its sets is none of its business",
        log.values("status"),
        vec![0],
    )?;
    expect("values", seen, vec![0, 1, 3])
}

fn pop() -> Outcome {
    let (log, seen) = suspended(|c| async move { c.store(word(0), 10).await })?;
    expect("attempts", log.values("status"), vec![0, Reason::Asymmetric as u64])?;
    expect("values", seen, vec![10, 11, 9])?;
    let lifo = Log::default();
    let l = lifo.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.atomic(async || {
            let outer = c.xgettxid().await;
            c.xpush().await;
            c.atomic(async || {
                let inner = c.xgettxid().await;
                c.xpush().await;
                c.xpop().await;
                l.note(&c, "inner again", c.xgettxid().await == inner && inner != outer);
            })
            .await;
            c.xpop().await;
            l.note(&c, "outer again", c.xgettxid().await == outer);
        })
        .await;
    });
    ran(&quiet(), p, &[])?;
    expect("LIFO", (lifo.values("inner again"), lifo.values("outer again")), (vec![1], vec![1]))
}

fn interrupt() -> Outcome {
    let log = Log::default();
    let (l, h) = (log.clone(), log.clone());
    let p = Bare::new()
        .cpu(move |c| async move {
            c.irq_flag(true).await;
            c.raise_after(1_000, crate::machine::Vector::Timer);
            c.atomic(async || {
                let v = c.load(word(0)).await;
                c.alu(4_000).await;
                c.store(word(0), v + 1).await;
            })
            .await;
            l.note(&c, "done", 1u32);
        })
        .on_interrupt(move |c, _| {
            let h = h.clone();
            async move {
                c.xpush().await;
                c.atomic(async || {
                    let v = c.load(word(1)).await;
                    c.store(word(1), v + 1).await;
                })
                .await;
                h.note(&c, "handled", 1u32);
                c.xpop().await;
            }
        });
    let (stats, seen) = ran(&quiet(), p, &[word(0), word(1)])?;
    ensure(
        "the handler ran inside the transaction's time",
        log.time("handled")? < log.time("done")?,
    )?;
    expect("commits, restarts", (stats.commits, stats.all_restarts()), (2, 0))?;
    expect("commits from the handler", stats.commits_irq, 1)?;
    expect("values", seen, vec![1, 1])
}

fn test() -> Outcome {
    for (expected, restarts) in [(0u32, 1u64), (5, 0)] {
        let log = Log::default();
        let l = log.clone();
        let p = Bare::new()
            .cpu(move |c| async move {
                c.scope(async || {
                    c.xbegin().await;
                    l.note(&c, "equal", c.xtest(word(0), expected).await);
                    c.until(5_000).await;
                    c.xend().await;
                })
                .await;
            })
            .cpu(|c| async move {
                c.until(3_000).await;
                c.store(word(0), 1).await;
            });
        let (stats, _) = ran(&quiet(), p, &[])?;
        expect("restarts", stats.restarts_for(Reason::Asymmetric), restarts)?;
        expect("first answer", log.values("equal")[0], u64::from(expected == 0))?;
    }
    Ok(())
}

fn cas_against(cfg: &Config) -> Result<(bool, u64, u32), String> {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new()
        .cpu(|c| async move {
            c.atomic(async || {
                c.load(word(0)).await;
                c.load(word(1)).await;
                c.until(5_000).await;
            })
            .await;
        })
        .cpu(move |c| async move {
            c.until(3_000).await;
            l.note(&c, "won", c.xcas(word(0), 0, 1).await);
            l.note(&c, "after", c.load(word(0)).await);
        });
    let (stats, _) = ran(cfg, p, &[])?;
    Ok((log.values("won") == [1], stats.all_restarts(), log.values("after")[0] as u32))
}

fn cas() -> Outcome {
    expect("judged by size", cas_against(&quiet())?, (false, 0, 0))?;
    let eager = Config { policy: Policy::Eager, ..quiet() };
    expect("judged by eager", cas_against(&eager)?, (true, 1, 1))?;
    let always = Config { xcas: XcasRule::CallerWins, ..quiet() };
    expect("caller wins", cas_against(&always)?, (true, 1, 1))?;
    let never = Config { xcas: XcasRule::TransactionsWin, policy: Policy::Eager, ..quiet() };
    expect("transactions win", cas_against(&never)?, (false, 0, 0))
}

fn cas_inside() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new().cpu(move |c| async move {
        c.scope(async || {
            let s = c.xbegin().await;
            l.note(&c, "swapped", c.xcas(word(0), 0, 5).await);
            l.note(&c, "again", c.xcas(word(0), 0, 6).await);
            if s.reason.is_none() {
                c.xrestart(0).await;
            }
            c.xend().await;
        })
        .await;
    });
    let (_, seen) = ran(&quiet(), p, &[word(0)])?;
    expect("swap undone by the restart, then done", log.values("swapped"), vec![1, 1])?;
    expect("second", log.values("again"), vec![0, 0])?;
    expect("value", seen[0], 5)
}

fn status() -> Outcome {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new()
        .cpu(move |c| async move {
            c.scope(async || {
                let s = c.xbegin().await;
                l.note(&c, "reason", s.word());
                match s.reason {
                    None => c.xrestart(3).await,
                    Some(Reason::User) => {
                        c.io_read(Port::Other).await;
                    }
                    Some(Reason::Io) => {
                        c.load(word(0)).await;
                        c.until(5_000).await;
                    }
                    Some(Reason::Asymmetric) => {
                        // 5 lines of one set of a 4-way cache.
                        for i in 0..5 {
                            c.load(word(200) + i * 4096).await;
                        }
                    }
                    Some(Reason::Overflow | Reason::Conflict) => {}
                }
                c.xend().await;
            })
            .await;
        })
        .cpu(|c| async move {
            c.until(3_000).await;
            c.store(word(0), 1).await;
        });
    let cfg = Config { overflow: Some(crate::config::Overflow::Exclusive), ..quiet() };
    let (stats, _) = ran(&cfg, p, &[])?;
    let wanted = vec![0, 3 << 8 | 3, 4, 2, 5];
    expect("status words", log.values("reason"), wanted)?;
    expect("I/O cancelled, done", (stats.io_cancelled, stats.io), (1, 0))
}
