//! Programs that begin transactions themselves, with rollback of their own state.

use txos_tests::cprogram;

#[test]
fn rollback() {
    cprogram::cases("rollback");
}
