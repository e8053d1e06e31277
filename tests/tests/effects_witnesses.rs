//! Each row of the table of effects that is not made for real has a test that makes the call: strace(1)
//! is asked whether it does.
//!
//! `TXOS_WITNESS=NAME` looks at the tests of that name alone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use txos_effects::filter::Arch;
use txos_tests::exec::{self, Outcome};
use txos_tests::skip;
use txos_tests::witnesses::{CREATE, Traced, WITNESSES, Witness, needed};

#[test]
fn each_row_that_is_not_made_for_real_has_one_witness() {
    let needed = needed();
    assert!(needed.len() > 100, "{}", needed.len());
    for (call, when) in &needed {
        let count = WITNESSES.iter().filter(|witness| witness.is_of(call, when)).count();
        assert_eq!(count, 1, "{call}, {when:?}: name one test in WITNESSES that makes the call");
    }
    for witness in WITNESSES {
        for call in witness.calls {
            let of = |(name, when): &&(&str, &str)| name == call && witness.is_of(name, when);
            assert!(needed.iter().any(|row| of(&row)), "{call}, {:?}: no such row", witness.when);
        }
    }
}

/// The newest program of a test suite beside this one.
fn program(suite: &str) -> PathBuf {
    let me = std::env::current_exe().expect("the path of this test");
    let dir = me.parent().expect("<target>/<profile>/deps");
    let is_program = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix(suite).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|hash| hash.bytes().all(|c| c.is_ascii_hexdigit()))
    };
    let all = std::fs::read_dir(dir).expect("the tests' directory").flatten();
    all.map(|entry| entry.path())
        .filter(is_program)
        .max_by_key(|path| path.metadata().and_then(|about| about.modified()).ok())
        .unwrap_or_else(|| panic!("{suite} was not built: cargo test --workspace --no-run"))
}

/// Runs one test under strace(1). What its transactions' members did, and why some of it was skipped.
fn trace(
    test: (&str, &str),
    calls: &[&str],
    dir: &Path,
) -> Result<(Traced, Option<String>), Outcome> {
    let (suite, name) = test;
    std::fs::create_dir_all(dir).expect("a directory for the trace");
    // By number, too: a call may be newer than strace(1).
    let number = |call: &&str| Arch::HOST.number(call).unwrap_or_default();
    let words = |call: &&str| format!("?{call},?{}", number(call));
    let calls: Vec<String> = calls.iter().map(words).collect();
    let shown = format!("trace={CREATE},seccomp,{}", calls.join(","));
    let words =
        ["-ff", "-qq", "--decode-pids=pidns", "-s", "200", "-e", &shown, "-e", "signal=none"];
    let mut all: Vec<OsString> = words.iter().map(Into::into).collect();
    all.extend(["-o".into(), dir.join("trace").into(), program(suite).into()]);
    all.extend(["--exact", name, "--test-threads", "1", "--show-output"].map(Into::into));
    let mut command = Command::new("strace");
    command.args(all);
    let out = exec::Running::start(command, None).end(exec::LIMIT * 4);
    if !out.stdout.contains("1 passed") {
        return Err(out);
    }
    let skipped = out.stdout.split_once("Skip: ").and_then(|(_, why)| why.lines().next());
    Ok((Traced::read(dir), skipped.map(str::to_owned)))
}

#[test]
#[ignore = "takes two minutes: make witnesses"]
fn each_witness_makes_its_calls_in_a_transaction() {
    if exec::find("strace").is_none() {
        skip!("no strace(1)");
    }
    let wanted = std::env::var("TXOS_WITNESS").unwrap_or_default();
    // Away from what the tests watch.
    let dir = tempfile::Builder::new().prefix("txos-witnesses").tempdir_in("/dev/shm");
    let dir = dir.or_else(|_| tempfile::tempdir()).expect("a directory for traces");
    let mut tests: BTreeMap<(&str, &str), Vec<&Witness>> = BTreeMap::new();
    for witness in WITNESSES.iter().filter(|witness| witness.test.1.contains(&wanted)) {
        tests.entry(witness.test).or_default().push(witness);
    }
    let mut missing = Vec::new();
    for (n, (test, witnesses)) in tests.into_iter().enumerate() {
        let mut calls: Vec<&str> =
            witnesses.iter().flat_map(|witness| witness.calls).copied().collect();
        calls.retain(|call| Arch::HOST.number(call).is_some());
        let traced = trace(test, &calls, &dir.path().join(n.to_string()));
        let (traced, skipped) = match traced {
            Ok(traced) => traced,
            Err(out) => {
                missing.push(format!("{test:?} does not pass under strace(1): {out}"));
                continue;
            }
        };
        let before = missing.len();
        for witness in witnesses {
            for call in witness.calls.iter().filter(|call| calls.contains(call)) {
                if !traced.made(call, witness.shows) {
                    let (when, shows, seen) = (witness.when, witness.shows, traced.calls());
                    missing.push(format!(
                        "{test:?} doesn't make {call}(… {shows}), {when:?}; {seen} calls of members"
                    ));
                }
            }
        }
        if let Some(why) = skipped.filter(|_| missing.len() > before) {
            missing.truncate(before);
            println!("Skip: {}: {why}", test.1);
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
