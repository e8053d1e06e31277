//! What the table of effects says of several calls, tried with each of them (`src/ways.rs`). The names of
//! these tests stand in `src/witnesses.rs`.

use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use txos_effects::filter::Arch;
use txos_tests::exec::{self, Outcome, Running};
use txos_tests::gate::Gate;
use txos_tests::report::Report;
use txos_tests::scratch::Scratch;
use txos_tests::txos::{Txos, copy_for_users, for_both, for_one, helper};
use txos_tests::who::Who;
use txos_tests::{needs_root, skip};

/// The words that do something by each of these calls, as far as this machine has them.
fn by(scratch: &Scratch, calls: &[&str], act: &str) -> String {
    let probe = copy_for_users(scratch, &helper("probe"));
    let here = |call: &&&str| Arch::HOST.number(call).is_some();
    let calls: Vec<&str> = calls.iter().filter(here).copied().collect();
    format!("'{}' by {} {act}", probe.display(), calls.join(","))
}

/// What each call answered, in their order.
fn answers(out: &Outcome) -> Vec<(String, String)> {
    let words = out.stderr.lines().filter_map(|line| line.trim_end().split_once(' '));
    let is_answer = |word: &str| word == "done" || word.starts_with('E');
    words.filter(|(_, said)| is_answer(said)).map(|(c, a)| (c.to_owned(), a.to_owned())).collect()
}

/// Requires the same answer of each of `count` calls.
#[track_caller]
fn all_answer(out: &Outcome, calls: &[&str], answer: &str) {
    let answers = answers(out);
    let here = calls.iter().filter(|call| Arch::HOST.number(call).is_some()).count();
    assert_eq!(answers.len(), here, "{out}");
    assert!(answers.iter().all(|(_, said)| said == answer), "{answer}: {out}");
}

const OPEN: [&str; 4] = ["open", "openat", "openat2", "creat"];
const OPEN_FLAGS: [&str; 3] = ["open", "openat", "openat2"];
const WRITE: [&str; 7] = ["write", "writev", "pwritev2", "sendfile", "splice", "tee", "vmsplice"];
const WRITE_AT: [&str; 2] = ["pwrite64", "pwritev"];
const SEND: [&str; 3] = ["sendto", "sendmsg", "sendmmsg"];
const PEER: [&str; 4] = ["connect", "sendto", "sendmsg", "sendmmsg"];

#[test]
fn synchronous_files() {
    for_both(|scratch, txos| {
        let files = by(scratch, &OPEN_FLAGS, "open by-CALL sync,create text");
        let made = || std::fs::read_dir(scratch.inside()).unwrap().count();
        all_answer(txos.sh(&[], &format!("{files}; exit 3")).expect(3), &OPEN_FLAGS, "done");
        assert_eq!(made(), 0, "an abort leaves nothing");
        all_answer(txos.sh(&[], &files).expect(0), &OPEN_FLAGS, "done");
        assert_eq!(std::fs::read_to_string(scratch.inside().join("by-openat")).unwrap(), "text");
    });
}

/// A node of `/dev/kmsg`, whose opening alone does nothing.
fn node(scratch: &Scratch) -> bool {
    let node = scratch.inside().join("node");
    let device = rustix::fs::makedev(1, 11);
    let made = mknodat(CWD, &node, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device);
    let open = |_| rustix::fs::open(&node, OFlags::WRONLY, Mode::empty());
    made.and_then(open).is_ok()
        && std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o666)).is_ok()
}

#[test]
fn devices() {
    needs_root!();
    for_both(|scratch, txos| {
        if !node(scratch) {
            skip!("device nodes can't be opened here");
        }
        let path = scratch.inside().join("node").display().to_string();
        let open = by(scratch, &OPEN, &format!("open '{path}' plain ''"));
        let out = txos.sh(&[], &open);
        let found = answers(out.expect(0));
        assert_eq!(found.len(), OPEN.len(), "{out}");
        assert!(
            found.iter().all(|(_, said)| ["EPERM", "EACCES"].contains(&said.as_str())),
            "{out}"
        );
        let json = scratch.base().join("report.json");
        let options = ["--allow", &path, "--json", json.to_str().unwrap()];
        all_answer(txos.sh(&options, &open).expect(0), &OPEN, "done");
        assert!(Report::read(&json).mentions("", &path), "what is let through is reported");
    });
}

