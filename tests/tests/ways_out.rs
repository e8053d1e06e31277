//! Ways out of the view, each tried as root by a program inside.
//!
//! What counts is what outsiders see: every try is followed by an abort, and the outside has to be
//! as it was. Where a call could hand over an outsider's secret, the secret must not come out.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use txos_tests::exec::{self, Outcome};
use txos_tests::probes;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::space::Space;
use txos_tests::txos::{Txos, binary, copy_for_users, helper, native_only};
use txos_tests::who::{Who, am_root};

/// The content of the outsider's file.
const SECRET: &str = "outsiders-secret";

/// A process outside, with a working directory, a file and a descriptor on it.
struct Victim {
    scratch: Scratch,
    child: Child,
}

impl Victim {
    fn new() -> Victim {
        let scratch = Scratch::new();
        let dir = scratch.base().join("victim");
        std::fs::create_dir(&dir).expect("mkdir");
        std::fs::write(dir.join("file"), SECRET).expect("write");
        // Descriptor 5 is open on the file; the file is also mapped by nobody but it.
        let child = Command::new("sh")
            .args(["-c", "exec 5<>file; exec sleep 300"])
            .current_dir(&dir)
            .env(txos_tests::scratch::MARK, format!("victim-{}", scratch.mark()))
            .stdin(Stdio::null())
            .spawn()
            .expect("sh");
        let (fd, start) = (format!("/proc/{}/fd/5", child.id()), Instant::now());
        while std::fs::read_link(&fd).is_err() {
            assert!(start.elapsed() < exec::LIMIT, "the victim opens no file");
            std::thread::sleep(Duration::from_millis(2));
        }
        Victim { scratch, child }
    }

    fn file(&self) -> PathBuf {
        self.scratch.base().join("victim/file")
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs `probe WORDS` inside and then aborts; the answer is the probe's line.
    fn probe(&self, options: &[&str], words: &[&str]) -> String {
        let out = self.run(options, words);
        out.expect(7);
        out.stdout.trim_end().to_owned()
    }

    fn run(&self, options: &[&str], words: &[&str]) -> Outcome {
        let probe = helper("probe");
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["--", "sh", "-c", "\"$@\"; exit 7", "sh"]);
        let probe = probe.to_string_lossy().into_owned();
        args.push(&probe);
        args.extend(words);
        Txos::new(&self.scratch).call(args)
    }

    /// The try, which works natively, must not have worked: the file has its old content, and the
    /// secret was not seen.
    #[track_caller]
    fn shut(&self, words: &[&str]) {
        let mut natively = Command::new(helper("probe"));
        natively.args(words).env(txos_tests::scratch::MARK, self.scratch.mark());
        let natively = exec::run(natively).stdout;
        std::fs::write(self.file(), SECRET).expect("the file");
        assert!(
            natively.starts_with("done") || natively.contains(SECRET),
            "{words:?} does not work natively: {natively}"
        );
        self.shut_here(words);
    }

    /// The same where this machine may not have what is tried.
    #[track_caller]
    fn shut_here(&self, words: &[&str]) {
        let answer = self.probe(&[], words);
        assert!(!answer.contains(SECRET), "{words:?} reads the outsider's file: {answer}");
        assert!(!answer.starts_with("done"), "{words:?} is possible: {answer}");
        self.untouched();
    }

    #[track_caller]
    fn untouched(&self) {
        assert_eq!(std::fs::read_to_string(self.file()).expect("file"), SECRET);
        assert_eq!(self.scratch.leftovers(), Vec::<String>::new());
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks the binary under test who it is.
fn version_command() -> Command {
    let mut command = Command::new(binary());
    command.arg("--version");
    command
}

macro_rules! as_root {
    () => {
        if native_only() {
            skip!("a way out exists natively");
        }
        // A stand-in for the binary would do all of this to the machine.
        let version = exec::run(version_command());
        assert!(version.stdout.starts_with("txos "), "not txos: {version}");
        if !am_root() {
            skip!("needs root");
        }
    };
}

#[test]
fn root_cwd_and_descriptors_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let pid = victim.pid();
    let below_root = format!("/proc/{pid}/root{}", victim.file().display());
    for path in [below_root, format!("/proc/{pid}/cwd/file"), format!("/proc/{pid}/fd/5")] {
        victim.shut(&["read", &path]);
        victim.shut(&["write", &path, "gone"]);
    }
    // Process 1, and the manager itself above the command, are outsiders too.
    let file = victim.file();
    for process in ["1", "self", "thread-self"] {
        let path = format!("/proc/{process}/root{}", file.display());
        victim.probe(&[], &["write", &path, "gone"]);
        victim.untouched();
    }
    let all = format!(
        "for p in /proc/[0-9]*; do for w in root{f} cwd/../victim/file; do echo gone 2>/dev/null >$p/$w; done; \
         for f in $p/fd/*; do case $(readlink $f) in *victim/file) echo gone >$f;; esac; done; done; exit 7",
        f = file.display()
    );
    Txos::new(&victim.scratch).sh(&[], &all).expect(7);
    victim.untouched();
}

#[test]
fn mapped_files_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let script = format!("ls /proc/{}/map_files/ | head -1", victim.pid());
    let native = exec::run(Txos::new(&victim.scratch).command("sh".as_ref(), ["-c", &script]));
    let path = format!("/proc/{}/map_files/{}", victim.pid(), native.stdout.trim_end());
    assert!(!native.stdout.is_empty(), "the test itself sees none");
    victim.shut(&["open-read", &path]);
}

