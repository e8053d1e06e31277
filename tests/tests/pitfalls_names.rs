//! Pitfalls of bringing an overlay's upper layer home, part one: names, types, links.
//!
//! A well-known tool of this kind gets every one of them wrong and exits with status 0.

use txos_tests::op::{Op, Special};
use txos_tests::scenario::Scenario;
use txos_tests::skip;
use txos_tests::who::Who;

#[test]
fn a_whiteout_does_not_leak_into_the_live_tree() {
    // `Scenario` looks for 0:0 devices in the tree afterwards.
    Scenario::sh("rm f d/f && rm -r e && mv g h && mkdir x && mv d/k x/k && rm x/k && rmdir x")
        .setup("mkdir d e e/e; for n in f g d/f d/k d/stays e/f e/e/f; do echo $n >$n; done")
        .check_both();
}

#[test]
fn overlay_attributes_do_not_stay_on_live_files() {
    // origin, impure, opaque, redirect, metacopy, nlink: each line makes the view write one.
    Scenario::sh(
        "echo more >>f; chmod 600 g; mv h d/h; rm -r e; mkdir e; echo new >e/f; mv r r2 || cp -r r r2; \
         echo x >>l1; ln l2 l3; mkdir d/new; touch -h d/s",
    )
    .setup(
        "mkdir d e r r/sub; for n in f g h e/f r/f r/sub/f l1; do echo $n >$n; done; ln l1 l1b; \
         echo l2 >l2; ln -s f d/s",
    )
    .check_both();
}

