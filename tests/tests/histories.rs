//! Random transactions, truly in parallel and beside an outsider who writes: what they saw has a
//! serial order (see [`txos_tests::history`]). And the checker is checked: with a txos that passes
//! over the conflicts of one facet, it finds the anomaly.
//!
//! `make histories` makes the long version of both. `TXOS_TEST_TRANSACTIONS` says how many
//! transactions, `TXOS_SEED` repeats their operations (not their interleaving).

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use txos_tests::history::{Plan, Record, cycle, perform};
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::txos::native_only;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// As many transactions as are wanted, or so many.
fn plan(transactions: u64) -> Plan {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seed = number("TXOS_SEED").unwrap_or_else(now);
    let transactions = number("TXOS_TEST_TRANSACTIONS").unwrap_or(transactions);
    Plan { transactions, seed, blind: None }
}

/// The steps of a cycle, and the records on it.
fn told(history: &[Record], steps: &[String]) -> String {
    let on_it = |record: &&Record| steps.iter().any(|step| step.contains(&record.id.to_string()));
    format!("{steps:#?}\n{:#?}", history.iter().filter(on_it).collect::<Vec<_>>())
}

#[test]
fn what_random_transactions_saw_has_a_serial_order() {
    if native_only() {
        skip!("natively nothing is isolated");
    }
    if let Some(why) = txos_tests::who::Who::Root.impossible() {
        skip!("{why}");
    }
    let plan = plan(1000);
    println!("TXOS_SEED={}", plan.seed);
    let (scratch, start) = (Scratch::new(), Instant::now());
    let history = perform(&scratch, &plan);
    let (transactions, took) = (plan.transactions, start.elapsed());
    let outside = history.len() as u64 - transactions;
    println!("{transactions} transactions, {outside} changes by an outsider, {took:?}");
    if let Some(steps) = cycle(&history) {
        panic!("TXOS_SEED={}: no serial order: {}", plan.seed, told(&history, &steps));
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// The facets, as the fault knows them (`txos_core::blind_to`).
const FACETS: [&str; 7] = ["binding", "perms", "attrs", "listing", "content", "link", "xattrs"];

#[test]
#[ignore = "needs a txos with the fault `blind` as TXOS_BLIND_BIN: make histories"]
fn a_facet_that_is_not_minded_is_missed() {
    let binary = std::env::var_os("TXOS_BLIND_BIN").map(PathBuf::from);
    let binary = binary.expect("TXOS_BLIND_BIN names a txos that was built with the fault");
    let mut passed = Vec::new();
    for facet in FACETS {
        let blind = Some((binary.clone(), facet.to_owned()));
        // A few hundred do; how many is a matter of luck.
        let found = (0..12).find_map(|round| {
            let Plan { transactions, seed, .. } = plan(300);
            let plan = Plan { transactions, seed: seed + round, blind: blind.clone() };
            let scratch = Scratch::new();
            let history = perform(&scratch, &plan);
            cycle(&history).map(|steps| (round, steps))
        });
        match found {
            Some((round, steps)) => println!("{facet}: missed in round {round}: {steps:?}"),
            None => passed.push(facet),
        }
    }
    assert_eq!(passed, Vec::<&str>::new(), "nothing is wrong without them");
}
