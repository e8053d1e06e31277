//! Towards the processes of a domain a transaction is one point in time, whatever dies.
#![allow(clippy::unwrap_used)] // Reason: these are tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use txos_tests::domain::Domain;
use txos_tests::exec::{LIMIT, Outcome, Running};
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::txos::{Txos, native_only};
use txos_tests::who::Who;

/// A pause limit that no busy machine reaches, for tests whose subject is another.
const LONG: &str = "--pause-limit=50s";

/// A scratch directory and a domain; `None`, with a line that says why, if there can be none here.
fn set_up() -> Option<(Scratch, Domain)> {
    if let Some(why) = Who::Root.impossible() {
        println!("Skip: {why}");
        return None;
    }
    if native_only() {
        println!("Skip: nothing to compare natively");
        return None;
    }
    let scratch = Scratch::new();
    match Domain::new(&scratch) {
        Ok(domain) => Some((scratch, domain)),
        Err(why) => {
            println!("Skip: {why}");
            None
        }
    }
}

fn numbered(dir: &Path, count: u64) {
    fs::create_dir(dir).unwrap();
    for number in 0..count {
        fs::write(dir.join(number.to_string()), "0\n").unwrap();
    }
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn members_see_all_of_a_commit_or_nothing() {
    const FILES: u64 = 1000;
    let Some((scratch, mut domain)) = set_up() else { return };
    let dir = scratch.inside().join("d");
    numbered(&dir, FILES);
    let out = scratch.base().join("pairs");
    for _ in 0..2 {
        domain.start(&scratch, &["pairs", &text(&dir), &FILES.to_string(), &text(&out)]);
    }
    let commit = |generation: u64, options: &[&str]| {
        let script = format!("for f in d/*; do echo {generation} >$f; done");
        let ended = Txos::new(&scratch).sh(options, &script);
        ended.expect(0);
    };
    let halves = |out: &Path| {
        let text = fs::read_to_string(out).unwrap_or_default();
        let halves = text.lines().filter(|line| line.starts_with("half")).count();
        (halves, text.lines().count() - halves)
    };
    // What is asked here is what they see, not how long it takes on a busy machine.
    let options = ["--domain", &domain.name, "--nondurable", LONG];
    for generation in 1..=4 {
        commit(generation, &options);
    }
    let (seen, read) = halves(&out);
    assert!(read >= 2, "the members read meanwhile: {read}");
    assert_eq!(seen, 0, "{}", fs::read_to_string(&out).unwrap());
    // Without a pause they may see it half-way; how often is a matter of luck.
    for generation in 5..=6 {
        commit(generation, &["--nondurable"]);
    }
    println!("without a domain: {} pairs half-way", halves(&out).0);
    drop(domain);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn the_report_says_what_is_given_and_how_long_it_took() {
    let Some((scratch, mut domain)) = set_up() else { return };
    domain.start(&scratch, &["idle"]);
    let report = scratch.base().join("report");
    let options = ["--domain", &domain.name, LONG, "--json", &text(&report)];
    Txos::new(&scratch).sh(&options, "echo x >f").expect(0);
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    let isolation = report["isolation"].as_str().unwrap();
    assert!(isolation.contains(&domain.name), "{isolation}");
    let stood = report["seconds"]["pause"].as_f64().unwrap();
    assert!(stood > 0.0 && stood < 60.0, "{stood}");
    // A second one, for the histogram.
    let txos = Txos::new(&scratch);
    txos.sh(&["--domain", &domain.name, LONG], "echo y >f").expect(0);
    let stats = txos.call(["stats", "--json"]).expect(0).stdout.clone();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let pauses: u64 =
        stats["pauses"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(pauses, 2, "{stats}");
}

#[test]
fn a_limit_that_cannot_be_kept_is_named_and_nothing_changes() {
    let Some((scratch, mut domain)) = set_up() else { return };
    for _ in 0..20 {
        domain.start(&scratch, &["busy"]);
    }
    let options = ["--domain", &domain.name, "--pause-limit", "0.001ms"];
    let ended = Txos::new(&scratch).sh(&options, "echo x >f");
    ended.expect(125).says(&["--pause-limit"]);
    assert!(!scratch.inside().join("f").exists() && !domain.frozen());
    drop(domain);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_domain_that_is_not_there_or_vanishes_is_named_and_nothing_changes() {
    let Some((scratch, domain)) = set_up() else { return };
    let txos = Txos::new(&scratch);
    txos.sh(&["--domain", "not-there"], "echo x >f").expect(125).says(&["not-there"]);
    txos.sh(&["--domain", "a/b"], "echo x >f").expect(125).says(&["a/b"]);
    txos.call(["domain", "create", &domain.name]).expect(125).says(&["already"]);
    // Removed while the command runs: it is empty, so that can be.
    let live = text(&scratch.live());
    let gate = txos_tests::gate::Gate::new(scratch.live());
    let script = format!("{}echo x >f; reach there; await go", gate.functions());
    let running = txos.start_sh(&["--domain", &domain.name, "--live", &live], &script);
    gate.wait("there");
    txos.call(["domain", "remove", &domain.name]).expect(0);
    gate.open("go");
    running.end(LIMIT).expect(125).says(&[&domain.name]);
    assert!(!scratch.inside().join("f").exists());
    txos.call(["domain", "remove", &domain.name]).expect(125).says(&[&domain.name]);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_domain_with_processes_is_not_removed_and_they_can_leave() {
    let Some((scratch, mut domain)) = set_up() else { return };
    let pid = domain.start(&scratch, &["idle"]).to_string();
    let txos = Txos::new(&scratch);
    txos.call(["domain", "remove", &domain.name]).expect(125).says(&["1 process"]);
    txos.call(["domain", "remove", &domain.name, "4194304"]).expect(125);
    txos.call(["domain", "remove", &domain.name, &pid]).expect(0);
    txos.call(["domain", "remove", &domain.name]).expect(0);
    assert!(!domain.group.exists());
}

#[test]
fn txos_in_the_domain_leaves_it_and_its_terminal_must_not_be_in_it() {
    let Some((scratch, mut domain)) = set_up() else { return };
    domain.start(&scratch, &["idle"]);
    let txos = Txos::new(&scratch);
    let me = text(&txos.program());
    let exec = |words: &[&str]| {
        let mut all = vec!["domain", "exec", &domain.name, "--"];
        all.extend(words);
        txos.call(all)
    };
    exec(&[&me, "run", "--domain", &domain.name, LONG, "--", "sh", "-c", "echo x >f"]).expect(0);
    assert_eq!(fs::read_to_string(scratch.inside().join("f")).unwrap(), "x\n");
    // Without a domain of its own, a member's transaction is not paused by another one's either.
    let groups = exec(&[&me, "run", "--", "cat", "/proc/self/cgroup"]);
    assert!(groups.expect(0).stdout.lines().all(|line| !line.contains(&domain.name)), "{groups}");
    exec(&["false"]).expect(1);
    exec(&["/not/there"]).expect(127);

    if txos_tests::exec::find("script").is_none() {
        skip!("no script(1) to show a terminal");
    }
    let line = format!("'{me}' run --domain {} -- touch g", domain.name);
    let shown = exec(&["script", "-eqc", &line, "/dev/null"]);
    assert_ne!(shown.code(), 0, "{shown}");
    assert!(shown.stdout.contains("terminal"), "{shown}");
    assert!(!scratch.inside().join("g").exists());
}

/// A transaction of `sh` towards the domain, at its last command, and what lets it go on.
fn nearly_ready<'s>(scratch: &'s Scratch, domain: &Domain) -> (Running, Gate, Txos<'s>) {
    let txos = Txos::new(scratch);
    let live = text(&scratch.live());
    let gate = Gate::new(scratch.live());
    let script = format!("{}echo x >f; reach there; await go", gate.functions());
    let running = txos.start_sh(&["--domain", &domain.name, LONG, "--live", &live], &script);
    gate.wait("there");
    (running, gate, txos)
}

#[test]
fn txos_that_somebody_moves_into_the_domain_is_named_and_nothing_changes() {
    let Some((scratch, mut domain)) = set_up() else { return };
    domain.start(&scratch, &["idle"]);
    let (running, gate, txos) = nearly_ready(&scratch, &domain);
    let pid = running.pid().as_raw_nonzero().to_string();
    fs::write(domain.group.join("cgroup.procs"), &pid).unwrap();
    gate.open("go");
    running.end(LIMIT).expect(125).says(&[&domain.name, &pid, "is txos itself"]);
    assert!(!scratch.inside().join("f").exists() && !domain.frozen());
    // It has ended, and so nothing is in the way any more.
    txos.sh(&["--domain", &domain.name, LONG], "echo y >f").expect(0);
}

#[test]
fn a_domain_made_anew_meanwhile_is_the_one_that_is_paused() {
    let Some((scratch, mut domain)) = set_up() else { return };
    let (running, gate, txos) = nearly_ready(&scratch, &domain);
    txos.call(["domain", "remove", &domain.name]).expect(0);
    txos.call(["domain", "create", &domain.name]).expect(0);
    let file = scratch.inside().join("ticks");
    fs::write(&file, format!("{:020}\n", 0)).unwrap();
    domain.start(&scratch, &["tick", &text(&file), "1000"]);
    assert!(changes(&file));
    gate.open("go");
    running.end(LIMIT).expect(0);
    assert!(changes(&file), "the new one runs on");
    // The kernel moves no group of version 2 to another place: there is nothing else to mind.
    let elsewhere = domain.group.with_file_name("elsewhere");
    assert!(fs::rename(&domain.group, &elsewhere).is_err());
}

#[test]
fn members_that_come_and_go_during_commits_are_left_standing_nowhere() {
    const COMMITS: u32 = 12;
    let Some((scratch, mut domain)) = set_up() else { return };
    let file = scratch.inside().join("ticks");
    fs::write(&file, format!("{:020}\n", 0)).unwrap();
    let pid = domain.start(&scratch, &["tick", &text(&file), "1000"]).to_string();
    domain.start(&scratch, &["idle"]);
    // A group of the domain's own, that comes and goes, too, and one outside.
    let (below, beside) = (domain.group.join("below"), Domain::new(&scratch).unwrap());
    let ended = AtomicBool::new(false);
    let moves = std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut moves = 0_u32;
            let put = |group: &Path| fs::write(group.join("cgroup.procs"), &pid).is_ok();
            while !ended.load(Ordering::Relaxed) {
                let _ = fs::create_dir(&below);
                moves += [&below, &beside.group, &domain.group]
                    .map(|group| u32::from(put(group)))
                    .iter()
                    .sum::<u32>();
                let _ = fs::remove_dir(&below);
            }
            moves
        });
        let txos = Txos::new(&scratch);
        for number in 0..COMMITS {
            let out = txos.sh(
                &["--domain", &domain.name, LONG, "--nondurable"],
                &format!("echo {number} >f"),
            );
            let made = fs::read_to_string(scratch.inside().join("f")).unwrap_or_default();
            // Or it says why not, and has done nothing.
            let whole = made == format!("{number}\n");
            assert!(matches!((out.code(), whole), (0, true) | (125, false)), "{out}\n{made}");
            if out.code() != 0 {
                println!("{}", out.stderr);
            }
        }
        ended.store(true, Ordering::Relaxed);
        mover.join().unwrap()
    });
    println!("{moves} moves");
    assert!(changes(&file), "the member stands still");
    assert!(!domain.frozen() && !beside.frozen());
    let _ = fs::remove_dir(&below);
}

