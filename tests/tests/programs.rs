//! Ordinary programs do inside what they do natively.

use txos_tests::exec;
use txos_tests::scenario::Scenario;
use txos_tests::skip;
use txos_tests::txos::{for_both, for_one};
use txos_tests::who::Who;

#[test]
fn editors_and_filters_that_write_files() {
    Scenario::sh(
        "sed -i s/one/two/ a; perl -pi -e 's/x/y/' b; sort -o c c; gzip -n d; gunzip -c d.gz >e; install -m 640 a i; \
         printf '1c1\\n< two\\n---\\n> three\\n' >p; cat a b c e; tac <c >t; truncate -s 5 b; dd if=b of=f bs=2 seek=3 2>/dev/null",
    )
    .setup("echo one >a; echo x >b; printf 'b\\na\\n' >c; echo d >d")
    .check_both();
}

#[test]
fn copies_keep_what_copies_keep() {
    let setup = "mkdir -p s/d; echo a >s/a; ln s/a s/d/b; ln -s a s/l; truncate -s 5M s/sparse; chmod 4755 s/a; \
                 mkfifo s/p; touch -d '1999-09-09 09:09:09.987654321' s/d s/a";
    Scenario::sh("cp -a s t; cp -a --no-preserve=all s u; mv s v").setup(setup).check();
    Scenario::sh("cp -a s t; cp -a t/d u").setup(setup).by(Who::User).check();
}

#[test]
fn archives_are_unpacked_with_their_links_and_times() {
    if exec::find("tar").is_none() {
        skip!("no tar");
    }
    Scenario::sh("tar xf t.tar; tar xf t.tar; tar --sort=name -cf again.tar s; rm -r s/d; tar xf again.tar; tar df again.tar")
        .setup(
            "mkdir -p s/d/e; for i in $(seq 200); do echo $i >s/d/$i; done; ln s/d/1 s/d/e/link; ln -s ../1 s/d/e/l; \
             mkfifo s/p; find s -depth -exec touch -h -d '2001-01-01 00:00:01' {} +; tar --sort=name -cf t.tar s; rm -r s",
        )
        .then_by_root("true")
        .status(0)
        .check();
}

#[test]
fn many_files_are_made_renamed_and_removed() {
    Scenario::sh(
        "mkdir n; for i in $(seq 1500); do echo $i >n/$i; done; ls n | wc -l; for i in $(seq 1 3 1500); do rm n/$i; done; \
         for i in $(seq 2 3 1500); do mv n/$i n/m$i; done; for i in $(seq 1 2 600); do echo x >>o/$i; done; \
         rm o/5*; mv o p; ls n p | cksum",
    )
    .setup("mkdir o; for i in $(seq 600); do echo $i >o/$i; done")
    .check();
}

#[test]
fn pipes_fifos_jobs_and_locks_work_inside() {
    Scenario::sh(
        "mkfifo p; (echo through >p) & cat p; wait; seq 100000 | sort -rn | head -1; \
         perl -MFcntl=:flock -e 'open(my $f, \">\", \"lock\") or die; flock($f, LOCK_EX) or die; print \"locked\\n\"'; \
         (sleep 0.2; echo later >later) & echo now >now; wait; cat later; \
         perl -e 'open(my $f, \"+<\", \"f\") or die; my $p = pack(\"s s l! l! i\", 1, 0, 0, 0, 0); fcntl($f, 6, $p) or die; print \"posix\\n\"'",
    )
    .setup("echo f >f")
    .check_both();
}

#[test]
fn a_compiler_runs() {
    if exec::find("cc").is_none() {
        skip!("no C compiler");
    }
    Scenario::sh("cc -o hello hello.c && ./hello && rm hello")
        .setup("printf '#include <stdio.h>\\nint main(void) { puts(\"hello\"); return 0; }\\n' >hello.c")
        .check_both();
}

