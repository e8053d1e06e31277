//! Bad surroundings: every one is answered by a clear error that names the object and a remedy, and
//! nothing is lost or left behind.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use txos_tests::exec;
use txos_tests::scratch::Scratch;
use txos_tests::space::Space;
use txos_tests::tree::Tree;
use txos_tests::txos::{Txos, copy_program, for_both, for_one};
use txos_tests::who::Who;
use txos_tests::{needs_root, skip};

#[test]
fn a_missing_state_directory_is_made_private() {
    for_both(|scratch, txos| {
        let state = scratch.base().join("live/deep/er/state");
        let txos = txos.state(&state);
        txos.sh(&[], "echo x >f").expect(0);
        let mode = std::fs::metadata(&state).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "others may look into it: {mode:o}");
    });
}

#[test]
fn a_foreign_state_directory_is_refused() {
    for_one(Who::Root, |scratch, txos| {
        let state = scratch.base().join("foreign");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&state, Some(4321), Some(4321)).unwrap();
        let txos = txos.state(&state);
        txos.sh(&[], "echo x >f").expect(125).says(&["foreign"]);
        assert!(!scratch.inside().join("f").exists());
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "something was put there");
    });
}

#[test]
fn a_state_directory_that_others_may_write_is_refused() {
    for_both(|scratch, txos| {
        let state = scratch.live().join("open");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
        let owner =
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(scratch.inside()).unwrap());
        std::os::unix::fs::chown(&state, Some(owner), Some(owner)).unwrap();
        let out = txos.state(&state).sh(&[], "echo x >f");
        out.expect(125).says(&["open"]);
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "something was put there");
    });
}

#[test]
fn a_state_that_is_no_directory_is_refused() {
    for_both(|scratch, txos| {
        let file = scratch.live().join("file");
        std::fs::write(&file, "mine").unwrap();
        txos.state(&file).sh(&[], "echo x >f").expect(125).says(&["file"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    });
}

#[test]
fn a_directory_with_other_things_in_it_is_not_taken_for_a_state() {
    for_one(Who::Root, |scratch, txos| {
        let state = scratch.base().join("documents");
        std::fs::create_dir(&state).unwrap();
        std::fs::set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(state.join("letter"), "mine").unwrap();
        let out = txos.state(&state).sh(&[], "echo x >f");
        assert_eq!(std::fs::read_to_string(state.join("letter")).unwrap(), "mine");
        out.expect(125).says(&["documents"]);
    });
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    for_both(|scratch, txos| {
        let state = Path::new("/proc/no/such/place");
        txos.state(state).sh(&[], "echo x >f").expect(125).says(&["/proc/no/such"]);
        assert!(!scratch.inside().join("f").exists());
    });
    for_one(Who::User, |_, txos| {
        txos.state("/root/txos-state").sh(&[], "echo x >f").expect(125).says(&["/root/txos-state"]);
    });
}

#[test]
fn a_damaged_journal_is_reported_and_not_guessed_over() {
    for_one(Who::Root, |scratch, txos| {
        txos.sh(&[], "echo x >f").expect(0);
        // Everything that looks like a journal gets a wrong byte in its middle.
        let mut damaged = 0;
        let mut todo = vec![scratch.state()];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    todo.push(path);
                } else if path.to_string_lossy().contains("journal") {
                    let mut data = std::fs::read(&path).unwrap();
                    if data.len() > 8 {
                        data[4] ^= 0xff;
                        std::fs::write(&path, data).unwrap();
                        damaged += 1;
                    }
                }
            }
        }
        assert!(damaged > 0, "no journal is there after a commit");
        let out = txos.sh(&[], "echo y >g");
        out.expect(125).says(&["journal"]);
        assert!(!scratch.inside().join("g").exists());
        txos.call(["recover"]).expect(125).says(&["journal"]);
    });
}