#[test]
fn devices_are_asked_nothing() {
    needs_root!();
    for_one(Who::Root, |scratch, txos| {
        if !node(scratch) {
            skip!("device nodes can't be opened here");
        }
        // By a descriptor of the node itself, since there is no other.
        let out = txos.sh(&[], &by(scratch, &["ioctl"], "ask node"));
        all_answer(out.expect(0), &["ioctl"], "EBADF");
    });
}

#[test]
fn settings() {
    for_one(Who::Root, |scratch, txos| {
        let open = by(scratch, &OPEN, "open /proc/sys/kernel/hostname plain ''");
        all_answer(txos.sh(&[], &open).expect(0), &OPEN, "EROFS");
    });
}

#[test]
fn fifos_of_outsiders() {
    for_both(|scratch, txos| {
        let fifo = scratch.inside().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        give(scratch, &fifo);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let reader = rustix::fs::open(&fifo, flags, Mode::empty()).unwrap();
        // Natively the opens succeed, for the reader is there: inside nobody is.
        let out = txos.sh(&[], &by(scratch, &OPEN_FLAGS, "open fifo nonblock x"));
        all_answer(out.expect(0), &OPEN_FLAGS, "ENXIO");
        if Arch::HOST.number("creat").is_some() {
            let out = txos
                .sh(&[], &format!("timeout 1 {}", by(scratch, &["creat"], "open fifo plain x")));
            out.expect(124);
        }
        assert_eq!(rustix::io::read(&reader, &mut [0; 4]), Ok(0), "something came out");
        let path = fifo.display().to_string();
        let out = txos.sh(&["--allow", &path], &by(scratch, &OPEN, "open fifo plain x"));
        all_answer(out.expect(0), &OPEN, "done");
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Ok(4));
    });
}

#[test]
fn live_files() {
    for_both(|scratch, txos| {
        let live = scratch.live().display().to_string();
        let open = by(scratch, &OPEN, &format!("open '{live}/CALL' create text"));
        let json = scratch.base().join("report.json");
        let options = ["--live", &live, "--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &format!("{open}; exit 3"));
        all_answer(out.expect(3), &OPEN, "done");
        for file in std::fs::read_dir(scratch.live()).unwrap().flatten() {
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "text");
        }
        assert_eq!(std::fs::read_dir(scratch.live()).unwrap().count(), answers(&out).len());
        assert!(Report::read(&json).mentions("live", &live));
    });
}

#[test]
fn directories_of_users() {
    for_one(Who::User, |scratch, txos| {
        // The user's own, with something in it, made before.
        let make = "mkdir -p old && echo x >old/f";
        exec::run(txos.command("sh".as_ref(), ["-c", make])).expect(0);
        let calls = ["rename", "renameat", "renameat2"];
        let out = txos.sh(&[], &by(scratch, &calls, "rename old new"));
        all_answer(out.expect(0), &calls, "EXDEV");
        txos.sh(&[], "mv old new").expect(0);
        assert_eq!(std::fs::read_to_string(scratch.inside().join("new/f")).unwrap(), "x\n");
    });
}

#[test]
fn names_of_one_file() {
    for_one(Who::User, |scratch, txos| {
        let calls = ["rename", "renameat", "renameat2"];
        let again = by(scratch, &calls, "rename other one");
        let script = format!("echo x >one; ln one other; {again}; ls");
        let native = exec::run(txos.command("sh".as_ref(), ["-c", &script]));
        assert!(native.expect(0).stdout.ends_with("one\nother\n"), "{native}");
        std::fs::remove_file(scratch.inside().join("other")).unwrap();
        let out = txos.sh(&[], &format!("ln one other; {again}"));
        all_answer(out.expect(0), &calls, "ESTALE");
        let same = |name| std::fs::read_to_string(scratch.inside().join(name)).unwrap() == "x\n";
        assert!(same("one") && same("other"));
    });
}

