//! The filter on real system calls: a thread installs it, makes each call, and a supervisor in
//! this process answers. Threads have filters of their own, so no test disturbs another.
#![allow(unsafe_code, reason = "the calls under test are made raw, with arguments chosen by hand")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use rustix::thread::set_no_new_privs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use txos_effects::filter::{Filter, close_abstract_sockets};
use txos_effects::supervisor::{
    EffectsReport, Gateway, Hooks, Locks, Notice, Signals, Supervisor, Tapes,
};
use txos_effects::{ENOTXSUPPORT, Error, OnUnsupported, Policy, recv_fd, send_fd};

/// What a run under the filter left.
struct Seen<T> {
    value: T,
    report: EffectsReport,
    notices: Vec<String>,
    aborts: usize,
}

/// Runs `body` in a thread under the filter of `policy`.
fn under<T: Send + 'static>(policy: Policy, body: impl FnOnce() -> T + Send + 'static) -> Seen<T> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let for_child = policy.clone();
    let member = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        send_fd(&theirs, Filter::new(&for_child).install().unwrap()).unwrap();
        wait.recv().unwrap();
        body()
    });
    let notices = Arc::new(Mutex::new(Vec::new()));
    let aborts = Arc::new(Mutex::new(0));
    let (lines, count) = (Arc::clone(&notices), Arc::clone(&aborts));
    let hooks = Hooks {
        notice: Box::new(move |notice: &Notice| lines.lock().unwrap().push(notice.to_string())),
        abort: Box::new(move |_| *count.lock().unwrap() += 1),
        locks: Locks::default(),
        signals: Signals::default(),
        numbers: Box::new(|| None),
        gateway: Gateway::default(),
        tapes: Tapes::default(),
    };
    let listener = recv_fd(&ours).unwrap();
    let supervisor = Supervisor::start(listener, policy, hooks, 2).unwrap();
    go.send(()).unwrap();
    let value = member.join().unwrap();
    let report = supervisor.finish();
    let (notices, aborts) = (notices.lock().unwrap().clone(), *aborts.lock().unwrap());
    Seen { value, report, notices, aborts }
}

fn quiet() -> Hooks {
    Hooks {
        notice: Box::new(|_| {}),
        abort: Box::new(|_| {}),
        locks: Locks::default(),
        signals: Signals::default(),
        numbers: Box::new(|| None),
        gateway: Gateway::default(),
        tapes: Tapes::default(),
    }
}

/// A raw call: its value, or its error number as a negative one.
fn call(nr: libc::c_long, args: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the tests pass integers, null pointers, and pointers to buffers that they hold.
    let value = unsafe { libc::syscall(nr, a, b, c, d, e, f) };
    if value < 0 { -i64::from(io::Error::last_os_error().raw_os_error().unwrap()) } else { value }
}

fn with(args: &[u64]) -> [u64; 6] {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    all
}

const REFUSED: i64 = -(ENOTXSUPPORT as i64);

#[test]
fn durability_calls_return_at_once() {
    let seen = under(Policy::default(), || {
        [
            call(libc::SYS_sync, with(&[u64::MAX])),
            call(libc::SYS_msync, with(&[0, 4096, libc::MS_SYNC as u64])),
            call(libc::SYS_msync, with(&[1, 4096, libc::MS_SYNC as u64])),
            call(libc::SYS_msync, with(&[0, 4096, (libc::MS_SYNC | libc::MS_ASYNC) as u64])),
            // The view's overlays wait for nothing; what else is opened is the kernel's affair.
            call(libc::SYS_fsync, with(&[u64::MAX])),
        ]
    });
    let (wrong, closed) = (-i64::from(libc::EINVAL), -i64::from(libc::EBADF));
    assert_eq!(seen.value, [0, 0, wrong, wrong, closed]);
    assert!(seen.report.is_empty());
    // Without MS_SYNC the call is the kernel's: it asks whether memory is mapped.
    let seen = under(Policy::default(), || {
        call(libc::SYS_msync, with(&[1 << 46, 4096, libc::MS_ASYNC as u64]))
    });
    assert_eq!(seen.value, -i64::from(libc::ENOMEM));
}

