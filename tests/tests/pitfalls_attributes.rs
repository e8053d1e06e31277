//! Pitfalls of bringing an overlay's upper layer home, part two: attributes, contents, times.

use txos_tests::op::{Op, escape};
use txos_tests::scenario::Scenario;
use txos_tests::who::Who;
use txos_tests::xattr;

fn xattr_op(path: &str, name: &str, value: &[u8]) -> Op {
    Op::SetXattr { path: path.into(), name: name.into(), value: escape(value) }
}

#[test]
fn chmod_of_an_existing_directory_is_kept() {
    Scenario::sh("chmod 2711 d; chmod 700 e; echo n >e/n; chmod 1777 d/sub")
        .setup("mkdir -p d/sub e; echo f >d/f; echo f >e/f")
        .check_both();
}

#[test]
fn chown_of_an_existing_directory_is_kept() {
    Scenario::sh("chown 7:8 d; chown 9 d/sub; chown -h 10:10 .")
        .setup("mkdir -p d/sub; echo f >d/f")
        .check();
}

#[test]
fn acls_of_an_existing_directory_are_kept() {
    let acl = xattr::acl_with_user(31, 6);
    Scenario::ops(vec![
        xattr_op("d", "system.posix_acl_access", &acl),
        xattr_op("d", "system.posix_acl_default", &acl),
        Op::Create { path: "d/child".into(), mode: 0o666, len: 5, seed: 1 },
        Op::Mkdir { path: "d/subdir".into(), mode: 0o777 },
        Op::RemoveXattr { path: "e".into(), name: "system.posix_acl_default".into() },
        Op::RemoveXattr { path: "f".into(), name: "system.posix_acl_access".into() },
        xattr_op("g", "system.posix_acl_access", &acl),
    ])
    .setup_ops(vec![
        Op::Mkdir { path: "d".into(), mode: 0o755 },
        Op::Mkdir { path: "e".into(), mode: 0o755 },
        xattr_op("e", "system.posix_acl_default", &acl),
        Op::Create { path: "f".into(), mode: 0o644, len: 5, seed: 1 },
        xattr_op("f", "system.posix_acl_access", &acl),
        Op::Create { path: "g".into(), mode: 0o644, len: 5, seed: 1 },
    ])
    .check();
}

