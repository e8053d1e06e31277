//! The contention manager from outside: who wins, what is told, and what happens when it is gone.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use txos_tests::exec::{LIMIT, Running};
use txos_tests::gate::Gate;
use txos_tests::scratch::Scratch;
use txos_tests::stop::StopOnDrop;
use txos_tests::txos::{Txos, copy_for_users, for_both, for_one, helper};
use txos_tests::who::Who;
use txos_tests::{needs_root, skip};

/// A file `f` that transactions contend for.
struct Contest {
    scratch: Scratch,
    gate: Gate,
}

impl Contest {
    fn over(content: &str) -> Contest {
        let scratch = Scratch::new();
        std::fs::write(scratch.inside().join("f"), content).expect("f");
        let gate = Gate::new(scratch.live());
        Contest { scratch, gate }
    }

    fn txos(&self) -> Txos<'_> {
        Txos::new(&self.scratch)
    }

    /// A transaction that has read `f`, says so, and waits for leave to write it.
    fn holder(&self, options: &[&str]) -> Running {
        let live = self.scratch.live().display().to_string();
        let script = format!(
            "{}echo >>'{live}/attempts'; cat f >/dev/null; reach read; await go; echo holder >>f",
            self.gate.functions()
        );
        let mut all = vec!["--live", live.as_str()];
        all.extend(options);
        let running = self.txos().start_sh(&all, &script);
        self.gate.wait("read");
        running
    }

    /// `f` holds `content` now.
    #[track_caller]
    fn shows(&self, content: &str) {
        let shown = std::fs::read_to_string(self.scratch.inside().join("f")).expect("f");
        assert_eq!(shown, content);
    }

    /// Nothing is left of it.
    #[track_caller]
    fn leaves_nothing(self) {
        assert_eq!(self.scratch.leftovers(), Vec::<String>::new());
    }
}

fn attempts(gate: &Gate) -> usize {
    std::fs::read_to_string(gate.mark("attempts")).unwrap_or_default().lines().count()
}

