//! Options of `txos run`, one by one.

use std::time::{Duration, Instant};

use txos_tests::exec::{LIMIT, Running};
use txos_tests::report::Report;
use txos_tests::skip;
use txos_tests::txos::{for_both, for_one};
use txos_tests::who::Who;

#[test]
fn tree_confines_the_transaction() {
    for_both(|scratch, txos| {
        let tree = scratch.inside().join("tree");
        let other = scratch.inside().join("other");
        for dir in [&tree, &other] {
            std::fs::create_dir(dir).unwrap();
            let uid =
                std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(scratch.inside()).unwrap());
            std::os::unix::fs::chown(dir, Some(uid), Some(uid)).unwrap();
        }
        let live = scratch.live().display().to_string();
        let (tree, other) = (tree.display().to_string(), other.display().to_string());
        let script = format!(
            "echo in >'{tree}/f' || exit 1; cat /etc/hostname >/dev/null; \
             echo out >'{other}/f' && exit 2; rm -r '{other}' && exit 3; chmod 777 '{other}' && exit 4; \
             echo live >'{live}/f' || exit 5; exit 0"
        );
        txos.sh(&["--tree", &tree, "--live", &live], &script).expect(0);
        assert!(scratch.inside().join("tree/f").exists());
        assert!(scratch.inside().join("other").exists());
        assert!(!scratch.inside().join("other/f").exists());
        assert!(scratch.live().join("f").exists());
        // Without --live that path is refused too.
        std::fs::remove_file(scratch.live().join("f")).unwrap();
        txos.sh(&["--tree", &tree], &script).expect(5);
        assert!(!scratch.live().join("f").exists());
        // Two trees.
        let script = format!("echo 1 >'{tree}/g' && echo 2 >'{other}/g'");
        txos.sh(&["--tree", &tree, "--tree", &other], &script).expect(0);
        assert!(
            scratch.inside().join("tree/g").exists() && scratch.inside().join("other/g").exists()
        );
    });
}

#[test]
fn live_paths_are_not_rolled_back_and_are_reported() {
    for_both(|scratch, txos| {
        let live = scratch.live().display().to_string();
        let json = scratch.base().join("report.json").display().to_string();
        let script = format!("echo l >'{live}/f'; echo x >f; exit 6");
        txos.sh(&["--live", &live, "--json", &json], &script).expect(6);
        assert!(scratch.live().join("f").exists() && !scratch.inside().join("f").exists());
        assert!(Report::read(json.as_ref()).mentions("live", &live));
    });
}

#[test]
fn a_time_limit_ends_and_aborts() {
    for_both(|scratch, txos| {
        let out = txos.sh(&["--timeout", "1"], "echo x >f; sleep 600");
        out.expect(125).says(&["--timeout", "1s"]);
        assert!(!scratch.inside().join("f").exists());
        txos.sh(&["--timeout", "60"], "echo x >f").expect(0);
        assert!(scratch.inside().join("f").exists());
    });
}

#[test]
fn more_bytes_than_allowed_abort_and_say_so() {
    for_both(|scratch, txos| {
        let out = txos.sh(
            &["--max-bytes", "1M"],
            "head -c 4000000 /dev/zero | tr '\\0' x >big; sync; sleep 1; true",
        );
        assert_ne!(out.code(), 0, "{out}");
        out.says(&["--max-bytes"]);
        assert!(!scratch.inside().join("big").exists());
        txos.sh(&["--max-bytes", "1M"], "head -c 400000 /dev/zero | tr '\\0' x >small").expect(0);
        assert!(scratch.inside().join("small").exists());
    });
}

#[test]
fn limits_count_what_the_command_does_alone() {
    for_both(|_, txos| {
        // What stands in for programs that reach services is not the command's.
        let nothing = ["--max-objects", "0", "--max-bytes", "0"];
        txos.sh(&nothing, "sleep 0.3").expect(0);
        txos.sh(&["--max-objects", "2"], "touch a b; sleep 0.3").expect(0);
        let out = txos.sh(&["--max-objects", "2"], "touch c d e");
        out.expect(125).says(&["--max-objects"]);
    });
}

#[test]
fn holes_are_no_bytes_that_were_written() {
    for_both(|scratch, txos| {
        txos.sh(&["--max-bytes", "1M"], "truncate -s 1G sparse; sleep 0.2").expect(0);
        assert_eq!(scratch.inside().join("sparse").metadata().unwrap().len(), 1 << 30);
    });
}

#[test]
fn a_device_that_is_let_through_can_be_opened() {
    for_one(Who::Root, |_, txos| {
        // Harmless, and not among the devices of every view.
        let mut devices = vec!["/dev/kmsg", "/dev/loop-control", "/dev/hwrng"];
        devices.retain(|path| std::fs::File::open(path).is_ok());
        if devices.is_empty() {
            skip!("no device here that can be opened");
        }
        for device in devices {
            let open = format!("exec 3<{device}");
            assert_ne!(txos.sh(&[], &open).code(), 0, "open without being let through");
            txos.sh(&["--allow", device], &open).expect(0);
            txos.sh(&["--live", device], &open).expect(0);
        }
    });
}

