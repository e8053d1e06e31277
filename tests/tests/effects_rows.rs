//! Rows of the table of effects that the view or the kernel decides, tried by programs inside; and
//! the table itself as the command prints it. What the filter decides is tried in `txos-effects`.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use txos_effects::table::Fate;
use txos_tests::exec;
use txos_tests::gate::Gate;
use txos_tests::report::Report;
use txos_tests::rows;
use txos_tests::txos::{copy_for_users, for_both, for_one, helper};
use txos_tests::who::Who;

#[test]
fn the_document_is_what_the_command_prints() {
    for_one(Who::Root, |_, txos| {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/syscalls.md");
        let printed = txos.call(["syscalls", "--markdown"]).expect(0).stdout.clone();
        let said = "generate it anew: txos syscalls --markdown >docs/syscalls.md";
        assert!(std::fs::read_to_string(document).unwrap() == printed, "{said}");
    });
}

#[test]
fn calls_can_be_asked_for_by_name() {
    for_one(Who::Root, |_, txos| {
        let out = txos.call(["syscalls", "connect", "fsync"]);
        assert!(out.expect(0).stdout.contains("--allow net"), "{out}");
        txos.call(["syscalls", "fsyncc"]).expect(125).says(&["fsyncc", "txos syscalls"]);
        let json = txos.call(["syscalls", "--json", "fsync"]).expect(0).stdout.clone();
        let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(rows[0]["fate"], "deferred");
        assert_eq!(rows[0]["x86_64"], 74);
    });
}

#[test]
fn each_refused_row_is_refused_in_a_transaction_as_the_table_says() {
    for_both(|scratch, txos| {
        let tries = rows::all();
        let json = scratch.base().join("report.json");
        let probe = copy_for_users(scratch, &helper("probe")).display().to_string();
        let options = ["run", "--json", json.to_str().unwrap(), "--", &probe, "rows"];
        let out = txos.call(options);
        let answers: Vec<&str> = out.expect(0).stdout.lines().collect();
        assert!(tries.len() > 60 && answers.len() == tries.len(), "{out}");
        let refused = Report::read(&json).0["effects"]["refused"].to_string();
        for (one, line) in tries.iter().zip(answers) {
            let (what, answer) = line.rsplit_once('|').expect("a line");
            assert_eq!(what, format!("{}|{}", one.call, one.when));
            assert!(one.is_right(answer), "{line}: {:?}", one.fate);
            if one.fate == Fate::Refused {
                assert!(
                    refused.contains(&format!("\"call\":\"{}\"", one.call)),
                    "{line}: {refused}"
                );
            }
        }
    });
}

#[test]
fn each_refused_row_aborts_where_that_is_the_policy() {
    for_one(Who::Root, |scratch, txos| {
        let probe = helper("probe").display().to_string();
        let calls = rows::all().into_iter().filter(|one| one.fate == Fate::Refused);
        let calls: BTreeSet<&str> = calls.map(|one| one.call).collect();
        assert!(calls.len() > 30, "{calls:?}");
        for call in calls {
            let script = format!("echo x >f; '{probe}' rows {call}; sleep 600");
            let out = txos.sh(&["--on-unsupported", "abort"], &script);
            out.expect(125).says(&[&format!("{call}("), "nothing was changed"]);
            assert!(!scratch.inside().join("f").exists(), "{call}");
        }
    });
}

#[test]
fn the_machines_settings_are_read_only() {
    for_one(Who::Root, |_, txos| {
        let script = "for f in /proc/sys/kernel/hostname /proc/sysrq-trigger /sys/kernel/uevent_helper; do \
                      [ -e $f ] && (echo x >$f) 2>/dev/null && exit 9; done; exit 0";
        txos.sh(&[], script).expect(0);
    });
}

#[test]
fn a_whiteout_cannot_be_made_by_hand() {
    for_one(Who::Root, |_, txos| {
        let out = txos.sh(&[], "mknod w c 0 0 2>/dev/null; echo $?; mknod n c 1 3 && echo made");
        assert_eq!(out.expect(0).stdout, "1\nmade\n");
        // renameat2(2) with RENAME_WHITEOUT.
        let script = "touch a; perl -e 'my $n = qx(uname -m) =~ /x86_64/ ? 316 : 276; my ($a, $b) = (\"a\", \"b\"); \
                      print syscall($n, -100, $a, -100, $b, 4) == 0 ? \"made\" : $! + 0'";
        assert_eq!(txos.sh(&[], script).expect(0).stdout, libc::EINVAL.to_string());
    });
}

