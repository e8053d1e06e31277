//! Transactions that are kept: shown, committed or aborted later.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use txos_tests::exec::{LIMIT, Outcome, Running};
use txos_tests::report::Report;
use txos_tests::scratch::Scratch;
use txos_tests::tree::Tree;
use txos_tests::txos::{Txos, for_both, for_one};
use txos_tests::who::Who;

/// Runs a script with `--keep` and gives the outcome and the transaction's id.
#[track_caller]
fn keep(scratch: &Scratch, txos: &Txos<'_>, options: &[&str], script: &str) -> (Outcome, String) {
    let json = scratch.base().join("report.json").display().to_string();
    let _ = std::fs::remove_file(&json);
    let mut all = vec!["--keep", "--json", &json];
    all.extend(options);
    let out = txos.sh(&all, script);
    let id = Report::read(json.as_ref()).text("id");
    assert!(!id.is_empty(), "no id in the report: {out}");
    out.says(&[&format!("txos commit {id}")]);
    (out, id)
}

/// Whether `txos ps` lists the transaction.
#[track_caller]
fn listed(txos: &Txos<'_>, id: &str) -> bool {
    let out = txos.call(["ps"]);
    out.expect(0);
    out.stdout.lines().any(|l| l.split_whitespace().next() == Some(id))
}

fn read(scratch: &Scratch, name: &str) -> String {
    std::fs::read_to_string(scratch.inside().join(name)).unwrap_or_default()
}

#[test]
fn a_kept_transaction_changes_nothing_until_it_is_committed() {
    for_both(|scratch, txos| {
        std::fs::write(scratch.inside().join("f"), "old\n").unwrap();
        if txos_tests::who::am_root() {
            let owner =
                std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(scratch.inside()).unwrap());
            std::os::unix::fs::chown(scratch.inside().join("f"), Some(owner), Some(owner)).unwrap();
        }
        let (out, id) = keep(scratch, &txos, &[], "echo more >>f; mkdir d; ln f d/g; echo x >n");
        out.expect(0);
        assert_eq!((read(scratch, "f").as_str(), read(scratch, "n").as_str()), ("old\n", ""));
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
        assert!(listed(&txos, &id));
        txos.call(["commit", &id]).expect(0);
        assert_eq!(read(scratch, "f"), "old\nmore\n");
        assert_eq!(read(scratch, "d/g"), "old\nmore\n");
        assert!(!listed(&txos, &id));
        // It is over: nothing more can be done with it.
        txos.call(["commit", &id]).expect(125).says(&[&id, "committed"]);
        txos.call(["abort", &id]).expect(125).says(&[&id, "committed"]);
    });
}