#[test]
fn nondurable_commits_too() {
    for_both(|scratch, txos| {
        txos.sh(&["--nondurable"], "echo x >f; mkdir d; echo y >d/g").expect(0);
        assert_eq!(std::fs::read_to_string(scratch.inside().join("d/g")).unwrap(), "y\n");
    });
}

#[test]
fn syncing_inside_succeeds() {
    for_both(|_, txos| {
        let script = "perl -MIO::Handle -e 'for (1..300) { open(my $f, \">\", \"f$_\") or die; print $f \"x\"; $f->flush; $f->sync or die \"$!\" }'; sync";
        txos.sh(&[], script).expect(0);
    });
}

#[test]
fn deferred_output_comes_only_with_a_commit() {
    for_both(|scratch, txos| {
        let live = scratch.live().display().to_string();
        for (mode, early) in [("live", true), ("deferred", false)] {
            let gate = txos_tests::gate::Gate::new(scratch.live());
            let script =
                format!("{}echo said; reach said{mode}; await seen{mode}", gate.functions());
            let file = scratch.base().join(format!("out-{mode}"));
            let sink = std::fs::File::create(&file).unwrap();
            let args = ["run", "--output", mode, "--live", &live, "--", "sh", "-c", &script];
            let mut command = txos.command(&txos.program(), args);
            command
                .stdin(std::process::Stdio::null())
                .stdout(sink)
                .stderr(std::process::Stdio::null());
            let mut child = command.spawn().unwrap();
            gate.wait(&format!("said{mode}"));
            let (start, read) = (Instant::now(), || std::fs::read_to_string(&file).unwrap());
            // What is live comes at some time; what is deferred would have come by now.
            let patience = if early { LIMIT } else { Duration::from_millis(300) };
            while read().is_empty() && start.elapsed() < patience {
                std::thread::sleep(Duration::from_millis(5));
            }
            let said = read();
            gate.open(&format!("seen{mode}"));
            let status = child.wait().unwrap();
            assert_eq!(said == "said\n", early, "--output {mode}: {said:?}");
            assert!(status.success());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "said\n");
        }
        // An abort for another reason than the command's own status drops nothing that it said.
        let out = txos.sh(&["--output", "deferred"], "echo why; exit 4");
        assert_eq!(out.expect(4).stdout, "why\n");
    });
}

#[test]
fn much_output_and_input_pass_unharmed() {
    for_both(|_, txos| {
        let input: Vec<u8> = (0..5_000_000u32).map(|i| b'a' + (i % 23) as u8).collect();
        let txos = txos.input(input.clone());
        for mode in ["live", "deferred"] {
            let out = txos.sh(&["--output", mode], "cat; echo end >&2");
            assert_eq!(out.expect(0).stdout.len(), input.len());
            assert_eq!(out.stdout.as_bytes(), input);
        }
    });
}

#[test]
fn a_command_may_leave_its_input_and_a_closed_output_is_no_disaster() {
    for_one(Who::Root, |_, txos| {
        let txos = txos.input(vec![b'x'; 2_000_000]);
        txos.sh(&[], "head -c 10 >/dev/null").expect(0);
        let binary = txos_tests::txos::binary();
        let script = format!(
            "'{}' run -- sh -c 'yes | head -c 1000000; echo x >f' | head -c 1",
            binary.display()
        );
        let out = Running::start(txos.command("sh".as_ref(), ["-c", &script]), Some(Vec::new()))
            .end(LIMIT);
        assert_eq!(out.expect(0).stdout, "y");
    });
}

#[test]
fn unsupported_calls_fail_abort_or_pass_as_asked() {
    for_one(Who::Root, |scratch, txos| {
        // sethostname(2) with a length that natively is refused with EINVAL (22).
        let call = "perl -e 'syscall(`uname -m` eq \"x86_64\\n\" ? 170 : 161, my $n = \"x\", 1 << 20); exit($! + 0)'";
        let out =
            txos.sh(&["--on-unsupported", "error"], &format!("{call}; echo $?; echo x >error"));
        assert_eq!(out.expect(0).stdout, "134\n");
        assert!(scratch.inside().join("error").exists());
        let out = txos
            .sh(&["--on-unsupported", "abort"], &format!("{call}; echo x >abort; sleep 1; exit 0"));
        assert_ne!(out.code(), 0, "{out}");
        out.says(&["sethostname"]);
        assert!(!scratch.inside().join("abort").exists());
        let out =
            txos.sh(&["--on-unsupported", "allow"], &format!("{call}; echo $?; echo x >allow"));
        assert_eq!(out.expect(0).stdout, "22\n");
        // The view has a host name of its own, so this is not a call that acts outside.
        out.says(&["sethostname", "view alone"]);
        assert!(scratch.inside().join("allow").exists());
    });
}

