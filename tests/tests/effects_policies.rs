//! What the user decides about effects: policies, limits, what is let through; and wrong words for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};

use txos_tests::exec;
use txos_tests::report::Report;
use txos_tests::txos::for_both;

#[test]
fn each_policy_does_what_it_says() {
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json");
        // swapoff(2) of nothing, which changes nothing natively either.
        let script = "echo x >f; perl -e 'my $n = qx(uname -m) =~ /x86_64/ ? 168 : 225; my $p = q(/none); \
                      print syscall($n, $p) == 0 ? 0 : $! + 0'; echo on >g";
        let run = |policy: &str| {
            for name in ["f", "g"] {
                let _ = std::fs::remove_file(scratch.inside().join(name));
            }
            let options = ["--on-unsupported", policy, "--json", json.to_str().unwrap()];
            txos.sh(&options, script)
        };
        let there = |name: &str| scratch.inside().join(name).exists();
        let told = |list: &str| Report::read(&json).0["effects"][list].to_string();
        let out = run("error");
        assert_eq!(out.expect(0).stdout, "134", "{out}");
        out.says(&["refused swapoff(/none) by perl", "--on-unsupported allow"]);
        assert!(there("f") && there("g") && told("refused").contains("swapoff"));
        let out = run("abort");
        out.expect(125).says(&["swapoff(/none) by perl", "nothing was changed"]);
        assert!(!there("f") && !there("g"), "{out}");
        assert!(Report::read(&json).text("reason").contains("swapoff"));
        let out = run("allow");
        // As natively: EPERM without the privilege, else ENOENT.
        assert!(["1", "2"].contains(&&*out.expect(0).stdout), "{out}");
        out.says(&["warning: swapoff(/none) by perl was let through", "at once"]);
        assert!(there("f") && there("g") && told("allowed").contains("swapoff"));
        assert_eq!(told("refused"), "[]");
    });
}

#[test]
fn what_the_policy_lets_through_of_the_network_gets_there() {
    for_both(|scratch, txos| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let port = |address: std::io::Result<SocketAddr>| address.unwrap().port();
        let (port, other) = (port(server.local_addr()), port(datagrams.local_addr()));
        let client = format!(
            "perl -MSocket -e 'socket(my $s, PF_INET, SOCK_STREAM, 0) or die; \
             connect($s, pack_sockaddr_in({port}, INADDR_LOOPBACK)) or exit($! + 0); \
             syswrite $s, \"asked\"; sysread $s, my $x, 9; print $x'"
        );
        let serve = std::thread::spawn(move || {
            let (mut socket, _) = server.accept().unwrap();
            let mut space = [0; 5];
            socket.read_exact(&mut space).unwrap();
            socket.write_all(b"answered").unwrap();
            space
        });
        let json = scratch.base().join("report.json");
        let options = ["--on-unsupported", "allow", "--json", json.to_str().unwrap()];
        let out = txos.sh(&options, &format!("{client}; exit 3"));
        assert_eq!(out.expect(3).stdout, "answered", "{out}");
        assert_eq!(&serve.join().unwrap(), b"asked");
        out.says(&["warning: connect(127.0.0.1:", "by perl was let through", "at once"]);
        let allowed = Report::read(&json).0["effects"]["allowed"].to_string();
        assert!(allowed.contains(&format!("127.0.0.1:{port}")), "{allowed}");
        // Only what is connected can be carried; the rest fails and is never called let through.
        let script = format!(
            "perl -MSocket -e 'socket(my $s, PF_INET, SOCK_DGRAM, 0) or die; \
             print defined(send($s, q(x), 0, pack_sockaddr_in({other}, INADDR_LOOPBACK))) ? q(sent) : $! + 0'"
        );
        let out = txos.sh(&options, &script);
        assert_eq!(out.expect(0).stdout, "134", "{out}");
        out.says(&["refused sendto(127.0.0.1:", "--allow net"]);
        assert!(datagrams.recv(&mut [0; 4]).is_err(), "a datagram came out");
    });
}

#[test]
fn what_the_policy_lets_through_has_the_privilege_for_it() {
    // settimeofday(2) of no time and of the zone that is there, which changes nothing.
    let script = "perl -e 'my $n = qx(uname -m) =~ /x86_64/ ? 164 : 170; \
                  print syscall($n, 0, 0) == 0 ? q(done) : $! + 0'";
    for_both(|_, txos| {
        let native = exec::run(txos.command("sh".as_ref(), ["-c", script]));
        let out = txos.sh(&["--on-unsupported", "allow"], script);
        assert_eq!(out.expect(0).stdout, native.expect(0).stdout, "{out}");
        out.says(&["warning: settimeofday("]);
        // By no other policy: what backs up the filter is there.
        let out = txos.sh(&[], "grep CapBnd /proc/self/status");
        let bound = out.expect(0).stdout.split_ascii_whitespace().last().unwrap_or_default();
        let bound = u64::from_str_radix(bound, 16).unwrap();
        assert_eq!(bound & (1 << 25), 0, "CAP_SYS_TIME: {out}");
    });
}