#[test]
fn kernel_parameters() {
    as_root!();
    let victim = Victim::new();
    victim.shut(&["rewrite", "/proc/sys/vm/swappiness"]);
    victim.shut(&["rewrite", "/proc/sys/kernel/core_pattern"]);
    victim.shut_here(&["open", "/proc/sysrq-trigger"]);
    for path in ["/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "/sys/power/pm_async"] {
        if PathBuf::from(path).exists() {
            victim.shut_here(&["rewrite", path]);
        }
    }
    let makes = "mkdir /sys/fs/cgroup/*/txos-probe-$$ /sys/fs/cgroup/txos-probe-$$; exit 7";
    Txos::new(&victim.scratch).sh(&[], makes).expect(7);
    let find = "for d in /sys/fs/cgroup/*/txos-probe-* /sys/fs/cgroup/txos-probe-*; do rmdir $d && echo $d; done";
    let found = exec::run(Txos::new(&victim.scratch).command("sh".as_ref(), ["-c", find]));
    assert_eq!(found.stdout, "", "control groups were made outside");
}

#[test]
fn attributes_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let pid = victim.pid();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let limits = || std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("limits");
    let nice = |stat: &str| stat.split(' ').nth(18).map(str::to_owned);
    let before = (nice(&stat()), limits());
    victim.probe(&[], &["nice", &pid.to_string()]);
    victim.probe(&[], &["limit", &pid.to_string()]);
    assert_eq!((nice(&stat()), limits()), before);
    victim.shut(&["rewrite", &format!("/proc/{pid}/oom_score_adj")]);
}

#[test]
fn memory_and_descriptors_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let pid = victim.pid().to_string();
    victim.shut(&["peek", &pid]);
    victim.shut(&["attach", &pid]);
    victim.shut(&["steal", &pid, "5"]);
    victim.shut(&["open", &format!("/proc/{pid}/mem")]);
    victim.shut(&["open-read", &format!("/proc/{pid}/environ")]);
}

#[test]
fn signals_to_outsiders_do_not_survive_an_abort() {
    as_root!();
    let mut victim = Victim::new();
    let script = format!("kill {p}; kill -9 {p}; exit 7", p = victim.pid());
    Txos::new(&victim.scratch).sh(&[], &script).expect(7);
    std::thread::sleep(Duration::from_millis(100));
    assert!(victim.child.try_wait().expect("wait").is_none(), "the outsider was killed");
    victim.untouched();
}

#[test]
fn block_devices_and_raw_memory() {
    as_root!();
    let victim = Victim::new();
    let mut tried = 0;
    for entry in std::fs::read_dir("/dev").expect("/dev").flatten() {
        let path = entry.path().to_string_lossy().into_owned();
        let name = entry.file_name().to_string_lossy().into_owned();
        let raw = ["mem", "kmem", "port", "nvram", "snapshot"];
        let kind = rustix::fs::FileType::from_raw_mode(entry.metadata().map_or(0, |m| m.mode()));
        if raw.contains(&name.as_str()) || kind.is_block_device() {
            // A missing medium makes the test meaningless for this device.
            if std::fs::File::open(&path).is_err() {
                continue;
            }
            victim.shut(&["open-read", &path]);
            victim.shut(&["open", &path]);
            tried += 1;
        }
        if tried > 6 {
            break;
        }
    }
    for path in ["/proc/kcore", "/dev/kmsg"] {
        if std::fs::File::open(path).is_ok() {
            victim.shut(&["open", path]);
            tried += 1;
        }
    }
    if tried == 0 {
        skip!("this machine opens no block device or raw memory for root either");
    }
}