#[test]
fn the_report_is_whole() {
    for_both(|scratch, txos| {
        std::fs::write(scratch.inside().join("read-me"), "x").unwrap();
        let json = scratch.base().join("report.json").display().to_string();
        txos.sh(&["--json", &json], "cat read-me; echo x >made; exit 0").expect(0);
        let report = Report::read(json.as_ref());
        assert!(!report.text("id").is_empty(), "{report:?}");
        assert!(report.mentions("changes", "made"), "{report:?}");
        assert_eq!(report.text("outcome"), "committed");
        assert_eq!((report.text("attempts"), report.text("exit_status")), ("1".into(), "0".into()));
        assert!(report.0["read_objects"].as_u64() > Some(0), "{report:?}");
        txos.sh(&["--json", &json], "exit 3").expect(3);
        assert_ne!(Report::read(json.as_ref()).text("id"), report.text("id"));
    });
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_the_command_runs() {
    for_one(Who::Root, |scratch, txos| {
        let out = txos.sh(&["--json", "/nonexistent/directory/report.json"], "echo x >f");
        out.expect(125).says(&["/nonexistent/directory/report.json"]);
        assert!(!scratch.inside().join("f").exists());
    });
}

/// With a service manager that only says what it is asked, in a mount namespace where one runs.
#[test]
fn services_that_package_scripts_start_are_run_after_the_commit() {
    if !std::path::Path::new("/usr/bin/systemctl").exists() {
        txos_tests::skip!("no systemctl");
    }
    for_one(Who::Root, |scratch, txos| {
        let (bin, log) = (scratch.base().join("bin"), scratch.base().join("asked"));
        std::fs::create_dir(&bin).unwrap();
        let (file, asked) = (scratch.inside().join("f"), log.display());
        let fake = format!(
            "#!/bin/sh\necho \"$*\" $(cat '{}') >>'{asked}'\necho said\n[ $1 != restart ]\n",
            file.display()
        );
        std::fs::write(bin.join("new"), fake).unwrap();
        txos_tests::txos::copy_program(&bin.join("new"), &bin.join("systemctl"));
        let runs = format!(
            "chmod 755 '{0}/systemctl'; mount -t tmpfs none /run; mkdir -p /run/systemd/system; \
             export PATH='{0}':\"$PATH\"; exec \"$@\"",
            bin.display()
        );
        let apart = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", &runs, "sh"];
        let txos = txos.outer(apart.map(Into::into).to_vec());
        let real = "/usr/bin/systemctl";
        let script = format!(
            "{real} start a.service; {real} restart b.service; test ! -e '{asked}' && echo new >f"
        );
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        txos.sh(&options, &format!("{script}; exit 3")).expect(3);
        assert!(!log.exists(), "a transaction that is aborted starts something");
        txos.sh(&options, &script).expect(0).says(&["b.service"]);
        let said = std::fs::read_to_string(&log).unwrap();
        assert_eq!(said, "start a.service new\nrestart b.service new\n");
        let services = &Report::read(&json).0["services"];
        let statuses: Vec<_> = (0..2).map(|at| services[at]["status"].as_i64()).collect();
        assert_eq!(statuses, [Some(0), Some(1)], "{services}");
    });
}

#[test]
fn inside_the_policy_says_no_and_outside_it_stays() {
    for_one(Who::Root, |scratch, txos| {
        // policy-rc.d is asked by invoke-rc.d; inside it says no (101), and the request is recorded.
        let script = "test -x /usr/sbin/policy-rc.d && /usr/sbin/policy-rc.d txos-no-such-service start; echo $?";
        let out = txos.sh(&["--dry-run"], script);
        assert_eq!(out.expect(0).stdout, "101\n", "{out}");
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
        let there = std::path::Path::new("/usr/sbin/policy-rc.d").exists();
        let out = txos.sh(&[], "true");
        out.expect(0);
        assert_eq!(std::path::Path::new("/usr/sbin/policy-rc.d").exists(), there);
    });
}

#[test]
fn doctor_says_what_the_machine_grants() {
    for_both(|_, txos| {
        let out = txos.call(["doctor"]);
        assert!([0, 1].contains(&out.code()), "{out}");
        let text = out.stdout.to_lowercase();
        for subject in
            ["user namespace", "overlay", "fuse", "freez", "fanotify", "seccomp", "lease", "change"]
        {
            assert!(text.contains(subject), "doctor does not speak of {subject}: {out}");
        }
    });
}

#[test]
fn recover_on_a_clean_state_says_so() {
    for_both(|scratch, txos| {
        assert_eq!(txos.call(["recover"]).expect(0).stdout, "nothing to recover\n");
        txos.sh(&[], "echo x >f").expect(0);
        txos.call(["recover"]).expect(0);
        assert!(scratch.inside().join("f").exists());
        txos.call(["ps"]).expect(0);
        txos.call(["log"]).expect(0);
    });
}
