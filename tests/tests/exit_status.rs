//! Exit statuses of `txos run`, and what each means for the tree.

use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, for_both};
use txos_tests::who::Who;

fn exists(scratch: &Scratch, name: &str) -> bool {
    scratch.inside().join(name).exists()
}

#[test]
fn zero_commits() {
    for_both(|scratch, txos| {
        let out = txos.sh(&[], "echo hello; echo err >&2; echo x >f");
        out.expect(0);
        assert_eq!(out.stdout, "hello\n");
        assert!(out.stderr.contains("err\n"), "{out}");
        assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "x\n");
    });
}

#[test]
fn anything_else_aborts_with_the_same_status() {
    for_both(|scratch, txos| {
        for status in [1, 2, 42, 75, 124, 125, 126, 127, 255] {
            let out = txos.sh(&[], &format!("echo out; echo x >f; exit {status}"));
            out.expect(status);
            assert_eq!(out.stdout, "out\n");
            assert!(!exists(scratch, "f"), "status {status} committed");
        }
    });
}

#[test]
fn a_signal_aborts_with_128_and_its_number() {
    for_both(|scratch, txos| {
        for (name, number) in [("TERM", 15), ("KILL", 9), ("HUP", 1), ("USR1", 10), ("SEGV", 11)] {
            txos.sh(&[], &format!("echo x >f; kill -{name} $$")).expect(128 + number);
            assert!(!exists(scratch, "f"), "signal {name} committed");
        }
    });
}

#[test]
fn a_command_that_is_not_there_gives_127() {
    for_both(|_, txos| {
        txos.call(["run", "no-such-command-anywhere"])
            .expect(127)
            .says(&["no-such-command-anywhere"]);
        txos.call(["run", "--", "./missing"]).expect(127).says(&["./missing"]);
        txos.call(["run", "--", "/nonexistent/x"]).expect(127).says(&["/nonexistent/x"]);
    });
}

#[test]
fn a_command_that_cannot_be_executed_gives_126() {
    for_both(|scratch, txos| {
        std::fs::write(scratch.inside().join("plain"), "just text").unwrap();
        txos.call(["run", "--", "./plain"]).expect(126).says(&["./plain"]);
        txos.call(["run", "--", "/"]).expect(126);
        let bad = scratch.inside().join("bad");
        std::fs::write(&bad, "#!/nonexistent/interpreter\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&bad, mode).unwrap();
        // env(1) says 127 for a script whose interpreter is not there.
        txos.call(["run", "--", "./bad"]).expect(127);
    });
}

#[test]
fn an_error_of_the_command_line_gives_125_and_says_which() {
    for_both(|_, txos| {
        txos.call(["run", "--no-such-option", "--", "true"])
            .expect(125)
            .says(&["--no-such-option"]);
        txos.call(["run"]).expect(125);
        txos.call(["run", "--retries", "many", "--", "true"]).expect(125).says(&["--retries"]);
        txos.call(["run", "--max-bytes", "lots", "--", "true"]).expect(125).says(&["--max-bytes"]);
        txos.call(["run", "--timeout", "soon", "--", "true"]).expect(125).says(&["--timeout"]);
        for time in ["0", "0ms", "3000000000000000h"] {
            txos.call(["run", "--timeout", time, "--", "true"]).expect(125).says(&["--timeout"]);
        }
        txos.call(["run", "--pass-fd", "99", "--", "true"]).expect(125).says(&["descriptor 99"]);
        txos.call(["run", "--tree", "/nonexistent/tree", "--", "true"])
            .expect(125)
            .says(&["/nonexistent/tree"]);
        txos.call(["frobnicate"]).expect(125).says(&["frobnicate"]);
        txos.call(["commit", "no-such-id"]).expect(125).says(&["no-such-id"]);
        txos.call(["diff", "no-such-id"]).expect(125).says(&["no-such-id"]);
        txos.call(["abort", "no-such-id"]).expect(125).says(&["no-such-id"]);
    });
}

#[test]
fn options_after_the_command_belong_to_it() {
    for_both(|_, txos| {
        assert_eq!(
            txos.call(["run", "echo", "--dry-run", "-x"]).expect(0).stdout,
            "--dry-run -x\n"
        );
        assert_eq!(txos.call(["run", "--", "echo", "--"]).expect(0).stdout, "--\n");
    });
}

#[test]
fn help_and_version_go_to_standard_output() {
    for_both(|_, txos| {
        let out = txos.call(["--help"]);
        out.expect(0);
        for verb in ["run", "diff", "show", "commit", "abort", "ps", "log", "recover", "doctor"] {
            assert!(out.stdout.contains(verb), "{verb} is not in the help: {out}");
        }
        assert!(txos.call(["--version"]).expect(0).stdout.starts_with("txos "));
        assert!(txos.call(["run", "--help"]).expect(0).stdout.contains("--keep"));
    });
}

#[test]
fn environment_directory_and_umask_are_the_callers() {
    for_both(|scratch, txos| {
        let txos = txos.env("SOMETHING", "of mine");
        let out = txos.sh(&[], "echo \"$SOMETHING\"; pwd; umask 027; echo x >f; id -u; ulimit -n");
        let native =
            Txos::by(scratch, if out.stdout.contains("\n0\n") { Who::Root } else { Who::User })
                .env("SOMETHING", "of mine");
        let script = "echo \"$SOMETHING\"; pwd; umask 027; id -u; ulimit -n";
        let native = txos_tests::exec::run(native.command("sh".as_ref(), ["-c", script]));
        assert_eq!(out.stdout, native.stdout);
        let mode = std::fs::metadata(scratch.inside().join("f")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o640);
    });
}

#[test]
fn progress_never_mixes_into_the_commands_output() {
    for_both(|_, txos| {
        for mode in ["live", "deferred", "auto"] {
            let out = txos.sh(&["--output", mode], "printf one; echo x >f; printf two");
            assert_eq!(out.expect(0).stdout, "onetwo", "--output {mode}");
            assert!(!out.stderr.contains('\x1b'), "colour without a terminal: {out}");
        }
    });
}
