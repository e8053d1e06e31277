//! First end-to-end check: counters stay exact, whatever the policy, and runs repeat.

use metatm::bare::Bare;
use metatm::htm::policy::Policy;
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
