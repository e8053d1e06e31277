//! Sessions of programs that are killed at any moment.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use txos_tests::cprogram::compiled;
use txos_tests::exec::{LIMIT, Running};
use txos_tests::needs_root;
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, binary};

/// The session of the scratch's program, once it is there.
fn session(scratch: &Scratch) -> Option<Pid> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        let processes = scratch.processes().into_iter();
        let mut sessions = processes.filter(|(_, line)| line.contains(" __session"));
        if let Some((pid, _)) = sessions.next() {
            return Some(pid);
        }
    }
    None
}

/// The functions of the kernel in which threads of the process wait. None where they are not told (proc_pid_wchan(5)).
fn waits(pid: Pid) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let wait = |task: fs::DirEntry| fs::read_to_string(task.path().join("wchan")).ok();
    let waits = tasks.into_iter().flatten().flatten().filter_map(wait);
    waits.filter(|at| !at.is_empty() && at != "0").collect()
}

/// Where a thread waits for the answer to what it asked of a view's file system: the function itself, or one of those
/// into which a compiler may put it.
const ASKS: [&str; 4] =
    ["request_wait_answer", "__fuse_request_send", "__fuse_simple_request", "fuse_simple_request"];

/// A file of the scratch's tree, empty if it is not there.
fn content(scratch: &Scratch, name: &str) -> String {
    fs::read_to_string(scratch.inside().join(name)).unwrap_or_default()
}

#[test]
fn a_session_that_is_killed_ends_and_leaves_nothing_half_done() {
    const ROUNDS: u64 = 40;
    needs_root!();
    let scratch = Scratch::new();
    let program = compiled(&scratch, "kills", false);
    let words = ["-c", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; exec \"$0\""];
    let (mut aimed, mut told) = (0, false);
    for round in 0..ROUNDS {
        let txos = Txos::new(&scratch).env("TXOS_PROGRAM", binary());
        let words = words.iter().map(Path::new).chain([program.as_path()]);
        let running = Running::start(txos.command(Path::new("sh"), words), None);
        let session = session(&scratch).expect("a session");
        let handle = pidfd_open(session, PidfdFlags::empty()).expect("a handle of it");
        // At any moment, or as soon as it is seen to have asked itself for something, which is soon over each time.
        let aims = round % 2 == 0 && (told || round < 4);
        let longest = if aims { 500 } else { round * 13 % 61 };
        let until = Instant::now() + Duration::from_millis(longest);
        while Instant::now() < until {
            if !aims {
                continue;
            }
            let waits = waits(session);
            told |= !waits.is_empty();
            if waits.iter().any(|at| ASKS.contains(&at.as_str())) {
                aimed += 1;
                break;
            }
        }
        pidfd_send_signal(&handle, Signal::KILL).expect("kill it");
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit)).expect("poll");
        assert_eq!(ended, 1, "round {round}: the session {session:?} has not ended");
        running.end(LIMIT);
        let (one, other) = (content(&scratch, "one"), content(&scratch, "other"));
        assert_eq!(one, other, "round {round}");
    }
    assert_ne!(content(&scratch, "one"), "", "no transaction has ever committed");
    match told {
        true => assert!(aimed > 0, "in none of {ROUNDS} rounds was it seen to ask itself"),
        false => {
            println!("Killed at any moment only: the kernel does not tell what a thread waits for")
        }
    }
    println!("{aimed} times killed while it asked itself");
}