#[test]
fn acls_permit_and_deny_inside_as_natively() {
    // The bits alone would let group 5 in and keep user 31 out.
    let group_denied = [
        [1u16, 6, 0xffff, 0xffff],
        [2, 6, 31, 0],
        [4, 0, 0xffff, 0xffff],
        [16, 6, 0xffff, 0xffff],
        [32, 0, 0xffff, 0xffff],
    ];
    let mut acl = 2u32.to_le_bytes().to_vec();
    acl.extend(group_denied.iter().flatten().flat_map(|half| half.to_le_bytes()));
    let acl_of_a_directory = xattr::acl_with_user(31, 7);
    let script = "for who in 31:31 9:5 9:9 31:5; do
           for try in 'cat f' 'echo x >>f' 'cat d/i' 'ls d' 'echo n >d/n$(id -u)' 'cat default/n'; do
             setpriv --reuid ${who%:*} --regid ${who#*:} --clear-groups sh -c \"$try\" 2>&1
             echo $who $try: $?
           done
         done >log; echo m >default/m; mkdir default/dir; cp -a f copy; cat log";
    Scenario::sh(script)
        .setup("echo f >f; mkdir d default; echo i >d/i; echo n >default/n; chmod 700 d; chmod 640 default/n")
        .setup_ops(vec![
            xattr_op("f", "system.posix_acl_access", &acl),
            xattr_op("d", "system.posix_acl_access", &acl_of_a_directory),
            xattr_op("default", "system.posix_acl_default", &xattr::acl_with_user(31, 4)),
            xattr_op("default/n", "system.posix_acl_access", &xattr::acl_with_user(31, 4)),
        ])
        .then_by_root("chgrp 5 f")
        .check();
}

#[test]
fn acls_that_name_others_survive_a_users_changes() {
    let acl = xattr::acl_with_user(31, 6);
    Scenario::ops(vec![
        Op::Append { path: "f".into(), len: 5, seed: 1 },
        Op::Append { path: "d/old".into(), len: 5, seed: 1 },
        Op::Unlink { path: "e/gone".into() },
        Op::Create { path: "e/new".into(), mode: 0o640, len: 5, seed: 1 },
    ])
    .setup("mkdir d e; for n in f d/old e/gone; do echo $n >$n; done")
    .setup_ops(vec![
        xattr_op("f", "system.posix_acl_access", &acl),
        xattr_op("d", "system.posix_acl_default", &acl),
        xattr_op("d", "system.posix_acl_access", &acl),
        xattr_op("e", "system.posix_acl_access", &acl),
    ])
    .by(Who::User)
    .check();
}

#[test]
fn xattrs_of_existing_directories_and_files_are_kept() {
    Scenario::ops(vec![
        xattr_op("d", "user.new", b"1\0\xff2"),
        xattr_op("d", "user.old", b"changed"),
        Op::RemoveXattr { path: "d".into(), name: "user.gone".into() },
        xattr_op("f", "user.new", b""),
        Op::RemoveXattr { path: "f".into(), name: "user.gone".into() },
        xattr_op("f", "user.big", &[7; 3000]),
        Op::Xattrs { path: "f".into() },
    ])
    .setup_ops(vec![
        Op::Mkdir { path: "d".into(), mode: 0o755 },
        xattr_op("d", "user.old", b"x"),
        xattr_op("d", "user.gone", b"x"),
        Op::Create { path: "f".into(), mode: 0o644, len: 5, seed: 1 },
        xattr_op("f", "user.gone", b"x"),
    ])
    .check_both();
}

#[test]
fn trusted_and_security_attributes_are_kept() {
    Scenario::ops(vec![
        xattr_op("d", "trusted.new", b"t"),
        xattr_op("f", "security.custom", b"s"),
        Op::Append { path: "g".into(), len: 5, seed: 1 },
        Op::RemoveXattr { path: "d".into(), name: "trusted.old".into() },
        Op::Symlink { target: "x".into(), path: "l".into() },
        xattr_op("l", "trusted.link", b"l"),
    ])
    .setup_ops(vec![
        Op::Mkdir { path: "d".into(), mode: 0o755 },
        xattr_op("d", "trusted.old", b"x"),
        Op::Create { path: "f".into(), mode: 0o644, len: 5, seed: 1 },
        Op::Create { path: "g".into(), mode: 0o644, len: 5, seed: 1 },
        xattr_op("g", "trusted.keep", b"x"),
        xattr_op("g", "security.keep", b"x"),
    ])
    .check();
}

#[test]
fn the_time_of_an_existing_directory_is_kept() {
    let t = |path: &str, sec| Op::Times { path: path.into(), sec, nsec: 1 };
    Scenario::ops(vec![
        t("d", 11),
        Op::Create { path: "e/n".into(), mode: 0o644, len: 5, seed: 1 },
        t("e", 22),
        Op::Unlink { path: "g/f".into() },
        t("g", 33),
        // No time set: it becomes that of the run.
        Op::Unlink { path: "h/f".into() },
        t("h/sub", 44),
    ])
    .setup("mkdir -p d e g h/sub untouched; for n in d/f e/f g/f h/f untouched/f; do echo $n >$n; done")
    .check_both();
}

#[test]
fn the_root_of_the_tree_and_untouched_parents_keep_their_times() {
    Scenario::sh("echo more >>a/b/c/f; chmod 600 a/g; cat a/b/h >/dev/null")
        .setup("mkdir -p a/b/c; for n in a/b/c/f a/g a/b/h; do echo $n >$n; done")
        .check_both();
}

#[test]
fn nanoseconds_of_times_are_not_rounded() {
    let t = |path: &str, sec, nsec| Op::Times { path: path.into(), sec, nsec };
    Scenario::ops(vec![
        t("f", 1_234_567_890, 123_456_789),
        t("d", 1, 999_999_999),
        t("before-1970", -1_000, 1),
        t("far", 5_000_000_000, 500_000_001),
        Op::Create { path: "new".into(), mode: 0o644, len: 5, seed: 1 },
        t("new", 42, 42),
        Op::Rename { from: "moved".into(), to: "d/moved".into(), how: Default::default() },
        t("d", 1, 999_999_999),
    ])
    .setup("mkdir d; for n in f before-1970 far moved; do echo $n >$n; done")
    .check_both();
}

#[test]
fn a_file_changed_in_place_keeps_its_inode_and_a_replaced_one_does_not() {
    Scenario::ops(vec![
        Op::Append { path: "append".into(), len: 100, seed: 1 },
        Op::Write { path: "write".into(), off: 3, len: 10, seed: 2 },
        Op::Store { path: "store".into(), off: 0, len: 3, seed: 3 },
        Op::Truncate { path: "shorter".into(), len: 2 },
        Op::Truncate { path: "longer".into(), len: 20_000 },
        Op::Save { path: "save".into(), mode: 0o644, len: 10, seed: 4 },
        Op::Save { path: "emptied".into(), mode: 0o644, len: 0, seed: 4 },
        Op::Replace { path: "replace".into(), mode: 0o600, len: 10, seed: 5 },
        Op::Unlink { path: "anew".into() },
        Op::Create { path: "anew".into(), mode: 0o644, len: 10, seed: 6 },
        Op::Chmod { path: "mode".into(), mode: 0o600 },
        Op::RenameThenWrite { from: "moved".into(), to: "moved2".into(), len: 5, seed: 7 },
        Op::UnlinkThenWrite { path: "lost".into(), len: 5, seed: 8 },
        Op::Tmpfile { dir: ".".into(), path: "tmp".into(), mode: 0o640, len: 9, seed: 9 },
    ])
    .setup(
        "for n in append write store shorter longer save emptied replace anew mode moved lost; do echo content-of-$n >$n; done",
    )
    .check_both();
}

#[test]
fn unwritable_parents_are_no_obstacle_and_stay_unwritable() {
    Scenario::sh(
        "mkdir n; echo x >n/x; mkdir n/m; echo y >n/m/y; chmod 555 n/m n; \
         chmod 755 shut; echo new >shut/new; rm shut/old; chmod 500 shut; \
         chmod 000 f; echo g >>readonly || chmod 600 readonly; chmod 400 readonly",
    )
    .setup("mkdir shut; echo o >shut/old; chmod 555 shut; echo f >f; echo r >readonly; chmod 444 readonly")
    .check_both();
}

#[test]
fn refusals_by_permission_are_as_natively() {
    let create = |path: &str| Op::Create { path: path.into(), mode: 0o644, len: 3, seed: 1 };
    Scenario::ops(vec![
        create("shut/new"),
        Op::Unlink { path: "shut/f".into() },
        Op::Write { path: "shut/f".into(), off: 0, len: 1, seed: 1 },
        Op::Append { path: "readonly".into(), len: 1, seed: 1 },
        Op::Read { path: "unreadable".into() },
        Op::List { path: "unlistable".into() },
        Op::Read { path: "unlistable/f".into() },
        Op::Stat { path: "unsearchable/f".into() },
        Op::List { path: "unsearchable".into() },
        Op::Chmod { path: "roots".into(), mode: 0o600 },
        Op::Chown { path: "roots".into(), uid: 12345, gid: 12345 },
        Op::Append { path: "roots".into(), len: 1, seed: 1 },
        Op::Chown { path: "mine".into(), uid: 0, gid: 0 },
        Op::Unlink { path: "sticky/roots".into() },
        Op::Read { path: "roots-dir/f".into() },
        create("roots-dir/n"),
    ])
    .setup(
        "mkdir shut unlistable unsearchable; for n in shut/f readonly unreadable unlistable/f unsearchable/f mine; do echo $n >$n; done; \
         chmod 555 shut; chmod 444 readonly; chmod 000 unreadable; chmod 311 unlistable; chmod 644 unsearchable",
    )
    .then_by_root("echo r >roots; mkdir roots-dir; echo r >roots-dir/f; mkdir -m 1777 sticky; echo s >sticky/roots")
    .by(Who::User)
    .check();
}

#[test]
fn unmapped_owners_are_kept() {
    // What others own lies beside what the user changes, and in directories that he may write.
    Scenario::sh("echo new >d/new; rm d/mine; cat d/roots d/other; ls d")
        .setup("mkdir d; echo m >d/mine")
        .then_by_root(
            "echo r >d/roots; chown 0:4 d/roots; echo o >d/other; chown 4321:4321 d/other",
        )
        .by(Who::User)
        .check();
}

#[test]
fn what_a_further_group_permits_is_permitted_inside() {
    Scenario::sh("cat g/f h; ls g; cat d/x")
        .setup("mkdir d g; echo m >d/mine")
        .then_by_root(
            "echo f >g/f; echo h >h; echo x >d/x; chown 0:23456 g g/f h d d/x; chmod 640 g/f h d/x; chmod 750 g d",
        )
        .by(Who::User)
        .check();
}

#[test]
fn what_a_user_namespace_cannot_hold_fails_and_is_never_done_half() {
    // Natively each of these works; inside each may fail, but then nothing of it may be seen.
    let tries = [
        "echo more >>default-acl/n",
        "echo more >>roots",
        "echo n >setgid/n",
        "chgrp 23456 mine",
        "echo more >>write-only",
        "mv lower renamed",
        "mv roots renamed",
        "echo n >sticky/n",
    ];
    for script in tries {
        let scenario = Scenario::sh(script)
            .setup("echo m >mine; echo w >write-only; chmod 200 write-only; mkdir lower default-acl; echo f >lower/f")
            .setup_ops(vec![xattr_op(
                "default-acl",
                "system.posix_acl_default",
                &xattr::acl_with_user(8, 4),
            )])
            .then_by_root(
                "echo r >roots; chmod 666 roots; mkdir -m 1777 sticky; mkdir setgid; chown 0:34567 setgid; chmod 2777 setgid",
            )
            .by(Who::User);
        if let Some(why) = scenario.impossible() {
            println!("Skip: {why}");
            return;
        }
        let found = scenario.differences();
        let refused =
            found.iter().any(|l| l.starts_with("exit status") && !l.contains("instead of 125"));
        assert!(found.is_empty() || refused, "{script}: {found:#?}");
        println!("{script}: {}", if refused { "refused inside" } else { "as natively" });
    }
}

#[test]
fn owners_set_by_root_are_kept() {
    Scenario::sh(
        "chown 4321:1234 f; echo n >n; chown 1:2 n; mkdir d/n; chown 3:4 d/n; echo more >>g",
    )
    .setup("mkdir d; echo f >f; echo g >g; chown 77:88 g; chown 5:6 d")
    .check();
}

#[test]
fn set_user_id_bits_are_kept() {
    Scenario::sh(
        "echo n >n; chmod 4755 n; cp -p old copy; chmod 6711 f; mv old moved; echo more >>written; mkdir -m 2775 d; echo i >d/i",
    )
    .setup("for n in f old written; do echo $n >$n; done")
    .then_by_root("chmod 4755 old written; touch -d @77 old written")
    .check_both();
}

#[test]
fn file_capabilities_are_kept() {
    let cap = xattr::capability_net_raw();
    Scenario::ops(vec![
        Op::Create { path: "new".into(), mode: 0o755, len: 10, seed: 1 },
        xattr_op("new", "security.capability", &cap),
        xattr_op("f", "security.capability", &cap),
        Op::Rename { from: "moved".into(), to: "moved2".into(), how: Default::default() },
        Op::Append { path: "written".into(), len: 3, seed: 1 },
        Op::Chown { path: "owned".into(), uid: 3, gid: 3 },
        Op::RemoveXattr { path: "removed".into(), name: "security.capability".into() },
        Op::Chmod { path: "mode".into(), mode: 0o711 },
    ])
    .setup("for n in f moved written owned removed mode; do echo $n >$n; chmod 755 $n; done")
    .setup_ops(
        ["moved", "written", "owned", "removed", "mode"]
            .map(|n| xattr_op(n, "security.capability", &cap))
            .to_vec(),
    )
    .check();
}

#[test]
fn sparse_files_are_not_filled_up() {
    let big = 6 << 30;
    Scenario::ops(vec![
        Op::Create { path: "new".into(), mode: 0o644, len: 0, seed: 0 },
        Op::Truncate { path: "new".into(), len: big },
        Op::Write { path: "new".into(), off: big / 2, len: 5000, seed: 1 },
        Op::Write { path: "old".into(), off: 1 << 30, len: 10, seed: 2 },
        Op::Punch { path: "full".into(), off: 65536, len: 500_000 },
        Op::Chmod { path: "mode".into(), mode: 0o600 },
        Op::Truncate { path: "grown".into(), len: big },
        Op::Rename { from: "moved".into(), to: "moved2".into(), how: Default::default() },
    ])
    .setup("for n in old mode moved; do truncate -s 3G $n; echo end >>$n; done; echo g >grown")
    .setup_ops(vec![Op::Create { path: "full".into(), mode: 0o644, len: 1 << 20, seed: 3 }])
    .check_both();
}

#[test]
fn contents_of_many_sizes_survive() {
    let mut ops = Vec::new();
    let mut setup = Vec::new();
    for (i, len) in [0, 1, 4095, 4096, 4097, 131_071, 131_073, 3_000_001].into_iter().enumerate() {
        let seed = i as u8;
        ops.push(Op::Create { path: format!("new{i}"), mode: 0o644, len, seed });
        setup.push(Op::Create { path: format!("old{i}"), mode: 0o644, len, seed });
        ops.push(Op::Read { path: format!("old{i}") });
        ops.push(Op::Append { path: format!("old{i}"), len: 77, seed });
        ops.push(Op::Read { path: format!("old{i}") });
    }
    Scenario::ops(ops).setup_ops(setup).check_both();
}

/// Overlayfs copies the content of a file whose attributes it has copied before when somebody opens
/// it for writing, and leaves the time of that on it.
#[test]
fn an_open_for_writing_that_writes_nothing_moves_no_time() {
    for script in [
        "chmod 600 f; : >>f",
        "mv f g; : >>g",
        "ln f g; : >>g",
        "chmod 600 big; : <>big; chmod 640 big",
        "chmod 600 f; : >>f; touch f",
        "touch -m f",
        "chmod 600 f; : >>f; sleep 0.1; touch -m f",
        "printf f | dd of=f conv=notrunc status=none",
        "chmod 600 f; printf f >f",
        "chmod 600 f; touch -d @5 f; cat f",
    ] {
        Scenario::sh(script)
            .setup("printf f >f; head -c 3000000 /dev/zero >big; echo x >>big")
            .check_both();
    }
}