#[test]
fn hidden_interfaces_are_absent() {
    let seen = under(Policy::default(), || {
        [
            libc::SYS_io_uring_setup,
            libc::SYS_io_uring_enter,
            libc::SYS_io_uring_register,
            libc::SYS_clone3,
        ]
        .map(|nr| call(nr, [0; 6]))
    });
    assert_eq!(seen.value, [-i64::from(libc::ENOSYS); 4]);
    assert!(seen.report.is_empty());
}

/// Each refused call with arguments that could do no harm even if it went through.
fn refused_calls() -> Vec<(libc::c_long, &'static str, [u64; 6])> {
    let path = c"/nonexistent/x".as_ptr() as u64;
    let none = [u64::MAX; 6];
    vec![
        (libc::SYS_mount, "mount", with(&[0, path])),
        (libc::SYS_umount2, "umount2", with(&[path])),
        (libc::SYS_pivot_root, "pivot_root", with(&[path, path])),
        (libc::SYS_move_mount, "move_mount", with(&[u64::MAX, 0, u64::MAX, path])),
        (libc::SYS_open_tree, "open_tree", with(&[u64::MAX, path])),
        (libc::SYS_fsopen, "fsopen", with(&[path])),
        (libc::SYS_fsconfig, "fsconfig", none),
        (libc::SYS_fsmount, "fsmount", none),
        (libc::SYS_fspick, "fspick", with(&[u64::MAX, path])),
        (libc::SYS_mount_setattr, "mount_setattr", with(&[u64::MAX, path])),
        (libc::SYS_swapon, "swapon", with(&[path])),
        (libc::SYS_swapoff, "swapoff", with(&[path])),
        (libc::SYS_quotactl, "quotactl", none),
        (libc::SYS_open_by_handle_at, "open_by_handle_at", none),
        (libc::SYS_setns, "setns", none),
        (libc::SYS_unshare, "unshare", with(&[libc::CLONE_NEWNS as u64])),
        (libc::SYS_clone, "clone", with(&[libc::CLONE_NEWUSER as u64 | libc::CLONE_FS as u64])),
        (libc::SYS_reboot, "reboot", [0; 6]),
        (libc::SYS_kexec_load, "kexec_load", none),
        (libc::SYS_kexec_file_load, "kexec_file_load", none),
        (libc::SYS_init_module, "init_module", [0; 6]),
        (libc::SYS_finit_module, "finit_module", none),
        (libc::SYS_delete_module, "delete_module", with(&[path])),
        (libc::SYS_sethostname, "sethostname", with(&[0, u64::MAX])),
        (libc::SYS_setdomainname, "setdomainname", with(&[0, u64::MAX])),
        (libc::SYS_acct, "acct", with(&[path])),
        (libc::SYS_settimeofday, "settimeofday", with(&[1, 1])),
        (libc::SYS_clock_settime, "clock_settime", with(&[0, 0])),
        (libc::SYS_bpf, "bpf", none),
        (libc::SYS_perf_event_open, "perf_event_open", [0; 6]),
        (libc::SYS_fanotify_init, "fanotify_init", none),
        (libc::SYS_userfaultfd, "userfaultfd", none),
        (libc::SYS_add_key, "add_key", [0; 6]),
        (libc::SYS_request_key, "request_key", [0; 6]),
        (libc::SYS_keyctl, "keyctl", with(&[u64::MAX])),
        (libc::SYS_syslog, "syslog", with(&[8, 0, u64::MAX])),
        (libc::SYS_ioctl, "ioctl", with(&[u64::MAX, 0x5412])),
        (libc::SYS_ioctl, "ioctl", with(&[u64::MAX, 0x541C])),
        (libc::SYS_ioctl, "ioctl", with(&[u64::MAX, 0xC004_5877])),
        (libc::SYS_socket, "socket", with(&[libc::AF_VSOCK as u64, libc::SOCK_STREAM as u64])),
        (libc::SYS_socket, "socket", with(&[libc::AF_PACKET as u64, libc::SOCK_RAW as u64])),
    ]
}

