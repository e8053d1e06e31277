//! A transaction against outsiders: what it read or wrote and somebody else changed meanwhile makes
//! it run again, or lose; what has nothing to do with it does not.

use std::os::fd::AsFd;

use txos_tests::exec::LIMIT;
use txos_tests::gate::Gate;
use txos_tests::meeting::Meeting;
use txos_tests::op::Op;
use txos_tests::raw::Mapping;
use txos_tests::report::Report;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::txos::{Txos, for_one, helper, native_only};
use txos_tests::who::Who;

macro_rules! meeting {
    ($setup:literal, $first:literal, $outside:literal, $then:literal) => {{
        if native_only() {
            skip!("natively nothing is isolated");
        }
        if let Some(why) = Who::Root.impossible() {
            skip!("{why}");
        }
        Meeting { setup: $setup, first: $first, outside: $outside, then: $then }
    }};
}

#[test]
fn an_outside_edit_of_a_file_that_the_transaction_also_wrote_is_not_lost() {
    let met = meeting!("echo old >f", "echo inside >>f", "echo outside >>f", ":").conflicts("f");
    assert_eq!(met.read("f"), "old\noutside\ninside\n");
}

#[test]
fn a_blind_write_conflicts_with_an_outside_write() {
    let met = meeting!("echo old >f", "echo inside >f", "echo outside >f", ":").conflicts("f");
    assert_eq!(met.read("f"), "inside\n");
}

#[test]
fn a_replacement_conflicts_with_an_outside_edit() {
    meeting!("echo old >f", "echo n >n; mv n f", "echo outside >>f", ":").conflicts("f");
}

#[test]
fn a_removal_conflicts_with_an_outside_edit() {
    meeting!("echo old >f", "rm f", "echo outside >>f", ":").conflicts("f");
}

#[test]
fn a_removal_conflicts_with_an_outside_removal() {
    let meeting = meeting!("echo old >f; echo >g", "rm f; rm g", "rm f; echo new >f", ":");
    meeting.conflicts("f");
}

#[test]
fn a_chmod_conflicts_with_an_outside_chmod() {
    let met = meeting!("echo old >f", "chmod g+w f", "chmod 600 f", ":").conflicts("f");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&met.path("f").metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o620);
}

#[test]
fn a_file_made_outside_in_a_replaced_directory_is_not_deleted() {
    let meeting = meeting!(
        "mkdir d; echo old >d/f",
        "rm -r d; mkdir d; echo inside >d/g",
        "echo outside >d/new",
        ":"
    );
    let met = meeting.conflicts("d");
    // The second attempt saw the file, and removed it itself.
    assert_eq!((met.read("d/g").as_str(), met.path("d/new").exists()), ("inside\n", false));
}

#[test]
fn a_file_made_outside_in_a_removed_directory_is_not_deleted() {
    meeting!("mkdir d; echo old >d/f", "rm -r d", "echo outside >d/new", ":").conflicts("d");
}

#[test]
fn a_file_made_outside_in_a_renamed_directory_survives() {
    let met = meeting!("mkdir d; echo old >d/f", "mv d d2", "echo outside >d/new", ":")
        .meet(Who::Root, &[]);
    met.outcome.expect(0);
    assert_eq!(met.read("d2/new") + &met.read("d/new"), "outside\n");
    assert_eq!(met.read("d2/f"), "old\n");
}

#[test]
fn a_parent_directory_swapped_for_a_symlink_is_not_followed() {
    let meeting = meeting!(
        "mkdir -p d/sub other/sub; echo old >d/sub/f; echo theirs >other/sub/f",
        "echo inside >>d/sub/f; echo new >d/sub/new",
        "mv d d.real; ln -s other d",
        ":"
    );
    let met = meeting.conflicts("d");
    // The second attempt walks through the link as any program would.
    assert_eq!(met.read("d.real/sub/f"), "old\n");
    assert_eq!(met.read("other/sub/f"), "theirs\ninside\n");
}

#[test]
fn a_content_read_and_changed_outside() {
    let met = meeting!("echo old >f", "cat f >seen", "echo new >f", ":").conflicts("f");
    assert_eq!(met.read("seen"), "new\n");
}

#[test]
fn a_content_of_the_same_size_changed_outside() {
    meeting!("echo old >f", "cat f >seen", "printf 'n' | dd of=f conv=notrunc 2>/dev/null", ":")
        .conflicts("f");
}

