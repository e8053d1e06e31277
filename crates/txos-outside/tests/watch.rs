//! What is reported of real changes. Needs root; says so where it is not.
#![allow(clippy::unwrap_used)] // Reason: this is a test.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, Mode, OFlags, openat};
use txos_core::{ObjectId, Touched};
use txos_host::attrs_of;
use txos_outside::{Outside, Since, Who};

/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// One test at a time: one fills a queue, another unmounts.
static ONE: Mutex<()> = Mutex::new(());

/// A watch, or `None` with a line that says why there is none.
fn watch() -> Option<(Outside, MutexGuard<'static, ()>)> {
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match Outside::watch() {
        Ok(outside) => Some((outside, one)),
        Err(error) => {
            println!("Skip: {error}");
            None
        }
    }
}

fn id(path: &Path) -> ObjectId {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    attrs_of(openat(CWD, path, flags, Mode::empty()).unwrap()).unwrap().id
}

fn has(since: &Since, touched: &Touched) -> bool {
    since.touched().any(|found| found == touched)
}

fn name(dir: &Path, name: &str) -> Touched {
    Touched::Name(id(dir), name.as_bytes().to_vec())
}

#[test]
fn every_kind_of_change_is_noted_and_own_reading_is_not() {
    let Some((outside, _one)) = watch() else { return };
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = dir.path();
    fs::create_dir(path.join("d")).unwrap();
    for file in ["read", "opened", "written", "moded", "removed", "renamed", "linked", "other-name"]
    {
        fs::write(path.join(file), "1").unwrap();
    }
    fs::hard_link(path.join("other-name"), path.join("d/one-name")).unwrap();
    outside.begin();

    fs::read(path.join("read")).unwrap();
    let opened = Command::new("cat").arg(path.join("opened")).output().unwrap();
    assert!(opened.status.success());
    fs::read_dir(path).unwrap().for_each(drop);
    fs::write(path.join("written"), "2").unwrap();
    fs::set_permissions(path.join("moded"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(path.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(path.join("removed")).unwrap();
    fs::rename(path.join("renamed"), path.join("d/moved")).unwrap();
    fs::hard_link(path.join("linked"), path.join("link")).unwrap();
    fs::create_dir(path.join("made")).unwrap();
    fs::write(path.join("other-name"), "2").unwrap();

    let since = outside.since();
    // Whatever else runs on the machine may mount something; what was noted is noted all the same.
    println!("{:?}", since.why_unclean());
    for expected in [
        Touched::Object(id(&path.join("written"))),
        Touched::Object(id(&path.join("moded"))),
        Touched::Object(id(&path.join("opened"))),
        Touched::Object(id(&path.join("d"))),
        name(path, "removed"),
        name(path, "renamed"),
        name(&path.join("d"), "moved"),
        name(path, "link"),
        Touched::Object(id(&path.join("linked"))),
        name(path, "made"),
        Touched::Object(id(&path.join("d/one-name"))),
    ] {
        assert!(has(&since, &expected), "{expected:?} is missing");
    }
    assert!(!has(&since, &Touched::Object(id(&path.join("read")))));
    assert!(!has(&since, &name(path, "read")));

    outside.begin();
    assert!(!has(&outside.since(), &name(path, "made")), "a new log begins empty");
}

#[test]
fn the_listener_hears_soon_and_who() {
    let Some((outside, _one)) = watch() else { return };
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let heard: Arc<Mutex<Vec<(Touched, Who)>>> = Arc::default();
    let into = Arc::clone(&heard);
    let here = id(dir.path());
    outside.listen(Some(Box::new(move |change| {
        if matches!(change.touched, Touched::Name(dir, _) if *dir == here) {
            into.lock().unwrap().push((change.touched.clone(), change.who()));
        }
    })));
    // It lives until its input ends: who has ended has no name any more.
    let mut child = Command::new("sh")
        .args(["-c", "echo >mine; read line"])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while heard.lock().unwrap().is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    let first = heard.lock().unwrap().first().cloned();
    let who = Who { pid: child.id(), command: Some("sh".to_owned()) };
    assert_eq!(first, Some((name(dir.path(), "mine"), who)));
    child.wait().unwrap();
    outside.listen(None);
    let before = heard.lock().unwrap().len();
    fs::write(dir.path().join("later"), "").unwrap();
    outside.drain();
    assert_eq!(heard.lock().unwrap().len(), before);
}

#[test]
fn what_was_lost_or_cannot_be_known_is_not_called_clean() {
    let Some((outside, _one)) = watch() else { return };
    assert!(!outside.since().clean(), "nothing was begun");
    outside.begin();
    // A listener that does not come back lets the queue of 16,384 events run over.
    let gate = Arc::new(Mutex::new(()));
    let theirs = Arc::clone(&gate);
    let closed = gate.lock().unwrap();
    let (sender, entered) = mpsc::channel();
    outside.listen(Some(Box::new(move |_| {
        let _ = sender.send(());
        drop(theirs.lock());
    })));
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(dir.path().join("first"), "").unwrap();
    entered.recv_timeout(PATIENCE).unwrap();
    for number in 0..20_000 {
        fs::create_dir(dir.path().join(number.to_string())).unwrap();
    }
    drop(closed);
    assert_eq!(outside.since().why_unclean(), Some("too much happened at once"));
}

#[test]
fn a_new_mount_is_not_covered() {
    let Some((outside, _one)) = watch() else { return };
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    outside.begin();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "txos-test"]).arg(dir.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("Skip: nothing can be mounted here");
        return;
    }
    let since = outside.since();
    fs::write(dir.path().join("f"), "").unwrap();
    outside.drain();
    let newer = Outside::watch().unwrap();
    fs::write(dir.path().join("f"), "1").unwrap();
    newer.drain();
    let unmount = || Command::new("umount").arg(dir.path()).status().unwrap().success();
    // Another watch on this machine may be at an event of it just then.
    let deadline = Instant::now() + PATIENCE;
    while !unmount() {
        assert!(Instant::now() < deadline, "whoever watches must not keep others from unmounting");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(since.why_unclean(), Some("something was mounted or unmounted"));
}
