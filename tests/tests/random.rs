//! Random operation lists: performed natively and in a transaction, they give the same answers and
//! the same tree.
//!
//! `TXOS_RANDOM_CASES=N` runs N lists for each kind of user, `TXOS_RANDOM_SEED=S` begins with the
//! seed S, `TXOS_RANDOM_FAILURES=N` goes on until N lists have failed. A failure prints its seed and the smallest list that still fails.

use std::time::Duration;

use txos_tests::op::Op;
use txos_tests::random::{Random, ops, setup, shrink};
use txos_tests::scenario::{Body, Scenario, perform_setup};
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, helper};
use txos_tests::who::Who;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn scenario(list: &[Op], who: Who) -> Scenario {
    Scenario::ops(list.to_vec()).setup_ops(setup(who)).by(who).may_open_without_writing()
}

fn run(who: Who, default_cases: u64) {
    if let Some(why) = who.impossible() {
        println!("Skip: {why}");
        return;
    }
    let cases = number("TXOS_RANDOM_CASES").unwrap_or(default_cases);
    let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
    let first = number("TXOS_RANDOM_SEED").unwrap_or_else(now);
    let (mut failures, allowed) = (Vec::new(), number("TXOS_RANDOM_FAILURES").unwrap_or(1));
    for seed in (0..cases).map(|i| first.wrapping_add(i)) {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let count = 5 + random.below(60) as usize;
        let list = ops(&mut random, count, who);
        let found = scenario(&list, who).differences();
        if found.is_empty() {
            continue;
        }
        let fails = |l: &[Op]| !scenario(l, who).differences().is_empty();
        let small = shrink(list, Duration::from_secs(30), fails);
        let found = scenario(&small, who).differences().join("\n");
        failures.push(format!("seed {seed}, made small:\n{}\n{found}", Op::print(&small)));
        if failures.len() as u64 >= allowed {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A generator whose operations all fail would prove nothing.
#[test]
fn most_kinds_of_operations_succeed_often_enough() {
    let mut tried = std::collections::BTreeMap::<String, (u32, u32)>::new();
    for seed in 0..60 {
        let scratch = Scratch::new();
        let tree = scratch.native();
        perform_setup(&scratch, &tree, &Body::Ops(setup(Who::User))).unwrap();
        let list = ops(&mut Random::new(seed), 60, Who::User);
        let file = scratch.base().join("ops");
        std::fs::write(&file, Op::print(&list)).unwrap();
        let command = Txos::new(&scratch).dir(&tree).command(&helper("oplist"), [&file]);
        let out = txos_tests::exec::run(command);
        for (op, answer) in list.iter().zip(out.stdout.lines()) {
            let (all, ok) = tried.entry(op.kind()).or_default();
            *all += 1;
            *ok += u32::from(answer.starts_with("ok"));
        }
    }
    println!("{tried:?}");
    let rare: Vec<_> = tried.iter().filter(|(_, (all, ok))| ok * 25 < *all).collect();
    assert!(rare.is_empty(), "{rare:?}");
    assert!(tried.len() > 28, "{tried:?}");
}

#[test]
fn random_operations_as_root() {
    run(Who::Root, 25);
}

#[test]
fn random_operations_as_an_ordinary_user() {
    run(Who::User, 15);
}