#[test]
fn git_makes_a_repository_that_is_whole_outside() {
    if exec::find("git").is_none() {
        skip!("no git");
    }
    for_both(|scratch, txos| {
        let txos = txos
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("HOME", scratch.inside());
        let make = "set -e; git init -q -b main r; cd r; git config user.email a@b; git config user.name n; \
                    for i in $(seq 100); do echo $i >f$i; done; git add .; git commit -qm one; \
                    git checkout -qb side; git mv f1 g1; echo x >>f2; git commit -qam two; git checkout -q main; git merge -q side";
        txos.sh(&[], make).expect(0);
        let natively = |script: &str| exec::run(txos.command("sh".as_ref(), ["-ec", script]));
        let out = natively(
            "cd r; git fsck --strict 2>&1; git status --porcelain; git log --oneline | wc -l; cat f2",
        );
        assert_eq!(out.expect(0).stdout, "2\n2\nx\n");
        // One made outside is used inside, and the other way round.
        txos.sh(&[], "cd r && echo inside >>f3 && git commit -qam inside && git gc -q").expect(0);
        natively("cd r; echo outside >>f4; git commit -qam outside; git fsck");
        let out = txos.sh(&[], "cd r && git log --format=%s | head -2 && git status --porcelain");
        assert_eq!(out.expect(0).stdout, "outside\ninside\n");
        let failed = "cd r && git rm -q f5 && git commit -qm never && git reflog expire --expire=all --all && git gc -q --prune=now && exit 1";
        txos.sh(&[], failed).expect(1);
        assert_eq!(
            natively("cd r; git log --format=%s | head -1; ls f5; git fsck 2>&1").stdout,
            "outside\nf5\n"
        );
    });
}

/// A package with maintainer scripts, for a root of its own.
const PACKAGE: &str = "mkdir -p p/DEBIAN p/usr/share/txos-test root/var/lib/dpkg/info root/var/lib/dpkg/updates root/var/lib/dpkg/triggers; \
    : >root/var/lib/dpkg/status; : >root/var/lib/dpkg/available; \
    printf 'Package: txos-test\\nVersion: 1\\nArchitecture: all\\nMaintainer: n <a@b>\\nDescription: d\\n' >p/DEBIAN/control; \
    printf '/usr/share/txos-test/conf\\n' >p/DEBIAN/conffiles; echo conf >p/usr/share/txos-test/conf; \
    for i in $(seq 50); do echo $i >p/usr/share/txos-test/$i; done; \
    printf '#!/bin/sh\\necho configured >\"$DPKG_ROOT/configured\"; [ ! -e \"$DPKG_ROOT/fail\" ]\\n' >p/DEBIAN/postinst; \
    chmod 755 p/DEBIAN/postinst; dpkg-deb --root-owner-group -b p p.deb >/dev/null; rm -r p";

#[test]
fn a_package_is_installed_whole_or_not_at_all() {
    if exec::find("dpkg-deb").is_none() {
        skip!("no dpkg");
    }
    for_one(Who::Root, |scratch, txos| {
        let natively = |script: &str| exec::run(txos.command("sh".as_ref(), ["-ec", script]));
        natively(PACKAGE).expect(0);
        let install =
            "dpkg --root=\"$PWD/root\" --force-script-chrootless --log=/dev/null -i p.deb";
        // Half-way: files are unpacked, then the script fails, while somebody else makes a file.
        natively("echo >root/fail").expect(0);
        let before = txos_tests::tree::Tree::of(&scratch.inside()).unwrap();
        let out = txos.sh(&[], install);
        assert_ne!(out.code(), 0, "{out}");
        let after = txos_tests::tree::Tree::of(&scratch.inside()).unwrap();
        assert_eq!(before.changes(&after), Vec::<String>::new());
        natively("rm root/fail").expect(0);
        txos.sh(&[], install).expect(0);
        let status = "dpkg --root=\"$PWD/root\" --verify txos-test && dpkg-query --admindir=root/var/lib/dpkg -W -f '${Status}' txos-test; \
                      ls root/usr/share/txos-test | wc -l; cat root/configured";
        assert_eq!(natively(status).expect(0).stdout, "install ok installed51\nconfigured\n");
        txos.sh(
            &[],
            "dpkg --root=\"$PWD/root\" --force-script-chrootless --log=/dev/null -P txos-test",
        )
        .expect(0);
        assert!(!scratch.inside().join("root/usr/share/txos-test").exists());
    });
}