#[test]
fn stores_into_live_files_are_outside_at_once() {
    if exec::find("python3").is_none() {
        txos_tests::skip!("no python3(1)");
    }
    for_both(|scratch, txos| {
        let live = scratch.live().display().to_string();
        let file = scratch.live().join("mapped");
        let script = format!(
            "head -c 4096 /dev/zero >{live}/mapped; python3 -c 'import mmap; f = open(\"{live}/mapped\", \"r+b\"); \
             m = mmap.mmap(f.fileno(), 4096); m[0:6] = b\"stored\"; m.flush()'; exit 3"
        );
        txos.sh(&["--live", &live], &script).expect(3);
        assert!(std::fs::read(&file).unwrap().starts_with(b"stored"));
    });
}

#[test]
fn flags_of_a_file_that_was_only_read_are_refused() {
    if exec::find("chattr").is_none() {
        txos_tests::skip!("no chattr(1)");
    }
    for_one(Who::Root, |scratch, txos| {
        std::fs::write(scratch.inside().join("old"), "text").unwrap();
        let out = txos.sh(&[], "cat old >/dev/null; chattr +d old 2>/dev/null; echo $?");
        assert_eq!(out.expect(0).stdout, "1\n");
    });
}

#[test]
fn a_member_can_install_filters_but_no_second_listener() {
    // seccomp(SECCOMP_SET_MODE_FILTER, flags, program) after no_new_privs; the program allows all.
    let script = r#"perl -e '
        my ($prctl, $seccomp) = qx(uname -m) =~ /x86_64/ ? (157, 317) : (167, 277);
        syscall($prctl, 38, 1, 0, 0, 0) == 0 or die "prctl: $!";
        my $code = pack("S C C L", 6, 0, 0, 0x7fff0000);
        my $program = pack("S x6 P", 1, $code);
        print syscall($seccomp, 1, 0, $program), " ";
        print syscall($seccomp, 1, 8, $program) == -1 ? $! + 0 : "taken";'"#;
    for_both(|_, txos| {
        assert_eq!(txos.sh(&[], script).expect(0).stdout, format!("0 {}", libc::EBUSY));
    });
}

/// A process outside that adds a letter to a file for each signal, `SIGUSR1`, `SIGUSR2` or `SIGHUP`, and
/// its pid, above all that a transaction has used when it begins. `user` as whom it runs.
fn victim(file: &Path, user: Option<u32>) -> std::process::Child {
    let script = "$| = 1; open(my $f, '>', $ARGV[0]) or die; $f->autoflush; my $n = 0; \
        for my $s (qw(USR1 USR2 HUP)) { $SIG{$s} = sub { print $f $s, ' '; $n++ } } print $f 'ready '; \
        sleep 1 for 1..60";
    let mut command = std::process::Command::new("perl");
    command.args(["-MIO::Handle", "-e", script]).arg(file);
    if let Some(user) = user {
        std::os::unix::process::CommandExt::uid(&mut command, user);
    }
    let child = command.spawn().expect("perl");
    await_text(file, "ready ");
    child
}