#[test]
fn each_limit_is_in_the_report() {
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json");
        for (option, value, script) in [
            ("--timeout", "300ms", "echo x >f; sleep 600"),
            ("--max-processes", "2", "echo x >f; sleep 600 & sleep 600 & sleep 600 & wait"),
            ("--max-memory", "30M", "echo x >f; perl -e '$x = q(a) x 100_000_000; sleep 600'"),
            ("--max-objects", "2", "touch f a b c"),
            ("--max-bytes", "100K", "head -c 500000 /dev/zero >f; sleep 600"),
        ] {
            let out = txos.sh(&[option, value, "--json", json.to_str().unwrap()], script);
            out.expect(125).says(&[option, "nothing was changed"]);
            let report = Report::read(&json);
            assert!(report.text("reason").contains(option), "{report:?}");
            assert_eq!(
                (report.text("outcome"), report.text("exit_status")),
                ("aborted".into(), "125".into())
            );
            assert!(!scratch.inside().join("f").exists(), "{option}");
        }
    });
}

#[test]
fn wrong_words_are_refused_before_anything_runs() {
    for_both(|scratch, txos| {
        let fifo = scratch.live().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        // Whatever the umask says.
        rustix::fs::chmod(&fifo, mode).unwrap();
        let (fifo, live) = (fifo.display().to_string(), scratch.live().display().to_string());
        let mark = scratch.live().join("ran");
        for (options, named) in [
            (vec!["--exempt-log", &fifo], vec!["--exempt-log", "regular file"]),
            (vec!["--exempt-log", &live], vec!["--exempt-log", "directory"]),
            (vec!["--exempt-log", "/dev/null"], vec!["--exempt-log", "regular file"]),
            (vec!["--exempt-log", "/nonexistent/log"], vec!["/nonexistent/log"]),
            (vec!["--net", "record", "--allow", "net"], vec!["--net record", "--allow net:HOST"]),
            (vec!["--allow", "net:"], vec!["--allow net:", "no host"]),
            (vec!["--allow", "net::80"], vec!["--allow net::80", "no host"]),
            (vec!["--allow", "net:127.0.0.1:0"], vec!["--allow net:127.0.0.1:0", "port"]),
            (vec!["--net", "replay"], vec!["--net", "record"]),
            (vec!["--allow", "net:"], vec!["--allow net:"]),
            (vec!["--allow", "net:127.0.0.1:99999"], vec!["the port"]),
            (vec!["--allow", "net:127.0.0.1:x"], vec!["the port"]),
            (vec!["--allow", "/nonexistent/socket"], vec!["/nonexistent/socket", "must exist"]),
            (vec!["--pass-fd", "77"], vec!["descriptor 77", "not open"]),
            (vec!["--pass-fd", "1"], vec!["descriptor 1 ", "from 3 on"]),
            (vec!["--pass-fd=-1"], vec!["descriptor -1 "]),
            (vec!["--on-unsupported", "maybe"], vec!["--on-unsupported", "abort", "allow"]),
            (vec!["--max-processes", "0"], vec!["--max-processes"]),
            (vec!["--max-memory", "10X"], vec!["--max-memory", "X"]),
            (vec!["--max-objects", "-1"], vec!["-1"]),
            (vec!["--timeout", "soon"], vec!["--timeout"]),
        ] {
            let mut all = vec!["--live", &live];
            all.extend(options);
            let out = txos.sh(&all, &format!(": >'{}'", mark.display()));
            out.expect(125).says(&named);
            assert!(!mark.exists(), "{all:?}");
        }
    });
}

#[test]
fn an_exempt_log_by_another_name_is_the_same_file() {
    for_both(|scratch, txos| {
        let log = scratch.live().join("log");
        let link = scratch.live().join("link");
        std::os::unix::fs::symlink(&log, &link).unwrap();
        let text = link.display().to_string();
        let script =
            format!("echo one >>'{text}'; (: >'{text}') 2>/dev/null && echo emptied; exit 3");
        for wanted in ["one\n", "one\none\n"] {
            let options = ["--exempt-log", &text, "--exempt-log", &text];
            assert_eq!(txos.sh(&options, &script).expect(3).stdout, "");
            assert_eq!(std::fs::read_to_string(&log).unwrap(), wanted);
        }
        // It keeps its rule where all about it is let through.
        let live = scratch.live().display().to_string();
        let options = ["--exempt-log", &text, "--live", &live];
        assert_eq!(txos.sh(&options, &script).expect(3).stdout, "");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "one\none\none\n");
    });
}

#[test]
fn an_outsider_that_is_let_through_is_in_the_report() {
    if exec::find("python3").is_none() {
        txos_tests::skip!("no python3(1)");
    }
    for_both(|scratch, txos| {
        let json = scratch.base().join("report.json");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (_, port) = address.split_once(':').unwrap();
        let script = format!(
            "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 60)'; exit 4"
        );
        // It was contacted also where the transaction is aborted.
        for allow in ["net".to_owned(), format!("net:{address}")] {
            let out = txos.sh(&["--allow", &allow, "--json", json.to_str().unwrap()], &script);
            out.expect(4);
            let report = Report::read(&json);
            assert_eq!(report.0["effects"]["contacted"][0]["address"], address, "{out}");
            assert_eq!(report.0["network"], true);
        }
    });
}
