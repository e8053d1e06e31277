//! Bad input gives a clear error, never a figure.

use metatm::config::{KernelKind, Sabotage};
use metatm::workload::Workload;
use metatm::{Config, SimError};

#[test]
fn unknown_workloads_are_listed() {
    let said = Workload::parse("bonnie").expect_err("no such workload").to_string();
    assert!(said.contains("bonnie++") && said.contains("pipeline"), "{said}");
}

#[test]
fn processors_out_of_range_are_refused() {
    for cpus in [0, 33, 1000] {
        let cfg = Config { cpus, ..Config::default() };
        let said = Workload::Mab.run(&cfg).expect_err("out of range").to_string();
        assert!(said.contains("between 1 and 32"), "{said}");
    }
}

#[test]
fn too_little_memory_is_said() {
    let cfg = Config { mem_bytes: 1 << 20, ..Config::default() };
    let said = Workload::Mab.run(&cfg).expect_err("too small").to_string();
    assert!(said.contains("mem_bytes"), "{said}");
}

#[test]
fn the_pipeline_needs_a_kernel_that_knows_transactions() {
    let said = Workload::Pipeline.run(&Config::default()).expect_err("locks").to_string();
    assert!(said.contains("kernel=ss"), "{said}");
}

#[test]
fn an_unfinished_run_has_no_figures() {
    let cfg = Config { cpus: 2, max_cycles: 100_000, ..Config::default() };
    assert!(matches!(Workload::Config.run(&cfg), Err(SimError::Limit { .. })));
}

#[test]
fn broken_hardware_is_noticed_under_a_whole_kernel() {
    for sabotage in [Sabotage::ForgetReads, Sabotage::ForgetUndo] {
        let cfg = Config {
            cpus: 8,
            kernel: KernelKind::Ss,
            scale: 20,
            sabotage: Some(sabotage),
            ..Config::default()
        };
        let found = Workload::Bonnie.run(&cfg);
        let noticed = matches!(
            found,
            Err(SimError::Isolation { .. } | SimError::Value { .. } | SimError::Guest { .. })
        );
        assert!(noticed, "{sabotage:?}: {:?}", found.map(|s| s.end));
    }
}

#[test]
fn long_ticks_do_not_overflow() {
    let cfg = Config { cycles_per_us: 10_000, hz: 1, ..Config::default() };
    cfg.check().expect("within the ranges of both");
    assert_eq!(cfg.tick(), 10_000_000_000);
}

#[test]
fn the_longest_backoff_is_long_and_not_none() {
    // Base and cap are each within range; together they exceed 32 bits.
    let cfg = Config {
        cpus: 4,
        kernel: KernelKind::Ss,
        scale: 5,
        backoff_base: 1 << 20,
        backoff_cap: 20,
        ..Config::default()
    };
    let long = Workload::Bonnie.run(&cfg).expect("run");
    assert!(long.all_restarts() > 0, "or nothing waited");
    assert!(long.backoff_cycles / long.all_restarts() > 1 << 16, "{}", long.backoff_cycles);
}
