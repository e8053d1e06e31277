//! Commits of the explicit API beside `txos run`: the contention manager decides between them, too.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use txos_api::{Options, System};
use txos_tests::exec::{LIMIT, Running};
use txos_tests::gate::Gate;
use txos_tests::needs_root;
use txos_tests::scratch::Scratch;
use txos_tests::txos::Txos;

/// The explicit API of this process, with the state directory of the scratch.
fn system(scratch: &Scratch) -> Arc<System> {
    let state = Some(scratch.state());
    System::open(Options { durable: false, state, ..Options::default() }).expect("a system")
}

/// A transaction of `txos run` that has read `f`, says so, and waits for leave to end.
fn reader(scratch: &Scratch, gate: &Gate, options: &[&str]) -> Running {
    let live = scratch.live().display().to_string();
    let script = format!(
        "{}echo >>'{live}/attempts'; cat f; reach \"read$(wc -l <'{live}/attempts')\"; await leave",
        gate.functions()
    );
    let options: Vec<&str> = ["--live", live.as_str()].iter().chain(options).copied().collect();
    let running = Txos::new(scratch).start_sh(&options, &script);
    gate.wait("read1");
    running
}

fn world() -> (Scratch, Gate) {
    let scratch = Scratch::new();
    std::fs::write(scratch.inside().join("f"), "old\n").expect("write");
    let gate = Gate::new(scratch.live());
    (scratch, gate)
}

fn attempts(gate: &Gate) -> usize {
    std::fs::read_to_string(gate.mark("attempts")).unwrap_or_default().lines().count()
}

/// Waits until `txos ps` says that of somebody.
fn until_listed(scratch: &Scratch, words: &[&str]) {
    let start = Instant::now();
    loop {
        let out = Txos::new(scratch).call(["ps"]).expect(0).stdout.clone();
        if out.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return;
        }
        assert!(start.elapsed() < LIMIT, "no line with {words:?}:\n{out}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_commit_waits_for_an_older_reader() {
    needs_root!();
    let (scratch, gate) = world();
    let system = system(&scratch);
    let older = reader(&scratch, &gate, &[]);
    let path = scratch.inside().join("f");
    let mine = path.clone();
    let commit = thread::spawn(move || system.transaction(|tx| tx.write(&mine, "new\n")));
    until_listed(&scratch, &["waiting", "explicit_contention"]);
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "old\n");
    gate.open("leave");
    assert_eq!(older.end(LIMIT).expect(0).stdout, "old\n");
    commit.join().expect("no panic").expect("committed");
    assert_eq!(attempts(&gate), 1, "the older one was not disturbed");
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "new\n");
}

#[test]
fn a_reader_of_lower_rank_loses_at_once() {
    needs_root!();
    let (scratch, gate) = world();
    let system = system(&scratch);
    let lower = reader(&scratch, &gate, &["--priority=-1", "--no-early-doom"]);
    let path = scratch.inside().join("f");
    system.transaction(|tx| tx.write(&path, "new\n")).expect("committed");
    // It runs again before its first attempt was ever asked to end.
    gate.wait("read2");
    gate.open("leave");
    assert_eq!(lower.end(LIMIT).expect(0).stdout, "new\n");
    let stats = Txos::new(&scratch).call(["stats"]).expect(0).stdout.clone();
    assert!(stats.contains("1 of them to another transaction"), "{stats}");
    let log = Txos::new(&scratch).call(["log"]).expect(0).stdout.clone();
    let id =
        log.lines().rfind(|line| line.contains("sh")).and_then(|l| l.split_whitespace().next());
    let why = Txos::new(&scratch).call(["why", id.expect("an id")]).expect(0).stdout.clone();
    assert!(why.contains("/f: ") && why.contains("explicit_contention"), "{why}");
}

#[test]
fn what_nobody_reads_is_waited_for_by_nobody() {
    needs_root!();
    let (scratch, gate) = world();
    let system = system(&scratch);
    let older = reader(&scratch, &gate, &[]);
    let other = scratch.inside().join("other");
    system.transaction(|tx| tx.write(&other, "new\n")).expect("committed");
    gate.open("leave");
    older.end(LIMIT).expect(0);
    assert_eq!(attempts(&gate), 1);
}

/// Nobody is left who could be asked, but the socket is there.
#[test]
fn a_manager_that_was_killed_is_not_waited_for() {
    needs_root!();
    let (scratch, gate) = world();
    let system = system(&scratch);
    let older = reader(&scratch, &gate, &[]);
    let managers = scratch.processes().into_iter().filter(|(_, line)| line.contains("__manager"));
    let managers: Vec<_> = managers.map(|(pid, _)| pid).collect();
    assert_eq!(managers.len(), 1);
    rustix::process::kill_process(managers[0], rustix::process::Signal::KILL).unwrap();
    let path = scratch.inside().join("f");
    system.transaction(|tx| tx.write(&path, "new\n")).expect("committed");
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "new\n");
    older.end(LIMIT);
}
