//! What a program can do wrong with transactions, and what they refuse: a defined answer each.

use txos_tests::cprogram;

#[test]
fn refused() {
    cprogram::cases("refused");
}