#[test]
fn what_cannot_be_isolated_is_refused_with_a_line_that_names_the_flag() {
    let seen = under(Policy::default(), || {
        refused_calls()
            .into_iter()
            .map(|(nr, name, args)| (name, call(nr, args)))
            .collect::<Vec<_>>()
    });
    for (name, value) in &seen.value {
        assert_eq!(*value, REFUSED, "{name}");
        assert!(seen.report.refused.iter().any(|r| r.call == *name), "{name} is not reported");
        let line = seen.notices.iter().find(|line| line.contains(&format!("{name}(")));
        assert!(line.is_some_and(|line| line.contains("lets it through")), "{name}: {line:?}");
    }
    let mount = seen.report.refused.iter().find(|r| r.call == "mount").unwrap();
    assert_eq!((mount.detail.as_str(), mount.count), ("/nonexistent/x", 1));
    let socket = seen.report.refused.iter().find(|r| r.call == "socket").unwrap();
    assert_eq!((socket.detail.as_str(), socket.flag.as_str()), ("AF_VSOCK", "--allow net"));
}

/// Every row and case of the table that the filter answers by registers, as really made calls.
#[test]
fn each_row_that_the_filter_decides_answers_as_the_table_says() {
    use txos_effects::filter::Arch;
    use txos_effects::filter::rules::rule_of;
    use txos_effects::table::{Fate, Sample, rows};
    let mut tries = Vec::new();
    for row in rows().into_iter().filter(|row| rule_of(row.call).is_some()) {
        let Some(nr) = Arch::HOST.number(row.call) else { continue };
        let mut add = |what: &str, fate, registers: &[(u8, u64)]| {
            let mut args = [0; 6];
            for (at, value) in registers {
                args[usize::from(*at)] = *value;
            }
            tries.push((format!("{} {what}", row.call), nr, args, fate));
        };
        // What reads a clock is tried in a test of its own, and a socket without a family is the
        // kernel's to refuse.
        if !row.call.contains("adjtime") && !row.call.starts_with("socket") {
            add("", row.fate, &[]);
        }
        for case in row.cases {
            if let Sample::Registers(registers) = case.sample {
                add(case.when, case.fate, registers);
            }
        }
    }
    // Calls with a rule that let the plain form through would be made for real: not here.
    tries.retain(|(.., fate)| {
        matches!(fate, Fate::Refused | Fate::Absent | Fate::Deferred | Fate::Flag)
    });
    assert!(tries.len() > 60, "{}", tries.len());
    let made = tries.clone();
    let seen = under(Policy::default(), move || {
        made.iter().map(|(_, nr, args, _)| call((*nr).into(), *args)).collect::<Vec<_>>()
    });
    let hidden = [libc::ENOSYS, libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT].map(|e| -i64::from(e));
    for ((what, _, _, fate), value) in tries.iter().zip(seen.value) {
        let right = match fate {
            Fate::Deferred => value == 0,
            Fate::Absent => hidden.contains(&value) || value == REFUSED,
            _ => value == REFUSED,
        };
        assert!(right, "{what}: {value}, {fate:?}");
    }
}

#[test]
fn what_no_kernel_has_any_more_is_absent() {
    use txos_effects::filter::Arch;
    use txos_effects::filter::rules::rule_of;
    use txos_effects::table::{Fate, rows};
    let gone: Vec<_> = rows()
        .into_iter()
        .filter(|row| row.fate == Fate::Absent && rule_of(row.call).is_none())
        .filter_map(|row| Some((row.call, Arch::HOST.number(row.call)?)))
        .collect();
    let made = gone.clone();
    let make = move || made.iter().map(|(_, nr)| call((*nr).into(), [0; 6])).collect::<Vec<_>>();
    let natively = make.clone()();
    let seen = under(Policy::default(), make);
    for (((name, _), inside), outside) in gone.iter().zip(seen.value).zip(natively) {
        // An older kernel may still have it, and fails it for its arguments.
        assert!(inside == -i64::from(libc::ENOSYS) || inside == outside, "{name}: {inside}");
        assert!(inside < 0, "{name}: {inside}");
    }
}

#[test]
fn calls_newer_than_the_table_are_absent() {
    use txos_effects::filter::Arch;
    let newer = Arch::HOST.first_unknown();
    let seen = under(Policy::default(), move || {
        [newer, newer + 1, 5000].map(|nr| call(nr.into(), [0; 6]))
    });
    assert_eq!(seen.value, [-i64::from(libc::ENOSYS); 3]);
}

