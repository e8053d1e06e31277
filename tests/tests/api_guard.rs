//! Calls that a transaction cannot isolate, and signals to others.

use txos_tests::cprogram;

#[test]
fn guard() {
    cprogram::cases("guard");
}
