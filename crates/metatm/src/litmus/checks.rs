//! The simulator's own checkers, shown by breaking what they guard.

use super::{Case, Outcome, Table, expect, run, word};
use crate::bare::Bare;
use crate::config::{Config, Sabotage};
use crate::error::SimError;
use crate::htm::policy::Policy;

macro_rules! case {
    ($name:literal, $claim:literal, $run:path) => {
        Case { table: Table::Checks, name: $name, claim: $claim, run: $run }
    };
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("missed conflict", "hardware that forgets reads is caught at commit", forgets_reads),
        case!(
            "lost undo",
            "hardware that forgets its undo log is caught at the restart",
            forgets_undo
        ),
        case!("guest writes past the machine", "is caught as broken isolation", poke),
        case!("bad address", "is a guest fault, not a figure", bad_address),
        case!("unclosed transaction", "is a guest fault", unclosed),
        case!("handler without xpush", "is a guest fault", no_xpush),
        case!("lost wake-up", "all halted without an interrupt is no end", halted),
    ]
}

fn increments(sabotage: Option<Sabotage>) -> Result<u32, SimError> {
    let mut p = Bare::new();
    for _ in 0..4 {
        p = p.cpu(|c| async move {
            for _ in 0..50 {
                c.atomic(async || {
                    let v = c.load(word(0)).await;
                    c.alu(10).await;
                    c.store(word(0), v + 1).await;
                    c.alu(10).await;
                })
                .await;
            }
        });
    }
    // Under eager, transactions lose after they have written.
    let cfg = Config { sabotage, policy: Policy::Eager, ..Config::default() };
    run(&cfg, p, &[word(0)]).map(|(_, seen)| seen[0])
}

fn caught(sabotage: Sabotage) -> Outcome {
    expect("sound hardware", increments(None).ok(), Some(200))?;
    match increments(Some(sabotage)) {
        Err(SimError::Isolation { .. }) => Ok(()),
        other => Err(format!("not caught: {other:?}")),
    }
}

fn forgets_reads() -> Outcome {
    caught(Sabotage::ForgetReads)
}

fn forgets_undo() -> Outcome {
    caught(Sabotage::ForgetUndo)
}

fn poke() -> Outcome {
    let p = Bare::new()
        .cpu(|c| async move {
            c.atomic(async || {
                c.load(word(0)).await;
                c.until(3_000).await;
            })
            .await;
        })
        .cpu(|c| async move {
            c.until(1_000).await;
            c.rdtsc().await;
            c.host(|m| m.mem.set(word(0), 99));
        });
    match run(&Config::default(), p, &[]) {
        Err(SimError::Isolation { .. }) => Ok(()),
        other => Err(format!("not caught: {other:?}")),
    }
}

fn faults<F>(main: impl FnOnce(crate::guest::Cx) -> F + 'static) -> Outcome
where
    F: Future<Output = ()> + 'static,
{
    match run(&Config::default(), Bare::new().cpu(main), &[]) {
        Err(SimError::Guest { .. }) => Ok(()),
        other => Err(format!("no guest fault: {other:?}")),
    }
}

fn bad_address() -> Outcome {
    faults(|c| async move {
        c.load(3).await;
    })?;
    faults(|c| async move { c.store(0, 1).await })
}

fn unclosed() -> Outcome {
    faults(|c| async move {
        c.scope(async || {
            c.xbegin().await;
        })
        .await
    })?;
    faults(|c| async move {
        c.xbegin().await;
    })?;
    faults(|c| async move { c.xend().await })
}

fn no_xpush() -> Outcome {
    let p = Bare::new()
        .cpu(|c| async move {
            c.irq_flag(true).await;
            c.raise_after(100, crate::machine::Vector::Timer);
            c.atomic(async || {
                c.load(word(0)).await;
                c.alu(1_000).await;
            })
            .await;
        })
        .on_interrupt(|c, _| async move {
            c.load(word(1)).await;
        });
    match run(&Config::default(), p, &[]) {
        Err(SimError::Guest { what, .. }) => super::ensure("names xpush", what.contains("xpush")),
        other => Err(format!("no guest fault: {other:?}")),
    }
}

fn halted() -> Outcome {
    let p = Bare::new().cpu(|c| async move {
        c.irq_flag(true).await;
        c.halt().await;
    });
    match run(&Config::default(), p, &[]) {
        Err(SimError::NoProgress { .. }) => Ok(()),
        other => Err(format!("not noticed: {other:?}")),
    }
}