#[test]
fn whiteouts() {
    for_one(Who::Root, |scratch, txos| {
        let out = txos.sh(&[], &by(scratch, &["mknod", "mknodat"], "mknod CALL"));
        all_answer(out.expect(0), &["mknod", "mknodat"], "EPERM");
        assert_eq!(std::fs::read_dir(scratch.inside()).unwrap().count(), 0);
    });
}

#[test]
fn flags_of_a_file_that_was_only_read() {
    for_one(Who::Root, |scratch, txos| {
        std::fs::write(scratch.inside().join("old"), "text").unwrap();
        let set = by(scratch, &["file_setattr"], "setattr old");
        let native = exec::run(txos.command("sh".as_ref(), ["-c", &set]));
        if answers(native.expect(0)) != [("file_setattr".to_owned(), "done".to_owned())] {
            skip!("no file_setattr(2) here: {}", native.stderr.trim());
        }
        let out = txos.sh(&[], &format!("cat old; {set}"));
        let found = answers(out.expect(0));
        assert!(["ENOTTY", "EOPNOTSUPP"].contains(&found[0].1.as_str()), "{out}");
    });
}

/// Opens a file to everybody and gives it to whom the test is for.
fn give(scratch: &Scratch, file: &Path) {
    let uid = std::fs::metadata(scratch.inside()).expect("the scratch").uid();
    let everybody = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(file, everybody).expect("a file of this test's");
    chown(file, Some(uid), Some(uid)).expect("a file of this test's");
}

/// Starts a shell line whose `run` is `txos run`, as the test's user.
fn shell_around(txos: &Txos<'_>, line: &str) -> Running {
    let line = format!("run() {{ '{}' run -q \"$@\"; }}; {line}", txos.program().display());
    Running::start(txos.command("bash".as_ref(), ["-c", &line]), None)
}

#[test]
fn held_output() {
    for_both(|scratch, txos| {
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let write = |calls: &[&str], fd: u32| by(scratch, calls, &format!("write {fd} 'CALL '"));
        let script = scratch.base().join("script");
        let text = format!(
            "{0}{1}; {2}; {3} 2>said; {4} 2>>said; reach made; await go; exit $1",
            gate.functions(),
            write(&WRITE, 1),
            write(&WRITE, 3),
            write(&WRITE_AT, 1),
            write(&WRITE_AT, 3),
        );
        std::fs::write(&script, text).unwrap();
        let read = |name: &str| std::fs::read_to_string(scratch.inside().join(name)).unwrap();
        let all: String = WRITE.iter().map(|call| format!("{call} ")).collect();
        let run = |status: u32| {
            let line = format!(
                "run --live '{live}' -- sh '{}' {status} 3>>others >standard",
                script.display()
            );
            shell_around(&txos, &line)
        };
        let running = run(0);
        gate.wait("made");
        assert_eq!((read("standard"), read("others")), (String::new(), String::new()));
        gate.open("go");
        let out = running.end(exec::LIMIT);
        all_answer(out.expect(0), &[WRITE, WRITE].concat(), "done");
        assert_eq!((read("standard"), read("others")), (all.clone(), all.clone()));
        let spipe = "pwrite64 ESPIPE\npwritev ESPIPE\n".repeat(2).replace("ESPIPE", "E29");
        assert_eq!(read("said"), spipe, "at a place of a pipe");
        // After a failure of the command what it said is shown, and what it wrote elsewhere dropped.
        run(3).end(exec::LIMIT).expect(3);
        assert_eq!((read("standard"), read("others")), (all.clone(), all));
    });
}

#[test]
fn exempt_logs() {
    for_both(|scratch, txos| {
        let calls = ["write", "writev", "pwritev2", "sendfile", "splice", "pwrite64", "pwritev"];
        let log = scratch.live().join("log").display().to_string();
        let write = by(scratch, &calls, "write 5 'CALL '");
        let out = txos.sh(&["--exempt-log", &log], &format!("{write} 5<>'{log}'; exit 4"));
        all_answer(out.expect(4), &calls, "done");
        let all: String = calls.iter().map(|call| format!("{call} ")).collect();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), all);
    });
}

