//! The classic anomalies of weaker isolation, by name: transactions that meet at agreed moments, and
//! attackers that try at any.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use txos_tests::exec::{LIMIT, Outcome};
use txos_tests::gate::Gate;
use txos_tests::needs_root;
use txos_tests::scratch::Scratch;
use txos_tests::stop::StopOnDrop;
use txos_tests::txos::Txos;

/// A tree, and transactions in it that say by marks how far they are: `reach NAME`, `await NAME`. The
/// marks stay, so that a second attempt passes them at once.
struct Stage {
    scratch: Scratch,
    gate: Gate,
}

impl Stage {
    fn new(files: &[(&str, &str)]) -> Stage {
        let scratch = Scratch::new();
        for (name, text) in files {
            let path = scratch.inside().join(name);
            let dir = path.parent().expect("a path in the tree");
            std::fs::create_dir_all(dir).expect("a directory of the tree");
            std::fs::write(path, text).expect("a file of the tree");
        }
        let gate = Gate::new(scratch.live());
        Stage { scratch, gate }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.inside().join(name)).unwrap_or_default()
    }

    fn number(&self, name: &str) -> i64 {
        self.read(name).trim().parse().expect("a number")
    }

    /// Runs all scripts at once, each as a transaction, to their ends.
    fn play(&self, scripts: &[&str]) -> Vec<Outcome> {
        let live = self.scratch.live().display().to_string();
        let txos = Txos::new(&self.scratch);
        let running: Vec<_> = scripts
            .iter()
            .map(|script| {
                let script = format!("{}{script}", self.gate.functions());
                txos.start_sh(&["--live", &live, "--nondurable"], &script)
            })
            .collect();
        let outcomes = running.into_iter().map(|running| running.end(LIMIT)).collect();
        assert_eq!(self.scratch.leftovers(), Vec::<String>::new());
        outcomes
    }

    fn attempts(&self, who: &str) -> usize {
        std::fs::read_to_string(self.gate.mark(who)).unwrap_or_default().lines().count()
    }
}

#[test]
fn lost_update() {
    needs_root!();
    let stage = Stage::new(&[("x", "0")]);
    let add = |me: &str, other: &str| {
        format!("read v <x || :; reach {me}; await {other}; echo $((v + 1)) >x")
    };
    let outcomes = stage.play(&[&add("a", "b"), &add("b", "a")]);
    for outcome in &outcomes {
        outcome.expect(0);
    }
    assert_eq!(stage.number("x"), 2, "{}\n{}", outcomes[0], outcomes[1]);
}

#[test]
fn write_skew() {
    needs_root!();
    let stage = Stage::new(&[("x", "1"), ("y", "1")]);
    // Each takes one away if one is left then; together they would take both.
    let take = |me: &str, other: &str, from: &str| {
        format!(
            "read x <x || :; read y <y || :; reach {me}; await {other}; \
             [ $((x + y)) -lt 2 ] || echo 0 >{from}"
        )
    };
    for outcome in stage.play(&[&take("a", "b", "x"), &take("b", "a", "y")]) {
        outcome.expect(0);
    }
    assert_eq!(stage.number("x") + stage.number("y"), 1);
}

#[test]
fn phantom() {
    needs_root!();
    let stage = Stage::new(&[("d/other/f", "")]);
    // Each makes its own name if there is none yet that fits.
    let make = |me: &str, other: &str| {
        format!(
            "v=$(ls d | grep -c '^new'); reach {me}; await {other}; [ $v -gt 0 ] || echo >d/new-{me}"
        )
    };
    for outcome in stage.play(&[&make("a", "b"), &make("b", "a")]) {
        outcome.expect(0);
    }
    let names = std::fs::read_dir(stage.scratch.inside().join("d")).unwrap().count();
    assert_eq!(names, 2, "one of them has to see the other's name");
}

