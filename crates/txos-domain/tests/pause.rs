//! Pauses and holds with real groups, a real watchdog, and deaths at every point.
//!
//! Without libtest: the same program is started again as watchdog, as second, and as a txos that is
//! killed. Each test makes a domain of its own with processes of its own.
#![allow(clippy::unwrap_used)] // Reason: this is a test, only without its harness.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use txos_domain::{
    DomainError, DomainName, Domains, Hold, Pauser, PauserSpec, Priority, Watchdog, serve, sweep,
};

/// A limit that no busy machine reaches.
const LONG: Duration = Duration::from_secs(60);
/// A limit that is to be reached: long enough to freeze a domain within it on a busy machine.
const SHORT: Duration = Duration::from_secs(5);
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let again = std::env::current_exe().expect("own path");
    match arguments.get(1).map(String::as_str) {
        Some("watchdog") => {
            let words = [OsStr::new("watchdog")];
            serve(&arguments[2], (&again, &words), Arc::new(|| {})).expect("serve");
        }
        Some("txos") => doomed_txos(&arguments[2], arguments[3] == "decided"),
        _ => run_all(),
    }
}

fn run_all() {
    let domains = match Domains::find() {
        Err(error @ DomainError::Unavailable { .. }) => return println!("Skip: {error}"),
        domains => domains.unwrap(),
    };
    let probe = name(&format!("txtest-probe-{}", std::process::id()));
    match domains.create(&probe) {
        Err(error @ (DomainError::Unavailable { .. } | DomainError::Io { .. })) => {
            return println!("Skip: {error}");
        }
        created => created.unwrap(),
    };
    domains.remove(&probe).unwrap();
    let tests: &[(&str, fn())] = &[
        ("a_pause_stops_all_and_ends", a_pause_stops_all_and_ends),
        ("pauses_are_counted", pauses_are_counted),
        ("a_freeze_that_was_there_stays", a_freeze_that_was_there_stays),
        ("the_limit_ends_what_is_not_decided", the_limit_ends_what_is_not_decided),
        ("a_limit_over_before_the_freeze_freezes_nothing", a_limit_over_before_the_freeze),
        ("a_decided_pause_outlasts_the_limit", a_decided_pause_outlasts_the_limit),
        ("death_of_txos_or_watchdog_or_both_thaws", death_of_txos_or_watchdog_or_both_thaws),
        ("what_all_dead_left_is_swept", what_all_dead_left_is_swept),
        ("a_domain_that_vanished_is_named", a_domain_that_vanished_is_named),
        ("a_domain_thawed_by_others_does_not_commit", a_domain_thawed_by_others_does_not_commit),
        ("offenders_are_held_and_come_back", offenders_are_held_and_come_back),
        ("a_hold_ends_with_its_limit", a_hold_ends_with_its_limit),
    ];
    for (name, test) in tests {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:?})", start.elapsed());
    }
}

fn name(text: &str) -> DomainName {
    text.parse().expect("a good name")
}