#[track_caller]
fn await_text(file: &Path, wanted: &str) {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    let begun = std::time::Instant::now();
    while read() != wanted {
        assert!(begun.elapsed() < exec::LIMIT, "{:?} instead of {wanted:?}", read());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn signals_to_outsiders_are_sent_by_a_commit() {
    for_both(|scratch, txos| {
        let uid = std::fs::metadata(scratch.inside()).unwrap().uid();
        let file = scratch.live().join("got");
        std::fs::write(&file, "").unwrap();
        chown(&file, Some(uid), Some(uid)).unwrap();
        let mut victim = victim(&file, Some(uid));
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let json = scratch.base().join("report.json");
        let options = ["--live", &live, "--json", json.to_str().unwrap()];
        let script = format!(
            "{0}kill -0 {1} || exit 9; kill -USR2 {1}; sleep 0.05; kill -USR1 {1}; reach sent; await go; ",
            gate.functions(),
            victim.id()
        );
        // An abort sends none.
        gate.open("go");
        txos.sh(&options, &format!("{script}exit 3")).expect(3);
        std::fs::remove_file(scratch.live().join("go")).unwrap();
        std::fs::remove_file(scratch.live().join("sent")).unwrap();
        let running = txos.start_sh(&options, &format!("{script}exit 0"));
        gate.wait("sent");
        std::thread::sleep(std::time::Duration::from_millis(50));
        await_text(&file, "ready ");
        gate.open("go");
        let out = running.end(exec::LIMIT);
        let told = Report::read(&json).0["effects"]["signals"].to_string();
        let begun = std::time::Instant::now();
        let both = |text: &str| text.contains("USR1") && text.contains("USR2");
        while !both(&std::fs::read_to_string(&file).unwrap()) && begun.elapsed() < exec::LIMIT {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let got = std::fs::read_to_string(&file).unwrap();
        let _ = victim.kill();
        let _ = victim.wait();
        out.expect(0);
        assert!(both(&got), "{got}: {out}");
        assert_eq!(got.matches("USR").count(), 2, "{got}: an abort sent some");
        let first = told.find("signal 12 to").unwrap();
        assert!(first < told.find("signal 10 to").unwrap() && told.contains("(perl)"), "{told}");
        // Whoever has gone is none, as natively.
        let out = txos.sh(&[], &format!("kill {} 2>/dev/null; echo $?", victim.id()));
        assert_eq!(out.expect(0).stdout, "1\n");
    });
}

#[test]
fn a_number_that_a_member_had_is_no_outsiders() {
    for_one(Who::Root, |scratch, txos| {
        // In a pid namespace of its own the victim has a small number. Members are made until it has been
        // one of theirs; before that it is the victim's.
        let script = format!(
            "for i in $(seq 40); do /bin/true; done; sh -c 'trap \"echo hit >>got\" USR1; while :; do sleep 0.1; done' & v=$!; sleep 0.5; \
             '{}' run -q -- perl -e 'my ($to, $last) = ($ARGV[0], 0); print kill(0, $to), \" \"; \
             while ($last < $to) {{ my $p = fork // die; exit 0 unless $p; waitpid $p, 0; $last = $p }} \
             print kill(\"USR1\", $to) ? \"sent\" : $! + 0' $v; \
             echo; sleep 0.5; kill -9 $v; cat got 2>/dev/null",
            txos_tests::txos::binary().display()
        );
        let own = ["--pid", "--fork", "--mount-proc", "sh", "-c", &script];
        let out = exec::run(txos.command("unshare".as_ref(), own));
        if out.stderr.contains("unshare failed") {
            txos_tests::skip!("no pid namespaces");
        }
        let said = out.stdout.lines().next().unwrap_or_default().to_owned();
        assert_eq!(said, format!("1 {}", libc::ESRCH), "{out}");
        assert!(!scratch.inside().join("got").exists(), "{out}");
    });
}

#[test]
fn outsiders_of_others_are_not_signalled() {
    let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    for_one(Who::User, |_, txos| {
        let script = format!("perl -e 'print kill(9, {0}) ? \"sent\" : $! + 0'", victim.id());
        assert_eq!(txos.sh(&[], &script).expect(0).stdout, libc::EPERM.to_string());
    });
    for_one(Who::Root, |_, txos| {
        let script = format!(
            "setpriv --reuid 65534 --clear-groups perl -e 'print kill(9, {0}) ? \"sent\" : $! + 0'",
            victim.id()
        );
        if exec::find("setpriv").is_some() {
            assert_eq!(txos.sh(&[], &script).expect(0).stdout, libc::EPERM.to_string());
        }
        // Everybody: that is every member, the command itself first.
        txos.sh(&[], "perl -e 'kill 9, -1'; true").expect(137);
    });
    let alive = victim.try_wait().unwrap().is_none();
    let _ = victim.kill();
    let _ = victim.wait();
    assert!(alive, "an outsider was killed");
}

#[test]
fn a_fifo_of_an_outsider_meets_members_alone() {
    for_both(|scratch, txos| {
        let fifo = scratch.inside().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let uid = std::fs::metadata(scratch.inside()).unwrap().uid();
        chown(&fifo, Some(uid), Some(uid)).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let reader = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).unwrap();
        // Natively the open would succeed, for the reader is there: inside nobody is.
        let script = "perl -MFcntl -e 'sysopen(my $f, \"fifo\", O_WRONLY | O_NONBLOCK) or exit($! + 0); syswrite $f, \"x\"; exit 0'; echo $?";
        assert_eq!(txos.sh(&[], script).expect(0).stdout, format!("{}\n", libc::ENXIO));
        assert_eq!(rustix::io::read(&reader, &mut [0; 4]), Ok(0));
    });
}

/// Runs a shell line whose `$TXOS` is `txos run` in the scratch, as the test's user.
fn shell_around(txos: &txos_tests::txos::Txos<'_>, line: &str) -> exec::Outcome {
    let binary = txos_tests::txos::binary();
    let line = format!("run() {{ '{}' run -q \"$@\"; }}; {line}", binary.display());
    exec::run(txos.command("bash".as_ref(), ["-c", &line]))
}

#[test]
fn writes_to_what_was_open_before_come_with_the_commit() {
    for_both(|scratch, txos| {
        let read = |name: &str| std::fs::read_to_string(scratch.inside().join(name)).unwrap();
        // A file, opened for appending, at an offset, and shared with standard output.
        shell_around(&txos, "echo old >f; run -- sh -c 'echo a >&3; cat f; echo b >&3' 3>>f >seen")
            .expect(0);
        assert_eq!((read("f").as_str(), read("seen").as_str()), ("old\na\nb\n", "old\n"));
        let line = "exec 5>g; echo before >&5; run -- sh -c 'echo inside >&5'; echo after >&5";
        shell_around(&txos, line).expect(0);
        assert_eq!(read("g"), "before\ninside\nafter\n");
        let out = shell_around(
            &txos,
            "run -- sh -c 'echo 1; echo 2 >&3; echo 3 >&9; echo 4' 3>&1 9>&1 | cat",
        );
        assert_eq!(out.expect(0).stdout, "1\n2\n3\n4\n");
        let line = "run -- sh -c 'echo 1 >&3; echo 2 >&5; echo 3 >&3' 3>k 5>&3";
        shell_around(&txos, line).expect(0);
        assert_eq!(read("k"), "1\n2\n3\n");
        // A pipe gets nothing of a failure and nothing of an attempt that was given up.
        let line = "{ run -- sh -c 'echo lost >&4; echo x >h; exit 3' 4>&1 >/dev/null; echo $? >code; } | cat >piped";
        shell_around(&txos, line).expect(0);
        assert_eq!((read("code").as_str(), read("piped").as_str()), ("3\n", ""));
    });
}

#[test]
fn files_that_were_open_before_are_the_views_and_keep_their_place() {
    for_both(|scratch, txos| {
        let read = |name: &str| std::fs::read_to_string(scratch.inside().join(name)).unwrap();
        let line =
            "printf '1\\n2\\n3\\n' >f; exec 7<f; run -- sh -c 'read x <&7; echo got $x'; cat <&7";
        assert_eq!(shell_around(&txos, line).expect(0).stdout, "got 1\n2\n3\n");
        // For reading and writing: what is written is the transaction's.
        let line = "exec 8<>f; run -- sh -c 'read x <&8; echo two >&8; cat f >&2; exit 4' 2>seen; echo $?; cat f";
        assert_eq!(shell_around(&txos, line).expect(0).stdout, "4\n1\n2\n3\n");
        assert_eq!(read("seen"), "1\ntwo\n");
        let line = "exec 8<>f; run -- sh -c 'read x <&8; echo two >&8'; cat f";
        assert_eq!(shell_around(&txos, line).expect(0).stdout, "1\ntwo\n");
    });
}

#[test]
fn a_descriptor_that_is_passed_is_outside_at_once() {
    for_both(|scratch, txos| {
        let out =
            shell_around(&txos, "run --pass-fd 4 -- sh -c 'echo live >&4; exit 5' 4>f; echo $?");
        assert_eq!(out.expect(0).stdout, "5\n");
        assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "live\n");
    });
}

#[test]
fn synchronous_writes_do_not_wait_and_are_committed() {
    for_both(|scratch, txos| {
        let script = "dd if=/dev/zero of=f bs=4k count=200 oflag=sync status=none && sync f";
        txos.sh(&[], script).expect(0);
        assert_eq!(std::fs::metadata(scratch.inside().join("f")).unwrap().len(), 819_200);
    });
}

#[test]
fn what_asks_for_durability_waits_for_nothing_and_comes_with_the_commit() {
    for_both(|scratch, txos| {
        // fsync(2), fdatasync(2), syncfs(2), sync_file_range(2), in the order of their numbers below.
        let script = "perl -MIO::Handle -e 'my $x86 = qx(uname -m) =~ /x86_64/; open(my $f, q(>), q(f)) or die; \
                      print $f q(text); $f->flush; my $fd = fileno($f); \
                      for my $n ($x86 ? (74, 75, 306) : (82, 83, 267)) { print syscall($n, $fd), q( ) } \
                      print syscall($x86 ? 277 : 84, $fd, 0, 0, 7)'";
        let out = txos.sh(&[], &format!("{script}; exit 3"));
        assert_eq!(out.expect(3).stdout, "0 0 0 0", "{out}");
        assert!(!scratch.inside().join("f").exists(), "an abort leaves nothing");
        for durable in [&[][..], &["--nondurable"]] {
            let out = txos.sh(durable, script);
            assert_eq!(out.expect(0).stdout, "0 0 0 0", "{out}");
            assert_eq!(std::fs::read_to_string(scratch.inside().join("f")).unwrap(), "text");
        }
    });
}

#[test]
fn watchers_inside_see_members_and_watchers_outside_see_the_commit() {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    for_both(|scratch, txos| {
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&watch, scratch.inside(), WatchFlags::CREATE | WatchFlags::MOVED_TO).unwrap();
        let script = format!("{}echo x >made; reach made; await go", gate.functions());
        let running = txos.start_sh(&["--live", &live], &script);
        gate.wait("made");
        let mut space = [0; 512];
        assert!(rustix::io::read(&watch, &mut space).is_err(), "seen before the commit");
        gate.open("go");
        running.end(exec::LIMIT).expect(0);
        assert!(rustix::io::read(&watch, &mut space).is_ok(), "not seen at the commit");
    });
}