#[test]
fn a_content_changed_outside_with_its_time_put_back() {
    meeting!(
        "echo old >f",
        "cat f >seen",
        "touch -r f ref; echo new >f; touch -r ref f; rm ref",
        ":"
    )
    .conflicts("f");
}

#[test]
fn a_file_replaced_outside_by_one_with_the_same_content() {
    // The inode is another one: who changed in place what it read would write to a lost file.
    meeting!("echo old >f", "echo more >>f", "cp -p f n; mv n f", ":").conflicts("f");
}

#[test]
fn a_name_found_absent_and_created_outside() {
    let met = meeting!(
        "mkdir d",
        "test -e d/g && echo there >seen || echo absent >seen",
        "echo x >d/g",
        ":"
    )
    .conflicts("d/g");
    assert_eq!(met.read("seen"), "there\n");
}

#[test]
fn a_name_created_on_both_sides() {
    let met = meeting!("mkdir d", "echo inside >>d/g", "echo outside >d/g", ":").conflicts("d/g");
    assert_eq!(met.read("d/g"), "outside\ninside\n");
}

#[test]
fn a_directory_created_on_both_sides() {
    meeting!(":", "mkdir -p d; echo i >d/i", "mkdir d; echo o >d/o", ":").conflicts("d");
}

#[test]
fn a_name_found_and_removed_outside() {
    meeting!("echo old >f", "test -e f && echo there >seen || echo absent >seen", "rm f", ":")
        .conflicts("f");
}

#[test]
fn a_listing_changed_outside() {
    let met = meeting!("mkdir d; echo >d/a", "ls d >seen", "echo >d/b", ":").conflicts("d");
    assert_eq!(met.read("seen"), "a\nb\n");
    meeting!("mkdir d; echo >d/a; echo >d/b", "ls d >seen", "rm d/b", ":").conflicts("d");
    meeting!("mkdir d; echo >d/a", "ls d >seen", "mv d/a d/c", ":").conflicts("d");
}

#[test]
fn a_parents_permissions_changed_outside() {
    meeting!("mkdir d; echo old >d/f", "cat d/f >seen", "chmod 700 d", ":").conflicts("d");
    meeting!("mkdir d; echo old >d/f", "cat d/f >seen", "chown 5 d", ":").conflicts("d");
}

#[test]
fn a_link_target_changed_outside() {
    meeting!("ln -s a l", "readlink l >seen", "ln -sfn b l", ":").conflicts("l");
}

#[test]
fn attributes_shown_and_changed_outside() {
    meeting!("echo old >f", "stat -c '%a %s' f >seen", "chmod 600 f", ":").conflicts("f");
}

#[test]
fn extended_attributes_read_and_changed_outside() {
    let _ = meeting!("", "", "", "");
    let scratch = Scratch::new();
    let file = scratch.inside().join("f");
    std::fs::write(&file, "x").unwrap();
    let set = |v: &str| {
        rustix::fs::lsetxattr(&file, "user.x", v.as_bytes(), rustix::fs::XattrFlags::empty())
            .unwrap();
    };
    set("old");
    let gate = Gate::new(scratch.live());
    let list = scratch.live().join("ops");
    let ops = [Op::Xattrs { path: "f".into() }, gate.op_open("read"), gate.op_wait("changed")];
    std::fs::write(&list, Op::print(&ops)).unwrap();
    let live = scratch.live().display().to_string();
    let (helper, list) = (helper("oplist").display().to_string(), list.display().to_string());
    let args = ["run", "--no-retry", "--live", &live, "--", &helper, &list];
    let running = Txos::new(&scratch).start(args);
    gate.wait("read");
    set("new");
    gate.open("changed");
    running.end(LIMIT).expect(75).says(&["f"]);
}

#[test]
fn creations_of_different_names_in_one_directory_both_survive() {
    let met = meeting!("mkdir d; echo >d/old", "echo i >d/inside", "echo o >d/outside", ":")
        .passes(&["--no-retry"]);
    assert_eq!((met.read("d/inside") + &met.read("d/outside")).as_str(), "i\no\n");
}

