//! Signals that come while a transaction runs, and what a rollback makes of them.

use txos_tests::cprogram;

#[test]
fn signals() {
    cprogram::cases("signals");
}
