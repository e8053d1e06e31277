//! Pipes and FIFOs that are open when a program begins a transaction.

use txos_tests::cprogram;

#[test]
fn pipes() {
    cprogram::cases("pipes");
}
