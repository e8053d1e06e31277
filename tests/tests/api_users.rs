//! Programs of ordinary users that begin transactions, under `txos exec`.

use txos_tests::cprogram;

#[test]
fn without_rollback() {
    let cases = [
        "commits_all",
        "abort_undoes_all",
        "a_lost_conflict_is_told",
        "absence_is_read",
        "working_directory",
        "a_file_open_before",
        "a_file_opened_inside_stays_open",
    ];
    cprogram::cases_of_a_user("plain", &cases);
}

#[test]
fn with_rollback() {
    let cases = [
        "memory_comes_back",
        "a_lost_conflict_runs_again",
        "mappings_come_back",
        "descriptors_come_back",
        "signals_come_back",
        "the_snapshot_is_no_child",
        "hard_limits_come_back",
        "lowered_hard_limits_commit",
        "children_have_lowered_hard_limits",
    ];
    cprogram::cases_of_a_user("rollback", &cases);
}

#[test]
fn no_process_is_left_for_a_checkpoint() {
    cprogram::cases_of_a_user("refused", &["no_process_is_left"]);
}

#[test]
fn signals() {
    let cases = ["what_sigwait_took_comes_again", "who_meets_a_change_begins_again_at_once"];
    cprogram::cases_of_a_user("signals", &cases);
}

#[test]
fn children_and_what_is_not_supported() {
    let cases = ["system_belongs_to_it", "system_is_undone", "the_last_one_out_commits"];
    cprogram::cases_of_a_user("children", &cases);
    let cases = ["as_an_error_the_transaction_goes_on", "signals_to_members_go_at_once"];
    cprogram::cases_of_a_user("guard", &cases);
}
