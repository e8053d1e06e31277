//! Who takes connections while no descriptor is to be had: it rests, and lets in who waits afterwards.

use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use txos_tests::exec::LIMIT;
use txos_tests::gate::Gate;
use txos_tests::needs_root;
use txos_tests::scratch::Scratch;
use txos_tests::txos::Txos;

/// Every number is taken then: those below are open, as in most processes.
const NONE_LEFT: u64 = 3;

/// A process that gets no further descriptor until this is dropped.
struct Exhausted(Pid, Rlimit);

impl Exhausted {
    fn new(pid: Pid) -> Exhausted {
        for number in 0..NONE_LEFT {
            let path = format!("/proc/{}/fd/{number}", pid.as_raw_pid());
            assert!(std::fs::symlink_metadata(&path).is_ok(), "{path} is not open");
        }
        let now = rustix::process::getrlimit(Resource::Nofile);
        let less = Rlimit { current: Some(NONE_LEFT), maximum: now.maximum };
        Exhausted(pid, prlimit(Some(pid), Resource::Nofile, less).expect("prlimit"))
    }
}

impl Drop for Exhausted {
    fn drop(&mut self) {
        let _ = prlimit(Some(self.0), Resource::Nofile, self.1);
    }
}

/// The first thread of the process with this name.
fn thread(pid: Pid, name: &str) -> Option<String> {
    let tasks = format!("/proc/{}/task", pid.as_raw_pid());
    let mut tasks = std::fs::read_dir(tasks).expect("threads").flatten();
    tasks.find_map(|task| {
        let path = task.path().display().to_string();
        let comm = std::fs::read_to_string(format!("{path}/comm")).unwrap_or_default();
        (comm.trim_end() == name).then_some(path)
    })
}

/// How long the thread has had a processor.
fn processor_time(task: &str) -> Duration {
    let text = std::fs::read_to_string(format!("{task}/schedstat")).expect("schedstat");
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    Duration::from_nanos(first.expect("a number"))
}

/// The thread hardly runs, though something waits for it.
#[track_caller]
fn rests(task: &str) {
    let (begun, before) = (Instant::now(), processor_time(task));
    std::thread::sleep(Duration::from_secs(1));
    let (took, ran) = (begun.elapsed(), processor_time(task) - before);
    assert!(ran < took / 10, "{task} ran {ran:?} of {took:?}");
}

#[test]
fn the_contention_manager_rests() {
    needs_root!();
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.live());
    let txos = Txos::new(&scratch);
    let live = scratch.live().display().to_string();
    let script = format!("{}reach in; await go", gate.functions());
    let running = txos.start_sh(&["--live", &live], &script);
    gate.wait("in");
    let processes = scratch.processes();
    let (manager, _) =
        processes.iter().find(|(_, line)| line.contains(" __manager ")).expect("one");
    let task = format!("/proc/{0}/task/{0}", manager.as_raw_pid());

    let exhausted = Exhausted::new(*manager);
    let asks = txos.start(["policy"]);
    rests(&task);
    drop(exhausted);
    asks.end(LIMIT).expect(0);
    gate.open("go");
    running.end(LIMIT).expect(0);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_session_rests() {
    needs_root!();
    let scratch = Scratch::new();
    let gate = Gate::new(scratch.live());
    let txos = Txos::new(&scratch);
    let name = gate.mark("name").display().to_string();
    let script = format!("{}echo $TXOS_SESSION >'{name}'; reach in; await go", gate.functions());
    let running = txos.start(["exec", "--", "sh", "-c", &script]);
    gate.wait("in");
    let name = std::fs::read_to_string(name).expect("the session's name");
    let session = running.pid();
    let task = thread(session, "txos-accept").expect("a thread that takes connections");

    let exhausted = Exhausted::new(session);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let socket = socket.expect("socket");
    let address = SocketAddrUnix::new_abstract_name(name.trim_end().as_bytes()).expect("address");
    connect(&socket, &address).expect("connect");
    rests(&task);
    assert_eq!(thread(session, "txos-connection"), None);
    drop(exhausted);
    let begun = Instant::now();
    while thread(session, "txos-connection").is_none() {
        assert!(begun.elapsed() < LIMIT, "the connection is not served");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(socket);
    gate.open("go");
    running.end(LIMIT).expect(0);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