#[test]
fn objects_of_communication_are_private_until_the_commit_makes_them_outside() {
    if exec::find("ipcrm").is_none() {
        txos_tests::skip!("no ipcrm(1)");
    }
    for_both(|scratch, txos| {
        let key = 0x7458_0000 | (std::process::id() & 0xffff);
        let name = format!("txos-row-{}", scratch.mark());
        let memory = format!("/dev/shm/{name}");
        // A queue with a message, three semaphores, a segment, a file of shared memory.
        let script = format!(
            "perl -e 'use IPC::SysV qw(IPC_CREAT IPC_EXCL SETALL); my $f = IPC_CREAT | IPC_EXCL | 0640; \
             my $q = msgget({key}, $f) // die \"msgget $!\"; msgsnd($q, pack(\"l! a*\", 7, \"text\"), 0) or die; \
             my $s = semget({key}, 3, $f) // die \"semget $!\"; semctl($s, 0, SETALL, pack(\"s*\", 4, 0, 6)) or die; \
             my $m = shmget({key}, 6000, $f) // die \"shmget $!\"; shmwrite($m, \"segment\", 0, 7) or die' \
             && echo shared >{memory} && chmod 604 {memory}; reach made; await go; echo x >f; "
        );
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let read = || {
            let script = format!(
                "perl -e 'my $q = msgget({key}, 0) // exit 1; msgrcv($q, my $t, 99, 0, 0) or exit 2; \
                 print join(\",\", unpack(\"l! a*\", $t)); my $s = semget({key}, 0, 0) // exit 3; \
                 semctl($s, 0, 13, my $v = \"\") or exit 4; print \" \", join(\",\", unpack(\"s*\", $v)); \
                 my $m = shmget({key}, 0, 0) // exit 5; shmread($m, my $x, 0, 9); print \" \", $x =~ s/\\0//gr; \
                 printf \" %o\", (stat \"{memory}\")[2] & 0777'"
            );
            exec::run(txos.command("sh".as_ref(), ["-c", &script]))
        };
        let remove = || {
            let script = format!("ipcrm -Q {key} -S {key} -M {key}; rm -f {memory}");
            exec::run(txos.command("sh".as_ref(), ["-c", &script]));
        };
        remove();
        let whole = format!("{}{script}", gate.functions());
        let running = txos.start_sh(&["--live", &live], &whole);
        gate.wait("made");
        let before = read().code();
        gate.open("go");
        let out = running.end(exec::LIMIT);
        let found = read();
        let again = txos.sh(&["--live", &live], &whole);
        remove();
        let aborted = txos.sh(&["--live", &live], &format!("{whole}exit 3"));
        let after = read().code();
        remove();
        assert_eq!((before, out.code()), (1, 0), "seen before the commit? {out}");
        assert_eq!(found.expect(0).stdout, "7,text 4,0,6 segment 604", "{out}");
        again.expect(125).says(&["one is there outside", "nothing was changed"]);
        assert_eq!((aborted.code(), after), (3, 1), "something is left of an abort");
    });
}

