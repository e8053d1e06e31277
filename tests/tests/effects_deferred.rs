//! What waits for the commit beside the changes: signals with values and to threads, entries of the journal;
//! and what a transaction that is kept carries until somebody decides.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use txos_tests::exec;
use txos_tests::report::Report;
use txos_tests::scratch::Scratch;
use txos_tests::txos::{copy_for_users, for_both, helper};

/// A process outside that notes each signal, `SIGUSR1` with the value that it carries, `SIGUSR2` without.
struct Victim(Child, std::path::PathBuf);

impl Victim {
    fn start(scratch: &Scratch) -> Victim {
        let file = scratch.base().join("got");
        let script = "use POSIX; $| = 1; open(my $f, '>', $ARGV[0]) or die; $f->autoflush; \
            my $note = sub { my ($name, $about, $raw) = @_; print $f $name, '=', unpack('x24 l', $raw), ' ' }; \
            my $quiet = sub { print $f $_[0], ' ' }; my $set = POSIX::SigSet->new; \
            sigaction(SIGUSR1, POSIX::SigAction->new($note, $set, SA_SIGINFO)) or die; \
            sigaction(SIGUSR2, POSIX::SigAction->new($quiet, $set)) or die; \
            print $f 'ready '; sleep 1 for 1..120";
        let mut command = Command::new("perl");
        command.args(["-MIO::Handle", "-e", script]).arg(&file);
        if txos_tests::who::am_root() {
            let uid = std::fs::metadata(scratch.inside()).expect("a case can be set up").uid();
            std::fs::write(&file, "").expect("a case can be set up");
            std::os::unix::fs::chown(&file, Some(uid), Some(uid)).expect("a case can be set up");
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        let victim = Victim(command.spawn().expect("perl"), file);
        victim.wait_for(&["ready "]);
        victim
    }

    fn got(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    /// Waits until it has got all of these.
    #[track_caller]
    fn wait_for(&self, wanted: &[&str]) {
        let begun = Instant::now();
        while !wanted.iter().all(|wanted| self.got().contains(wanted)) {
            assert!(begun.elapsed() < exec::LIMIT, "{:?} instead of {wanted:?}", self.got());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls that no shell makes, by number on both machines; `$pid` is `ARGV[0]`.
const CALLS: &str = "my $x86 = qx(uname -m) =~ /x86_64/; \
    my ($tkill, $tgkill, $queue, $tgqueue, $open) = $x86 ? (200, 234, 129, 297, 434) : (130, 131, 138, 240, 434); \
    my $pid = shift() + 0; sub info { pack('l l l x4 l l l x100', @_) } \
    sub answer { $_[0] == 0 ? 0 : $! + 0 }";

/// `perl` with [`CALLS`] before `body`.
fn perl(body: &str, pid: u32) -> String {
    format!("perl -e '{}; {body}' {pid}", CALLS.replace('\'', "\""))
}

#[test]
fn signals_with_a_value_and_to_threads_are_sent_by_a_commit() {
    for_both(|scratch, txos| {
        let victim = Victim::start(scratch);
        let pid = victim.0.id();
        let body = "print join(q( ), answer(syscall($queue, $pid, 10, info(10, 0, -1, 0, 0, 4242))), \
            answer(syscall($tgkill, $pid, $pid, 12)))";
        let script = perl(body, pid);
        let out = txos.sh(&[], &format!("{script}; exit 3"));
        assert_eq!(out.expect(3).stdout, "0 0", "{out}");
        assert_eq!(victim.got(), "ready ", "an abort sends none");
        let json = scratch.base().join("report.json");
        let out = txos.sh(&["--json", json.to_str().unwrap()], &script);
        assert_eq!(out.expect(0).stdout, "0 0", "{out}");
        victim.wait_for(&["USR1=4242 ", "USR2 "]);
        assert_eq!(victim.got().matches("USR").count(), 2, "{}", victim.got());
        let told = Report::read(&json).0["effects"]["signals"].to_string();
        assert!(told.contains(&format!("signal 10 to process {pid} (perl)")), "{told}");
        assert!(told.contains(&format!("signal 12 to thread {pid} (perl)")), "{told}");
    });
}

#[test]
fn a_call_that_natively_fails_fails_the_same_way() {
    for_both(|scratch, txos| {
        let victim = Victim::start(scratch);
        // The code of kill(2), that of tgkill(2), no memory, a thread of another process, a number that
        // nobody has, a signal that there is not; and asking alone, which works.
        let body = "print join(q( ), answer(syscall($queue, $pid, 10, info(10, 0, 0, 0, 0, 1))), \
            answer(syscall($queue, $pid, 10, info(10, 0, -6, 0, 0, 1))), \
            answer(syscall($queue, $pid, 10, 8)), \
            answer(syscall($tgkill, $ARGV[0] + 0, $pid, 12)), \
            answer(syscall($tgkill, 4194303, 4194303, 12)), \
            answer(syscall($tgqueue, $pid, $pid, 65, info(10, 0, -1))), \
            answer(syscall($tkill, $pid, 0)), answer(syscall($queue, $pid, 0, info(0, 0, -1))))";
        let line = format!("{} {}", perl(body, victim.0.id()), std::process::id());
        let native = exec::run(txos.command("sh".as_ref(), ["-c", &line]));
        let inside = txos.sh(&[], &line);
        assert_eq!(native.expect(0).stdout, "1 1 14 3 3 22 0 0", "{native}");
        assert_eq!(inside.expect(0).stdout, native.stdout, "{inside}");
        assert_eq!(victim.got(), "ready ");
    });
}

#[test]
fn a_descriptor_of_an_outsider_is_refused_by_name() {
    for_both(|scratch, txos| {
        let victim = Victim::start(scratch);
        let json = scratch.base().join("report.json");
        let script = perl("print answer(syscall($open, $pid, 0))", victim.0.id());
        let named = format!("pidfd_open(process {})", victim.0.id());
        for policy in ["error", "allow"] {
            let options = ["--on-unsupported", policy, "--json", json.to_str().unwrap()];
            let out = txos.sh(&options, &script);
            assert_eq!(out.expect(0).stdout, "134", "{out}");
            out.says(&[&named, "kill(2) reaches it at the commit"]);
            assert!(!out.stderr.contains("lets it through"), "{out}");
            assert!(Report::read(&json).mentions("effects", "pidfd_open"));
        }
        txos.sh(&["--on-unsupported", "abort"], &script).expect(125).says(&[&named]);
        // A member's is given as natively, and so is the error for nobody's.
        let own = perl("print syscall($open, $$ + 0, 0) > 2 ? q(ok) : $! + 0", 0);
        assert_eq!(txos.sh(&[], &own).expect(0).stdout, "ok");
        let nobody = perl("print answer(syscall($open, $pid, 0))", 4_194_303);
        assert_eq!(txos.sh(&[], &nobody).expect(0).stdout, libc::ESRCH.to_string());
    });
}

/// The id of the transaction that a report is of.
#[track_caller]
fn id(json: &Path) -> String {
    let id = Report::read(json).text("id");
    assert!(!id.is_empty());
    id
}

#[test]
fn what_waits_is_carried_by_a_kept_transaction() {
    if exec::find("ipcrm").is_none() {
        txos_tests::skip!("no ipcrm(1)");
    }
    for_both(|scratch, txos| {
        let victim = Victim::start(scratch);
        let json = scratch.base().join("report.json");
        let options = ["--keep", "--json", json.to_str().unwrap()];
        let memory = format!("/dev/shm/txos-kept-{}", scratch.mark());
        let send = "answer(syscall($queue, $pid, 10, info(10, 0, -1, 0, 0, 77)))";
        let script = format!("{} && echo shared >{memory}", perl(send, victim.0.id()));
        // Aborted: none of it happens.
        let out = txos.sh(&options, &script);
        out.expect(0).says(&["a commit sends signal 10", &format!("a commit makes {memory}")]);
        txos.call(["abort", &id(&json)]).expect(0);
        assert_eq!(victim.got(), "ready ");
        // Somebody else has made the object: it stays kept, with all of it.
        txos.sh(&options, &script).expect(0);
        let kept = id(&json);
        std::fs::write(&memory, "somebody's").unwrap();
        let out = txos.call(["commit", &kept]);
        let theirs = std::fs::read_to_string(&memory);
        std::fs::remove_file(&memory).unwrap();
        out.expect(125).says(&[&memory, "stays kept"]);
        assert_eq!(theirs.unwrap(), "somebody's");
        assert_eq!(victim.got(), "ready ");
        // Committed: all of it does, once.
        let out = txos.call(["commit", &kept]);
        let made = std::fs::read_to_string(&memory);
        let _ = std::fs::remove_file(&memory);
        out.expect(0);
        assert_eq!(made.unwrap(), "shared\n", "{out}");
        victim.wait_for(&["USR1=77 "]);
        assert_eq!(victim.got().matches("USR1").count(), 1);
        // Whoever has ended is none, and whoever got his number neither.
        txos.sh(&options, &script.replace(&memory, "f")).expect(0);
        drop(victim);
        let out = txos.call(["commit", &id(&json)]);
        assert!(!out.expect(0).stderr.contains("could not be sent"), "{out}");
    });
}

/// Sends to the journal: `short N`, or `long N`, which comes as a memory file.
const JOURNAL: &str = r#"
import os, socket, sys
where = "/run/systemd/journal/socket"
to = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
to.connect(where)
kind, text = sys.argv[1:]
entry = b"PRIORITY=6\nMESSAGE=" + text.encode() + b"\nBLOB\n\x03\x00\x00\x00\x00\x00\x00\x00\xff\x00\n\n"
if kind == "short":
    to.send(entry)
else:
    file = os.memfd_create("entry", os.MFD_ALLOW_SEALING)
    os.write(file, entry + b"X=" + b"x" * 3000000 + b"\n")
    socket.send_fds(to, [b""], [file])
"#;

/// Runs a command with its output on a stream into the journal, as systemd-cat(1) does.
const STREAM: &str = r#"
import os, socket, sys
to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
to.connect("/run/systemd/journal/stdout")
to.shutdown(socket.SHUT_RD)
to.sendall((sys.argv[1] + "\n\n6\n1\n0\n0\n0\n").encode())
os.dup2(to.fileno(), 1)
os.execvp(sys.argv[2], sys.argv[2:])
"#;

/// A journal's sockets as the host has them; a namespace of its own shows them in their place.
struct Journal {
    socket: UnixDatagram,
    streams: UnixListener,
    outer: Vec<std::ffi::OsString>,
}

impl Journal {
    fn open(scratch: &Scratch) -> Journal {
        let run = scratch.base().join("run");
        let path = run.join("systemd/journal/socket");
        std::fs::create_dir_all(path.parent().expect("a case can be set up"))
            .expect("a case can be set up");
        let open = |path: &Path| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
                .expect("a case can be set up");
        };
        path.ancestors().skip(1).take_while(|dir| *dir != scratch.base()).for_each(open);
        open(scratch.base());
        let socket = UnixDatagram::bind(&path).expect("a case can be set up");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
            .expect("a case can be set up");
        let path = path.with_file_name("stdout");
        let streams = UnixListener::bind(&path).expect("a case can be set up");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))
            .expect("a case can be set up");
        streams.set_nonblocking(true).expect("a case can be set up");
        let setup = format!("mount --bind '{}' /run && exec \"$@\"", run.display());
        let outer = ["unshare", "--mount", "sh", "-c", &setup, "sh"].map(Into::into).to_vec();
        Journal { socket, streams, outer }
    }

    /// All of each stream that has come and ended.
    fn streamed(&self) -> Vec<String> {
        let mut all = Vec::new();
        while let Ok((mut stream, _)) = self.streams.accept() {
            stream.set_nonblocking(false).expect("a case can be set up");
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stream, &mut text).expect("a stream's text");
            all.push(text);
        }
        all
    }

    /// All that lies there: each the length of an entry, or of the file that came in its place.
    fn took(&self) -> Vec<(usize, bool)> {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let mut all = Vec::new();
        loop {
            let mut bytes = vec![0; 1 << 16];
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [std::io::IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let Ok(got) = recvmsg(&self.socket, &mut slices, &mut ancillary, flags) else {
                return all;
            };
            let file = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                _ => None,
            });
            let length = |file| {
                std::fs::File::from(file).metadata().expect("a case can be set up").len() as usize
            };
            all.push((file.map_or(got.bytes, length), got.bytes == 0));
        }
    }
}

