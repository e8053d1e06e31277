//! Mounts of the host: nested, overlapping, read-only, on other file systems.

use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};

use txos_tests::exec;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::tree::{self, Run};
use txos_tests::txos::{Txos, for_one, native_only};
use txos_tests::who::Who;

/// Makes the same mounts in both trees, runs a script natively in one and by `txos` in the other,
/// and compares.
#[track_caller]
fn compare(who: Who, mounts: &str, script: &str, state: Option<&str>) {
    if let Some(why) = Who::Root.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    scratch.give_to(who);
    let setup = format!("for t in native inside; do ( cd $t\n{mounts}\n); done");
    let space = match Space::new(&scratch, &setup) {
        Ok(space) => space,
        Err(why) => skip!("the mounts can't be made: {why}"),
    };
    let (native, inside) = (space.outside(&scratch.native()), space.outside(&scratch.inside()));
    for root in [&native, &inside] {
        if who == Who::User {
            txos_tests::scenario::give_away(root, who.uid()).expect("chown");
        }
        tree::make_old(root).expect("old times");
    }
    let table = space.mounts();
    let here = |dir: &Path| {
        let txos = Txos::by(&scratch, who).outer(space.prefix(dir));
        match state {
            Some(name) => txos.state(scratch.base().join(name)),
            None => txos,
        }
    };
    let natively = |dir: &Path| exec::run(here(dir).command("sh".as_ref(), ["-c", script]));
    let (model, out) = Run::around(&native, || natively(&scratch.native())).expect("native");
    let (real, txos) = Run::around(&inside, || {
        if native_only() {
            natively(&scratch.inside())
        } else {
            here(&scratch.inside()).sh(&[], script)
        }
    })
    .expect("inside");
    assert_eq!(txos.code(), out.code(), "{out}\n{txos}");
    assert_eq!(txos.stdout, out.stdout, "{txos}");
    let found = tree::differences(&model, &real);
    assert!(found.is_empty(), "{found:#?}\n{txos}");
    assert_eq!(space.mounts(), table, "mounts changed");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

const WORK: &str = "echo new >m/f; echo more >>m/old; rm m/gone; mkdir -p m/d/e; ln m/f m/d/link; ln -s f m/s; \
                    mkfifo m/p; chmod 700 m; echo out >f; cat m/old; ls m";

#[test]
fn a_mount_below_the_tree_takes_part() {
    let mounts = "mkdir m; mount -t tmpfs none m; echo o >m/old; echo g >m/gone";
    compare(Who::Root, mounts, WORK, None);
}

#[test]
fn a_mount_below_the_tree_takes_part_for_users() {
    let mounts = "mkdir m; mount -t tmpfs none m; echo o >m/old; echo g >m/gone";
    compare(Who::User, mounts, WORK, None);
}

#[test]
fn nested_mounts_take_part() {
    let mounts = "mkdir m; mount -t tmpfs none m; mkdir m/n; echo o >m/old; mount -t tmpfs none m/n; mkdir m/n/o; \
                  echo x >m/n/f; mount -t tmpfs none m/n/o; echo y >m/n/o/g";
    let script = "echo 1 >>m/old; echo 2 >>m/n/f; echo 3 >m/n/new; echo 4 >>m/n/o/g; rm m/n/o/g; echo 5 >m/n/o/h; \
                  mv m/old m/n/moved; ls -R m; mv m/n m/renamed 2>/dev/null || echo busy; rmdir m/n/o 2>/dev/null || echo busy";
    compare(Who::Root, mounts, script, None);
}

#[test]
fn overlapping_mounts_show_the_uppermost() {
    let mounts = "mkdir m; echo hidden >m/below; mount -t tmpfs none m; echo one >m/one; mount -t tmpfs none m; echo two >m/two";
    compare(Who::Root, mounts, "ls m; echo x >>m/two; echo n >m/n; rm -f m/one", None);
}

#[test]
fn bind_mounts_inside_the_tree_take_part() {
    // One directory by two names, and a single file bound over another one.
    let mounts = "mkdir a b d; echo x >a/f; mount --bind a b; echo file >d/target; echo source >d/source; mount --bind d/source d/target";
    compare(
        Who::Root,
        mounts,
        "echo y >>a/f; cat b/old 2>/dev/null; echo n >b/n; cat d/target; echo z >>d/target",
        None,
    );
}

#[test]
fn a_read_only_mount_stays_read_only() {
    let mounts = "mkdir m; mount -t tmpfs none m; echo o >m/old; touch -d @1000000000.5 m/old m; mount -o remount,ro m";
    let script = "echo x >m/new || echo refused; rm m/old || echo refused; chmod 700 m || echo refused; cat m/old";
    compare(Who::Root, mounts, &format!("({script}) 2>/dev/null"), None);
}

#[test]
fn options_of_a_mount_hold_inside() {
    let mounts = "mkdir m; mount -t tmpfs -o noexec,nosuid,nodev none m; printf '#!/bin/sh\\necho executed\\n' >m/run; chmod 755 m/run";
    compare(
        Who::Root,
        mounts,
        "m/run 2>/dev/null || echo not executed; cp m/run m/copy; m/copy 2>/dev/null || echo nor this",
        None,
    );
}

#[test]
fn a_rename_across_mounts_is_refused_and_mv_copies() {
    let mounts = "mkdir m; mount -t tmpfs none m; echo o >f; ln f g";
    let script = "perl -e 'rename(\"f\", \"m/f\") or print $! + 0, \"\\n\"; link(\"f\", \"m/f\") or print $! + 0, \"\\n\"'; mv f m/f; ls -l m | wc -l";
    compare(Who::Root, mounts, script, None);
}

#[test]
fn links_made_inside_stay_links_on_another_file_system_than_the_state() {
    // Pitfalls: links are split when they are moved across file systems; upper and target differ.
    let mounts = "mkdir m; mount -t tmpfs none m; echo o >m/old; ln m/old m/old2; mkdir m/dir; mknod m/null c 1 3";
    let script = "cd m; echo x >a; ln a b; mkdir n; ln a n/c; echo y >>old2; mv old moved; ln moved n/d; cp -a dir dir2; \
                  chmod 4755 a; mknod node c 1 5; truncate -s 100M sparse; touch -d '2001-01-01 01:01:01.123456789' b";
    compare(Who::Root, mounts, script, None);
}

#[test]
fn the_state_on_memory_and_the_target_on_disk() {
    let mounts = "[ -d ../memory ] || { mkdir ../memory; mount -t tmpfs -o mode=700 none ../memory; }; \
                  echo o >old; ln old old2; mkdir d; echo f >d/f";
    let script = "echo x >a; ln a b; echo y >>old2; mv d e; echo z >>e/f; truncate -s 100M sparse; mkfifo p; chmod 4755 a";
    compare(Who::Root, mounts, script, Some("memory/state"));
}

#[test]
fn a_tree_on_another_file_system_has_its_own_mount_root() {
    // The whole tree is the root of a mount: there is no parent to rename in.
    let mounts = "mount -t tmpfs none .; cd .; cd \"$PWD\"; echo o >old; mkdir d; echo f >d/f";
    let script = "rm -r d; mkdir d; echo n >d/n; mv old new; chmod 711 .; ls";
    compare(Who::Root, mounts, script, None);
}

#[test]
fn a_mount_made_outside_during_the_run_is_no_way_to_lose_anything() {
    if native_only() {
        skip!("nothing to compare natively");
    }
    if let Some(why) = Who::Root.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let space = match Space::new(&scratch, "mkdir inside/m; echo o >inside/m/f") {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let gate = txos_tests::gate::Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let txos = Txos::new(&scratch).outer(space.prefix(&scratch.inside()));
    let script = format!("{}echo inside >>m/f; reach written; await mounted", gate.functions());
    let running = txos.start_sh(&["--no-retry", "--live", &live], &script);
    gate.wait("written");
    let mount = "mount -t tmpfs none m; echo other >m/f";
    exec::run(txos.command("sh".as_ref(), ["-ec", mount])).expect(0);
    gate.open("mounted");
    let out = running.end(exec::LIMIT);
    let seen = std::fs::read_to_string(space.outside(&scratch.inside().join("m/f"))).unwrap();
    assert_eq!(seen, "other\n", "{out}");
    // What the transaction saw is not what is there: it can't commit as if nothing had been.
    out.expect(75);
}

#[test]
fn proc_and_dev_are_the_ones_of_the_view() {
    if native_only() {
        skip!("nothing to compare natively");
    }
    if let Some(why) = Who::Root.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let script = "test -e /proc/self/status && test -r /proc/$$/maps && echo proc; head -c 4 /dev/zero | wc -c; \
                  echo x >/dev/null && echo null; test -c /dev/tty && test -d /dev/pts && test -e /dev/stdin && echo dev; \
                  head -c 3 /dev/urandom | wc -c; test -d /sys/class && echo sys; ls /proc/self/fd >/dev/null && echo fd";
    let out = Txos::new(&scratch).sh(&[], script);
    assert_eq!(out.expect(0).stdout, "proc\n4\nnull\ndev\n3\nsys\nfd\n");
}

/// A directory of the user's below one of somebody else, far from the working directory, with a file in it.
fn theirs_below_anothers(base: &Path) -> PathBuf {
    let theirs = base.join("theirs");
    let mine = theirs.join("mine");
    std::fs::create_dir_all(&mine).expect("mkdir");
    std::fs::write(mine.join("f"), "old\n").expect("a file");
    for path in [mine.clone(), mine.join("f")] {
        chown(path, Some(Who::User.uid()), Some(Who::User.uid())).expect("chown");
    }
    chown(&theirs, Some(0), Some(0)).expect("chown");
    mine
}

#[test]
fn a_user_changes_a_directory_of_theirs_that_only_the_command_names() {
    for_one(Who::User, |scratch, txos| {
        let mine = theirs_below_anothers(scratch.base());
        let (shown, root) = (mine.display(), txos.dir("/"));
        root.sh(&[], &format!("echo more >>{shown}/f && echo n >{shown}/n")).expect(0);
        assert_eq!(std::fs::read_to_string(mine.join("f")).unwrap(), "old\nmore\n");
        assert!(mine.join("n").exists());
    });
}

#[test]
fn a_user_names_a_directory_of_theirs_by_a_link_or_the_parent_of_another() {
    for_one(Who::User, |scratch, txos| {
        let base = scratch.base();
        let mine = theirs_below_anothers(base);
        let links = base.join("links");
        std::fs::create_dir(&links).unwrap();
        chown(&links, Some(Who::User.uid()), Some(Who::User.uid())).unwrap();
        for (name, to) in [
            ("absolute", mine.clone()),
            ("relative", "../theirs/mine".into()),
            ("dangling", mine.join("not-yet")),
            // Where the transaction's own directories lie.
            ("home", base.to_owned()),
            ("state", scratch.state()),
            ("kernels", "/proc/self/fd".into()),
            ("round", "round".into()),
        ] {
            symlink(to, links.join(name)).unwrap();
            lchown(links.join(name), Some(Who::User.uid()), Some(Who::User.uid())).unwrap();
        }
        let root = txos.dir("/").env("HOME", links.join("home"));
        let shown = links.display();
        let changes = [
            format!("echo 1 >>{shown}/absolute/f"),
            format!("echo 2 >>{shown}/relative/f"),
            format!("echo 3 >>{shown}/absolute/../mine/f"),
            format!("echo 4 >>/tmp/../{}", mine.join("f").strip_prefix("/").unwrap().display()),
            format!("echo 5 >>{shown}/home/theirs/mine/f && ls {shown}/home/inside"),
            format!("ls {shown}/home/theirs/mine/f && echo 6 >>{shown}/absolute/f"),
            format!("echo new >{shown}/dangling"),
            format!("! ls {shown}/state/lock"),
            format!("! ls {shown}/state/"),
            format!("! ls {shown}/round/x"),
            format!("ls {shown}/kernels/0 /dev/fd/ /tmp/../tmp/"),
            format!("mv {shown}/relative {shown}/renamed && rm {shown}/absolute"),
        ];
        for change in changes {
            let out = root.sh(&[], &change);
            assert!(out.status.success(), "{change}: {out}");
        }
        assert_eq!(std::fs::read_to_string(mine.join("f")).unwrap(), "old\n1\n2\n3\n4\n5\n6\n");
        assert_eq!(std::fs::read_to_string(mine.join("not-yet")).unwrap(), "new\n");
        assert!(links.join("renamed").is_symlink() && !links.join("absolute").is_symlink());
    });
}
