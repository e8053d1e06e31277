//! Table 1: conflict, asymmetric conflict, contention.

use super::{Case, Log, Outcome, Table, ensure, expect, quiet, ran, word};
use crate::bare::Bare;
use crate::config::Config;
use crate::guest::Cx;
use crate::htm::policy::Policy;
use crate::htm::status::Reason;

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::One, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "conflict",
            "read-write, write-read, write-write; not read-read, not one line",
            conflict
        ),
        case!("asymmetric conflict", "the non-transactional access wins", asymmetric),
        case!("contention", "each ordered policy lets its own winner through", contention),
    ]
}

/// Restarts when one transaction accesses `first` early and another `second` late.
fn meet(first: (u32, bool), second: (u32, bool)) -> Result<u64, String> {
    let touch = |at: u64, (a, write): (u32, bool)| {
        move |c: Cx| async move {
            c.atomic(async || {
                c.until(at).await;
                if write {
                    c.store(a, 1).await;
                } else {
                    c.load(a).await;
                }
                c.until(6_000).await;
            })
            .await;
        }
    };
    let p = Bare::new().cpu(touch(1_000, first)).cpu(touch(3_000, second));
    Ok(ran(&quiet(), p, &[])?.0.restarts_for(Reason::Conflict))
}

fn conflict() -> Outcome {
    let (r, w) = ((word(0), false), (word(0), true));
    expect("read, read", meet(r, r)?, 0)?;
    ensure("read, write", meet(r, w)? > 0)?;
    ensure("write, read", meet(w, r)? > 0)?;
    ensure("write, write", meet(w, w)? > 0)?;
    expect("two words of one line", meet(w, (word(0) + 4, true))?, 0)
}

fn asymmetric_with(tx_writes: bool, other_writes: bool) -> Result<(u64, u64, u32), String> {
    let log = Log::default();
    let l = log.clone();
    let p = Bare::new()
        .cpu(move |c| async move {
            c.atomic(async || {
                let v = c.load(word(0)).await;
                if tx_writes {
                    c.store(word(0), v + 1).await;
                }
                c.until(5_000).await;
            })
            .await;
        })
        .cpu(move |c| async move {
            c.until(3_000).await;
            if other_writes {
                c.store(word(0), 100).await;
            } else {
                l.note(&c, "read", c.load(word(0)).await);
            }
        });
    let (stats, seen) = ran(&quiet(), p, &[word(0)])?;
    let read = log.values("read").first().copied().unwrap_or(0);
    Ok((stats.restarts_for(Reason::Asymmetric), read, seen[0]))
}

fn asymmetric() -> Outcome {
    expect("reads what was written: the old value", asymmetric_with(true, false)?, (1, 0, 1))?;
    expect("writes what was read", asymmetric_with(false, true)?, (1, 0, 100))?;
    expect("writes what was written", asymmetric_with(true, true)?, (1, 0, 101))?;
    expect("reads what was read", asymmetric_with(false, false)?, (0, 0, 0))
}

/// Who of an older small and a younger large transaction commits first.
fn first_to_commit(policy: Policy, prios: [u8; 2]) -> Result<&'static str, String> {
    let log = Log::default();
    let (a, b) = (log.clone(), log.clone());
    let p = Bare::new()
        .cpu(move |c| async move {
            c.host(|m| m.set_prio(0, prios[0]));
            c.atomic(async || {
                let v = c.load(word(0)).await;
                c.until(4_000).await;
                c.store(word(0), v + 1).await;
            })
            .await;
            a.note(&c, "old", 1u32);
        })
        .cpu(move |c| async move {
            c.host(|m| m.set_prio(1, prios[1]));
            c.until(500).await;
            c.atomic(async || {
                for i in 1..9 {
                    c.load(word(i)).await;
                }
                let v = c.load(word(0)).await;
                c.until(8_000).await;
                c.store(word(0), v + 1).await;
            })
            .await;
            b.note(&c, "large", 1u32);
        });
    let cfg = Config { policy, ..Config::default() };
    let (_, seen) = ran(&cfg, p, &[word(0)])?;
    expect("no increment lost", seen[0], 2)?;
    Ok(if log.time("old")? < log.time("large")? { "old" } else { "large" })
}

fn contention() -> Outcome {
    expect("size-matters", first_to_commit(Policy::SizeMatters, [0, 0])?, "large")?;
    expect("timestamp", first_to_commit(Policy::Timestamp, [0, 0])?, "old")?;
    expect("os-prio, old is higher", first_to_commit(Policy::OsPrio, [9, 3])?, "old")?;
    expect("os-prio, large is higher", first_to_commit(Policy::OsPrio, [3, 9])?, "large")?;
    expect("os-prio, equal: size", first_to_commit(Policy::OsPrio, [3, 3])?, "large")?;
    expect("eager: who asks at 4000", first_to_commit(Policy::Eager, [0, 0])?, "old")
}