/// Makes, fills, reads and removes a POSIX message queue, by what `ARGV[0]` says; its name is in
/// `ARGV[1]`. Numbers of the calls: x86-64, arm64.
const QUEUE: &str = r#"perl -e '
    my $x86 = qx(uname -m) =~ /x86_64/;
    my ($open, $unlink, $send, $receive) = $x86 ? (240 .. 243) : (180 .. 183);
    my ($what, $name) = @ARGV; my ($rdwr, $new) = (2, 0100 | 0200);
    exit(syscall($unlink, $name) == 0 ? 0 : $! + 0) if $what eq "remove";
    my $limits = pack("l!8", 0, 4, 32, 0, 0, 0, 0, 0);
    my $q = $what eq "make" ? syscall($open, $name, $rdwr | $new, 0640, $limits) : syscall($open, $name, $rdwr | 04000);
    exit($! + 0) if $q < 0;
    if ($what eq "make") {
        for (["low", 1], ["high", 9], ["middle", 5]) {
            syscall($send, $q, $_->[0], length $_->[0], $_->[1], 0) == 0 or exit 99;
        }
        exit 0;
    }
    for (1 .. 4) {
        my ($text, $priority) = (" " x 32, pack("L", 0));
        my $length = syscall($receive, $q, $text, 32, $priority, 0);
        print $length < 0 ? "none" : substr($text, 0, $length) . unpack("L", $priority), " ";
    }' "#;

