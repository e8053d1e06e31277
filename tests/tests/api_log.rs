//! What `txos log` and `txos show` tell of the transactions of programs.

use std::path::Path;
use std::time::{Duration, Instant};

use txos_tests::cprogram::{self, compiled};
use txos_tests::exec::{self, LIMIT, Running};
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, binary};
use txos_tests::{needs_root, skip};

/// The lines of `txos log`.
fn log(scratch: &Scratch) -> Vec<String> {
    let out = Txos::new(scratch).call(["log"]).expect(0).stdout.clone();
    out.lines().map(str::to_owned).collect()
}

#[test]
fn durable_changes_stand_in_the_log() {
    needs_root!();
    let scratch = Scratch::new();
    let program = compiled(&scratch, "log", false);
    for case in ["empty", "not-durable"] {
        cprogram::run(&scratch, &program, [case]).expect(0);
    }
    assert_eq!(log(&scratch), [""; 0]);
    cprogram::run(&scratch, &program, ["durable"]).expect(0);
    let lines = log(&scratch);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("committed") && line.contains("log durable"), "{line}");
    let id = line.split_whitespace().next().expect("an id").to_owned();
    let why = Txos::new(&scratch).call(["why", &id]).expect(0).stdout.clone();
    assert!(why.contains(&id), "{why}");
}

/// A view that serves again would be told of under the id of an attempt that lost in it.
#[test]
fn no_later_transaction_has_the_id_of_an_attempt_that_lost() {
    needs_root!();
    let scratch = Scratch::new();
    let program = compiled(&scratch, "log", false);
    let ids = cprogram::run(&scratch, &program, ["ids"]).expect(0).stdout.clone();
    assert_eq!(ids.lines().count(), 2);
    for id in ids.lines() {
        let why = Txos::new(&scratch).call(["why", id]).expect(0).stdout.clone();
        assert!(why.contains("/file: ") && why.contains("caused by "), "{id}: {why}");
    }
}

/// Somebody outside is faster between the validation and the apply: the session is stopped there.
#[test]
fn what_a_commit_displaced_stands_in_the_log() {
    needs_root!();
    if exec::find("strace").is_none() {
        skip!("no strace here");
    }
    let scratch = Scratch::new();
    let program = compiled(&scratch, "log", false);
    let wrapper = scratch.base().join("txos-with-delays");
    let (inside, txos) = (scratch.inside(), binary());
    let trace = scratch.base().join("trace");
    let script = format!(
        "exec strace -f -qq -o '{}' -P '{}' -e trace=renameat2 \
         -e inject=renameat2:delay_enter=20000000 '{}' \"$@\"",
        trace.display(),
        inside.display(),
        txos.display()
    );
    exec::write_script(&wrapper, &script);
    let command = Txos::new(&scratch).env("TXOS_PROGRAM", wrapper);
    // Not durable: it stands there because there is something to say.
    let running = Running::start(command.command(&program, ["not-durable"]), None);
    let start = Instant::now();
    while !scratch.processes().iter().any(|(pid, _)| renames(pid.as_raw_nonzero().get())) {
        assert!(start.elapsed() < LIMIT, "the session does not get there");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(inside.join("new"), "theirs").expect("write");
    running.end(LIMIT).expect(0);
    assert_eq!(std::fs::read_to_string(inside.join("new")).expect("read"), "theirs");
    let lines = log(&scratch);
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("committed") && line.contains("log not-durable"), "{line}");
    let json = Txos::new(&scratch).call(["log", "--json"]).expect(0).stdout.clone();
    assert!(json.contains("/new") && json.contains("conflicts"), "{json}");
}

/// Whether a thread of a process is stopped where it puts something new in place (renameat2(2)).
fn renames(pid: i32) -> bool {
    let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
    let number = format!("{} ", number_of_renameat2());
    tasks.into_iter().flatten().flatten().any(|task| {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stopped = read("stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('t'));
        let call = read("syscall");
        // With `RENAME_NOREPLACE`: where something new is put in place, and nowhere else.
        stopped && call.starts_with(&number) && call.split(' ').nth(5) == Some("0x1")
    })
}

/// Of renameat2(2).
fn number_of_renameat2() -> u32 {
    if cfg!(target_arch = "x86_64") { 316 } else { 276 }
}