/// Whether somebody changes a file.
fn changes(file: &Path) -> bool {
    let before = fs::read(file).unwrap();
    waited(|| fs::read(file).unwrap() != before)
}

/// Whether something holds before long.
fn waited(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The watchdog of a txos: its child.
fn watchdog_of(txos: Pid) -> Option<Pid> {
    let txos = txos.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{txos}/task/{txos}/children")).ok()?;
    children.split_whitespace().find_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is = line.split(|b| *b == 0).any(|word| word == b"__watchdog");
        is.then(|| Pid::from_raw(pid.parse().ok()?))?
    })
}

#[test]
fn no_death_leaves_the_domain_standing_or_a_commit_half_done() {
    const FILES: u64 = 120;
    let Some((scratch, mut domain)) = set_up() else { return };
    let dir = scratch.inside().join("d");
    numbered(&dir, FILES);
    let ticked = scratch.base().join("ticked");
    fs::write(&ticked, "").unwrap();
    domain.start(&scratch, &["tick", &text(&ticked), "500"]);
    let runs = || changes(&ticked);
    assert!(runs());
    let (mut met, start) = (0, Instant::now());
    for round in 0u64.. {
        // Not each is killed in the pause: that lasts for milliseconds.
        if round >= 18 && met >= 6 {
            break;
        }
        assert!(start.elapsed() < 5 * LIMIT, "{met} of {round} were met in their pause");
        let txos = Txos::new(&scratch);
        let script = format!("for f in d/*; do echo {} >$f; done", round + 1);
        let mut running = txos.start_sh(&["--domain", &domain.name, LONG], &script);
        while !domain.frozen() && running.alive() {}
        let frozen = domain.frozen();
        met += u32::from(frozen);
        let watchdog = watchdog_of(running.pid());
        std::thread::sleep(Duration::from_micros(round % 18 * (round % 18) * 40));
        let kill = |pid: Option<Pid>| {
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        };
        match round % 3 {
            0 => kill(Some(running.pid())),
            1 => kill(watchdog),
            _ => [watchdog, Some(running.pid())].into_iter().for_each(kill),
        }
        assert!(runs(), "round {round}: the domain stands still");
        running.end(LIMIT);
        txos.call(["recover"]).expect(0);
        let generations: std::collections::BTreeSet<String> = (0..FILES)
            .map(|number| fs::read_to_string(dir.join(number.to_string())).unwrap())
            .collect();
        assert_eq!(generations.len(), 1, "round {round}: half a commit: {generations:?}");
        assert!(!domain.frozen(), "round {round}");
    }
    println!("{met} were met in their pause");
    drop(domain);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// A file that a member changes every millisecond, and a script that reads it twice.
fn contended(scratch: &Scratch, domain: &mut Domain) -> (u32, PathBuf, &'static str) {
    let file = scratch.inside().join("contended");
    fs::write(&file, "0").unwrap();
    let pid = domain.start(scratch, &["tick", &text(&file), "1000"]);
    (pid, file, "cat contended >seen; sleep 0.5; cat contended | cmp - seen")
}

#[test]
fn a_transaction_ends_against_a_member_that_always_changes_what_it_reads() {
    let Some((scratch, mut domain)) = set_up() else { return };
    let (pid, file, script) = contended(&scratch, &mut domain);
    let txos = Txos::new(&scratch);
    let never = ["--domain", &domain.name, LONG, "--hold-after", "0", "--retries", "4"];
    txos.sh(&never, script).expect(75).says(&["contended"]);
    assert!(!scratch.inside().join("seen").exists());

    for options in [&[][..], &["--no-early-doom"]] {
        let mut all = vec!["--domain", &domain.name, LONG, "--retries", "5"];
        all.extend(options);
        let ended = txos.sh(&all, script);
        ended.expect(0).says(&[&format!("{pid} (member)"), "held"]);
        let seen = fs::read_to_string(scratch.inside().join("seen")).unwrap();
        let now = fs::read_to_string(&file).unwrap();
        assert!(seen <= now, "{seen} {now}");
        fs::remove_file(scratch.inside().join("seen")).unwrap();
        // It runs again, and is where it was.
        assert!(changes(&file));
        let group = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(group.trim_end().ends_with(&format!("/{}", domain.name)), "{group}");
    }
    drop(domain);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_member_of_higher_priority_is_not_held() {
    let Some((scratch, mut domain)) = set_up() else { return };
    let (pid, _, script) = contended(&scratch, &mut domain);
    let member = rustix::process::Pid::from_raw(pid.cast_signed());
    let nice = rustix::process::getpriority_process(member).unwrap() - 5;
    let words = ["-n", &nice.to_string(), "-p", &pid.to_string()];
    let output = std::process::Command::new("renice").args(words).output();
    if !output.is_ok_and(|output| output.status.success()) {
        skip!("no process can be preferred here");
    }
    let options = ["--domain", &domain.name, LONG, "--retries", "4"];
    let lost = Txos::new(&scratch).sh(&options, script);
    lost.expect(75).says(&["higher", &format!("{pid} (member)")]);
    assert!(!scratch.inside().join("seen").exists());
}

#[test]
fn a_hold_ends_with_its_limit() {
    let Some((scratch, mut domain)) = set_up() else { return };
    let (_, file, _) = contended(&scratch, &mut domain);
    let slow = "cat contended >seen; sleep 3";
    let options = ["--domain", &domain.name, LONG, "--hold-after", "1", "--retries", "1"];
    let mut all = options.to_vec();
    all.extend(["--hold-limit", "200ms"]);
    let txos = Txos::new(&scratch);
    let running = txos.start_sh(&all, slow);
    let ended = running.end(LIMIT);
    ended.expect(75).says(&["held"]);
    assert!(changes(&file));
}

/// A transaction that has read `f` is doomed by `change`, which gets its process, long before its end;
/// what it says.
fn doomed_by(scratch: &Scratch, change: impl FnOnce(Pid)) -> Outcome {
    fs::write(scratch.inside().join("f"), "1").unwrap();
    let gate = Gate::new(scratch.live());
    let live = text(&scratch.live());
    let script = format!("{}cat f; reach read; sleep 600", gate.functions());
    let running = Txos::new(scratch).start_sh(&["--live", &live, "--no-retry"], &script);
    gate.wait("read");
    change(running.pid());
    let ended = running.end(LIMIT);
    ended.expect(75).says(&["/f"]);
    ended
}

/// Whether a txos has a whole file system marked (fanotify(7), `proc_pid_fdinfo(5)`), and has looked
/// back at what was changed before: by whom that was can't be said.
fn listens(pid: Pid) -> bool {
    let entries = |name: &str| {
        let dir = format!("/proc/{}/{name}", pid.as_raw_nonzero());
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    let holds =
        |path: PathBuf, text: &str| fs::read_to_string(path).is_ok_and(|s| s.contains(text));
    entries("fdinfo").any(|fd| holds(fd, "fanotify sdev:"))
        && !entries("task").any(|task| holds(task.join("comm"), "txos-back"))
}

#[test]
fn what_changed_before_anybody_listened_dooms_soon() {
    txos_tests::needs_root!();
    let scratch = Scratch::new();
    doomed_by(&scratch, |_| fs::write(scratch.inside().join("f"), "2").unwrap());
}

#[test]
fn who_changes_what_was_read_dooms_at_once_and_is_named() {
    txos_tests::needs_root!();
    let scratch = Scratch::new();
    let mut outsider = std::process::Command::new("sh");
    // It lives until its input ends: who has ended has no name any more.
    outsider.args(["-c", "echo 2 >f; read line"]).current_dir(scratch.inside());
    outsider.stdin(std::process::Stdio::piped());
    let mut member = None;
    let ended = doomed_by(&scratch, |txos| {
        assert!(waited(|| listens(txos)), "an attempt listens after its first 150 ms");
        member = Some(outsider.spawn().unwrap());
    });
    let mut member = member.unwrap();
    let pid = member.id();
    member.wait().unwrap();
    let by = format!("process {pid} (sh)");
    ended.says(&[&format!("by {by}")]);
    let txos = Txos::new(&scratch);
    let why = txos.call(["why", "1"]).expect(0).stdout.clone();
    assert!(why.ends_with(&format!("caused by {by}\n")), "{why}");
    // What nobody read dooms nobody, nor does what is read in the same directory.
    let script = "cat f >/dev/null; sleep 0.3; echo x >mine";
    let running = txos.start_sh(&["--no-retry"], script);
    for number in 0..50 {
        fs::write(scratch.inside().join(format!("other{number}")), "").unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    running.end(LIMIT).expect(0);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_user_without_a_subtree_of_his_own_is_told_so() {
    txos_tests::needs_root!();
    if let Some(why) = Who::User.impossible() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    scratch.give_to(Who::User);
    let txos = Txos::by(&scratch, Who::User);
    txos.call(["domain", "create", "mine"]).expect(125).says(&["delegated"]);
    txos.sh(&["--domain", "mine"], "echo >f").expect(125).says(&["delegated"]);
    txos.sh(&[], "echo >f").expect(0);
}