#[test]
fn what_the_view_shows_of_the_hosts_devices_and_programs() {
    as_root!();
    let victim = Victim::new();
    // The nodes' own attributes, and the programs behind the helpers, are the host's.
    let state = || {
        let of = |path: &str| {
            std::fs::metadata(path).map(|m| (m.mode(), m.uid(), m.mtime(), m.mtime_nsec())).ok()
        };
        let nodes = ["null", "zero", "full", "random", "urandom", "tty"];
        nodes.map(|name| of(&format!("/dev/{name}")))
    };
    let before = state();
    let script = "for f in /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/txos/*; do \
                  [ $f = /dev/txos/requests ] && continue; \
                  chmod o+t $f && echo mode of $f; chown 1 $f && echo owner of $f; touch -d @1 $f && echo time of $f; \
                  setfattr -n user.x $f && echo attribute of $f; rm -f $f && echo name of $f; done 2>/dev/null; \
                  for f in /dev/txos/*; do [ $f = /dev/txos/requests ] || { printf '' >>$f && echo opened $f; }; done 2>/dev/null; \
                  echo written >/dev/null && head -c 1 /dev/zero >/dev/null || echo unusable; exit 7";
    let out = Txos::new(&victim.scratch).sh(&[], script);
    assert_eq!(out.expect(7).stdout, "", "{out}");
    assert_eq!(state(), before);
}

#[test]
fn device_nodes_made_inside_or_lying_in_the_tree() {
    as_root!();
    let victim = Victim::new();
    let root = std::fs::metadata("/").expect("/").dev();
    let (major, minor) = (rustix::fs::major(root), rustix::fs::minor(root));
    let setup = format!("mknod disk b {major} {minor}; mknod kmem c 1 1; mknod null c 1 3");
    let txos = Txos::new(&victim.scratch);
    exec::run(txos.command("sh".as_ref(), ["-ec", &setup])).expect(0);
    let script = format!(
        "mknod disk2 b {major} {minor}; mknod mem2 c 1 1; live='{}'; mknod $live/disk3 b {major} {minor}; \
         for f in disk kmem disk2 mem2 $live/disk3; do if head -c1 $f >/dev/null; then echo $f is open; fi; done; exit 7",
        victim.scratch.live().display()
    );
    let live = victim.scratch.live().display().to_string();
    for options in [&[][..], &["--live", live.as_str()]] {
        let out = Txos::new(&victim.scratch).sh(options, &script);
        assert_eq!(out.expect(7).stdout, "", "{out}");
    }
}

/// The device controller keeps the nodes closed for whoever is in its group, so all have to be.
#[test]
fn every_process_of_a_view_is_in_its_control_groups() {
    as_root!();
    let victim = Victim::new();
    let of = "-E '^[0-9]+:([a-z,]*,)?(devices|pids)(,|:)' /proc/1/cgroup /proc/self/cgroup";
    // With cgroup v2 alone one line names all, and a program of the kernel's guards the devices.
    let v1 = std::fs::read_to_string("/proc/self/cgroup").is_ok_and(|all| all.contains(":devices"));
    for _ in 0..8 {
        let options = ["--max-processes", "1000"];
        let out = Txos::new(&victim.scratch).sh(&options, &format!("grep {of}; exit 7"));
        for line in out.expect(7).stdout.lines() {
            assert!(line.contains("/txos-"), "outside of its group: {line}");
        }
        assert!(!out.stdout.is_empty() || !v1, "no group is named: {out}");
    }
}

#[test]
fn file_handles() {
    as_root!();
    let victim = Victim::new();
    let handle = probes::handle_of(&victim.file()).expect("the file system has handles");
    let live = victim.scratch.live().display().to_string();
    assert_eq!(probes::open_by_handle(&handle, &victim.scratch.live()).as_deref(), Ok(SECRET));
    victim.shut(&["handle", &handle, &live]);
    for mount in ["/", "/proc"] {
        victim.shut_here(&["handle", &handle, mount]);
    }
    let answer = victim.probe(&["--live", &live], &["handle", &handle, &live]);
    assert!(!answer.starts_with("done"), "by a handle on a live path: {answer}");
    victim.untouched();
}