#[test]
fn changes_of_different_files_in_one_directory_both_survive() {
    let meeting = meeting!(
        "mkdir d; for n in a b c d e g h; do echo $n >d/$n; done",
        "echo i >>d/a; rm d/b; mv d/c d/c2; echo r >n; mv n d/h",
        "echo o >>d/d; rm d/e; mv d/g d/g2",
        ":"
    );
    let met = meeting.passes(&["--no-retry"]);
    assert_eq!(met.read("d/a") + &met.read("d/d"), "a\ni\nd\no\n");
    for (name, there) in
        [("b", false), ("c", false), ("c2", true), ("e", false), ("g", false), ("g2", true)]
    {
        assert_eq!(met.path("d").join(name).exists(), there, "{name}");
    }
}

#[test]
fn a_parents_times_do_not_conflict_with_walking_through_it() {
    meeting!("mkdir d; echo old >d/f", "cat d/f >seen", "touch d; echo new >d/other", ":")
        .passes(&["--no-retry"]);
}

#[test]
fn unrelated_changes_do_not_conflict() {
    meeting!(
        "mkdir d e; echo >d/f; echo >e/f",
        "cat d/f; echo i >d/n; ls d",
        "echo o >>e/f; rm e/f; echo >e/g",
        ":"
    )
    .passes(&["--no-retry"]);
}

#[test]
fn relaxed_paths_are_not_validated_and_are_reported() {
    let met = {
        let meeting = meeting!(
            "mkdir d e; echo >d/f; echo old >e/f",
            "ls d >e/seen; cat d/f",
            "echo new >d/n; echo x >>d/f",
            ":"
        );
        let scratch = Scratch::new();
        let report = scratch.base().join("report.json");
        // The tree's path is known only to the meeting: a path is relaxed relative to it.
        let met = meeting.passes(&[
            "--no-retry",
            "--relax",
            "d",
            "--json",
            &report.display().to_string(),
        ]);
        let relaxed = met.path("d").display().to_string();
        assert!(Report::read(&report).mentions("relaxed_below", &relaxed), "{}", met.outcome);
        met
    };
    assert_eq!(met.read("e/seen"), "f\n");
    // What is not below it still is.
    meeting!("mkdir d e; echo >d/f; echo old >e/f", "cat e/f", "echo x >>e/f", ":")
        .meet(Who::Root, &["--no-retry", "--relax", "d"])
        .outcome
        .expect(75);
}

#[test]
fn a_repeated_read_gives_the_same() {
    let met = meeting!(
        "mkdir d; echo old >f; echo >d/a",
        "cat f >one; ls d >>one; cat f; stat -c '%s %Y %a' f >>one",
        "echo newer-content >f; echo >d/b; chmod 600 f",
        "cat f >two; ls d >>two; stat -c '%s %Y %a' f >>two; cmp one two && reach same"
    )
    .meet(Who::Root, &["--no-retry", "--no-early-doom"]);
    met.outcome.expect(75);
    assert!(met.scratch.live().join("same").exists(), "{}", met.outcome);
}

#[test]
fn a_store_through_a_mapping_outside_is_seen() {
    // No time moves when a page is dirty already.
    let _ = meeting!("", "", "", "");
    let scratch = Scratch::new();
    let path = scratch.inside().join("f");
    std::fs::write(&path, "0000").unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mapping = Mapping::of(file.as_fd()).unwrap();
    mapping.store(b"1111");
    let gate = Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let script = format!("{}cat f >seen; reach read; await stored", gate.functions());
    let running = Txos::new(&scratch).start_sh(&["--no-retry", "--live", &live], &script);
    gate.wait("read");
    mapping.store(b"2222");
    gate.open("stored");
    running.end(LIMIT).expect(75).says(&["f"]);
    assert!(!scratch.inside().join("seen").exists());
}

