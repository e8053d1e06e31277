//! Transactions of programs beside `txos run`: the contention manager decides between them, too.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use txos_tests::cprogram::compiled;
use txos_tests::domain::Domain;
use txos_tests::exec::{self, LIMIT, Running};
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, binary};
use txos_tests::{needs_root, skip};

fn world() -> (Scratch, Gate) {
    let scratch = Scratch::new();
    std::fs::write(scratch.inside().join("f"), "").expect("write");
    let gate = Gate::new(scratch.live());
    (scratch, gate)
}

/// The words that run `tests/c/contention.c`: without files that the test was started with, since a program
/// with several threads begins nothing as long as it has files open.
fn words(scratch: &Scratch, case: &str) -> [OsString; 6] {
    let program = compiled(scratch, "contention", false).into_os_string();
    let close = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec \"$@\"";
    let marks = scratch.live().into_os_string();
    ["-c".into(), close.into(), "sh".into(), program, case.into(), marks]
}

/// `tests/c/contention.c`, after its first access to `f`.
fn program(scratch: &Scratch, gate: &Gate, case: &str) -> Running {
    program_with(scratch, gate, case, &binary())
}

/// The same, with this program as its session.
fn program_with(scratch: &Scratch, gate: &Gate, case: &str, session: &Path) -> Running {
    let txos = Txos::new(scratch).env("TXOS_PROGRAM", session);
    let running = Running::start(txos.command(Path::new("sh"), words(scratch, case)), None);
    gate.wait("read");
    running
}

/// A transaction of `txos run` that has read `f`, and waits for leave to write it.
fn holder(scratch: &Scratch, gate: &Gate) -> Running {
    let live = scratch.live().display().to_string();
    let script = format!(
        "{}echo >>'{live}/attempts'; cat f >/dev/null; reach held; await leave; echo run >>f",
        gate.functions()
    );
    let running = Txos::new(scratch).start_sh(&["--live", live.as_str()], &script);
    gate.wait("held");
    running
}

fn attempts(gate: &Gate) -> usize {
    std::fs::read_to_string(gate.mark("attempts")).unwrap_or_default().lines().count()
}

fn content(scratch: &Scratch) -> String {
    std::fs::read_to_string(scratch.inside().join("f")).expect("read")
}