#[test]
fn passed_pipes() {
    for_both(|scratch, txos| {
        let write = by(scratch, &["tee", "vmsplice"], "write 4 'CALL '");
        let script = format!("{write}; exit 5");
        let line = format!("{{ run --pass-fd 4 -- sh -c \"{script}\" 4>&1 >said; }} | cat");
        let out = shell_around(&txos, &line).end(exec::LIMIT);
        assert_eq!(out.expect(0).stdout, "tee vmsplice ", "{out}");
    });
}

/// Runs a shell line in a transaction that begins with what this piece of perl opens, whose number it puts
/// into `fd`.
fn opened(txos: &Txos<'_>, open: &str, options: &[&str], line: &str) -> Outcome {
    let script = format!("$^F = 99; {open}; exec map {{ s/^FD$/$ENV{{fd}}/r }} @ARGV");
    let program = txos.program();
    let run = ["-e", &script, program.to_str().expect("a path"), "run"];
    let words = [&run, options, &["--", "sh", "-c", line]].concat();
    exec::run(txos.command("perl".as_ref(), words))
}

#[test]
fn what_is_not_there() {
    if exec::find("perl").is_none() {
        skip!("no perl(1)");
    }
    for_both(|scratch, txos| {
        let calls = ["read", "readv", "preadv2", "pread64", "preadv"];
        // Both ends of a pipe, as a jobserver's.
        let pipe = "pipe(my $a, my $b) or die; $ENV{fd} = fileno $a";
        let out = opened(&txos, pipe, &[], &by(scratch, &calls, "read $fd"));
        all_answer(out.expect(0), &calls, "EBADF");
    });
}

#[test]
fn far_addresses() {
    for_both(|scratch, txos| {
        let out = txos.sh(&[], &by(scratch, &PEER, "send inet 192.0.2.1:9 x"));
        all_answer(out.expect(0), &PEER, "ENOTXSUPPORT");
        let lines = PEER.map(|call| format!("{call}(192.0.2.1:9"));
        out.says(&lines.each_ref().map(String::as_str));
    });
}

#[test]
fn outsiders_ports() {
    for_both(|scratch, txos| {
        let outsider = UdpSocket::bind("127.0.0.1:0").unwrap();
        outsider.set_nonblocking(true).unwrap();
        let address = outsider.local_addr().unwrap();
        let out = txos.sh(&[], &by(scratch, &PEER, &format!("send inet {address} x")));
        all_answer(out.expect(0), &PEER, "ENOTXSUPPORT");
        out.says(&["a process outside listens", "--allow net"]);
        assert!(outsider.recv(&mut [0; 8]).is_err(), "a datagram came out");
    });
}

#[test]
fn allowed_hosts() {
    for_both(|scratch, txos| {
        let outsider = UdpSocket::bind("127.0.0.1:0").unwrap();
        outsider.set_nonblocking(true).unwrap();
        let address = outsider.local_addr().unwrap();
        let allow = format!("net:{address}");
        let send = |calls: &[&str]| by(scratch, calls, &format!("send inet {address} x"));
        // Only what connect(2) has connected is carried there.
        let out = txos.sh(&["--allow", &allow], &send(&SEND));
        all_answer(out.expect(0), &SEND, "ENOTXSUPPORT");
        assert!(outsider.recv(&mut [0; 8]).is_err(), "a datagram came out");
        let out = txos.sh(&["--allow", &allow], &send(&["connect"]));
        all_answer(out.expect(0), &["connect"], "done");
        outsider.set_nonblocking(false).unwrap();
        outsider.set_read_timeout(Some(exec::LIMIT / 6)).unwrap();
        assert_eq!(outsider.recv(&mut [0; 8]).unwrap(), 1);
    });
}