#[test]
fn overlay_attributes_of_somebody_else_stay() {
    // Another overlay's upper layer may lie in the tree.
    let set = |path: &str, name: &str, value: &str| Op::SetXattr {
        path: path.into(),
        name: name.into(),
        value: value.into(),
    };
    let scenario = Scenario::sh("echo more >>d/f; echo new >d/n; rm e/x; cat e/f; ls d e")
        .setup("mkdir d e; for n in d/f e/f e/x; do echo $n >$n; done")
        .setup_ops(vec![
            set("d", "user.overlay.opaque", "y"),
            set("e/f", "user.overlay.mine", "1"),
        ]);
    if let Some(why) = scenario.impossible() {
        skip!("{why}");
    }
    // `leftovers` counts such attributes, so here the trees' comparison alone is looked at.
    let found: Vec<_> = scenario
        .differences()
        .into_iter()
        .filter(|l| !l.starts_with("left behind: attribute"))
        .filter(|l| !l.starts_with("inside: "))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn writing_one_of_two_hard_links_writes_both() {
    Scenario::sh("echo more >>a; cat b; echo all >c1; cat d/c2; cp b copy")
        .setup("mkdir d; echo one >a; ln a b; echo c >c1; ln c1 d/c2; ln c1 d/c3")
        .check();
}

#[test]
fn writing_one_of_two_hard_links_keeps_them_one_file_for_users() {
    Scenario::sh("echo more >>a; echo all >c1")
        .setup("mkdir d; echo one >a; ln a b; echo c >c1; ln c1 d/c2")
        .by(Who::User)
        .check();
}

#[test]
fn hard_links_are_made_removed_and_moved_as_natively() {
    Scenario::sh("ln a d/a2; rm b; mv c d/c9; ln d/c9 c8; echo x >>c8; rm k1; ln new1 new2 || :")
        .setup("mkdir d; echo a >a; echo b >b; ln b b2; echo c >c; ln c c2; echo k >k1; ln k1 k2; ln k1 k3; echo n >new1")
        .check();
}

#[test]
fn links_made_inside_stay_links() {
    Scenario::sh("mkdir n n/m; echo x >n/a; ln n/a n/m/b; ln n/a c; mv n/m q; echo y >>q/b")
        .setup("echo f >f")
        .check_both();
}

#[test]
fn device_nodes_fifos_and_sockets_survive() {
    let node = |path: &str, kind, mode, major, minor| Op::Mknod {
        path: path.into(),
        kind,
        mode,
        major,
        minor,
    };
    Scenario::ops(vec![
        node("null", Special::Char, 0o666, 1, 3),
        node("big", Special::Char, 0o600, 300, 70_000),
        node("loop", Special::Block, 0o660, 7, 0),
        node("pipe", Special::Fifo, 0o640, 0, 0),
        node("sock", Special::Socket, 0o600, 0, 0),
        Op::Rename { from: "old-pipe".into(), to: "moved-pipe".into(), how: Default::default() },
        Op::Chmod { path: "old-sock".into(), mode: 0o700 },
        Op::Chown { path: "old-null".into(), uid: 5, gid: 6 },
        Op::Times { path: "old-loop".into(), sec: 77, nsec: 7 },
        Op::Link { from: "old-null".into(), to: "null2".into() },
        Op::Unlink { path: "gone".into() },
    ])
    .setup_ops(vec![
        node("old-pipe", Special::Fifo, 0o600, 0, 0),
        node("old-sock", Special::Socket, 0o600, 0, 0),
        node("old-null", Special::Char, 0o600, 1, 3),
        node("old-loop", Special::Block, 0o600, 7, 1),
        node("gone", Special::Char, 0o600, 1, 5),
    ])
    .check();
}

#[test]
fn fifos_and_sockets_survive_for_users() {
    let node =
        |path: &str, kind| Op::Mknod { path: path.into(), kind, mode: 0o600, major: 0, minor: 0 };
    Scenario::ops(vec![
        node("pipe", Special::Fifo),
        node("sock", Special::Socket),
        Op::Rename { from: "old".into(), to: "new".into(), how: Default::default() },
    ])
    .setup_ops(vec![node("old", Special::Fifo)])
    .by(Who::User)
    .check();
}

#[test]
fn a_real_0_0_device_is_not_taken_for_a_whiteout() {
    if let Some(why) = Who::Root.impossible() {
        skip!("{why}");
    }
    // Such nodes lie in the upper layers of other overlays.
    let filter = |l: &String| !l.starts_with("left behind: whiteout") && !l.starts_with("inside: ");
    for script in ["echo new >d/n; echo more >>d/f", "ls d; test -c d/w", "rm d/w; echo x >d/x"] {
        let found: Vec<_> = Scenario::sh(script)
            .setup("mkdir d; echo f >d/f; mknod d/w c 0 0")
            .differences()
            .into_iter()
            .filter(filter)
            .collect();
        assert!(found.is_empty(), "{script}: {found:#?}");
    }
}

#[test]
fn an_opaque_directory_replaces_the_old_one() {
    Scenario::sh(
        "rm -r d; mkdir -m 711 d; echo new >d/new; rm -r e; mkdir e; mkdir e/e; echo f >e/e/f; \
         rm -r x; echo file >x; mkdir n; mkdir n/n; rm -r y; mkdir y y/z; echo same >y/z/f",
    )
    .setup("mkdir -p d e/e x y/z; for n in d/old e/old e/e/old x/old y/z/f y/z/g; do echo $n >$n; done")
    .check_both();
}

#[test]
fn a_renamed_directory_of_the_live_tree_is_renamed() {
    Scenario::sh(
        "mv d d2; echo more >>d2/f; rm d2/g; echo new >d2/sub/n; mv e k; mkdir e; echo other >e/f; \
         mv p/q/r r; mv p t; mv t/q t/q2; mv s1 tmp; mv s2 s1; mv tmp s2",
    )
    .setup(
        "mkdir -p d/sub e p/q/r s1 s2; for n in d/f d/g d/sub/h e/f p/f p/q/f p/q/r/f s1/one s2/two; do echo $n >$n; done",
    )
    .check();
}

#[test]
fn a_directory_renamed_over_an_empty_one_replaces_it() {
    Scenario::ops(vec![
        Op::Rename { from: "d".into(), to: "empty".into(), how: Default::default() },
        Op::Rename { from: "e".into(), to: "full".into(), how: Default::default() },
        Op::Rename { from: "x".into(), to: "y".into(), how: txos_tests::op::RenameHow::Exchange },
    ])
    .setup("mkdir d e empty full x y; for n in d/f e/f full/f x/x y/y; do echo $n >$n; done")
    .check();
}

#[test]
fn file_directory_and_symlink_turn_into_one_another() {
    Scenario::sh(
        "rm f1; mkdir f1; echo in >f1/in; rm f2; ln -s f1 f2; \
         rm -r d1; echo now a file >d1; rm -r d2; ln -s d1 d2; \
         rm s1; echo now a file >s1; rm s2; mkdir s2; echo in >s2/in; \
         rm f3; mkdir f3; rmdir f3; echo back >f3; \
         rm -r d3; ln -s f1 d3; rm d3; mkdir d3; echo in >d3/in; \
         rm s3; mkdir s3; rmdir s3; ln -s else s3",
    )
    .setup(
        "for n in f1 f2 f3; do echo $n >$n; done; mkdir d1 d2 d3; for n in d1/f d2/f d3/f; do echo $n >$n; done; \
         ln -s f1 s1; ln -s d1 s2; ln -s nowhere s3",
    )
    .check_both();
}

#[test]
fn owner_and_times_of_symlinks_are_kept() {
    let t = |path: &str, sec| Op::Times { path: path.into(), sec, nsec: 999_999_999 };
    Scenario::ops(vec![
        Op::Symlink { target: "somewhere".into(), path: "new".into() },
        Op::Chown { path: "new".into(), uid: 33, gid: 44 },
        t("new", 12345),
        Op::Chown { path: "old".into(), uid: 55, gid: 66 },
        t("old", 54321),
        t("touched", -5),
        Op::Rename { from: "moved".into(), to: "d/moved".into(), how: Default::default() },
        Op::Link { from: "touched".into(), to: "d/linked".into() },
    ])
    .setup("ln -s a old; ln -s b touched; ln -s c moved; mkdir d")
    .check();
}

#[test]
fn names_that_are_not_utf_8_and_other_odd_names_survive() {
    let create = |path: &str| Op::Create { path: path.into(), mode: 0o644, len: 3, seed: 1 };
    let long = "n".repeat(255);
    let target = "t".repeat(4000);
    Scenario::ops(vec![
        create("%ff%fe"),
        create("d%c3/%80"),
        create("new%0aline"),
        create("%1b[31mred"),
        create(" "),
        create("-rf"),
        create(&long),
        Op::Mkdir { path: "%c3%28".into(), mode: 0o755 },
        create("%c3%28/%e2%82"),
        Op::Symlink { target: "%ff%0a".into(), path: "link".into() },
        Op::Symlink { target: target.clone(), path: "long link".into() },
        Op::Append { path: "old%ff".into(), len: 4, seed: 2 },
        Op::Rename { from: "mv%fe".into(), to: "mv%0a%0a".into(), how: Default::default() },
        Op::Unlink { path: "rm%fd".into() },
        Op::List { path: ".".into() },
    ])
    .setup_ops(vec![
        Op::Mkdir { path: "d%c3".into(), mode: 0o755 },
        create("old%ff"),
        create("mv%fe"),
        create("rm%fd"),
    ])
    .check_both();
}

#[test]
fn paths_deeper_than_path_max_survive() {
    // dash can't change into a directory whose whole path is too long; perl can.
    Scenario::sh(
        "perl -e 'my $n = \"d\" x 200; for (1..30) { mkdir $n and chdir $n or die $! } \
         open(my $f, \">\", \"f\") or die $!; print $f \"deep\"'",
    )
    .setup("echo f >f")
    .check_both();
}

#[test]
fn names_of_one_file_go_and_come_with_directories_that_trade_places() {
    for script in [
        "rm f/c; mv f/a d/e/a; mv f g; mv d/e f",
        "rm f/a f/b; mv f/c d/e/a; rmdir f; mv d/e f",
        "rm f/a f/b f/c; ln d/x d/e/a2; mv d/e f2; rm -r f; mv f2 f",
        "rm f/x; mv d/e/b d/e/x; mv f g; mv d/e f; echo more >>f/x",
    ] {
        Scenario::sh(script)
            .setup(
                "mkdir -p d/e f; for n in f/a f/b d/e/a d/x; do echo $n >$n; done; ln f/a f/c; \
                 ln d/x d/e/b; ln d/x f/x",
            )
            .check();
    }
}