#[test]
fn without_the_network_only_loopback_is_let_through() {
    let seen = under(Policy::default(), || {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = udp.local_addr().unwrap();
        let inside = udp.send_to(b"x", own).is_ok();
        let outside = udp.send_to(b"x", "192.0.2.1:9").unwrap_err().raw_os_error();
        (inside, outside)
    });
    assert_eq!(seen.value, (true, Some(ENOTXSUPPORT)));
    assert!(seen.notices[0].contains("sendto(192.0.2.1:9)"), "{:?}", seen.notices);
}

#[test]
fn a_repeated_call_is_told_once_and_counted() {
    let seen = under(Policy::default(), || {
        for _ in 0..50 {
            call(libc::SYS_socket, with(&[libc::AF_PACKET as u64, 1]));
        }
    });
    assert_eq!(seen.notices.len(), 1);
    assert_eq!(seen.report.refused[0].count, 50);
    assert!(!seen.report.refused[0].first.is_empty());
}

#[test]
fn harmless_forms_go_through() {
    let seen = under(Policy::default(), || {
        let local = call(libc::SYS_socket, with(&[libc::AF_UNIX as u64, 1]));
        let route = call(libc::SYS_socket, with(&[libc::AF_NETLINK as u64, 3, 0]));
        let unshare = call(libc::SYS_unshare, with(&[libc::CLONE_FS as u64]));
        let child = Command::new("true").status().map(|s| s.success()).unwrap_or(false);
        (local, route, unshare, child)
    });
    let (local, route, unshare, child) = seen.value;
    assert!(local >= 0 && route >= 0, "{local} {route}");
    assert_eq!((unshare, child), (0, true));
    assert!(seen.report.is_empty(), "{:?}", seen.report);
}

#[test]
fn audit_looks_like_a_kernel_without_it() {
    let seen = under(Policy::default(), || {
        [libc::NETLINK_AUDIT, libc::NETLINK_SELINUX, libc::NETLINK_KOBJECT_UEVENT]
            .map(|p| call(libc::SYS_socket, with(&[libc::AF_NETLINK as u64, 3, p as u64])))
    });
    assert_eq!(seen.value, [-i64::from(libc::EPROTONOSUPPORT); 3]);
    assert!(seen.report.is_empty());
}

#[test]
fn the_clock_can_be_read_but_not_set() {
    let seen = under(Policy::default(), || {
        let mut read = [0u8; size_of::<libc::timex>()];
        let state = call(libc::SYS_adjtimex, with(&[read.as_mut_ptr() as u64]));
        let by_id = call(libc::SYS_clock_adjtime, with(&[0, read.as_mut_ptr() as u64]));
        let mut set = [0u8; size_of::<libc::timex>()];
        set[0] = 2;
        let refused = call(libc::SYS_adjtimex, with(&[set.as_mut_ptr() as u64]));
        let fault = call(libc::SYS_adjtimex, with(&[8]));
        (state, by_id, read.iter().any(|&b| b != 0), refused, fault)
    });
    let (state, by_id, filled, refused, fault) = seen.value;
    assert!((0..=5).contains(&state) && (0..=5).contains(&by_id) && filled, "{state} {by_id}");
    assert_eq!((refused, fault), (REFUSED, -i64::from(libc::EFAULT)));
    assert_eq!(seen.report.refused.len(), 1);
}

#[test]
fn allow_makes_the_call_and_warns() {
    let policy = Policy { on_unsupported: OnUnsupported::Allow, ..Policy::default() };
    let seen = under(policy, || {
        // Fails in the kernel itself: there is no such operation.
        call(libc::SYS_keyctl, with(&[u64::MAX]))
    });
    assert_eq!(seen.value, -i64::from(libc::EOPNOTSUPP));
    assert!(seen.report.refused.is_empty());
    assert_eq!(seen.report.allowed[0].call, "keyctl");
    assert!(seen.notices[0].starts_with("warning: keyctl("), "{:?}", seen.notices);
}

#[test]
fn abort_tells_the_manager_and_never_makes_the_call() {
    let policy = Policy { on_unsupported: OnUnsupported::Abort, ..Policy::default() };
    let seen = under(policy, || call(libc::SYS_mount, [0; 6]));
    assert_eq!((seen.value, seen.aborts), (REFUSED, 1));
    assert!(seen.notices[0].starts_with("aborting: mount("), "{:?}", seen.notices);
}