/// A transaction that writes `f`, and its line of `txos ps` as soon as it waits for the one of
/// [`Contest::holder`].
fn younger(txos: &Txos<'_>) -> (Running, String) {
    let running = txos.start_sh(&[], "echo younger >>f");
    let start = Instant::now();
    loop {
        let out = txos.call(["ps"]).expect(0).stdout.clone();
        if let Some(line) = out.lines().find(|line| line.contains("waiting")) {
            return (running, line.to_owned());
        }
        assert!(start.elapsed() < LIMIT, "it does not wait:\n{out}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_older_wins_and_the_younger_waits_for_it() {
    needs_root!();
    let contest = Contest::over("");
    let older = contest.holder(&[]);
    let txos = contest.txos();
    let (younger, waiting) = younger(&txos);
    assert!(waiting.contains("younger"), "{waiting}");
    contest.gate.open("go");
    older.end(LIMIT).expect(0);
    younger.end(LIMIT).expect(0);
    assert_eq!(attempts(&contest.gate), 1, "the older one was not disturbed");
    contest.shows("holder\nyounger\n");
    let why = txos.call(["why", "2"]).expect(0).stdout.clone();
    assert!(why.contains("/f:") && why.contains("transaction 1 "), "{why}");
    assert!(txos.call(["why", "1"]).expect(0).stdout.contains("has not lost"));
    let stats = txos.call(["stats"]).expect(0).stdout.clone();
    assert!(stats.contains("committed  2") && stats.contains("between transactions"), "{stats}");
    contest.leaves_nothing();
}

#[test]
fn a_directorys_attributes_concern_nobody_who_walks_through_it() {
    needs_root!();
    let contest = Contest::over("");
    let d = contest.scratch.inside().join("d");
    std::fs::create_dir(&d).expect("d");
    std::fs::write(d.join("g"), "g").expect("d/g");
    let txos = contest.txos();
    let walk = format!("{}cat d/g; reach read; await go; echo >>f", contest.gate.functions());
    let live = contest.scratch.live().display().to_string();
    let walker = txos.start_sh(&["--no-retry", "--live", &live], &walk);
    contest.gate.wait("read");
    // It does not wait for the walker, and the walker does not lose to it.
    txos.call(["run", "-q", "--", "setfattr", "-n", "user.k", "-v", "v", "d"]).expect(0);
    // An access control list says who may walk through.
    let list = ["run", "-q", "--priority", "1", "--", "setfacl", "-m", "u:12345:rwx", "d"];
    txos.call(list).expect(0);
    contest.gate.open("go");
    walker.end(LIMIT).expect(75);
    let why = txos.call(["why", "1"]).expect(0).stdout.clone();
    assert!(why.contains("/d:") && why.contains("permissions"), "{why}");
    contest.leaves_nothing();
}

#[test]
fn the_more_urgent_wins_at_once() {
    needs_root!();
    for (options, policy, attempts_wanted) in
        [(&["--priority", "1"][..], "osprio", 2), (&["--priority", "1"][..], "timestamp", 1)]
    {
        let contest = Contest::over("");
        let txos = contest.txos();
        txos.call(["policy", policy]).expect(0);
        let older = contest.holder(&[]);
        let urgent = txos.start_sh(options, "echo urgent >>f");
        if attempts_wanted == 2 {
            // It does not wait for the end of one that has lost.
            urgent.end(LIMIT).expect(0);
            contest.gate.open("go");
        } else {
            contest.gate.open("go");
            urgent.end(LIMIT).expect(0);
        }
        older.end(LIMIT).expect(0);
        assert_eq!(attempts(&contest.gate), attempts_wanted, "{policy}");
        contest.leaves_nothing();
    }
}

#[test]
fn one_that_waits_for_a_decision_never_wins() {
    needs_root!();
    let contest = Contest::over("");
    let keeper = contest.holder(&["--keep", "--priority", "9"]);
    contest.txos().sh(&[], "echo other >>f").expect(0);
    contest.gate.open("go");
    keeper.end(LIMIT).expect(0);
    assert_eq!(attempts(&contest.gate), 2);
    let txos = contest.txos();
    txos.call(["commit", "1"]).expect(0);
    contest.shows("other\nholder\n");
    contest.leaves_nothing();
}

/// Natively each would get the other's lock once it is given back; here both are kept to the end.
#[test]
fn two_that_wait_for_each_others_file_locks_are_told_apart() {
    needs_root!();
    if txos_tests::exec::find("flock").is_none() {
        skip!("no flock(1)");
    }
    let scratch = Scratch::new();
    for name in ["one", "other"] {
        std::fs::write(scratch.inside().join(name), "").unwrap();
    }
    let gate = Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let txos = Txos::new(&scratch);
    let start = |first: &str, second: &str| {
        let script = format!(
            "{}exec 8<{first} 9<{second}; echo >>'{live}/attempts'; flock 8; reach {first}; \
             await {second}; flock 9; echo done >{first}.done",
            gate.functions()
        );
        txos.start_sh(&["--live", live.as_str()], &script)
    };
    let older = start("one", "other");
    gate.wait("one");
    let younger = start("other", "one");
    older.end(LIMIT).expect(0);
    younger.end(LIMIT).expect(0).says(&["lost to transaction 1 ", "/other: ", "is locked"]);
    assert_eq!(attempts(&gate), 3, "the older one went on");
    for name in ["one", "other"] {
        assert!(scratch.inside().join(format!("{name}.done")).exists());
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn policies() {
    for_both(|_, txos| {
        assert_eq!(txos.call(["policy"]).expect(0).stdout, "osprio\n");
        for policy in ["timestamp", "sizematters", "osprio"] {
            txos.call(["policy", policy]).expect(0);
            assert_eq!(txos.call(["policy"]).expect(0).stdout, format!("{policy}\n"));
            txos.sh(&[], "echo x >>f").expect(0);
        }
        txos.call(["policy", "fair"]).expect(125).says(&["fair", "osprio"]);
        assert_eq!(txos.call(["policy"]).expect(0).stdout, "osprio\n");
    });
}

/// Process ids of the manager of a scratch.
fn managers(scratch: &Scratch) -> Vec<rustix::process::Pid> {
    let all = scratch.processes().into_iter();
    all.filter(|(_, line)| line.contains("__manager")).map(|(pid, _)| pid).collect()
}

#[test]
fn when_the_manager_is_killed_what_runs_is_aborted() {
    needs_root!();
    let contest = Contest::over("old\n");
    let running = contest.holder(&[]);
    let managers = managers(&contest.scratch);
    assert_eq!(managers.len(), 1);
    rustix::process::kill_process(managers[0], rustix::process::Signal::KILL).unwrap();
    running.end(LIMIT).expect(125).says(&["contention manager", "again"]);
    contest.shows("old\n");
    // The next one starts another.
    contest.txos().sh(&[], "echo new >>f").expect(0);
    contest.shows("old\nnew\n");
    contest.leaves_nothing();
}

#[test]
fn a_transaction_that_is_killed_lets_the_others_go_on() {
    needs_root!();
    let contest = Contest::over("");
    let older = contest.holder(&[]);
    let txos = contest.txos();
    let (younger, _) = younger(&txos);
    drop(older);
    younger.end(LIMIT).expect(0);
    contest.shows("younger\n");
    contest.leaves_nothing();
}

/// Whether somebody takes connections of packets there.
fn listens(path: &Path) -> bool {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    SocketAddrUnix::new(path).is_ok_and(|address| connect(&socket, &address).is_ok())
}

/// Makes a state directory, and waits until the manager has ended.
fn without_manager(scratch: &Scratch, txos: &Txos<'_>) {
    txos.sh(&[], "echo x >f").expect(0);
    let start = Instant::now();
    while !managers(scratch).is_empty() {
        assert!(start.elapsed() < LIMIT, "the manager does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_socket_of_another_user_is_refused() {
    if let Some(why) = Who::User.impossible() {
        skip!("{why}");
    }
    for_one(Who::Root, |scratch, txos| {
        without_manager(scratch, &txos);
        let socket = scratch.live().join("socket");
        let program = copy_for_users(scratch, &helper("member"));
        let args = ["listen".into(), socket.clone().into_os_string()];
        let stranger = Txos::by(scratch, Who::User).command(&program, args);
        let stranger = Running::start(stranger, None);
        let start = Instant::now();
        // It is bound before it listens; who is too early is refused for another reason.
        while !listens(&socket) {
            assert!(start.elapsed() < LIMIT, "nobody listens");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::rename(&socket, scratch.state().join("manager")).unwrap();
        txos.sh(&[], "echo x >g").expect(125).says(&["manager", "another user's", "remove"]);
        txos.call(["ps"]).expect(125).says(&["another user's"]);
        assert!(!scratch.inside().join("g").exists());
        drop(stranger);
    });
}

#[test]
fn what_is_no_manager_is_told_and_never_waited_for_in_vain() {
    for_one(Who::Root, |scratch, txos| {
        without_manager(scratch, &txos);
        let socket = scratch.state().join("manager");
        std::fs::write(&socket, "no socket").unwrap();
        txos.sh(&[], "echo x >g").expect(125).says(&["manager", "remove"]);
        std::fs::remove_file(&socket).unwrap();
        // A socket that takes no packets of this kind.
        let _listener = UnixListener::bind(&socket).unwrap();
        txos.sh(&[], "echo x >g").expect(125).says(&["manager", "remove"]);
        std::fs::remove_file(&socket).unwrap();
        txos.sh(&[], "echo x >g").expect(0);
    });
}

#[test]
fn a_state_directory_removed_under_a_running_manager() {
    for_one(Who::Root, |scratch, txos| {
        txos.sh(&[], "echo x >f").expect(0);
        // The manager writes its counters into it just then.
        let start = Instant::now();
        while scratch.state().exists() {
            assert!(start.elapsed() < LIMIT, "it cannot be removed");
            let _ = std::fs::remove_dir_all(scratch.state());
        }
        txos.sh(&[], "echo y >f").expect(0);
        assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "y\n");
    });
}

#[test]
fn one_that_waits_for_a_file_lock_is_waited_for_by_nobody() {
    if txos_tests::exec::find("flock").is_none() {
        skip!("no flock(1)");
    }
    needs_root!();
    let scratch = Scratch::new();
    for name in ["f", "lock"] {
        std::fs::write(scratch.inside().join(name), "").unwrap();
    }
    let gate = Gate::new(scratch.live());
    let live = scratch.live().display().to_string();
    let txos = Txos::new(&scratch);
    // The older has read what the younger writes, and waits for a lock that the younger holds until
    // it has ended: by age alone each would wait for the other.
    let script = |text: &str| format!("{}{text}", gate.functions());
    let older = "cat f >/dev/null; reach read; await locked; flock lock true; echo older >>f";
    let older = txos.start_sh(&["--live", &live], &script(older));
    gate.wait("read");
    let younger = "flock lock true; reach locked; sleep 0.3; echo younger >>f";
    let younger = txos.start_sh(&["--live", &live], &script(younger));
    younger.end(LIMIT).expect(0);
    older.end(LIMIT).expect(0).says(&["lost to transaction 2"]);
    assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "younger\nolder\n");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn leases_keep_writers_off_what_is_read() {
    if Who::Root.impossible().is_some() {
        skip!("needs root, for a writer that is not slowed down by others");
    }
    for_both(|scratch, txos| {
        let file = scratch.inside().join("contended");
        std::fs::write(&file, "0").unwrap();
        let uid = std::fs::metadata(scratch.inside()).unwrap().uid();
        std::os::unix::fs::chown(&file, Some(uid), None).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| {
                let mut number = 0_u64;
                // In one step: who reads meanwhile reads a number.
                let mut options = OpenOptions::new();
                let open = options.write(true);
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let file = open.open(&file).unwrap();
                    file.write_all_at(format!("{number:020}").as_bytes(), 0).unwrap();
                    drop(file);
                    std::thread::sleep(Duration::from_millis(1));
                }
                number
            });
            let writing = StopOnDrop(&stop);
            let script = "cat contended >seen; sleep 0.1; cat contended | cmp - seen";
            let never = txos.sh(&["--hold-after", "0", "--retries", "4"], script);
            let leased = txos.sh(&["--retries", "20"], script);
            drop(writing);
            let written = writer.join().unwrap();
            never.expect(75).says(&["contended"]);
            leased.expect(0).says(&["writers wait", "contended"]);
            let seen: u64 =
                std::fs::read_to_string(scratch.inside().join("seen")).unwrap().parse().unwrap();
            assert!(0 < seen && seen <= written, "{seen} of {written}");
        });
    });
}

/// Whoever starts a manager has other threads, which start programs: with the manager's lock in one of
/// them, no other manager could be started for as long as it lives.
#[test]
fn what_the_manager_gets_no_other_program_inherits() {
    needs_root!();
    if txos_tests::exec::find("strace").is_none() {
        skip!("no strace here");
    }
    let scratch = Scratch::new();
    let trace = scratch.base().join("trace").display().to_string();
    // The manager's process has not come to its program yet when the command's process is made.
    let slow = ["-e", "inject=clone3:delay_enter=40000", "-e", "inject=execve:delay_enter=800000"];
    let words = ["strace", "-f", "-o", &trace, "-e", "trace=clone3,execve"].into_iter().chain(slow);
    let txos = Txos::new(&scratch).outer(words.map(Into::into).collect());
    let list = txos_tests::exec::find("ls").expect("ls");
    let out = txos
        .start([
            "exec".as_ref(),
            "--".as_ref(),
            list.as_os_str(),
            "-l".as_ref(),
            "/proc/self/fd".as_ref(),
        ])
        .end(LIMIT);
    if out.stderr.contains("ptrace") {
        skip!("nothing may be traced here: {out}");
    }
    let open = &out.expect(0).stdout;
    assert!(!open.contains("manager.lock") && !open.contains("socket:"), "{open}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
