//! Transactions on the bare machine: nothing is lost, whatever the policy, and runs repeat.

use metatm::bare::Bare;
use metatm::config::Backoff;
use metatm::htm::policy::Policy;
use metatm::machine::Vector;
use metatm::rng::Rng;
use metatm::{Config, Stats};

const BASE: u32 = 0x20_0000;

fn counters(cfg: &Config, cpus: usize, n: u32) -> (Stats, Vec<u32>) {
    let mut p = Bare::new();
    for i in 0..cpus as u32 {
        p = p.cpu(move |c| async move {
            for k in 0..n {
                c.atomic(async || {
                    let shared = c.load(BASE).await;
                    c.alu(3).await;
                    let own = c.load(BASE + 64 * (1 + i)).await;
                    c.store(BASE + 64 * (1 + i), own + 1).await;
                    c.store(BASE, shared + 1).await;
                })
                .await;
                c.alu(20 + (k * 7 + i) % 13).await;
            }
        });
    }
    let look: Vec<u32> = (0..=cpus as u32).map(|i| BASE + 64 * i).collect();
    p.run(cfg, |_| {}, &look).expect("run")
}

#[test]
fn no_increment_is_lost_and_runs_repeat() {
    for policy in Policy::ALL {
        let cfg = Config { policy, perturb: 5, ..Config::default() };
        let (stats, values) = counters(&cfg, 8, 100);
        assert_eq!(values[0], 800, "{policy:?}");
        assert!(values[1..].iter().all(|v| *v == 100), "{policy:?}: {values:?}");
        assert_eq!(stats.commits, 800);
        assert!(stats.all_restarts() > 0, "{policy:?}: this must contend");
        assert_eq!(counters(&cfg, 8, 100).0, stats, "{policy:?}: one seed, one run");
        let other = Config { seed: 2, ..cfg };
        assert_ne!(counters(&other, 8, 100).0.end, stats.end, "{policy:?}: seeds differ");
    }
}

const ACCOUNTS: u32 = 12;

/// Random transfers between accounts, sums by transactions and by interrupt handlers on top of
/// them: no sum may ever differ, under any policy and backoff.
#[test]
fn money_is_neither_made_nor_lost_with_interrupts() {
    for policy in Policy::ALL {
        for backoff in [Backoff::Exponential, Backoff::Linear] {
            let cfg = Config { policy, backoff, perturb: 7, ..Config::default() };
            let mut p = Bare::new();
            for i in 0..6u64 {
                p = p.cpu(move |c| async move {
                    let mut rng = Rng::new(i);
                    c.irq_flag(true).await;
                    for _ in 0..60 {
                        let (from, to) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS));
                        c.raise_after(u64::from(rng.below(900)), Vector::Timer);
                        c.atomic(async || transfer(&c, from, to).await).await;
                    }
                });
            }
            p = p.on_interrupt(|c, _| async move {
                c.xpush().await;
                let sum = c.atomic(async || total(&c).await).await;
                if sum != 100 * ACCOUNTS {
                    c.host(|m| m.value_error(format!("a handler saw {sum}")));
                }
                c.xpop().await;
            });
            let look: Vec<u32> = (0..ACCOUNTS).map(account).collect();
            let fill = |m: &mut metatm::machine::Machine| {
                (0..ACCOUNTS).for_each(|i| m.mem.set(account(i), 100));
            };
            let (stats, seen) = p.run(&cfg, fill, &look).expect("run");
            assert_eq!(seen.iter().sum::<u32>(), 100 * ACCOUNTS, "{policy:?}");
            assert!(stats.interrupts > 200 && stats.commits_irq == stats.interrupts);
            assert!(stats.all_restarts() > 0);
        }
    }
}

fn account(i: u32) -> u32 {
    // Four to a line, so that word granularity matters.
    BASE + 16 * i
}

async fn transfer(c: &metatm::guest::Cx, from: u32, to: u32) {
    let a = c.load(account(from)).await;
    c.store(account(from), a.wrapping_sub(3)).await;
    c.alu(30).await;
    let b = c.load(account(to)).await;
    c.store(account(to), b.wrapping_add(3)).await;
}

async fn total(c: &metatm::guest::Cx) -> u32 {
    let mut sum = 0u32;
    for i in 0..ACCOUNTS {
        sum = sum.wrapping_add(c.load(account(i)).await);
    }
    sum
}