#[test]
fn a_named_queue_is_private_until_the_commit_makes_it_outside() {
    for_both(|scratch, txos| {
        let name = format!("txos-row-{}", scratch.mark());
        let outside = |what: &str| {
            exec::run(txos.command("sh".as_ref(), ["-c", &format!("{QUEUE} {what} {name}")]))
        };
        if outside("remove").code() == libc::ENOSYS {
            txos_tests::skip!("this kernel has no POSIX message queues");
        }
        let make = format!("{QUEUE} make {name}");
        txos.sh(&[], &format!("{make} && exit 4")).expect(4);
        outside("read").expect(libc::ENOENT);
        // What members sent and read is theirs; what is left comes out in the order of priorities.
        txos.sh(&[], &make).expect(0);
        let again = txos.sh(&[], &make);
        let found = outside("read");
        let removed = outside("remove");
        again.expect(125).says(&["one is there outside", "nothing was changed"]);
        assert_eq!(found.expect(0).stdout, "high9 middle5 low1 none ");
        removed.expect(0);
        let both = format!("{make} && {QUEUE} read {name} && {QUEUE} remove {name}");
        assert_eq!(txos.sh(&[], &both).expect(0).stdout, "high9 middle5 low1 none ");
        outside("read").expect(libc::ENOENT);
    });
}

#[test]
fn an_object_without_a_key_is_gone_and_told() {
    if exec::find("ipcmk").is_none() {
        txos_tests::skip!("no ipcmk(1)");
    }
    for_both(|_, txos| {
        // Queues without a key and of a mode that nobody else gives one.
        let ours = |row: &&str| {
            let mut words = row.split_ascii_whitespace();
            words.next() == Some("0") && words.nth(1) == Some("641")
        };
        let count = || {
            let table = std::fs::read_to_string("/proc/sysvipc/msg").expect("the table of queues");
            table.lines().filter(ours).count()
        };
        let before = count();
        let script = "perl -MIPC::SysV=IPC_PRIVATE -e 'defined msgget(IPC_PRIVATE, 0641) or die' && mkdir /dev/shm/d";
        let out = txos.sh(&[], script);
        out.expect(0).says(&["gone with the transaction", "no key", "/dev/shm/d"]);
        assert_eq!(count(), before, "a queue came out");
    });
}

