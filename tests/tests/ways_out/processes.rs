//! Outsiders' processes, and processes that outlive the command or have more rights than its user.

use super::*;

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
fn core_dumps_stay_inside() {
    as_root!();
    let scratch = Scratch::new();
    let out = Txos::new(&scratch).sh(&[], "ulimit -c unlimited; kill -SEGV $$");
    out.expect(128 + 11);
    let left = std::fs::read_dir(scratch.inside()).expect("inside").count();
    assert_eq!(left, 0, "a core file of an aborted transaction");
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