#[test]
fn the_anomaly_of_a_transaction_that_only_reads() {
    needs_root!();
    // Fekete, O'Neil and O'Neil: a withdrawal that saw no deposit is charged; a report that saw the
    // deposit and no withdrawal makes that order impossible.
    let stage = Stage::new(&[("savings", "0"), ("checking", "0")]);
    let withdraw = "read s <savings || :; read c <checking || :; reach seen; await reported; \
                    if [ $((s + c)) -lt 10 ]; then echo -11 >checking; else echo -10 >checking; fi";
    let deposit = "await seen; echo 20 >savings; reach deposited";
    let txos = Txos::new(&stage.scratch);
    let live = stage.scratch.live().display().to_string();
    let functions = stage.gate.functions();
    let start = |script: &str| {
        txos.start_sh(&["--live", &live, "--nondurable"], &format!("{functions}{script}"))
    };
    let withdrawal = start(withdraw);
    // By age the withdrawal comes first: whoever writes what it has read waits for its end. So the
    // deposit comes from one that is more urgent.
    stage.gate.wait("seen");
    let urgent = ["--priority", "1", "--live", &live, "--nondurable"];
    txos.start_sh(&urgent, &format!("{functions}{deposit}")).end(LIMIT).expect(0);
    let report = txos.sh(&["--priority", "2"], "echo $(cat savings) $(cat checking)");
    stage.gate.open("reported");
    withdrawal.end(LIMIT).expect(0);
    assert_eq!(report.expect(0).stdout, "20 0\n");
    assert_eq!(stage.number("checking"), -10, "the report saw the deposit first");
}

#[test]
fn dirty_read() {
    needs_root!();
    let stage = Stage::new(&[("x", "old")]);
    let writes = "echo new >x; reach wrote; await read; exit 3";
    let reads = "await wrote; cat x >seen; reach read";
    let outcomes = stage.play(&[writes, reads]);
    assert_eq!((outcomes[0].code(), outcomes[1].code()), (3, 0), "{}", outcomes[1]);
    assert_eq!(stage.read("seen"), "old");
}

#[test]
fn non_repeatable_read() {
    needs_root!();
    let stage = Stage::new(&[("x", "old\n"), ("y", "old\n")]);
    let live = stage.scratch.live().display().to_string();
    let reads =
        format!("echo >>'{live}/reads'; cat x; reach read; await written; cat x; cat y; echo end");
    let running = Txos::new(&stage.scratch).start_sh(
        &["--live", &live, "--output", "deferred"],
        &format!("{}{reads}", stage.gate.functions()),
    );
    stage.gate.wait("read");
    // More urgent, so that it does not wait for the reader.
    let both = "echo new >x; echo new >y";
    Txos::new(&stage.scratch).sh(&["--priority", "1"], both).expect(0);
    stage.gate.open("written");
    let told = running.end(LIMIT).expect(0).stdout.clone();
    assert!(["old\nold\nold\nend\n", "new\nnew\nnew\nend\n"].contains(&told.as_str()), "{told}");
    assert_eq!(stage.attempts("reads"), 2, "it had read what was written");
}

