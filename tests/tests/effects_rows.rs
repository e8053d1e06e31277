//! Rows of the table of effects that the view or the kernel decides, tried by programs inside; and
//! the table itself as the command prints it. What the filter decides is tried in `txos-effects`.

use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use txos_tests::exec;
use txos_tests::gate::Gate;
use txos_tests::report::Report;
use txos_tests::txos::{for_both, for_one};
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

#[test]
fn outsiders_have_no_pid_and_cannot_be_signalled() {
    for_both(|_, txos| {
        let mut victim = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let script = format!(
            "perl -e 'print kill(0, {0}) ? \"seen\" : $! + 0; kill 9, {0}' || true",
            victim.id()
        );
        let out = txos.sh(&[], &script);
        // Everybody: that is every member, the command itself first.
        txos.sh(&[], "perl -e 'kill 9, -1'; true").expect(137);
        let alive = victim.try_wait().unwrap().is_none();
        let _ = victim.kill();
        let _ = victim.wait();
        assert!(alive, "an outsider was killed");
        assert!(out.stdout.starts_with(&libc::ESRCH.to_string()), "{out}");
    });
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

#[test]
fn synchronous_writes_do_not_wait_and_are_committed() {
    for_both(|scratch, txos| {
        let script = "dd if=/dev/zero of=f bs=4k count=200 oflag=sync status=none && sync f";
        txos.sh(&[], script).expect(0);
        assert_eq!(std::fs::metadata(scratch.inside().join("f")).unwrap().len(), 819_200);
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
fn system_v_and_posix_ipc_are_the_transactions_own() {
    if exec::find("ipcmk").is_none() {
        txos_tests::skip!("no ipcmk(1)");
    }
    for_both(|_, txos| {
        let count =
            || std::fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default().lines().count();
        let before = count();
        let script = "ipcmk -Q >/dev/null && tail -n +2 /proc/sysvipc/msg | wc -l; echo x >/dev/shm/txos-row && cat /dev/shm/txos-row";
        let out = txos.sh(&[], script);
        assert_eq!(out.expect(0).stdout, "1\nx\n");
        out.says(&["gone with the transaction", "message queue 0", "/dev/shm/txos-row"]);
        assert_eq!(count(), before, "a queue came out");
        assert!(!Path::new("/dev/shm/txos-row").exists());
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
        assert!(Report::read(&json).mentions(&path));
        let out = txos.sh(&["--exempt-log", "/nonexistent/dir/log"], "true");
        out.expect(125).says(&["--exempt-log", "/nonexistent/dir/log"]);
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
            assert!(out.took.as_secs() < 15, "{option}: {out}");
        }
        let all = ["--max-processes", "20", "--max-memory", "1G", "--max-objects", "9"];
        txos.sh(&all, "touch a b; sleep 0.2 & wait").expect(0);
    });
}