#[test]
fn with_the_network_allowed_contacts_are_reported() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let policy = Policy { allow_net: true, ..Policy::default() };
    let seen = under(policy, move || {
        let stream = std::net::TcpStream::connect(address).map(|mut s| s.write_all(b"x"));
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.send_to(b"x", address).unwrap();
        let local = UnixStream::connect("/nonexistent/socket").map(|s| s.as_raw_fd());
        (stream.is_ok(), local.is_err())
    });
    assert_eq!(seen.value, (true, true));
    assert_eq!(seen.report.contacted.len(), 1);
    assert_eq!(seen.report.contacted[0].address, address.to_string());
    assert_eq!(seen.report.contacted[0].count, 2);
    assert_eq!(seen.report.local[0].address, "/nonexistent/socket");
    assert!(seen.report.refused.is_empty());
}

#[test]
fn a_hook_that_fails_refuses_its_call_and_no_other() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let member = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        send_fd(&theirs, Filter::new(&Policy::default()).install().unwrap()).unwrap();
        [1, 2].map(|_| call(libc::SYS_mount, [0; 6]))
    });
    let hooks = Hooks {
        notice: Box::new(|_| panic!("the printer is on fire (part of a test)")),
        abort: Box::new(|_| {}),
        locks: Locks::default(),
        signals: Signals::default(),
        numbers: Box::new(|| None),
        gateway: Gateway::default(),
        tapes: Tapes::default(),
    };
    let listener = recv_fd(&ours).unwrap();
    let supervisor = Supervisor::start(listener, Policy::default(), hooks, 1).unwrap();
    assert_eq!(member.join().unwrap(), [REFUSED; 2]);
    assert_eq!(supervisor.finish().trouble.len(), 1);
}

#[test]
fn calls_are_answered_at_once_by_as_many_threads_as_there_may_be() {
    // Each hook waits for the others: so all are called at the same time, or none returns.
    for (most, together) in [(3, 3), (1, 1)] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let member = thread::spawn(move || {
            set_no_new_privs(true).unwrap();
            send_fd(&theirs, Filter::new(&Policy::default()).install().unwrap()).unwrap();
            let calls = [libc::SYS_acct, libc::SYS_reboot, libc::SYS_swapoff];
            let threads = calls.map(|nr| thread::spawn(move || call(nr, [0; 6])));
            threads.map(|thread| thread.join().unwrap())
        });
        let met = Arc::new((Mutex::new([0, 0]), std::sync::Condvar::new()));
        let inside = Arc::clone(&met);
        let notice = move |_: &Notice| {
            let (count, changed) = &*inside;
            let mut count = count.lock().unwrap();
            count[0] += 1;
            count[1] = count[0].max(count[1]);
            changed.notify_all();
            let limit = std::time::Duration::from_secs(if most == 1 { 1 } else { 60 });
            let wait = |count: &mut [i32; 2]| count[1] < 3;
            count = changed.wait_timeout_while(count, limit, wait).unwrap().0;
            count[0] -= 1;
        };
        let hooks = Hooks { notice: Box::new(notice), ..quiet() };
        let listener = recv_fd(&ours).unwrap();
        let supervisor = Supervisor::start(listener, Policy::default(), hooks, most).unwrap();
        assert_eq!(member.join().unwrap(), [REFUSED; 3]);
        supervisor.finish();
        assert_eq!(met.0.lock().unwrap()[1], together, "{most} threads");
    }
}

#[test]
fn a_second_listener_is_named_as_a_transaction_inside_another() {
    let seen = under(Policy::default(), || {
        Filter::new(&Policy::default()).install().unwrap_err().to_string()
    });
    assert!(seen.value.contains("inside another one"), "{}", seen.value);
}

#[test]
fn calls_after_the_end_fail_and_do_not_hang() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let member = thread::spawn(move || {
        set_no_new_privs(true).unwrap();
        send_fd(&theirs, Filter::new(&Policy::default()).install().unwrap()).unwrap();
        wait.recv().unwrap();
        call(libc::SYS_mount, [0; 6])
    });
    let hooks = quiet();
    let supervisor =
        Supervisor::start(recv_fd(&ours).unwrap(), Policy::default(), hooks, 1).unwrap();
    assert!(supervisor.finish().is_empty());
    go.send(()).unwrap();
    assert_eq!(member.join().unwrap(), -i64::from(libc::ENOSYS));
}