#[test]
fn a_full_disk_below_the_state_during_the_run() {
    needs_root!();
    let scratch = Scratch::new();
    std::fs::write(scratch.inside().join("f"), "old").unwrap();
    let before = Tree::of(&scratch.inside()).unwrap();
    let script = "mkdir small; mount -t tmpfs -o size=4m,mode=700 none small";
    let space = match Space::new(&scratch, script) {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let small = scratch.base().join("small");
    let txos =
        Txos::new(&scratch).outer(space.prefix(&scratch.inside())).state(small.join("state"));
    let out = txos.sh(&[], "echo more >>f; head -c 20000000 /dev/zero | tr '\\0' x >big || exit 9");
    // The command sees ENOSPC as it would natively, or txos ends it: never success.
    assert!([9, 125].contains(&out.code()), "{out}");
    let after = Tree::of(&scratch.inside()).unwrap();
    assert_eq!(before.changes(&after), Vec::<String>::new());
    // There is room again.
    txos.sh(&[], "echo more >>f").expect(0);
    assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "oldmore\n");
}

#[test]
fn a_full_disk_of_the_target_during_the_commit() {
    needs_root!();
    let scratch = Scratch::new();
    let script = "truncate -s 24M image; mkfs.ext4 -q -O ^has_journal image 2>/dev/null; mkdir disk; \
                  mount -o loop image disk; mkdir disk/tree; echo old >disk/tree/f; echo r >disk/tree/r";
    let space = match Space::new(&scratch, script) {
        Ok(space) => space,
        Err(why) => skip!("no loop device or mkfs.ext4: {why}"),
    };
    let tree = scratch.base().join("disk/tree");
    let seen = space.outside(&tree);
    let before = Tree::of(&seen).unwrap();
    let txos = Txos::new(&scratch).outer(space.prefix(&tree));
    let fills = "rm r; echo more >>f; for i in 1 2 3 4; do head -c 10000000 /dev/zero | tr '\\0' x >big$i; done; exit 0";
    let out = txos.sh(&[], fills);
    let after = Tree::of(&seen).unwrap();
    assert_eq!(before.changes(&after), Vec::<String>::new(), "{out}");
    out.expect(125).says(&["space"]);
    // And what fits commits, with nothing of the failed attempt taking room.
    txos.sh(&[], "head -c 10000000 /dev/zero | tr '\\0' x >fits; echo more >>f").expect(0);
    assert_eq!(std::fs::read_to_string(seen.join("f")).unwrap(), "old\nmore\n");
    let names: Vec<_> = std::fs::read_dir(space.outside(&scratch.base().join("disk")))
        .unwrap()
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|n| n != "lost+found" && n != "tree")
        .collect();
    assert_eq!(names, Vec::<String>::new(), "left on the target's file system");
}