#[test]
fn retries_end_with_75_and_the_name_of_the_object() {
    let _ = meeting!("", "", "", "");
    for (option, attempts) in
        [(&["--retries", "2"][..], 3), (&["--no-retry"][..], 1), (&["--retries", "0"][..], 1)]
    {
        let scratch = Scratch::new();
        let file = scratch.inside().join("contended");
        std::fs::write(&file, "0").unwrap();
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!(
            "{}echo >>'{live}/attempts'; n=$(wc -l <'{live}/attempts'); cat contended >seen; reach read$n; await changed$n",
            gate.functions()
        );
        let mut options = vec!["--live", live.as_str()];
        options.extend(option);
        let running = Txos::new(&scratch).start_sh(&options, &script);
        for n in 1..=attempts {
            gate.wait(&format!("read{n}"));
            std::fs::write(&file, n.to_string()).unwrap();
            gate.open(&format!("changed{n}"));
        }
        running.end(LIMIT).expect(75).says(&["contended"]);
        let started = std::fs::read_to_string(gate.mark("attempts")).unwrap().len();
        assert_eq!(started, attempts);
        assert!(!scratch.inside().join("seen").exists());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_retry_gets_the_same_standard_input_and_drops_held_output() {
    let _ = meeting!("", "", "", "");
    for size in [0, 10, 3_000_000] {
        let scratch = Scratch::new();
        std::fs::write(scratch.inside().join("f"), "old").unwrap();
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!(
            "{}echo attempt; cat f >/dev/null; cksum; head -c 1 f; reach read; await changed",
            gate.functions()
        );
        let input: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        let txos = Txos::new(&scratch).input(input.clone());
        let running = txos.start_sh(&["--live", &live, "--output", "deferred"], &script);
        gate.wait("read");
        std::fs::write(scratch.inside().join("f"), "new").unwrap();
        gate.open("changed");
        let out = running.end(LIMIT);
        let native = Txos::new(&scratch);
        let command = native.command("cksum".as_ref(), [] as [&str; 0]);
        let sum = txos_tests::exec::Running::start(command, Some(input)).end(LIMIT).stdout;
        assert_eq!(out.expect(0).stdout, format!("attempt\n{sum}n"), "{size} bytes of input");
    }
}

#[test]
fn an_ordinary_users_transaction_is_isolated_too() {
    for_one(Who::User, |_, _| {
        let edit = Meeting {
            setup: "mkdir d; echo old >f; echo >d/a",
            first: "echo inside >>f; ls d >seen",
            outside: "echo outside >>f; echo >d/b",
            then: ":",
        };
        let lost = edit.meet(Who::User, &["--no-retry"]);
        lost.outcome.expect(75);
        assert_eq!(lost.read("f"), "old\noutside\n");
        let met = edit.meet(Who::User, &[]);
        met.outcome.expect(0);
        assert_eq!(
            (met.read("f"), met.read("seen")),
            ("old\noutside\ninside\n".into(), "a\nb\n".into())
        );
        let apart = Meeting { first: "echo i >d/i", outside: "echo o >d/o", ..edit };
        apart.meet(Who::User, &["--no-retry"]).outcome.expect(0);
    });
}

#[test]
fn no_update_is_lost_in_a_race_with_outside_writers() {
    let _ = meeting!("", "", "", "");
    let scratch = Scratch::new();
    let tree = scratch.inside();
    std::fs::write(tree.join("log"), "").unwrap();
    std::fs::create_dir(tree.join("d")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (outside, committed) = std::thread::scope(|threads| {
        let outsider = threads.spawn(|| {
            let mut written = Vec::new();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let name = format!("o{}", written.len());
                let mut log =
                    std::fs::OpenOptions::new().append(true).open(tree.join("log")).unwrap();
                std::io::Write::write_all(&mut log, format!("{name}\n").as_bytes()).unwrap();
                std::fs::write(tree.join("d").join(&name), &name).unwrap();
                written.push(name);
                // Often enough to be met, seldom enough to let a transaction through.
                std::thread::sleep(std::time::Duration::from_millis(25));
            }
            written
        });
        let mut committed = Vec::new();
        for n in 0..15 {
            // The last ones have nobody to lose to.
            stop.store(n >= 12, std::sync::atomic::Ordering::Relaxed);
            let script = format!("echo t{n} >>log; echo t{n} >d/t{n}");
            let out = Txos::new(&scratch).sh(&["--retries", "3", "--nondurable"], &script);
            match out.code() {
                0 => committed.push(format!("t{n}")),
                75 => {}
                _ => panic!("{out}"),
            }
        }
        (outsider.join().unwrap(), committed)
    });
    let log = std::fs::read_to_string(tree.join("log")).unwrap();
    let mut lines: Vec<_> = log.lines().map(str::to_owned).collect();
    let mut expected: Vec<_> = outside.iter().chain(&committed).cloned().collect();
    lines.sort();
    expected.sort();
    println!("{} of 15 committed beside {} outside writes", committed.len(), outside.len());
    assert_eq!(lines, expected);
    assert!(committed.len() >= 2 && outside.len() > 1);
    for name in &expected {
        let text = std::fs::read_to_string(tree.join("d").join(name)).unwrap_or_default();
        assert_eq!(text.trim_end(), name);
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