#[test]
fn journal_entries_are_sent_by_a_commit_and_dropped_by_an_abort() {
    if exec::find("python3").is_none() {
        txos_tests::skip!("no python3(1)");
    }
    txos_tests::needs_root!();
    for_both(|scratch, txos| {
        let journal = Journal::open(scratch);
        let txos = txos.outer(journal.outer.clone());
        let program = scratch.base().join("send.py");
        std::fs::write(&program, JOURNAL).unwrap();
        let send = |what: &str| format!("python3 '{}' {what}", program.display());
        let script = format!("{} && {} || exit 9; ", send("short first"), send("long second"));
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &format!("{script} exit 3"));
        out.expect(3);
        assert_eq!(journal.took(), [], "an abort sent some: {out}");
        let kept = Report::read(&json).0["effects"]["messages"].to_string();
        assert_eq!(kept, r#"["journal: first","journal: second"]"#, "{out}");
        let out = txos.sh(&options, &script);
        out.expect(0);
        let entry = |text: &str| format!("PRIORITY=6\nMESSAGE={text}\nBLOB\n").len() + 12;
        let both = [(entry("first"), false), (entry("second") + 3_000_003, true)];
        assert_eq!(journal.took(), both, "{out}");
        // Kept, they wait for the decision.
        txos.sh(&["--keep", "--json", json.to_str().unwrap()], &script).expect(0);
        assert_eq!(journal.took(), []);
        txos.call(["commit", &id(&json)]).expect(0);
        assert_eq!(journal.took(), both);
        // Let through, they are there at once.
        let out = txos.sh(&["--allow", "/run/systemd/journal/socket"], &format!("{script} exit 3"));
        out.expect(3);
        assert_eq!(journal.took(), both, "{out}");
    });
}