/// A program in a user namespace of its own, as an ordinary user's transaction is.
#[test]
fn a_program_in_a_user_namespace_is_supervised() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut theirs = Some(theirs);
    let mut shell = Command::new("bash");
    shell.args(["-c", "mount -t tmpfs none /mnt; hostname x; unshare -m true; exit 5"]);
    if rustix::process::geteuid().is_root() {
        shell.uid(65534).gid(65534);
    }
    let set_up = move || {
        let flags = rustix::thread::UnshareFlags::NEWUSER | rustix::thread::UnshareFlags::NEWNS;
        // SAFETY: the process is a fresh child with one thread.
        unsafe { rustix::thread::unshare_unsafe(flags)? };
        let filter = Filter::new(&Policy::default());
        let listener = filter.install().map_err(io::Error::other)?;
        let theirs = theirs.take().ok_or(io::ErrorKind::NotFound)?;
        send_fd(&theirs, listener).map_err(io::Error::other)
    };
    // SAFETY: the child allocates a little after fork, which the C library's fork allows.
    unsafe { shell.pre_exec(set_up) };
    let child = thread::spawn(move || shell.output());
    let listener = match recv_fd(&ours) {
        Ok(listener) => listener,
        Err(_) => {
            let error = child.join().unwrap().map(drop).unwrap_err();
            let mut unshare = Command::new("unshare");
            if rustix::process::geteuid().is_root() {
                unshare.uid(65534).gid(65534);
            }
            let natively = unshare.args(["-Um", "true"]).status();
            assert!(!natively.is_ok_and(|status| status.success()), "{error}");
            eprintln!("Skip: no user namespace for an ordinary user: {error}");
            return;
        }
    };
    let hooks = quiet();
    let supervisor = Supervisor::start(listener, Policy::default(), hooks, 1).unwrap();
    let output = child.join().unwrap().unwrap();
    let report = supervisor.finish();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let calls: Vec<_> =
        report.refused.iter().map(|r| (r.call.as_str(), r.first.as_str())).collect();
    assert!(calls.contains(&("sethostname", "hostname")), "{report:?}");
    assert!(calls.contains(&("unshare", "unshare")), "{report:?}");
    assert!(calls.iter().any(|call| call.1 == "mount"), "{report:?}");
}

#[test]
fn abstract_sockets_of_outsiders_can_be_closed() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let name = |what: &str| {
        let name = format!("txos-test-{what}-{}", std::process::id());
        SocketAddr::from_abstract_name(name).unwrap()
    };
    let (outside, inside) = (name("outside"), name("inside"));
    let _outsider = UnixListener::bind_addr(&outside).unwrap();
    let member = thread::spawn(move || {
        assert!(UnixStream::connect_addr(&outside).is_ok());
        set_no_new_privs(true).unwrap();
        let closed = close_abstract_sockets().unwrap();
        let own = UnixListener::bind_addr(&inside).unwrap();
        let reached = UnixStream::connect_addr(&inside).is_ok();
        drop(own);
        (closed, UnixStream::connect_addr(&outside).is_err(), reached)
    });
    match member.join().unwrap() {
        (false, ..) => eprintln!("Skip: the kernel has no scopes for abstract sockets"),
        seen => assert_eq!(seen, (true, true, true)),
    }
}

/// Everything above again without any privilege. (The member sets no_new_privs in both.)
#[test]
fn as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // A copy, because the program may lie where no other user gets.
    let dir = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).unwrap();
    let this = dir.path().join("filter");
    std::fs::copy(std::env::current_exe().unwrap(), &this).unwrap();
    let output = Command::new(this).uid(65534).gid(65534).arg("--quiet").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn without_no_new_privs_a_privilege_is_needed() {
    let installed = thread::spawn(|| Filter::new(&Policy::default()).install().map(drop));
    match (rustix::process::geteuid().is_root(), installed.join().unwrap()) {
        (true, installed) => installed.unwrap(),
        (false, Err(Error::FilterDenied)) => {}
        (false, other) => panic!("{other:?}"),
    }
}

#[test]
fn a_child_that_sends_nothing_is_named() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    drop(theirs);
    assert!(recv_fd(&ours).unwrap_err().to_string().contains("listener"));
}