#[test]
fn log_messages_are_sent_by_a_commit_and_dropped_by_an_abort() {
    if exec::find("logger").is_none() {
        txos_tests::skip!("no logger(1)");
    }
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json");
        let script = "for i in 1 2 3; do logger -t row message-$i || exit 9; done; ";
        for (end, code) in [("exit 0", 0), ("exit 5", 5)] {
            let options = ["--json", json.to_str().unwrap()];
            let out = txos.sh(&options, &format!("{script}{end}"));
            out.expect(code);
            let report = Report::read(&json);
            let kept = report.0["effects"]["messages"].as_array().unwrap();
            assert_eq!(kept.len(), 3, "{out}");
            assert!(kept[2].as_str().unwrap().ends_with("row: message-3"), "{kept:?}");
        }
        // A host's log that is let through gets them at once.
        if !Path::new("/dev/log").exists() {
            let out = txos.sh(&["--allow", "/dev/log"], "true");
            out.expect(125).says(&["/dev/log"]);
        }
    });
}

#[test]
fn an_exempt_log_is_written_at_once_and_survives_an_abort() {
    for_both(|scratch, txos| {
        let log = scratch.live().join("audit.log");
        let path = log.display().to_string();
        let json = scratch.base().join("report.json");
        let options = ["--exempt-log", &path, "--json", json.to_str().unwrap()];
        for said in ["one\n", "one\none\n"] {
            txos.sh(&options, &format!("echo one >>'{path}'; echo x >f; exit 4")).expect(4);
            assert_eq!(std::fs::read_to_string(&log).unwrap(), said);
            assert!(!scratch.inside().join("f").exists());
        }
        assert!(Report::read(&json).mentions("live", &path));
        // Nothing that is there can be changed: not by truncating, writing elsewhere, other names.
        let script = format!(
            "sync -d '{path}'; (: >'{path}') 2>/dev/null && echo emptied; truncate -s 1 '{path}' 2>/dev/null && echo cut; \
             chmod 777 '{path}' 2>/dev/null && echo opened; rm -f '{path}' 2>/dev/null; mv '{path}' x 2>/dev/null && echo moved; \
             printf two | dd of='{path}' conv=notrunc bs=3 status=none; cat '{path}'; stat -c %s '{path}'; exit 5"
        );
        assert_eq!(txos.sh(&options, &script).expect(5).stdout, "one\none\ntwo11\n");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\none\ntwo");
        let many = "perl -e 'open(my $f, q(>>), $ARGV[0]) or die; syswrite $f, q(x) x 100_000' ";
        txos.sh(&options, &format!("{many} '{path}'")).expect(0);
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 100_011);
        let out = txos.sh(&["--exempt-log", "/nonexistent/dir/log"], "true");
        out.expect(125).says(&["--exempt-log", "/nonexistent/dir/log"]);
    });
}

#[test]
fn an_exempt_log_that_is_rotated_meanwhile_is_there_again_for_the_retry() {
    for_both(|scratch, txos| {
        let log = scratch.inside().join("audit.log");
        let old = scratch.inside().join("audit.log.1");
        let gate = Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let path = log.display().to_string();
        let options = ["--exempt-log", &path, "--live", &live];
        let script = format!(
            "{}echo entry >>audit.log; echo x >f; reach written; await rotated",
            gate.functions()
        );
        let running = txos.start_sh(&options, &script);
        gate.wait("written");
        std::fs::rename(&log, &old).unwrap();
        gate.open("rotated");
        let out = running.end(exec::LIMIT);
        out.expect(0).says(&["running again"]);
        // Each attempt wrote at once, the first where its log went.
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "entry\n", "{out}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "entry\n", "{out}");
        assert!(scratch.inside().join("f").exists());
    });
}

#[test]
fn each_limit_aborts_and_names_its_option() {
    for_both(|scratch, txos| {
        for (option, value, script) in [
            ("--max-processes", "4", "for i in 1 2 3 4 5 6; do sleep 20 & done; echo x >f; wait"),
            ("--max-memory", "40M", "echo x >f; perl -e '$x = \"a\" x 150_000_000; sleep 20'"),
            ("--max-objects", "3", "touch a b c d f"),
            ("--max-bytes", "100K", "head -c 500000 /dev/zero >f"),
        ] {
            let out = txos.sh(&[option, value], script);
            out.expect(125).says(&[option, "nothing was changed"]);
            assert!(!scratch.inside().join("f").exists(), "{option}");
            assert!(out.took.as_secs() < 60, "{option}: {out}");
        }
        let all = ["--max-processes", "20", "--max-memory", "1G", "--max-objects", "9"];
        txos.sh(&all, "touch a b; sleep 0.2 & wait").expect(0);
    });
}