#[test]
fn namespaces_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    // Nobody enters the user namespace that he is in.
    victim.shut_here(&["setns", &format!("/proc/{}/ns/user", victim.pid())]);
    for kind in ["mnt", "pid", "net", "uts", "ipc", "cgroup"] {
        victim.shut(&["setns", &format!("/proc/{}/ns/{kind}", victim.pid())]);
        victim.shut_here(&["setns", &format!("/proc/1/ns/{kind}")]);
    }
}

#[test]
fn mounts_and_other_calls_are_refused_by_name() {
    as_root!();
    let victim = Victim::new();
    let out = victim.run(&[], &["calls"]);
    out.expect(7);
    let mut open = Vec::new();
    for line in out.stdout.lines() {
        // E97: the kernel has no such sockets at all.
        if !line.ends_with(" ENOTXSUPPORT") && !line.ends_with(" E97") {
            open.push(line.to_owned());
        }
    }
    assert_eq!(open, Vec::<String>::new(), "{out}");
    out.says(&["mount", "reboot", "--on-unsupported allow"]);
    assert_eq!(victim.probe(&[], &["uring"]), "ENOSYS");
}

#[test]
fn mounting_by_the_ordinary_programs_fails() {
    as_root!();
    let victim = Victim::new();
    let script = format!(
        "mount -t tmpfs none . && echo mounted; mount --bind '{v}' . && echo bound; \
         unshare -m mount -t tmpfs none . && echo unshared; unshare -Urm mount --bind '{v}' . && echo nested; \
         umount -l . ; umount -l /proc && echo unmounted; chroot / umount /sys && echo unmounted2; exit 7",
        v = victim.file().parent().expect("dir").display()
    );
    // Should a way be open, it is open in a mount namespace of this test alone.
    let space = match Space::new(&victim.scratch, ":") {
        Ok(space) => space,
        Err(why) => skip!("no mount namespace: {why}"),
    };
    let table = space.mounts();
    let txos = Txos::new(&victim.scratch).outer(space.prefix(&victim.scratch.inside()));
    let out = txos.sh(&[], &script);
    assert_eq!(out.expect(7).stdout, "", "{out}");
    assert_eq!(space.mounts(), table);
    victim.untouched();
}

#[test]
fn descriptors_inherited_from_outside() {
    as_root!();
    let victim = Victim::new();
    let (txos, probe) = (txos_tests::txos::binary(), helper("probe"));
    let dir = victim.file().parent().expect("dir").display().to_string();
    let tries = [
        ("exec 7<>\"$1/file\"", "fd 7 gone"),
        ("exec 0<>\"$1/file\"", "fd 0 gone"),
        ("exec 9<\"$1\"", "dir-fd 9 file gone"),
        ("exec 9<\"$1\"", "write /proc/self/fd/9/file gone"),
        ("exec 9</", "write /proc/self/fd/9/VICTIM/file gone"),
        ("exec 8<>\"$1/file\"", "write /proc/self/fd/8 gone"),
    ];
    for (opening, words) in tries {
        let words = words.replace("VICTIM", dir.trim_start_matches('/'));
        let script = format!(
            "{opening}; exec '{}' run -- sh -c '{} {words}; exit 7'",
            txos.display(),
            probe.display()
        );
        let command =
            Txos::new(&victim.scratch).command("sh".as_ref(), ["-c", &script, "sh", &dir]);
        // What was open is opened again in the view: a write may succeed there, and stays there.
        exec::run(command).expect(7);
        victim.untouched();
    }
}

#[test]
fn local_sockets_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let path = victim.scratch.base().join("victim/socket");
    let _listener = UnixListener::bind(&path).expect("bind");
    let name = format!("txos-test-{}", victim.scratch.mark());
    let address = SocketAddr::from_abstract_name(&name).expect("name");
    let _abstract_listener = UnixListener::bind_addr(&address).expect("bind");
    let path = path.display().to_string();
    victim.shut(&["socket", &path]);
    victim.shut(&["abstract", &name]);
    // By flag it is let through, and the report names it.
    let report = victim.scratch.base().join("report.json");
    let report_text = report.display().to_string();
    let answer = victim.probe(&["--allow", &path, "--json", &report_text], &["socket", &path]);
    assert_eq!(answer, "done");
    assert!(txos_tests::report::Report::read(&report).mentions("effects", &path));
}

