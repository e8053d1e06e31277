//! Signals to `txos` at every stage, and its sudden death.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use txos_tests::exec::{LIMIT, Running};
use txos_tests::gate::Gate;
use txos_tests::random::Random;
use txos_tests::scratch::Scratch;
use txos_tests::tree::Tree;
use txos_tests::txos::{Txos, for_both, for_one};
use txos_tests::who::Who;

const SIGNALS: [(Signal, i32); 3] = [(Signal::INT, 2), (Signal::TERM, 15), (Signal::HUP, 1)];

/// Files that the transactions of this file write: all of them or none may be seen afterwards.
const FILES: usize = 300;

fn setup(txos: &Txos<'_>) {
    let script = format!(
        "mkdir d e; for i in $(seq {FILES}); do echo old-$i >d/$i; done; echo keep >e/keep; \
         [ $(id -u) != 0 ] || ln d/1 e/link"
    );
    txos_tests::exec::run(txos.command(Path::new("sh"), ["-ec", &script])).expect(0);
}

/// Changes every file, makes and removes others.
fn work() -> String {
    format!(
        "for i in $(seq {FILES}); do echo new-$i >d/$i; echo n >e/$i; done; mv d/2 d/two; rm d/3"
    )
}

/// Which of the two states the tree is in.
///
/// # Panics
/// If it is in neither.
#[track_caller]
fn committed(scratch: &Scratch, context: &str) -> bool {
    let read =
        |name: String| std::fs::read_to_string(scratch.inside().join(name)).unwrap_or_default();
    let old = (1..=FILES).filter(|i| read(format!("d/{i}")) == format!("old-{i}\n")).count();
    let new = (1..=FILES).filter(|i| read(format!("d/{i}")) == format!("new-{i}\n")).count();
    let made = (1..=FILES).filter(|i| read(format!("e/{i}")) == "n\n").count();
    let two = read("d/two".into()) == "new-2\n";
    assert_eq!(read("e/keep".into()), "keep\n");
    if scratch.inside().join("e/link").exists() {
        assert_eq!(read("e/link".into()), read("d/1".into()), "{context}: the link broke");
    }
    match (old, new, made, two) {
        (FILES, 0, 0, false) => false,
        (0, n, FILES, true) if n == FILES - 2 => true,
        other => panic!("{context}: neither all nor nothing: {other:?}"),
    }
}

#[test]
fn a_signal_while_the_command_runs_aborts() {
    for_both(|scratch, txos| {
        setup(&txos);
        let before = Tree::of(&scratch.inside()).unwrap();
        let live = scratch.live().display().to_string();
        for (signal, number) in SIGNALS {
            let gate = Gate::new(scratch.live());
            let name = format!("running{number}");
            let script = format!("{}echo x >>d/1; reach {name}; sleep 100", gate.functions());
            let running = txos.start_sh(&["--live", &live], &script);
            gate.wait(&name);
            running.signal(signal);
            running.end(LIMIT).expect(128 + number);
            let after = Tree::of(&scratch.inside()).unwrap();
            assert_eq!(before.changes(&after), Vec::<String>::new(), "signal {number}");
            assert_eq!(scratch.leftovers(), Vec::<String>::new(), "signal {number}");
        }
    });
}

#[test]
fn a_command_that_ignores_the_signal_does_not_survive_it() {
    for_one(Who::Root, |scratch, txos| {
        let live = scratch.live().display().to_string();
        let gate = Gate::new(scratch.live());
        let script = format!(
            "{}trap '' TERM HUP INT; (setsid sleep 1000 &); reach running; while :; do sleep 1; done",
            gate.functions()
        );
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("running");
        running.signal(Signal::TERM);
        running.end(Duration::from_secs(45)).expect(128 + 15);
    });
}

#[test]
fn a_signal_at_a_random_moment_commits_all_or_nothing() {
    for_both(|scratch, txos| {
        setup(&txos);
        let full = {
            let started = std::time::Instant::now();
            txos.sh(&["--dry-run"], &work()).expect(0);
            started.elapsed()
        };
        let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
        println!("seed {seed}");
        let mut random = Random::new(seed);
        for round in 0..9 {
            let (signal, number) = SIGNALS[round % SIGNALS.len()];
            // From the very start to a while after the end of a usual run.
            let delay = full.mul_f64(random.below(1000) as f64 / 770.0);
            let running = txos.start_sh(&[], &work());
            std::thread::sleep(delay);
            running.signal(signal);
            let out = running.end(LIMIT);
            let context =
                format!("seed {seed} round {round} signal {number} after {delay:?}: {out}");
            let done = committed(scratch, &context);
            match out.code() {
                0 => assert!(done, "{context}"),
                code => assert!(code == 128 + number && !done, "{context}"),
            }
            assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{context}");
            if done {
                reset(&txos);
            }
        }
    });
}

