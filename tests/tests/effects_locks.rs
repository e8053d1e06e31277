//! Locks taken inside are held outside too, until the transaction has ended.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use txos_tests::exec;
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::txos::{Txos, for_both, for_one};
use txos_tests::who::Who;

/// Tries an fcntl(2) write lock on the whole file by perl, as process-bound locks are.
const FCNTL: &str = "perl -MFcntl -e 'open(my $f, \"+<\", $ARGV[0]) or die; $| = 1; \
    my $l = pack(\"s s x4 l! l! i x4\", F_WRLCK, 0, 0, 0, 0); \
    print fcntl($f, F_SETLK, $l) ? \"taken\\n\" : ($! + 0) . \"\\n\"; if ($ARGV[1]) { open(my $m, \">\", $ARGV[1]); close $m; \
    for (1..12000) { last if -e $ARGV[2]; select(undef, undef, undef, 0.01) } }' ";

/// A file that the test's user may lock.
fn lock_file(scratch: &Scratch) -> std::path::PathBuf {
    let path = scratch.inside().join("lock");
    std::fs::write(&path, "").expect("write");
    let uid = std::fs::metadata(scratch.inside()).expect("stat").uid();
    chown(&path, Some(uid), Some(uid)).expect("chown");
    path
}

fn busy_for_flock(path: &Path) -> bool {
    let file = File::open(path).expect("open");
    flock(file, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[allow(unsafe_code)] // F_OFD_SETLK has no safe wrapper
fn lock_by_fcntl(file: &File) -> bool {
    // SAFETY: the structure is of integers, and outlives the call.
    unsafe {
        let mut record: libc::flock = std::mem::zeroed();
        record.l_type = libc::F_WRLCK as libc::c_short;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &record) == 0
    }
}

#[test]
fn a_flock_inside_keeps_outsiders_off_until_the_end() {
    if exec::find("flock").is_none() {
        skip!("no flock(1)");
    }
    for_both(|scratch, txos| {
        let path = lock_file(scratch);
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!(
            "{}flock -n lock sh -c 'true' || exit 9; reach unlocked; await go; echo x >done",
            gate.functions()
        );
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("unlocked");
        // Given back inside, but what was done under it is not outside yet.
        assert!(busy_for_flock(&path), "an outsider could take it");
        gate.open("go");
        running.end(exec::LIMIT).expect(0);
        assert!(!busy_for_flock(&path), "still locked after the end");
        assert!(scratch.inside().join("done").exists());
    });
}

#[test]
fn an_fcntl_lock_inside_keeps_outsiders_off() {
    for_both(|scratch, txos| {
        let path = lock_file(scratch);
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script =
            format!("{FCNTL} lock '{}' '{}'", gate.mark("in").display(), gate.mark("go").display());
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("in");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(!lock_by_fcntl(&file), "an outsider could take it");
        gate.open("go");
        assert_eq!(running.end(exec::LIMIT).expect(0).stdout, "taken\n");
        assert!(lock_by_fcntl(&file), "still locked after the end");
    });
}

#[test]
fn a_lock_of_an_outsider_is_busy_inside() {
    for_both(|scratch, txos| {
        let path = lock_file(scratch);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert!(lock_by_fcntl(&file));
        assert_eq!(txos.sh(&[], &format!("{FCNTL} lock")).expect(0).stdout, "11\n");
        // Who asks for the holder is told that there is one.
        let ask = "perl -MFcntl -e 'open(my $f, \"+<\", \"lock\") or die; \
                   my $l = pack(\"s s x4 l! l! i x4\", F_WRLCK, 0, 0, 0, 0); \
                   fcntl($f, F_GETLK, $l) or die; my @l = unpack(\"s s x4 l! l! i\", $l); \
                   print $l[0] == F_WRLCK ? \"held by $l[4]\" : \"free\"'";
        assert_eq!(txos.sh(&[], ask).expect(0).stdout, "held by -1");
        drop(file);
        assert_eq!(txos.sh(&[], &format!("{FCNTL} lock")).expect(0).stdout, "taken\n");
    });
}

#[test]
fn a_wait_inside_ends_with_the_outsiders_lock_or_with_a_signal() {
    if exec::find("flock").is_none() {
        skip!("no flock(1)");
    }
    for_both(|scratch, txos| {
        let path = lock_file(scratch);
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let file = File::open(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        // flock -w is ended by an alarm.
        let script = format!(
            "{}flock -w 0.3 lock true; echo $?; reach timed; flock lock echo waited",
            gate.functions()
        );
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("timed");
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(file);
        assert_eq!(running.end(exec::LIMIT).expect(0).stdout, "1\nwaited\n");
    });
}

#[test]
fn locks_of_a_transaction_that_is_killed_are_free() {
    for_both(|scratch, txos| {
        let path = lock_file(scratch);
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let script = format!("{FCNTL} lock '{}' /nonexistent", gate.mark("in").display());
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("in");
        running.signal(rustix::process::Signal::TERM);
        running.end(exec::LIMIT).expect(143);
        assert!(lock_by_fcntl(&File::options().read(true).write(true).open(&path).unwrap()));
    });
}

#[test]
fn files_made_inside_are_locked_by_members_alone() {
    for_both(|scratch, txos| {
        let script = format!(
            "touch new; {FCNTL} new; perl -MFcntl -e 'open(my $f, \"+<\", \"new\"); \
             my $l = pack(\"s s x4 l! l! i x4\", F_WRLCK, 0, 0, 0, 0); fcntl($f, F_SETLK, $l) or die; \
             if (!fork) {{ open(my $g, \"+<\", \"new\"); print fcntl($g, F_SETLK, $l) ? \"taken\" : \"busy\"; exit }} wait'"
        );
        assert_eq!(txos.sh(&[], &script).expect(0).stdout, "taken\nbusy");
        assert!(scratch.inside().join("new").exists());
    });
}

/// dpkg guards its data base by an fcntl(2) lock, in both directions.
#[test]
fn the_package_managers_lock_works_across_the_border() {
    let Some(program) = exec::find("dpkg") else { skip!("no dpkg") };
    for_one(Who::Root, |scratch, txos| {
        // A data base of its own, so that nobody else's installation is in the way.
        let base = scratch.inside().join("dpkg");
        for dir in ["info", "updates", "triggers"] {
            std::fs::create_dir_all(base.join(dir)).unwrap();
        }
        for file in ["status", "available", "lock-frontend"] {
            std::fs::write(base.join(file), "").unwrap();
        }
        let admin = format!("--admindir={}", base.display());
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let lock = base.join("lock-frontend").display().to_string();
        let file = File::options().read(true).write(true).open(&lock).unwrap();
        let script = format!(
            "{FCNTL} {lock} '{}' '{}'",
            gate.mark("in").display(),
            gate.mark("go").display()
        );
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("in");
        let outside = Txos::new(scratch);
        // Removing a package that is not there does nothing but lock first.
        let remove = [&admin, "--remove", "txos-no-such-package"];
        let dpkg = || exec::run(outside.command(&program, remove));
        let busy = dpkg();
        gate.open("go");
        assert_eq!(running.end(exec::LIMIT).expect(0).stdout, "taken\n");
        assert!(busy.code() == 2 && busy.stderr.contains("lock"), "{busy}");
        assert!(!dpkg().stderr.contains("lock"), "still locked");
        // And the other way round.
        assert!(lock_by_fcntl(&file));
        let script = format!("dpkg '{admin}' --remove txos-no-such-package; echo $?");
        let out = txos.sh(&[], &script);
        assert!(out.expect(0).stdout == "2\n" && out.stderr.contains("lock"), "{out}");
    });
}
