//! Nothing of `txos` stays outside its state directory.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::txos::{Txos, binary, copy_for_users, copy_program, for_both, native_only};

/// Every path below `dir` as seen in the namespace.
fn names(space: &Space, dir: &str) -> BTreeSet<String> {
    fn walk(path: &Path, out: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
            out.insert(entry.path().display().to_string());
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                walk(&entry.path(), out);
            }
        }
    }
    let mut out = BTreeSet::new();
    walk(&space.outside(Path::new(dir)), &mut out);
    out
}

#[test]
fn the_usual_places_stay_as_they_were() {
    if native_only() {
        skip!("nothing to compare natively");
    }
    if let Some(why) = txos_tests::who::Who::Root.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    // Places of its own, so that other programs of the machine don't disturb the count.
    let places = ["/tmp", "/run", "/dev/shm", "/var/lib", "/var/log"];
    let mounts: String = places.map(|p| format!("mount -t tmpfs none {p}\n")).concat();
    let space = match Space::new(&scratch, &mounts) {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let all = || -> BTreeSet<String> { places.iter().flat_map(|p| names(&space, p)).collect() };
    let before = all();
    let mount_table = space.mounts();
    // The binary may lie in one of the places.
    let binary = copy_for_users(&scratch, &binary());
    let txos = Txos::new(&scratch).outer(space.prefix(&scratch.inside())).binary(binary);
    txos.sh(&[], "echo x >f").expect(0);
    txos.sh(&[], "echo x >g; exit 1").expect(1);
    txos.sh(&["--dry-run"], "echo x >g").expect(0);
    txos.call(["recover"]).expect(0);
    assert_eq!(all(), before, "files appeared");
    assert_eq!(space.mounts(), mount_table, "mounts appeared");
    // With the default state directory everything lies there.
    let mut command = txos.command(&txos.program(), ["run", "--", "sh", "-c", "echo y >h"]);
    command.env_remove("TXOS_STATE");
    txos_tests::exec::run(command).expect(0);
    let new: Vec<_> = all().difference(&before).cloned().collect();
    let state = space.outside(Path::new("/var/lib/txos")).display().to_string();
    assert!(new.iter().all(|p| p.starts_with(&state)), "{new:#?}");
    assert!(!new.is_empty());
}

#[test]
fn the_state_does_not_grow_with_every_transaction() {
    if native_only() {
        skip!("nothing to compare natively");
    }
    if let Some(why) = txos_tests::who::Who::Root.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let txos = Txos::new(&scratch);
    let work = |n| {
        for i in 0..n {
            let status = i % 2;
            txos.sh(&[], &format!("head -c 1000000 /dev/zero | tr '\\0' x >f; exit {status}"))
                .expect(status);
        }
    };
    work(4);
    let early = scratch.state_size();
    work(8);
    let late = scratch.state_size();
    assert!(late < early + 400_000, "it grew from {early} to {late} bytes");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// A program that runs cannot be written, so a commit that would do it is refused; what the
/// transaction held is given back then, and not with the next one.
#[test]
fn a_refused_commit_gives_its_space_back_at_once() {
    for_both(|scratch, txos| {
        let program = scratch.inside().join("program");
        copy_program(Path::new("/bin/sleep"), &program);
        let owner = scratch.inside().metadata().unwrap();
        chown(&program, Some(owner.uid()), Some(owner.gid())).unwrap();
        let script = "head -c 3000000 /dev/zero >big; echo x >program";
        for options in [&[][..], &["--keep"]] {
            let mut running = std::process::Command::new(&program).arg("600").spawn().unwrap();
            let out = txos.sh(options, script);
            running.kill().unwrap();
            running.wait().unwrap();
            out.expect(125).says(&["aborted, nothing was changed", "program"]);
            assert!(!scratch.inside().join("big").exists(), "{out}");
            let left = std::fs::read_dir(scratch.state().join("tx")).unwrap();
            let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
            assert_eq!(left, Vec::<std::ffi::OsString>::new(), "{options:?}: {out}");
        }
        let out = txos.call(["recover"]);
        assert_eq!(out.expect(0).stdout, "nothing to recover\n");
    });
}