#[test]
fn entries_of_the_journal_by_each_call() {
    txos_tests::needs_root!();
    for_both(|scratch, txos| {
        let journal = Journal::open(scratch);
        let txos = txos.outer(journal.outer.clone());
        let probe = copy_for_users(scratch, &helper("probe"));
        let script = format!(
            "'{}' by connect,sendto,sendmsg,sendmmsg send unix /run/systemd/journal/socket 'MESSAGE=CALL\n'; ",
            probe.display()
        );
        let script = script.replace("\\n", "\n");
        txos.sh(&[], &format!("{script} exit 3")).expect(3);
        assert_eq!(journal.took(), [], "an abort sent some");
        let out = txos.sh(&[], &script);
        let entry = |call: &str| (format!("MESSAGE={call}\n").len(), false);
        let all = ["connect", "sendto", "sendmsg", "sendmmsg"].map(entry);
        out.expect(0);
        assert_eq!(journal.took(), all, "{out}");
    });
}

#[test]
fn streams_into_the_journal_are_sent_by_a_commit_and_dropped_by_an_abort() {
    if exec::find("python3").is_none() {
        txos_tests::skip!("no python3(1)");
    }
    txos_tests::needs_root!();
    for_both(|scratch, txos| {
        let journal = Journal::open(scratch);
        let txos = txos.outer(journal.outer.clone());
        let program = scratch.base().join("stream.py");
        std::fs::write(&program, STREAM).unwrap();
        let script = format!("python3 '{}' cat echo one || exit 9; ", program.display());
        let json = scratch.base().join("report.json");
        let options = ["--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &format!("{script} exit 3"));
        out.expect(3);
        assert_eq!(journal.streamed(), [""; 0], "an abort sent some: {out}");
        let kept = Report::read(&json).0["effects"]["messages"].to_string();
        assert_eq!(kept, r#"["journal: a stream of cat","journal: one"]"#, "{out}");
        let header = "cat\n\n6\n1\n0\n0\n0\n";
        let out = txos.sh(&options, &script);
        out.expect(0);
        assert_eq!(journal.streamed(), [format!("{header}one\n")], "{out}");
        // The program itself, where there is one: its writer lives on after what it was started by.
        if exec::find("systemd-cat").is_some() {
            let out = txos.sh(&options, "systemd-cat -t row sh -c 'echo a; echo b >&2'");
            let streamed = journal.streamed();
            out.expect(0);
            let texts: Vec<_> = streamed.iter().map(|s| s.splitn(8, '\n').last()).collect();
            assert_eq!(texts, [Some("a\nb\n")], "{out}");
            assert!(streamed[0].starts_with("row\n"), "{streamed:?}");
        }
        // Let through, it is there at once.
        let out = txos.sh(&["--allow", "/run/systemd/journal/stdout"], &format!("{script} exit 3"));
        let streamed = journal.streamed();
        out.expect(3);
        assert_eq!(streamed, [format!("{header}one\n")], "{out}");
    });
}

#[test]
fn a_host_without_a_journal_has_none_inside() {
    for_both(|_, txos| {
        if !Path::new("/run/systemd/journal").exists() {
            txos.sh(&[], "test ! -e /run/systemd/journal").expect(0);
        }
    });
}

#[test]
fn what_was_in_a_memory_file_system_mounted_inside_is_told_by_path() {
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json");
        let mount = "mkdir m && mount -t tmpfs none m || exit 0; : >mounted; ";
        let options = ["--on-unsupported", "allow", "--json", json.to_str().unwrap()];
        let lost = scratch.inside().join("m/d/lost").display().to_string();
        let out = txos.sh(&options, &format!("{mount} mkdir m/d; echo x >m/d/lost; echo y >kept"));
        out.expect(0);
        if !scratch.inside().join("mounted").exists() {
            eprintln!("Skip: this user cannot mount inside");
            return;
        }
        out.says(&["gone with the transaction", &lost, "tmpfs"]);
        assert!(Report::read(&json).mentions("effects", &lost), "{out}");
        assert!(scratch.inside().join("kept").exists() && scratch.inside().join("m").is_dir());
        // What is not there at the end is not lost by the transaction; what is not committed is shown.
        let clear = |script: &str| {
            std::fs::remove_dir(scratch.inside().join("m")).unwrap();
            txos.sh(&options, &format!("{mount} echo x >m/x; {script}"))
        };
        assert!(!clear("rm m/x").expect(0).stderr.contains("gone with"));
        assert!(!clear("umount m").expect(0).stderr.contains("gone with"));
        let keep = ["--keep", "--on-unsupported", "allow", "--json", json.to_str().unwrap()];
        let out = txos.sh(&keep, "mkdir n && mount -t tmpfs none n && echo x >n/lost");
        out.expect(0).says(&["gone with the transaction", "n/lost"]);
        txos.call(["abort", &id(&json)]).expect(0);
    });
}