#[test]
fn network_is_refused_and_let_through_by_flag() {
    as_root!();
    let victim = Victim::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let script = format!(
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(PeerAddr=>\"127.0.0.1:{port}\") or die \"$!\\n\"; print \"connected\\n\"'; exit 7"
    );
    let txos = Txos::new(&victim.scratch);
    let out = txos.sh(&[], &script);
    assert_eq!(out.expect(7).stdout, "", "{out}");
    out.says(&["--allow net"]);
    let report = victim.scratch.base().join("report.json");
    let out = txos.sh(&["--allow", "net", "--json", &report.display().to_string()], &script);
    assert_eq!(out.expect(7).stdout, "connected\n", "{out}");
    assert_eq!(txos_tests::report::Report::read(&report).text("network"), "true");
}

#[test]
fn datagrams_do_not_reach_outsiders() {
    as_root!();
    let victim = Victim::new();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("time limit");
    let port = socket.local_addr().expect("address").port().to_string();
    let answer = victim.probe(&[], &["datagram", &port]);
    let mut bytes = [0; 16];
    assert!(socket.recv(&mut bytes).is_err(), "a datagram came out: {answer}");
    assert_eq!(victim.probe(&["--allow", "net"], &["datagram", &port]), "done");
    assert!(socket.recv(&mut bytes).is_ok(), "no datagram with --allow net");
}

#[test]
fn shared_memory_and_message_queues_of_outsiders() {
    as_root!();
    let victim = Victim::new();
    let queues = Queues::new(victim.scratch.mark());
    let key = queues.key.to_string();
    let answers = [
        victim.probe(&[], &["shm", &key]),
        victim.probe(&[], &["msg", &key]),
        victim.probe(&[], &["mq", &queues.name]),
    ];
    assert!(answers.iter().all(|a| !a.starts_with("done")), "{answers:?}");
    assert_eq!(probes::messages(queues.queue), Ok(0), "a message came out");
}

/// Outsiders' shared memory and message queues, removed at the end.
struct Queues {
    key: i32,
    name: String,
    segment: u64,
    queue: u64,
}

impl Queues {
    fn new(mark: &str) -> Queues {
        let key = 0x7478_0000 | (std::process::id() & 0xffff) as i32;
        let name = format!("txos-test-{mark}");
        let segment = probes::make_shared_memory(key, *b"segment!").expect("shmget");
        let queue = probes::make_message_queue(key).expect("msgget");
        // Not every kernel has POSIX queues; then there is nothing to find.
        let _ = probes::make_posix_queue(&name);
        Queues { key, name, segment, queue }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        probes::remove_shared_memory(self.segment);
        probes::remove_message_queue(self.queue);
        probes::remove_posix_queue(&self.name);
    }
}

#[test]
fn device_nodes_of_the_host_are_used_and_not_changed() {
    as_root!();
    let victim = Victim::new();
    // The host's node is one that the test made, should it be changed after all.
    let node = victim.scratch.live().join("null");
    let node = node.display();
    let script = format!(
        "mknod -m 666 {node} c 1 3; touch -d @1000 {node}; mount --bind {node} /dev/null; exec \"$@\""
    );
    let outer = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", &script, "sh"];
    let txos = Txos::new(&victim.scratch).outer(outer.map(Into::into).to_vec());
    let program = std::fs::metadata(txos.program()).expect("txos");
    let before = (program.mode(), program.uid(), program.mtime());
    let script = "echo >/dev/null || exit 1; for f in /dev/null /dev/txos/*; do
        chmod 600 $f; chown 5 $f; touch -d @5 $f; setfattr -n trusted.x -v 1 $f; rm -f $f; done 2>&1
        exit 7";
    txos.sh(&[], script).expect(7);
    let now = std::fs::symlink_metadata(victim.scratch.live().join("null")).expect("it is there");
    assert_eq!((now.mode() & 0o777, now.uid(), now.mtime()), (0o666, 0, 1000));
    let program = std::fs::metadata(txos.program()).expect("txos");
    assert_eq!((program.mode(), program.uid(), program.mtime()), before);
}

#[test]
fn dev_shm() {
    as_root!();
    let victim = Victim::new();
    let name = format!("/dev/shm/txos-test-{}", victim.scratch.mark());
    std::fs::write(&name, SECRET).expect("/dev/shm");
    let script = format!("echo gone >{name}; echo new >{name}.new; rm -f {name}; exit 7");
    let out = Txos::new(&victim.scratch).sh(&[], &script);
    let content = std::fs::read_to_string(&name);
    let new = std::fs::remove_file(format!("{name}.new"));
    let _ = std::fs::remove_file(&name);
    out.expect(7);
    assert_eq!(content.expect("it is still there"), SECRET);
    assert!(new.is_err(), "a file came out");
}

#[test]
fn kernel_keyrings() {
    as_root!();
    let victim = Victim::new();
    let name = format!("txos-test-{}", victim.scratch.mark());
    victim.probe(&[], &["key", &name]);
    let found = probes::find_key(&name);
    probes::remove_key(&name);
    assert!(found.is_err(), "a key came out");
}

#[test]
fn core_dumps_stay_inside() {
    as_root!();
    let scratch = Scratch::new();
    let out = Txos::new(&scratch).sh(&[], "ulimit -c unlimited; kill -SEGV $$");
    out.expect(128 + 11);
    let left = std::fs::read_dir(scratch.inside()).expect("inside").count();
    assert_eq!(left, 0, "a core file of an aborted transaction");
}

#[test]
fn a_live_directory_is_no_way_up() {
    as_root!();
    let victim = Victim::new();
    let live = victim.scratch.live().display().to_string();
    let script = format!("cd '{live}' && echo gone >../victim/file; exit 7");
    Txos::new(&victim.scratch).sh(&["--live", &live], &script).expect(7);
    victim.untouched();
}

#[test]
fn the_state_directory_and_the_capture_are_not_in_the_view() {
    if native_only() {
        skip!("nothing to hide natively");
    }
    for who in [Who::Root, Who::User] {
        if let Some(why) = who.impossible() {
            println!("Skip: {why}");
            continue;
        }
        let scratch = Scratch::new();
        std::fs::write(scratch.inside().join("f"), "1").expect("f");
        let base = scratch.base().display().to_string();
        if am_root() {
            std::os::unix::fs::chown(scratch.base(), Some(who.uid()), None).expect("chown");
            std::os::unix::fs::chown(scratch.inside(), Some(who.uid()), None).expect("chown");
        }
        let txos = Txos::by(&scratch, who);
        let script = format!(
            "echo changed >secret-change; ls -A '{base}/state' 2>/dev/null; \
             find '{base}' -xdev -name secret-change 2>/dev/null | grep -v '{base}/inside'; \
             touch '{base}/state/mine' 2>/dev/null; exit 7"
        );
        let out = txos.sh(&[], &script);
        out.expect(7);
        assert_eq!(out.stdout, "", "{who:?}: {out}");
        assert!(!scratch.state().join("mine").exists());
        assert_eq!(scratch.leftovers(), Vec::<String>::new());
    }
}

#[test]
fn a_set_user_id_program_gives_no_more_than_the_user_has() {
    as_root!();
    let scratch = Scratch::new();
    let tool = copy_for_users(&scratch, &helper("oplist"));
    let setup = format!(
        "cp '{}' setuid; chmod 4755 setuid; echo root >rootfile; chmod 600 rootfile; chown 12345 .",
        tool.display()
    );
    let txos = Txos::new(&scratch);
    exec::run(txos.command("sh".as_ref(), ["-ec", &setup])).expect(0);
    let list = scratch.base().join("ops");
    let op = txos_tests::op::Op::Append { path: "rootfile".into(), len: 4, seed: 1 };
    std::fs::write(&list, txos_tests::op::Op::print(&[op])).expect("ops");
    Txos::by(&scratch, Who::User).sh(&[], &format!("./setuid '{}'", list.display()));
    let content = std::fs::read_to_string(scratch.inside().join("rootfile")).expect("rootfile");
    assert_eq!(content, "root\n");
}

#[test]
fn a_daemon_that_outlives_the_command_belongs_to_the_transaction() {
    as_root!();
    let scratch = Scratch::new();
    // It ends by itself: what it wrote last is part of the commit.
    let script = "(setsid sh -c 'sleep 0.5; echo late >late' >/dev/null 2>&1 </dev/null &); echo early >early";
    Txos::new(&scratch).sh(&[], script).expect(0);
    let read =
        |name: &str| std::fs::read_to_string(scratch.inside().join(name)).unwrap_or_default();
    assert_eq!((read("early").as_str(), read("late").as_str()), ("early\n", "late\n"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_daemon_that_never_ends_is_named_and_stopped_by_the_time_limit() {
    as_root!();
    let scratch = Scratch::new();
    let script = "(setsid sleep 1000 >/dev/null 2>&1 </dev/null &); sleep 0.3; echo early >early";
    let out = Txos::new(&scratch).sh(&["--timeout", "2"], script);
    assert_ne!(out.code(), 0, "{out}");
    out.says(&["sleep"]);
    assert!(!scratch.inside().join("early").exists(), "committed although it did not end");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