#[test]
fn messages_to_the_log() {
    for_both(|scratch, txos| {
        let send = by(scratch, &PEER, "send unix /dev/log '<14>row: by-CALL'");
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &format!("{send}; exit 3"));
        all_answer(out.expect(3), &PEER, "done");
        let kept = Report::read(&json).0["effects"]["messages"].to_string();
        assert_eq!(kept.matches("by-").count(), PEER.len(), "{kept}");
        assert!(PEER.iter().all(|call| kept.contains(&format!("by-{call}"))), "{kept}");
    });
}

#[test]
fn local_sockets() {
    for_both(|scratch, txos| {
        let path = scratch.inside().join("host.sock");
        let outsider = UnixDatagram::bind(&path).unwrap();
        outsider.set_nonblocking(true).unwrap();
        give(scratch, &path);
        let path = path.display().to_string();
        let send = by(scratch, &PEER, &format!("send unix '{path}' CALL"));
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &send);
        all_answer(out.expect(0), &PEER, "ECONNREFUSED");
        assert!(Report::read(&json).mentions("effects", &path), "{out}");
        assert!(outsider.recv(&mut [0; 8]).is_err(), "a datagram came out");
        // It may be why the command failed.
        assert!(!out.stderr.contains("--allow"), "{out}");
        let remedy = format!("--allow {path} lets it through");
        txos.sh(&[], &format!("{send}; exit 3")).expect(3).says(&["probe connected to", &remedy]);
        let options = ["--allow", &path];
        all_answer(txos.sh(&options, &send).expect(0), &PEER, "done");
        for call in PEER {
            let mut space = [0; 16];
            let length = outsider.recv(&mut space).unwrap();
            assert_eq!(&space[..length], call.as_bytes());
        }
    });
}

#[test]
fn processes_outside() {
    for_both(|scratch, txos| {
        let mut victim = txos.command("sleep".as_ref(), ["120"]).spawn().expect("sleep");
        let pid = victim.id();
        // Until then it is root's.
        let name = format!("/proc/{pid}/comm");
        let begun = std::time::Instant::now();
        while std::fs::read_to_string(&name).unwrap_or_default() != "sleep\n" {
            assert!(begun.elapsed() < exec::LIMIT, "it does not start");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let calls = ["kill", "rt_sigqueueinfo", "tkill", "tgkill", "rt_tgsigqueueinfo"];
        let send = by(scratch, &calls, &format!("signal {pid} {pid} {}", libc::SIGTERM));
        let json = scratch.base().join("report.json");
        let out = txos.sh(&[], &format!("{send}; exit 3"));
        all_answer(out.expect(3), &calls, "done");
        std::thread::sleep(std::time::Duration::from_millis(50));
        let alive = victim.try_wait().unwrap().is_none();
        let out = txos.sh(&["--json", json.to_str().unwrap()], &send);
        let begun = std::time::Instant::now();
        while victim.try_wait().unwrap().is_none() && begun.elapsed() < exec::LIMIT / 6 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let ended = victim.try_wait().unwrap().is_some();
        let _ = victim.kill();
        let _ = victim.wait();
        all_answer(out.expect(0), &calls, "done");
        assert!(alive, "an abort sent some");
        assert!(ended, "the commit sent none: {out}");
        let told = Report::read(&json).0["effects"]["signals"].to_string();
        assert_eq!(told.matches("signal 15 to").count(), calls.len(), "{told}");
    });
}

#[test]
fn descriptors_of_processes_outside() {
    if exec::find("perl").is_none() {
        skip!("no perl(1)");
    }
    for_both(|scratch, txos| {
        let number = Arch::HOST.number("pidfd_open").unwrap();
        let open = format!(
            "use POSIX; my $p = syscall({number}, $$ + 0, 0); $ENV{{fd}} = POSIX::dup2($p, 9) or die"
        );
        let call = ["pidfd_send_signal"];
        let send = by(scratch, &call, &format!("signal-by $fd {}", libc::SIGKILL));
        // A way to a process outside that was passed in, by the user's own will, leads nowhere.
        let out = opened(&txos, &open, &["--pass-fd", "FD"], &send);
        all_answer(out.expect(0), &call, "EINVAL");
        // What is not passed is not there.
        all_answer(opened(&txos, &open, &[], &send).expect(0), &call, "EBADF");
    });
}