/// Waits until a process takes SIGTERM itself.
fn until_it_listens(running: &mut Running) {
    let status = format!("/proc/{}/status", running.pid().as_raw_pid());
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if text.starts_with("Name:\ttxos\n") && caught.is_some_and(|mask| mask & (1 << 14) != 0) {
            return;
        }
        assert!(running.alive() && begin.elapsed() < LIMIT, "never listened:\n{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_before_the_decision_leaves_a_transaction_kept() {
    for_both(|scratch, txos| {
        let (_, id) = keep(scratch, &txos, &[], "echo x >f");
        // As another commit would.
        let lock = std::fs::File::open(scratch.state().join("lock")).expect("the lock");
        for verb in ["commit", "abort"] {
            flock(&lock, FlockOperation::LockExclusive).expect("the lock");
            let mut running = txos.start([verb, &id]);
            until_it_listens(&mut running);
            running.signal(Signal::TERM);
            running.end(LIMIT).expect(128 + 15).says(&[&id, "stays kept"]);
            flock(&lock, FlockOperation::Unlock).expect("the lock");
            assert!(listed(&txos, &id) && read(scratch, "f").is_empty(), "{verb}");
        }
        txos.call(["commit", &id]).expect(0);
        assert_eq!(read(scratch, "f"), "x\n");
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    });
}

#[test]
fn looking_makes_no_state_directory() {
    for_both(|scratch, txos| {
        let state = scratch.inside().join("never");
        let txos = txos.state(&state);
        for looks in [&["ps"][..], &["ps", "--json"], &["log"], &["stats"], &["policy"]] {
            txos.call(looks).expect(0);
        }
        for asks in [&["show", "1"][..], &["why", "1"], &["diff", "1"]] {
            txos.call(asks).expect(125).says(&["no transaction 1", "txos log"]);
        }
        assert!(!state.exists());
    });
}

#[test]
fn a_kept_transaction_can_be_aborted() {
    for_both(|scratch, txos| {
        let before = scratch.state_size();
        let (_, id) = keep(scratch, &txos, &[], "head -c 3000000 /dev/zero | tr '\\0' x >big");
        assert!(scratch.state_size() > before + 2_900_000, "where is it?");
        txos.call(["abort", &id]).expect(0);
        assert!(!scratch.inside().join("big").exists());
        assert!(scratch.state_size() < before + 1_500_000, "its space is not reclaimed");
        assert!(!listed(&txos, &id));
    });
}

#[test]
fn keep_gives_the_commands_status() {
    for_both(|scratch, txos| {
        // A command that fails aborts; there is nothing to keep.
        let out = txos.sh(&["--keep"], "echo x >f; exit 3");
        out.expect(3);
        assert!(!scratch.inside().join("f").exists());
        assert_eq!(txos.call(["ps"]).expect(0).stdout, "", "something was kept");
    });
}

#[test]
fn review_without_a_terminal_keeps() {
    for_one(Who::Root, |scratch, txos| {
        let json = scratch.base().join("report.json").display().to_string();
        let out = txos.sh(&["--review", "--json", &json], "echo x >f");
        let id = Report::read(json.as_ref()).text("id");
        out.expect(0).says(&[&id]);
        assert!(!scratch.inside().join("f").exists());
        txos.call(["commit", &id]).expect(0);
        assert!(scratch.inside().join("f").exists());
    });
}

#[test]
fn dry_run_shows_and_changes_nothing() {
    for_both(|scratch, txos| {
        let out =
            txos.sh(&["--dry-run"], "mkdir shown-directory; echo x >shown-directory/shown-file");
        out.expect(0).says(&["shown-directory", "shown-file"]);
        assert_eq!(out.stdout, "");
        assert!(!scratch.inside().join("shown-directory").exists());
        txos.sh(&["--dry-run"], "echo x >f; exit 9").expect(9);
        assert_eq!(txos.call(["ps"]).expect(0).stdout, "", "something was kept");
    });
}

#[test]
fn what_a_commit_would_do_beside_the_changes_is_shown() {
    for_one(Who::Root, |_, txos| {
        let shared = format!("/dev/shm/txos-shown-{}", std::process::id());
        let script = format!("service txos-shown restart; echo x >{shared}");
        let served = ["/usr/sbin/service", "/sbin/service"].iter().any(|p| Path::new(p).exists());
        let out = txos.sh(&["--dry-run"], &script);
        out.expect(0).says(&[shared.trim_start_matches("/dev/shm")]);
        if served {
            out.says(&["service request", "restart txos-shown"]);
        }
        assert!(!Path::new(&shared).exists());
    });
}

#[test]
fn a_conflict_at_a_later_commit_exits_75_and_keeps_it() {
    for_one(Who::Root, |scratch, txos| {
        let edits: [(&str, &str, &str); 5] = [
            ("echo old >f", "echo more >>f", "echo outside >>f"),
            ("mkdir d", "ls d >seen", "echo x >d/new"),
            (":", "test -e absent || echo x >seen", "echo x >absent"),
            ("mkdir p; echo x >p/f", "cat p/f >seen", "mv p p2; mkdir p; echo y >p/f"),
            ("echo old >g", "rm g", "echo outside >g"),
        ];
        for (setup, inside, outside) in edits {
            let sh = |script: &str| {
                txos_tests::exec::run(txos.command("sh".as_ref(), ["-ec", script])).expect(0);
            };
            sh(setup);
            let (out, id) = keep(scratch, &txos, &[], inside);
            out.expect(0);
            sh(outside);
            let before = Tree::of(&scratch.inside()).unwrap();
            txos.call(["commit", &id]).expect(75);
            let after = Tree::of(&scratch.inside()).unwrap();
            assert_eq!(before.changes(&after), Vec::<String>::new(), "{inside}");
            assert!(listed(&txos, &id), "not kept: {inside}");
            txos.call(["abort", &id]).expect(0);
            sh("rm -rf d p p2 f g seen absent");
        }
    });
}

#[test]
fn others_may_change_what_a_kept_transaction_has_nothing_to_do_with() {
    for_one(Who::Root, |scratch, txos| {
        let sh = |script: &str| {
            txos_tests::exec::run(txos.command("sh".as_ref(), ["-ec", script])).expect(0);
        };
        sh("mkdir d; echo 1 >d/f; echo 1 >d/g");
        let (_, id) = keep(scratch, &txos, &[], "echo 2 >>d/f; echo n >d/n");
        sh("echo 2 >>d/g; echo m >d/m");
        // Another transaction is not held up by it, and a kept one never wins against anyone.
        txos.sh(&[], "echo 3 >>d/g").expect(0);
        txos.call(["commit", &id]).expect(0);
        assert_eq!(read(scratch, "d/f") + &read(scratch, "d/g"), "1\n2\n1\n2\n3\n");
        assert_eq!(read(scratch, "d/n") + &read(scratch, "d/m"), "n\nm\n");
    });
}

#[test]
fn several_are_kept_side_by_side() {
    for_one(Who::Root, |scratch, txos| {
        let ids: Vec<_> =
            (0..3).map(|i| keep(scratch, &txos, &[], &format!("echo {i} >f{i}")).1).collect();
        assert!(ids.iter().all(|id| listed(&txos, id)));
        txos.call(["commit", &ids[1]]).expect(0);
        txos.call(["abort", &ids[0]]).expect(0);
        txos.call(["recover"]).expect(0);
        txos.call(["commit", &ids[2]]).expect(0);
        let there: Vec<_> =
            (0..3).map(|i| scratch.inside().join(format!("f{i}")).exists()).collect();
        assert_eq!(there, [false, true, true]);
    });
}

#[test]
fn diff_shows_each_kind_of_change() {
    for_both(|scratch, txos| {
        let setup = "echo one >changed; echo g >removed; echo r >replaced; echo m >old-name; mkdir -p olddir dir; \
                     echo x >olddir/x; echo p >mode; printf 'a\\0b' >binary";
        std::fs::write(scratch.base().join("setup.sh"), setup).unwrap();
        txos_tests::exec::run(txos.command("sh".as_ref(), ["-ec", setup])).expect(0);
        let script = "echo two >>changed; rm removed; echo n >t; mv t replaced; mv old-name new-name; chmod 700 mode; \
                      mkdir created; echo in >created/file; printf 'a\\0c' >binary; ln -s target link";
        let (_, id) = keep(scratch, &txos, &[], script);
        let shown = txos.call(["diff", &id]);
        shown.expect(0);
        for name in [
            "changed", "removed", "replaced", "old-name", "new-name", "mode", "created", "link",
            "binary",
        ] {
            assert!(shown.stdout.contains(name), "diff does not name {name}: {shown}");
        }
        assert!(!shown.stdout.contains("+two"), "contents without --text: {shown}");
        let text = txos.call(["diff", "--text", &id]);
        text.expect(0);
        for line in ["+two", " one", "@@"] {
            assert!(text.stdout.lines().any(|l| l.starts_with(line)), "no line {line:?}: {text}");
        }
        assert!(!text.stdout.contains('\0'), "a binary file is shown as text");
        let json = txos.call(["diff", "--json", &id]);
        let report = Report::parse(&json.expect(0).stdout);
        for name in ["changed", "removed", "new-name", "created"] {
            assert!(report.mentions("", name), "{name}: {json}");
        }
        let show = txos.call(["show", &id]);
        let named = show.expect(0).stdout.split_whitespace().any(|word| word == id);
        assert!(named, "{show}");
        txos.call(["abort", &id]).expect(0);
    });
}

#[test]
fn the_log_tells_what_was_committed_and_aborted() {
    for_one(Who::Root, |scratch, txos| {
        let json = scratch.base().join("report.json").display().to_string();
        let mut ids = Vec::new();
        for (script, status) in [("echo x >f", 0), ("exit 3", 3)] {
            txos.sh(&["--json", &json], script).expect(status);
            ids.push(Report::read(json.as_ref()).text("id"));
        }
        let log = txos.call(["log"]);
        log.expect(0);
        assert_ne!(ids[0], ids[1]);
        for (id, outcome) in ids.iter().zip(["committed", "aborted"]) {
            let line = log.stdout.lines().find(|line| line.split_whitespace().next() == Some(id));
            assert!(line.is_some_and(|line| line.contains(outcome)), "{id} {outcome}: {log}");
        }
    });
}