/// The line of `txos ps` that says this, as soon as there is one.
fn line_with(scratch: &Scratch, words: &[&str]) -> String {
    let start = Instant::now();
    loop {
        let out = Txos::new(scratch).call(["ps"]).expect(0).stdout.clone();
        if let Some(line) = out.lines().find(|line| words.iter().all(|word| line.contains(word))) {
            return line.to_owned();
        }
        assert!(start.elapsed() < LIMIT, "no line with {words:?}:\n{out}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn id_of(line: &str) -> String {
    line.split_whitespace().next().expect("an id").to_owned()
}

#[test]
fn a_run_waits_for_a_program_that_is_older() {
    needs_root!();
    let (scratch, gate) = world();
    let program = program(&scratch, &gate, "reads-and-writes");
    line_with(&scratch, &["running", "contention reads-and-writes"]);
    let younger = Txos::new(&scratch).start_sh(&[], "echo run >>f");
    line_with(&scratch, &["waiting", "echo run"]);
    assert_eq!(content(&scratch), "");
    gate.open("go");
    assert_eq!(program.end(LIMIT).expect(0).stdout, "1\n", "the older one was not disturbed");
    younger.end(LIMIT).expect(0);
    assert_eq!(content(&scratch), "program\nrun\n");
}

#[test]
fn a_program_loses_at_once_to_one_of_higher_priority() {
    needs_root!();
    let (scratch, gate) = world();
    let program = program(&scratch, &gate, "reads-and-writes");
    let running = ["running", "contention reads-and-writes"];
    let first = id_of(&line_with(&scratch, &running));
    Txos::new(&scratch).sh(&["--priority", "1"], "echo run >>f").expect(0);
    // It has lost, and knows it, long before its end.
    gate.wait("doomed");
    let stats = Txos::new(&scratch).call(["stats"]).expect(0).stdout.clone();
    assert!(stats.contains("1 of them to another transaction"), "{stats}");
    // Its next attempt knows why.
    let second = id_of(&line_with(&scratch, &running));
    assert_ne!(first, second);
    let told = |id: &str| {
        let why = Txos::new(&scratch).call(["why", id]).expect(0).stdout.clone();
        assert!(why.contains("/f: ") && why.contains("echo run >>f"), "{why}");
    };
    told(&second);
    told(&first);
    gate.open("go");
    assert_eq!(program.end(LIMIT).expect(0).stdout, "2\n");
    assert_eq!(content(&scratch), "run\nprogram\n");
    // And afterwards.
    told(&second);
    told(&first);
}

/// Its thread waits in its end for a child, and nobody asks whether it has lost.
#[test]
fn a_program_is_ended_at_once_by_what_an_outsider_changes() {
    needs_root!();
    let (scratch, gate) = world();
    let program = program(&scratch, &gate, "waits-for-child");
    let id = id_of(&line_with(&scratch, &["running", "contention waits-for-child"]));
    std::fs::write(scratch.inside().join("f"), "outside\n").expect("write");
    assert_eq!(program.end(LIMIT).expect(0).stdout, "2\n");
    let why = Txos::new(&scratch).call(["why", &id]).expect(0).stdout.clone();
    assert!(why.contains("/f: ") && why.contains("caused by "), "{why}");
    let stats = Txos::new(&scratch).call(["stats"]).expect(0).stdout.clone();
    assert!(stats.contains("with others"), "{stats}");
}

/// No descriptor is to be had when the session first listens to outsiders.
#[test]
fn listening_to_outsiders_is_tried_again() {
    needs_root!();
    if exec::find("strace").is_none() {
        skip!("no strace here");
    }
    let (scratch, gate) = world();
    let session = scratch.base().join("txos-without-a-listener");
    let trace = scratch.base().join("trace");
    let script = format!(
        "exec strace -f -qq -o '{}' -e trace=fanotify_init \
         -e inject=fanotify_init:error=EMFILE:when=1 '{}' \"$@\"",
        trace.display(),
        binary().display()
    );
    exec::write_script(&session, &script);
    let program = program_with(&scratch, &gate, "waits-for-child", &session);
    std::fs::write(scratch.inside().join("f"), "outside\n").expect("write");
    assert_eq!(program.end(LIMIT).expect(0).stdout, "2\n");
    let traced = std::fs::read_to_string(trace).expect("the trace");
    assert!(traced.contains("EMFILE") && traced.lines().count() > 1, "{traced}");
}

/// It makes no call by which it could learn of it.
#[test]
fn a_program_that_can_be_rolled_back_is_interrupted_when_it_has_lost() {
    needs_root!();
    let (scratch, gate) = world();
    let program = program(&scratch, &gate, "computes");
    Txos::new(&scratch).sh(&["--priority", "1"], "echo run >>f").expect(0);
    assert_eq!(program.end(LIMIT).expect(0).stdout, "2\n");
    assert_eq!(content(&scratch), "run\nprogram\n");
}

#[test]
fn a_program_that_is_ready_waits_for_an_older_run() {
    needs_root!();
    let (scratch, gate) = world();
    let older = holder(&scratch, &gate);
    let program = program(&scratch, &gate, "writes");
    line_with(&scratch, &["waiting", "contention writes"]);
    assert_eq!(content(&scratch), "");
    gate.open("leave");
    older.end(LIMIT).expect(0);
    program.end(LIMIT).expect(0);
    assert_eq!(attempts(&gate), 1, "the older one was not disturbed");
    assert_eq!(content(&scratch), "run\nprogram\n");
}

/// The program is a member; its session and the manager, for which it waits in the view, are not.
#[test]
fn a_domain_with_a_program_in_a_transaction_can_be_paused() {
    needs_root!();
    let (scratch, gate) = world();
    let domain = match Domain::new(&scratch) {
        Ok(domain) => domain,
        Err(why) => skip!("{why}"),
    };
    let txos = Txos::new(&scratch).env("TXOS_PROGRAM", binary());
    let start = ["domain", "exec", domain.name.as_str(), "--", "sh"].map(OsString::from);
    let all = start.into_iter().chain(words(&scratch, "reads-and-writes"));
    let running = Running::start(txos.command(&txos.program(), all), None);
    gate.wait("read");
    let members = std::fs::read_to_string(domain.group.join("cgroup.procs")).expect("members");
    let of_txos = |(pid, line): &(rustix::process::Pid, String)| {
        line.contains(" __") && members.lines().any(|m| m == pid.as_raw_nonzero().to_string())
    };
    assert_eq!(scratch.processes().into_iter().filter(of_txos).collect::<Vec<_>>(), []);
    assert!(!members.is_empty());
    let options = ["--domain", domain.name.as_str(), "--pause-limit=50s"];
    Txos::new(&scratch).sh(&options, "echo x >g").expect(0);
    gate.open("go");
    running.end(LIMIT).expect(0);
    assert_eq!(content(&scratch), "program\n");
}

#[test]
fn a_program_goes_on_when_the_manager_is_killed() {
    needs_root!();
    let (scratch, gate) = world();
    let program = program(&scratch, &gate, "reads-and-writes");
    let managers = scratch.processes().into_iter().filter(|(_, line)| line.contains("__manager"));
    let managers: Vec<_> = managers.map(|(pid, _)| pid).collect();
    assert_eq!(managers.len(), 1);
    rustix::process::kill_process(managers[0], rustix::process::Signal::KILL).unwrap();
    gate.open("go");
    program.end(LIMIT).expect(0);
    assert_eq!(content(&scratch), "program\n");
}