#[test]
fn a_killed_manager_takes_the_command_with_it_and_recovery_cleans() {
    for_both(|scratch, txos| {
        setup(&txos);
        let live = scratch.live().display().to_string();
        // Whatever is started next recovers.
        for verb in ["recover", "ps", "log", "stats", "policy"] {
            killed(scratch, &txos, &live, verb);
            txos.call([verb]).expect(0);
            assert_eq!(txos.call(["recover"]).expect(0).stdout, "nothing to recover\n", "{verb}");
            assert!(!committed(scratch, "killed"));
        }
        // The next one works.
        txos.sh(&[], "echo x >after").expect(0);
        assert!(scratch.inside().join("after").exists());
    });
}

/// Kills a transaction that has begun to work, and waits until all of it is gone.
fn killed(scratch: &Scratch, txos: &Txos<'_>, live: &str, mark: &str) {
    let gate = Gate::new(scratch.live());
    let script = format!(
        "{}echo x >>d/1; (setsid sleep 1000 >/dev/null 2>&1 &); reach {mark}; sleep 1000",
        gate.functions()
    );
    let running = txos.start_sh(&["--live", live], &script);
    gate.wait(mark);
    running.signal(Signal::KILL);
    running.end(LIMIT);
    let patience = std::time::Instant::now() + LIMIT;
    while !scratch.processes().is_empty() && std::time::Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(scratch.processes(), [], "the command outlived its manager");
}

#[test]
fn a_manager_killed_at_a_random_moment_leaves_all_or_nothing() {
    for_both(|scratch, txos| {
        setup(&txos);
        let started = std::time::Instant::now();
        txos.sh(&[], &work()).expect(0);
        let full = started.elapsed();
        reset(&txos);
        let seed = std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64);
        println!("seed {seed}, a whole run takes {full:?}");
        let mut random = Random::new(seed);
        for round in 0..12 {
            // Half of them late, where the commit is.
            let part = if round % 2 == 0 { random.below(1000) } else { 800 + random.below(250) };
            let delay = full.mul_f64(part as f64 / 1000.0);
            let running = txos.start_sh(&[], &work());
            std::thread::sleep(delay);
            running.signal(Signal::KILL);
            let out = running.end(LIMIT);
            let recovered = txos.call(["recover"]);
            let context =
                format!("seed {seed} round {round} killed after {delay:?}: {out}\n{recovered}");
            assert_eq!(recovered.code(), 0, "{context}");
            let done = committed(scratch, &context);
            assert!(done || out.code() != 0, "{context}");
            assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{context}");
            if done {
                reset(&txos);
            }
        }
    });
}

/// Puts the tree back as [`setup`] made it.
fn reset(txos: &Txos<'_>) {
    txos_tests::exec::run(txos.command(Path::new("sh"), ["-ec", "rm -rf d e"])).expect(0);
    setup(txos);
}

/// The words before a command by which its caller's signal state differs from the usual one.
const STATES: [&[&str]; 4] = [
    &["env"],
    &["env", "--ignore-signal=PIPE,INT,QUIT,USR2"],
    &["env", "--block-signal=USR1,TERM"],
    &["env", "--ignore-signal=CHLD,HUP", "--block-signal=CHLD,PIPE"],
];

#[test]
fn the_command_inherits_the_signal_state_of_its_caller() {
    for_both(|scratch, txos| {
        let own = rustix::process::getuid().as_raw();
        for state in STATES {
            // With a user id to set, std forks; else it uses posix_spawn(3), which ignores two more.
            for forked in [false, true] {
                let show = ["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"];
                let run = |words: &[&OsStr]| {
                    let mut command = txos.command(Path::new(state[0]), &state[1..]);
                    command.args(words).args(show);
                    if forked {
                        command.uid(own);
                    }
                    Running::start(command, None).end(LIMIT)
                };
                let native = run(&[]);
                let program = txos.program();
                let inside = run(&[program.as_os_str(), "run".as_ref(), "--".as_ref()]);
                native.expect(0);
                inside.expect(0);
                assert_eq!(inside.stdout, native.stdout, "{state:?}, forked: {forked}\n{inside}");
            }
        }
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    });
}

#[test]
fn a_signal_that_the_caller_ignores_does_not_end_a_transaction() {
    for_both(|scratch, txos| {
        let live = scratch.live().display().to_string();
        let gate = Gate::new(scratch.live());
        let script = format!("{}reach running; await on; echo x >f", gate.functions());
        let program = txos.program();
        let ignore = OsStr::new("--ignore-signal=INT,TERM,QUIT");
        let words = [ignore, program.as_os_str()];
        let run = ["run", "-q", "--live", &live, "sh", "-c", &script].map(OsStr::new);
        let command = txos.command(Path::new("env"), words.into_iter().chain(run));
        let running = Running::start(command, None);
        gate.wait("running");
        for signal in [Signal::INT, Signal::TERM, Signal::QUIT] {
            running.signal(signal);
        }
        gate.open("on");
        running.end(LIMIT).expect(0);
        assert!(scratch.inside().join("f").exists());
    });
}
