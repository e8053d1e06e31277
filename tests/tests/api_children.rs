//! Children, programs that are executed, and processes that join a transaction.

use txos_tests::cprogram;

#[test]
fn children() {
    cprogram::cases("children");
}
