//! Programs that begin transactions themselves, without rollback of their own state.

use txos_tests::cprogram;

#[test]
fn plain() {
    cprogram::cases("plain");
}
