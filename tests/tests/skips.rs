//! `scripts/test` with a stand-in for cargo: what was skipped is told at the end, however the run ends.

use std::path::Path;
use std::process::Command;

use txos_tests::exec::{self, Outcome};
use txos_tests::scratch::Scratch;

/// What libtest prints of a suite whose tests pass, one of them without having run; it notes its arguments.
const PASSES: &str = r#"#!/bin/sh
echo "$*" >>"$LOG"
echo '     Running tests/first.rs (target/debug/deps/first-0123456789abcdef)'
printf '\nrunning 2 tests\ntest one ... ok\ntest two ... ok\n'
printf '\nsuccesses:\n\n---- one stdout ----\nSkip: no such device\nSkip: no such device\n\n'
printf '\nsuccesses:\n    one\n    two\n\n'
echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s'
"#;

/// The same, and a second suite with a test that fails beside others and passes alone.
const UNSTEADY: &str = r#"
case $* in *--exact*) exit 0 ;; esac
echo '     Running tests/second.rs (target/debug/deps/second-0123456789abcdef)'
printf '\nrunning 1 test\ntest three ... FAILED\n'
printf '\nsuccesses:\n\nsuccesses:\n\nfailures:\n\n---- three stdout ----\nbroken\n\n'
printf '\nfailures:\n    three\n\ntest result: FAILED. 0 passed; 1 failed\n'
echo 'error: test failed, to rerun pass `-p x --test second`' >&2
echo 'error: 1 target failed:' >&2
echo '    `-p x --test second`' >&2
exit 101
"#;

fn run(scratch: &Scratch, cargo: &str, skips: Option<&str>, words: &[&str]) -> Outcome {
    let bin = scratch.base().join("bin");
    std::fs::create_dir_all(&bin).expect("a directory for the stand-in");
    let program = bin.join("cargo");
    std::fs::write(&program, cargo).expect("the stand-in");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("the stand-in's mode");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/test");
    let mut command = Command::new("bash");
    command.arg(script).args(words).env("LOG", scratch.base().join("log"));
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display()));
    command.env_remove("TXOS_SKIPS").env_remove("TXOS_UNSTEADY");
    if let Some(skips) = skips {
        command.env("TXOS_SKIPS", skips);
    }
    exec::run(command)
}

const TOLD: &str = "skipped: one (first): no such device\n1 skipped in all\n";

#[test]
fn what_was_skipped_is_told_at_the_end_and_nothing_else_of_what_passed() {
    let scratch = Scratch::new();
    let out = run(&scratch, PASSES, None, &["-p", "x", "--", "--test-threads", "1"]);
    assert!(out.expect(0).stdout.ends_with(TOLD), "{out}");
    assert!(!out.stdout.contains("successes:") && out.stdout.contains("test two ... ok"), "{out}");
    let log = std::fs::read_to_string(scratch.base().join("log")).expect("the stand-in was run");
    let words = "test --workspace --locked --no-fail-fast -p x -- --test-threads 1 --show-output\n";
    assert_eq!(log, words);
}

#[test]
fn more_than_may_be_skipped_fails() {
    let scratch = Scratch::new();
    let out = run(&scratch, PASSES, Some("0"), &[]);
    assert!(out.expect(1).stdout.ends_with(TOLD), "{out}");
    out.says(&["at most 0 may be skipped"]);
    run(&scratch, PASSES, Some("1"), &[]).expect(0);
}

#[test]
fn what_fails_is_run_again_alone_and_skips_are_told_still() {
    let scratch = Scratch::new();
    let out = run(&scratch, &[PASSES, UNSTEADY].concat(), None, &[]);
    let unsteady =
        "unsteady: three (-p x --test second) failed beside others and passed twice alone";
    assert!(out.expect(0).stdout.ends_with(&format!("{unsteady}\n{TOLD}")), "{out}");
    let log = std::fs::read_to_string(scratch.base().join("log")).expect("the stand-in was run");
    let again =
        "test --locked --workspace --test second -- --show-output --exact three --test-threads 1";
    assert_eq!(log.lines().filter(|line| *line == again).count(), 2, "{log}");
    // Again and again it fails.
    let broken = [PASSES, &UNSTEADY.replace("*--exact*", "nothing")].concat();
    assert!(run(&scratch, &broken, None, &[]).expect(101).stdout.ends_with(TOLD));
}
