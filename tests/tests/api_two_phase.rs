//! A software transactional memory whose commit asks `sys_xend`: both commit, or neither.

use txos_tests::scratch::Scratch;
use txos_tests::{cprogram, txos};

#[test]
fn memory_and_files_commit_together() {
    if txos::native_only() {
        txos_tests::skip!("nothing to compare natively");
    }
    if let Some(why) = txos_tests::who::Who::Root.impossible() {
        txos_tests::skip!("{why} (an ordinary user needs a session of txos exec)");
    }
    let scratch = Scratch::new();
    let outcome = cprogram::run(&scratch, &txos::helper("two_phase"), [""; 0]);
    outcome.expect(0);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