#[test]
fn a_lock_file_that_is_only_looked_for() {
    needs_root!();
    // Who finds no lock file needs to make none: that it is absent is a read like others.
    let stage = Stage::new(&[("data", "0")]);
    let live = stage.scratch.live().display().to_string();
    let script = format!(
        "{}v=0; [ ! -e lock ] || v=1; reach looked; await locked; \
         [ $v = 1 ] || echo $(($(cat data) + 1)) >data",
        stage.gate.functions()
    );
    let running = Txos::new(&stage.scratch).start_sh(&["--no-retry", "--live", &live], &script);
    stage.gate.wait("looked");
    // An outsider takes the lock, and relies on it.
    std::fs::write(stage.scratch.inside().join("lock"), "mine").unwrap();
    stage.gate.open("locked");
    running.end(LIMIT).expect(75).says(&["lock"]);
    assert_eq!(stage.number("data"), 0, "written beside somebody who holds the lock");
    assert_eq!(stage.scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn rename_as_link_and_unlink() {
    needs_root!();
    // Section 6.7 of the paper: two calls that are one for everybody who looks by a transaction.
    let stage = Stage::new(&[("a", "content")]);
    let txos = Txos::new(&stage.scratch);
    std::thread::scope(|threads| {
        let mover = threads.spawn(|| {
            for (from, to) in [("a", "b"), ("b", "a"), ("a", "b"), ("b", "a")] {
                txos.sh(&["--nondurable", "-q"], &format!("ln {from} {to} && rm {from}")).expect(0);
            }
        });
        while !mover.is_finished() {
            let seen = txos.sh(&["--nondurable", "-q"], "echo a* b*; cat [ab]");
            let seen = &seen.expect(0).stdout;
            assert!(
                ["a b*\ncontent", "a* b\ncontent"].contains(&seen.as_str()),
                "both or none: {seen:?}"
            );
        }
    });
    assert_eq!(stage.scratch.leftovers(), Vec::<String>::new());
}

/// How many rounds an attacker gets: `TXOS_TEST_ROUNDS`, or few.
fn rounds(few: u32) -> u32 {
    std::env::var("TXOS_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

/// A victim that checks a path and then writes through it, in one transaction a round, against an
/// attacker that swaps it all the time.
fn attacked(setup: impl Fn(&Path), swap: impl Fn(&Path, u32) + Sync, script: &str, secret: &str) {
    let stage = Stage::new(&[("secret/file", "secret\n")]);
    let tree = stage.scratch.inside();
    setup(&tree);
    let stop = AtomicBool::new(false);
    let swaps = AtomicU32::new(0);
    let mut committed = 0;
    let rounds = rounds(30);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let round = swaps.fetch_add(1, Ordering::Relaxed);
                swap(&tree, round);
                // So that an attempt comes through now and then.
                std::thread::sleep(std::time::Duration::from_millis(u64::from(round % 40)));
            }
        });
        let attacks = StopOnDrop(&stop);
        let txos = Txos::new(&stage.scratch);
        for _ in 0..rounds {
            let out = txos.sh(&["--retries", "3", "--nondurable", "-q"], script);
            match out.code() {
                0 => committed += 1,
                75 | 9 => {}
                _ => panic!("{out}"),
            }
            assert_eq!(
                std::fs::read_to_string(tree.join(secret)).expect("the secret"),
                "secret\n",
                "the attacker won"
            );
        }
        drop(attacks);
    });
    println!("{committed} of {rounds} rounds committed, none reached the secret");
    // Whom nobody attacks meanwhile, that one comes through, unless what lies there is the trap.
    let through = (0..4).any(|_| {
        swap(&tree, swaps.fetch_add(1, Ordering::Relaxed));
        Txos::new(&stage.scratch).sh(&["--nondurable", "-q"], script).code() == 0
    });
    assert!(through, "the victim never commits");
    assert_eq!(std::fs::read_to_string(tree.join(secret)).expect("the secret"), "secret\n");
    assert_eq!(stage.scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_check_and_a_use_with_a_link_put_in_between() {
    needs_root!();
    attacked(
        |tree| std::fs::write(tree.join("foo"), "harmless\n").unwrap(),
        |tree, round| {
            let aside = tree.join("aside");
            if round % 2 == 0 {
                std::os::unix::fs::symlink("secret/file", &aside).unwrap();
            } else {
                std::fs::write(&aside, "harmless\n").unwrap();
            }
            std::fs::rename(&aside, tree.join("foo")).unwrap();
        },
        "[ ! -L foo ] || exit 9; echo written >foo",
        "secret/file",
    );
}

#[test]
fn a_check_and_a_use_with_a_directory_swapped_in_between() {
    needs_root!();
    attacked(
        |tree| {
            std::fs::create_dir(tree.join("d")).unwrap();
            std::fs::write(tree.join("d/file"), "harmless\n").unwrap();
        },
        |tree, round| {
            if round % 2 == 0 {
                std::fs::rename(tree.join("d"), tree.join("kept")).unwrap();
                std::os::unix::fs::symlink("secret", tree.join("d")).unwrap();
            } else {
                std::fs::remove_file(tree.join("d")).unwrap();
                std::fs::rename(tree.join("kept"), tree.join("d")).unwrap();
            }
        },
        "[ -d d ] && [ ! -L d ] || exit 9; echo written >d/file",
        "secret/file",
    );
}
