//! The command's exit status and messages.

use std::process::{Command, Output};

fn metatm(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_metatm")).args(args).output().expect("metatm starts")
}

#[test]
fn bad_input_exits_with_2_and_says_why() {
    for (args, word) in [
        (&["run", "nosuch"][..], "bonnie++"),
        (&["run", "mab", "--set", "cpus=99"], "between 1 and 32"),
        (&["run", "mab", "--set", "cpus"], "KEY=VALUE"),
        (&["run", "mab", "--set", "nosuch=1"], "backoff_base"),
        (&["run", "mab", "--set", "cpus=-1"], "whole number"),
        (&["run", "mab", "--set", "quantum=0"], "between 1 and"),
        (&["run", "mab", "--set", "late=perhaps"], "true or false"),
        (&["run", "mab", "--set", "kernel=bsd"], "unknown kernel"),
        (&["run", "mixed"], "kernel=cx"),
        (&["reproduce", "--seeds", "0"], "--seeds"),
        (&["reproduce", "--threads", "0"], "--threads"),
        (&["reproduce", "--out", "/proc/nowhere"], "--out"),
    ] {
        let out = metatm(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
        assert!(out.stdout.is_empty(), "{args:?}: a figure was printed");
    }
}

#[test]
fn a_run_and_the_litmus_tests_exit_with_0() {
    let out = metatm(&["run", "dpunish", "--regions", "--set", "cpus=2", "--set", "scale=5"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.contains("d_lookup"), "{said}");
    let out = metatm(&["litmus"]);
    assert!(out.status.success());
    assert!(!String::from_utf8_lossy(&out.stdout).contains("FAIL"));
}
