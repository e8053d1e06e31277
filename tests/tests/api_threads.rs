//! Several threads with transactions of their own, ordered commit, signal handlers, races.

use txos_tests::cprogram;

#[test]
fn threads() {
    cprogram::cases("threads");
}

#[test]
fn files_of_threads() {
    cprogram::cases("thread_files");
}

#[test]
fn races() {
    cprogram::cases("races");
}