/// A domain with a few processes that count in a file each.
struct Domain {
    name: DomainName,
    members: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Domain {
    fn new(text: &str) -> Domain {
        let domains = Domains::find().unwrap();
        let name = name(&format!("txtest-{text}-{}", std::process::id()));
        domains.create(&name).unwrap();
        assert!(matches!(domains.create(&name), Err(DomainError::Exists(_))));
        let dir = tempfile::tempdir().unwrap();
        let mut members = Vec::new();
        for number in 0..3 {
            let file = dir.path().join(number.to_string());
            let script = format!("while :; do echo x >>'{}'; sleep 0.001; done", file.display());
            let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
            domains.add(&name, child.id()).unwrap();
            members.push(child);
        }
        let domain = Domain { name, members, dir };
        domain.expect_running("at the beginning");
        domain
    }

    fn path(&self) -> PathBuf {
        Domains::find().unwrap().path(&self.name)
    }

    fn written(&self) -> Vec<u64> {
        let size = |n| fs::metadata(self.dir.path().join(format!("{n}"))).map_or(0, |m| m.len());
        (0..self.members.len()).map(size).collect()
    }

    fn running(&self) -> bool {
        let before = self.written();
        thread::sleep(Duration::from_millis(60));
        self.written().iter().zip(before).all(|(now, then)| *now > then)
    }

    fn standing(&self) -> bool {
        let before = self.written();
        thread::sleep(Duration::from_millis(60));
        self.written() == before
    }

    #[track_caller]
    fn expect_running(&self, when: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.running() {
            assert!(Instant::now() < deadline, "the domain does not run {when}");
        }
    }

    fn pauser(&self, watchdog: &Arc<Watchdog>, limit: Duration) -> Pauser {
        let groups = vec![self.path()];
        let spec = PauserSpec { name: self.name.to_string(), groups, limit, tries: 2 };
        Pauser::new(spec, Arc::clone(watchdog)).unwrap()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let _ = fs::write(self.path().join("cgroup.freeze"), "0");
        let _ = fs::write(self.path().join("cgroup.kill"), "1");
        for child in &mut self.members {
            let _ = child.kill();
            let _ = child.wait();
        }
        // Their last children are the system's to reap.
        for _ in 0..100 {
            match Domains::find().unwrap().remove(&self.name) {
                Err(DomainError::Busy { .. }) => thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
    }
}

fn watchdog() -> Arc<Watchdog> {
    let again = std::env::current_exe().unwrap();
    Arc::new(Watchdog::start(&again, &[OsStr::new("watchdog")]).unwrap())
}

fn a_pause_stops_all_and_ends() {
    let (domain, watchdog) = (Domain::new("plain"), watchdog());
    let pauser = domain.pauser(&watchdog, LONG);
    for _ in 0..20 {
        let pause = pauser.pause().unwrap();
        let written = domain.written();
        thread::sleep(Duration::from_millis(5));
        assert_eq!(domain.written(), written);
        pause.decide().unwrap();
    }
    assert!(Domains::find().unwrap().list().iter().any(|d| d.name == domain.name.as_str()));
    domain.expect_running("after 20 pauses");
}

fn pauses_are_counted() {
    let (domain, one, two) = (Domain::new("count"), watchdog(), watchdog());
    let long = Duration::from_secs(20);
    let first = domain.pauser(&one, long).pause().unwrap();
    let second = domain.pauser(&two, long).pause().unwrap();
    drop(first);
    assert!(domain.standing(), "one pause is left");
    drop(second);
    domain.expect_running("after both pauses");
}

fn a_freeze_that_was_there_stays() {
    let (domain, watchdog) = (Domain::new("foreign"), watchdog());
    let freeze = domain.path().join("cgroup.freeze");
    fs::write(&freeze, "1").unwrap();
    let pause = domain.pauser(&watchdog, LONG).pause().unwrap();
    pause.decide().unwrap();
    drop(pause);
    assert!(domain.standing());
    assert_eq!(fs::read_to_string(&freeze).unwrap().trim(), "1");
    fs::write(&freeze, "0").unwrap();
    domain.expect_running("after it was thawed by hand");
    drop(domain.pauser(&watchdog, LONG).pause().unwrap());
    domain.expect_running("after a pause that found nothing frozen");
}

fn the_limit_ends_what_is_not_decided() {
    let (domain, watchdog) = (Domain::new("limit"), watchdog());
    let pause = domain.pauser(&watchdog, SHORT).pause().unwrap();
    let standing = domain.standing();
    // On a very busy machine the limit is over by now.
    assert!(standing || pause.began().elapsed() >= SHORT);
    thread::sleep(SHORT);
    domain.expect_running("after the limit");
    assert!(matches!(pause.decide(), Err(DomainError::Expired(_))));
    drop(pause);
    domain.expect_running("after the late end");
    drop(domain.pauser(&watchdog, LONG).pause().unwrap());
}

fn a_limit_over_before_the_freeze() {
    let (domain, watchdog) = (Domain::new("at-once"), watchdog());
    for nanos in [1, 1_000, 30_000, 100_000, 200_000, 400_000] {
        for _ in 0..20 {
            let pauser = domain.pauser(&watchdog, Duration::from_nanos(nanos));
            // Whether it froze or not, nothing of it is left.
            let _ = pauser.pause().map(drop);
            assert_eq!(
                fs::read_to_string(domain.path().join("cgroup.freeze")).unwrap().trim(),
                "0"
            );
        }
    }
    domain.expect_running("after pauses that were over at once");
}

fn a_decided_pause_outlasts_the_limit() {
    let (domain, watchdog) = (Domain::new("decided"), watchdog());
    let pause = domain.pauser(&watchdog, SHORT).pause().unwrap();
    pause.decide().unwrap();
    thread::sleep(SHORT * 2);
    assert!(domain.standing(), "the apply goes on");
    drop(pause);
    domain.expect_running("after the apply");
}

/// A txos that pauses over and over, each time with a line on standard output.
fn doomed_txos(domain: &str, decided: bool) {
    let watchdog = watchdog();
    println!("watchdog {}", watchdog.pid());
    let groups = vec![PathBuf::from(domain)];
    let spec = PauserSpec { name: domain.to_owned(), groups, limit: LONG, tries: 3 };
    let pauser = Pauser::new(spec, watchdog).unwrap();
    loop {
        // An error means that the watchdog was killed: without one nothing may be frozen.
        let Ok(pause) = pauser.pause() else { return };
        println!("paused");
        if decided && pause.decide().is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(40));
        drop(pause);
        thread::sleep(Duration::from_millis(3));
    }
}

fn start_doomed(domain: &Domain, decided: bool) -> (Child, u32) {
    let mut txos = Command::new(std::env::current_exe().unwrap())
        .args(["txos".as_ref(), domain.path().as_os_str()])
        .arg(if decided { "decided" } else { "undecided" })
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(txos.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let watchdog = first.strip_prefix("watchdog ").unwrap().parse().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "paused");
    // Nobody reads further; a full pipe would stop it.
    thread::spawn(move || lines.for_each(drop));
    (txos, watchdog)
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid as i32).unwrap();
    let _ = kill_process(pid, Signal::KILL);
}

fn death_of_txos_or_watchdog_or_both_thaws() {
    let domain = Domain::new("deaths");
    for round in 0..24u64 {
        let decided = round % 2 == 0;
        let (mut txos, watchdog) = start_doomed(&domain, decided);
        // Points all over the pause of 40 ms and what lies between two.
        thread::sleep(Duration::from_micros(round * 2_300));
        match round % 3 {
            0 => kill(txos.id()),
            1 => kill(watchdog),
            _ if round % 4 < 2 => [txos.id(), watchdog].into_iter().for_each(kill),
            _ => [watchdog, txos.id()].into_iter().for_each(kill),
        }
        domain.expect_running(&format!("after the deaths of round {round}"));
        kill(txos.id());
        txos.wait().unwrap();
        domain.expect_running(&format!("after round {round}"));
        // The last watchdog may be at it.
        let deadline = Instant::now() + PATIENCE;
        while frozen_by_ours(&domain) != "0" {
            assert!(Instant::now() < deadline, "round {round}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn frozen_by_ours(domain: &Domain) -> String {
    let path = domain.path().join("cgroup.freeze");
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// The second of a watchdog is its child.
fn seconds_of(watchdog: u32) -> Vec<u32> {
    let path = format!("/proc/{watchdog}/task/{watchdog}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn expect_gone(pid: u32) {
    let start = Instant::now();
    // A zombie that nobody has waited for yet holds nothing any more, once its threads have gone.
    let lives = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        threads > 1 || stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    while lives() {
        assert!(start.elapsed() < Duration::from_secs(30), "{pid} was killed and lives");
        thread::sleep(Duration::from_millis(1));
    }
}

fn what_all_dead_left_is_swept() {
    let domain = Domain::new("swept");
    let frozen = (0..200).any(|_| {
        let (mut txos, watchdog) = start_doomed(&domain, false);
        // It is started before anything is frozen.
        let seconds = seconds_of(watchdog);
        assert!(!seconds.is_empty(), "a watchdog has a second");
        let all: Vec<u32> = seconds.into_iter().chain([watchdog, txos.id()]).collect();
        // Stopped first, so that none of them runs while the others are killed.
        for signal in [Signal::STOP, Signal::KILL] {
            for pid in &all {
                let _ = kill_process(Pid::from_raw(*pid as i32).unwrap(), signal);
            }
        }
        txos.wait().unwrap();
        // What is killed has its locks, and may be in a call, until it is gone.
        all.iter().for_each(|pid| expect_gone(*pid));
        frozen_by_ours(&domain) == "1"
    });
    assert!(frozen, "killed together often enough, they leave a frozen domain once");
    assert_eq!(sweep().unwrap(), [domain.path()]);
    domain.expect_running("after the sweep");
    assert_eq!(sweep().unwrap(), [] as [PathBuf; 0]);
}

fn a_domain_that_vanished_is_named() {
    let watchdog = watchdog();
    let domains = Domains::find().unwrap();
    let name = name(&format!("txtest-gone-{}", std::process::id()));
    domains.create(&name).unwrap();
    let groups = vec![domains.path(&name)];
    let spec = PauserSpec { name: name.to_string(), groups, limit: LONG, tries: 3 };
    let pauser = Pauser::new(spec, watchdog).unwrap();
    drop(pauser.pause().unwrap());
    domains.remove(&name).unwrap();
    let error = pauser.pause().unwrap_err();
    assert!(matches!(error, DomainError::Gone(_)), "{error}");
    assert!(error.to_string().contains("txtest-gone"), "{error}");
}

fn a_domain_thawed_by_others_does_not_commit() {
    let (domain, watchdog) = (Domain::new("thawed"), watchdog());
    let pause = domain.pauser(&watchdog, LONG).pause().unwrap();
    fs::write(domain.path().join("cgroup.freeze"), "0").unwrap();
    domain.expect_running("after it was thawed by hand");
    assert!(pause.decide().is_err());
}

fn offenders_are_held_and_come_back() {
    let (domain, watchdog) = (Domain::new("held"), watchdog());
    let domains = Domains::find().unwrap();
    let pids: Vec<u32> = domain.members.iter().map(Child::id).collect();
    let limit = Duration::from_secs(20);
    let hold =
        Hold { groups: vec![domain.path()], limit, priority: Priority::of(pids[0]).unwrap() };
    let held = hold.begin(domains.hierarchy(), &pids[..1], &watchdog).unwrap();
    assert_eq!((&held.held[..], &held.higher[..]), (&pids[..1], &[] as &[u32]));
    let before = domain.written();
    let deadline = Instant::now() + PATIENCE;
    while domain.written()[1] == before[1] {
        assert!(Instant::now() < deadline, "the others are not held");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(before[0], domain.written()[0], "the offender is held");
    // A pause beside it, and its end, change nothing for who is held.
    drop(domain.pauser(&watchdog, LONG).pause().unwrap());
    let before = domain.written();
    thread::sleep(Duration::from_millis(30));
    assert_eq!(before[0], domain.written()[0]);
    drop(held);
    domain.expect_running("after the hold");
    assert_eq!(domains.hierarchy().group_of(pids[0]), Some(domain.path()));

    // A member that its user prefers is left alone.
    let member = rustix::process::Pid::from_raw(pids[0].cast_signed());
    let nice = rustix::process::getpriority_process(member).unwrap() - 3;
    let (nice, member) = (nice.to_string(), pids[0].to_string());
    let status = Command::new("renice").args(["-n", &nice, "-p", &member]).output();
    if status.is_ok_and(|output| output.status.success()) {
        let held = hold.begin(domains.hierarchy(), &[], &watchdog).unwrap();
        assert!(held.higher.contains(&pids[0]) && !held.held.contains(&pids[0]));
        assert!(held.held.contains(&pids[1]));
    }
    domain.expect_running("after the second hold");
}

fn a_hold_ends_with_its_limit() {
    let (domain, watchdog) = (Domain::new("hold-limit"), watchdog());
    let domains = Domains::find().unwrap();
    let priority = Priority::of(std::process::id()).unwrap();
    let hold = Hold { groups: vec![domain.path()], limit: SHORT, priority };
    let held = hold.begin(domains.hierarchy(), &[], &watchdog).unwrap();
    assert!(held.held.len() >= domain.members.len());
    domain.expect_running("after the limit of the hold");
    drop(held);
    domain.expect_running("after the late end of the hold");
}