#[test]
fn no_fuse_device_is_named_with_a_remedy() {
    needs_root!();
    let scratch = Scratch::new();
    // As an ordinary user where the device is closed to him, and where there is none.
    let hide = "mkdir empty; mount -t tmpfs -o mode=755 none empty; for n in null zero tty urandom random full; do \
                touch empty/$n; mount --bind /dev/$n empty/$n; done; mount --rbind empty /dev";
    let space = match Space::new(&scratch, hide) {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let txos = Txos::new(&scratch).outer(space.prefix(&scratch.inside()));
    txos.sh(&[], "echo x >f").expect(125).says(&["/dev/fuse"]);
    assert!(!scratch.inside().join("f").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_closed_fuse_device_is_named_with_a_remedy() {
    needs_root!();
    if exec::find("setpriv").is_none() {
        skip!("no setpriv");
    }
    let scratch = Scratch::new();
    scratch.give_to(Who::User);
    let node = "mknod closed c 10 229; chmod 600 closed; mount --bind closed /dev/fuse";
    let space = match Space::new(&scratch, node) {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let program = Txos::by(&scratch, Who::User).program();
    let mut words = space.prefix(&scratch.inside());
    words.extend(
        ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"].map(Into::into),
    );
    let txos = Txos::new(&scratch).outer(words);
    let command = txos.command(&program, ["run", "--", "sh", "-c", "echo x >f"]);
    exec::run(command).expect(125).says(&["/dev/fuse"]);
    assert!(!scratch.inside().join("f").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn no_user_namespace_is_named_with_a_remedy() {
    needs_root!();
    if exec::find("setpriv").is_none() {
        skip!("no setpriv");
    }
    let scratch = Scratch::new();
    scratch.give_to(Who::User);
    // A user namespace in which no further ones are granted.
    let program = Txos::by(&scratch, Who::User).program();
    let script = format!(
        "echo 0 >/proc/sys/user/max_user_namespaces || exit 77; \
         exec setpriv --ambient-caps=-all --inh-caps=-all '{}' run -- sh -c 'echo x >f'",
        program.display()
    );
    let txos = Txos::new(&scratch);
    let words = ["--reuid", "12345", "--regid", "12345", "--clear-groups", "unshare", "-U"];
    let more = ["--map-current-user", "--keep-caps", "sh", "-c", &script];
    let command = txos.command(Path::new("setpriv"), words.iter().chain(&more));
    let out = exec::run(command);
    if out.code() == 77 || out.stderr.contains("unshare:") {
        skip!("the limit can't be set here: {out}");
    }
    out.expect(125).says(&["namespace"]);
    assert!(!scratch.inside().join("f").exists());
}

#[test]
fn a_target_that_cannot_be_written_at_commit_keeps_everything_as_it_was() {
    // Nothing may fail after the record.
    needs_root!();
    let scratch = Scratch::new();
    let set = "for n in a m z; do echo $n >$n; done; chattr +i m";
    let txos = Txos::new(&scratch);
    let made = exec::run(txos.command(Path::new("sh"), ["-ec", set]));
    if made.code() != 0 {
        skip!("no immutable files here: {made}");
    }
    let before = Tree::of(&scratch.inside()).unwrap();
    let out = txos.sh(&[], "echo x >>a; rm a; echo y >>z; echo n >n; echo x >>m; exit 0");
    let after = Tree::of(&scratch.inside()).unwrap();
    exec::run(txos.command(Path::new("chattr"), ["-i", "m"])).expect(0);
    // Natively the write to `m` is refused; inside either that happens too, or the commit fails whole.
    match out.code() {
        0 => assert_eq!(after.entries["m"].size, 2, "{out}"),
        125 => assert_eq!(before.changes(&after), Vec::<String>::new(), "{out}"),
        _ => panic!("{out}"),
    }
}

#[test]
fn a_program_that_runs_outside_can_still_be_replaced_inside() {
    // ETXTBSY: in-place writes are refused natively, replacements are not.
    needs_root!();
    let scratch = Scratch::new();
    let sleep = exec::find("sleep").expect("sleep");
    let program = scratch.inside().join("busy");
    copy_program(&sleep, &program);
    let mut child = std::process::Command::new(&program).arg("100").spawn().unwrap();
    let txos = Txos::new(&scratch);
    let replaced = txos.sh(&["--no-retry"], "echo other >new; chmod 755 new; mv new busy");
    let written = txos.sh(&["--no-retry"], "rm -f x; echo y >x");
    let _ = child.kill();
    let _ = child.wait();
    replaced.expect(0);
    written.expect(0);
    assert_eq!(std::fs::read_to_string(&program).unwrap(), "other\n");
}

#[test]
fn writing_a_program_that_runs_outside_fails_whole() {
    needs_root!();
    let scratch = Scratch::new();
    let sleep = exec::find("sleep").expect("sleep");
    let program = scratch.inside().join("busy");
    copy_program(&sleep, &program);
    let mut child = std::process::Command::new(&program).arg("100").spawn().unwrap();
    let before = Tree::of(&scratch.inside()).unwrap();
    let out = Txos::new(&scratch).sh(&["--no-retry"], "echo x >other; echo y >>busy; exit 0");
    let after = Tree::of(&scratch.inside()).unwrap();
    let alive = child.try_wait().unwrap().is_none();
    let _ = child.kill();
    let _ = child.wait();
    assert!(alive);
    assert_ne!(out.code(), 0, "{out}");
    out.says(&["busy"]);
    assert_eq!(before.changes(&after), Vec::<String>::new());
}

#[test]
fn a_working_directory_that_is_gone_is_named() {
    for_one(Who::Root, |scratch, txos| {
        let gone = scratch.inside().join("gone");
        let script = format!(
            "mkdir gone; cd gone; rmdir ../gone; exec '{}' run true",
            txos.program().display()
        );
        let out = exec::run(txos.command(Path::new("sh"), ["-c", &script]));
        out.expect(125);
        assert!(!gone.exists());
    });
}

#[test]
fn inside_a_transaction_the_state_is_not_asked_and_not_made() {
    for_both(|scratch, txos| {
        let (program, state) = (txos.program(), scratch.live().join("inner"));
        let script = format!(
            "echo x >f; for verb in ps log recover policy stats; do TXOS_STATE='{}' '{}' $verb && exit 9; done; true",
            state.display(),
            program.display()
        );
        txos.sh(&[], &script).expect(0).says(&["inside a transaction"]);
        assert!(scratch.inside().join("f").exists() && !state.exists());
    });
}

#[test]
fn a_command_line_of_any_length_runs() {
    for_both(|_, txos| {
        let word = "a".repeat(110_000);
        let out = txos.call(["run", "--", "printf", "%s", &word]);
        assert_eq!(out.expect(0).stdout.len(), word.len());
    });
}

#[test]
fn where_nobody_can_be_told_the_transaction_ends_as_it_would() {
    needs_root!();
    let scratch = Scratch::new();
    let full = |words: &str| {
        let script =
            format!("exec '{}' {words} 2>/dev/full", Txos::new(&scratch).program().display());
        exec::run(Txos::new(&scratch).command(Path::new("sh"), ["-c", &script]))
    };
    full("run --dry-run touch f").expect(0);
    full("run touch f").expect(0);
    assert!(scratch.inside().join("f").exists());
    full("show 999").expect(125);
    full("run --json /dev/full touch g").expect(0);
    assert!(scratch.inside().join("g").exists());
    full("run --json /dev/full sh -c 'exit 3'").expect(3);
}

#[test]
fn a_report_is_never_an_earlier_transactions() {
    for_one(Who::Root, |scratch, txos| {
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        txos.sh(&options, "exit 0").expect(0);
        let outcome = || txos_tests::report::Report::read(&json).text("outcome");
        assert_eq!(outcome(), "committed");
        txos.state("/dev/null").sh(&options, "exit 0").expect(125);
        assert_eq!(outcome(), "failed");
    });
}

#[test]
fn a_manager_in_another_pid_namespace_is_spoken_with() {
    needs_root!();
    let scratch = Scratch::new();
    let apart = ["unshare", "--pid", "--fork", "--mount-proc"].map(Into::into).to_vec();
    Txos::new(&scratch).sh(&[], "echo 1 >f").expect(0);
    Txos::new(&scratch).outer(apart).sh(&[], "echo 2 >>f").expect(0);
    Txos::new(&scratch).sh(&[], "echo 3 >>f").expect(0);
    assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "1\n2\n3\n");
}

#[test]
fn root_of_a_user_namespace_has_what_a_user_has() {
    needs_root!();
    let scratch = Scratch::new();
    let mapped = ["unshare", "--user", "--map-root-user"].map(Into::into).to_vec();
    let state = scratch.base().join("mapped");
    Txos::new(&scratch).state(&state).outer(mapped).sh(&[], "echo 1 >f").expect(0);
    assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "1\n");
}

#[test]
fn a_transaction_in_a_transaction_is_refused_or_part_of_it_but_never_hangs() {
    for_both(|scratch, txos| {
        let program = txos.program();
        let script = format!(
            "echo outer >outer; '{}' run -- sh -c 'echo inner >inner'; exit 1",
            program.display()
        );
        txos.sh(&[], &script).expect(1);
        assert!(
            !scratch.inside().join("outer").exists() && !scratch.inside().join("inner").exists()
        );
    });
}

#[test]
fn a_closed_null_device_is_named() {
    needs_root!();
    for_one(Who::User, |scratch, txos| {
        let node = scratch.base().join("closed");
        let node = node.display();
        let script =
            format!("mknod -m 600 {node} c 1 3; mount --bind {node} /dev/null; exec \"$@\"");
        let closed = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", &script, "sh"];
        let txos = txos.outer(closed.map(Into::into).to_vec());
        txos.sh(&[], "echo x >f").expect(125).says(&["/dev/null", "chmod 666"]);
        assert!(!scratch.inside().join("f").exists());
    });
}

#[test]
fn what_waits_for_nothing_is_not_given_up() {
    for_both(|scratch, txos| {
        txos.sh(&[], "echo >f").expect(0);
        let out = txos.call(["recover", "--give-up", "1"]);
        out.expect(125).says(&["transaction 1 does not wait for a file system"]);
        assert!(scratch.inside().join("f").exists());
    });
}

/// Changes below directories that keep their owner out in the end.
const CLOSING: &str = "echo more >>d/e/f && echo n >d/e/n && mv d/g d/e/g && mkdir -p d/m/k && echo k >d/m/k/f && \
                       chmod 300 d/e d/m/k && chmod 200 d/m && chmod 2455 d";

fn prepare_closing(scratch: &Scratch, txos: &Txos<'_>) {
    let script = "if [ -e d ]; then chmod -R u+rwx d && rm -r d; fi; \
                  mkdir -p d/e && echo old >d/e/f && echo g >d/g && chmod 755 d d/e";
    exec::run(txos.command(Path::new("sh"), ["-ec", script])).expect(0);
    assert!(scratch.inside().join("d/g").exists());
}

#[test]
fn directories_that_end_up_closed_to_their_owner_are_committed_and_cleaned_up() {
    for_both(|scratch, txos| {
        // Few objects are flushed one by one, many all at once.
        for script in ["chmod 2505 d/e && chmod 644 d", CLOSING] {
            prepare_closing(scratch, &txos);
            let out = txos.sh(&[], script);
            out.expect(0);
            assert!(!out.stderr.contains("not cleaned up"), "{out}");
            let left = std::fs::read_dir(scratch.state().join("tx")).expect("tx").count();
            assert_eq!(left, 0, "{out}");
        }
        txos.call(["recover"]).expect(0);
        txos.sh(&[], "echo >after").expect(0);
    });
}

#[test]
fn a_kill_behind_closed_directories_is_recovered() {
    if exec::find("strace").is_none() {
        skip!("no strace here");
    }
    for_one(Who::User, |scratch, txos| {
        let inside = scratch.inside();
        let look = || {
            let tree = Tree::of(&inside).expect("the tree");
            let line = |entry: &txos_tests::tree::Entry| {
                format!("{:?} {:o} {}", entry.kind, entry.mode, entry.content)
            };
            tree.entries.iter().map(|(path, entry)| (path.clone(), line(entry))).collect::<Vec<_>>()
        };
        txos.sh(&[], "true").expect(0);
        let traced = |call: &str, number: usize| {
            prepare_closing(scratch, &txos);
            let trace = scratch.base().join("trace").into_os_string();
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let filter = format!("trace={call}");
            let options = ["strace", "-o"].map(Into::into).into_iter().chain([trace]);
            let options = options.chain(["-e", &filter, "-e", &inject, "--"].map(Into::into));
            let traced = Txos::by(scratch, Who::User).outer(options.collect());
            traced.start(["run", "--", "sh", "-c", CLOSING]).end(exec::LIMIT)
        };
        prepare_closing(scratch, &txos);
        let before = look();
        let model = traced("chmod", 10_000);
        if model.stderr.contains("ptrace") {
            skip!("nothing may be traced here: {model}");
        }
        model.expect(0);
        let after = look();
        assert_ne!(before, after);
        let mut whole = 0;
        for call in ["chmod", "fchmodat", "fsync", "syncfs", "sync"] {
            for number in 1.. {
                let out = traced(call, number);
                if out.code() == 0 {
                    break;
                }
                let recovered = txos.call(["recover"]);
                assert_eq!(recovered.code(), 0, "{call} number {number}: {recovered}\n{out}");
                let last = look();
                whole += usize::from(last == after);
                assert!(
                    last == before || last == after,
                    "{call} number {number}: {last:#?}\n{recovered}"
                );
                assert!(
                    !recovered.stderr.contains("conflicts"),
                    "{call} number {number}: {recovered}"
                );
            }
        }
        assert!(whole > 3, "only {whole} kills were behind the commit record");
    });
}
