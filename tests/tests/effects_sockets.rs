//! Sockets: members reach one another freely, and outsiders not without a flag.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use txos_tests::exec;
use txos_tests::report::Report;
use txos_tests::scratch::Scratch;
use txos_tests::skip;
use txos_tests::txos::for_both;

/// A server and a client in one perl program: over the network of the transaction alone.
const PAIR: &str = r#"perl -MIO::Socket::INET -e '
    my $l = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1", LocalPort => 0) or die "listen: $!";
    my $port = $l->sockport;
    if (!fork) {
        my $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port) or die "connect: $!";
        print $c "hello\n";
        print scalar <$c>;
        exit 0;
    }
    my $c = $l->accept;
    print $c "got " . <$c>;
    close $c;
    wait;
    exit $?;
'"#;

/// A program that connects to a port of this machine and does something with the socket `$s`; it ends
/// with the error number where it does not get there.
fn client(port: u16, then: &str) -> String {
    format!(
        "perl -MSocket -e 'socket(my $s, PF_INET, SOCK_STREAM, 0) or die; \
         connect($s, pack_sockaddr_in({port}, inet_aton(\"127.0.0.1\"))) or exit($! + 0); {then}'"
    )
}

#[test]
fn members_reach_one_another_over_loopback() {
    for_both(|_, txos| {
        let out = txos.sh(&[], PAIR);
        assert_eq!(out.expect(0).stdout, "got hello\n");
        assert!(!out.stderr.contains("refused"), "{out}");
    });
}

#[test]
fn a_server_and_its_client_in_one_transaction() {
    let (Some(_), Some(_)) = (exec::find("python3"), exec::find("curl")) else {
        skip!("no python3 or no curl in {:?}", exec::path());
    };
    for_both(|_, txos| {
        let script = "mkdir www; echo served >www/f; cd www; python3 -m http.server 8711 --bind 127.0.0.1 >/dev/null 2>&1 & \
                      for i in $(seq 600); do curl -s http://127.0.0.1:8711/f && break; sleep 0.1; done; kill $!";
        assert_eq!(txos.sh(&[], script).expect(0).stdout, "served\n");
    });
}

#[test]
fn a_server_outside_is_refused_with_the_flag_named_and_let_through_by_it() {
    for_both(|scratch, txos| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let connect = client(port, "syswrite $s, \"x\"; exit 0");
        let out = txos.sh(&[], &format!("{connect}; echo $?"));
        assert_eq!(out.expect(0).stdout, "134\n");
        out.says(&["connect(", &port.to_string(), "--allow net"]);
        let json = scratch.base().join("report.json");
        let options = ["--allow", "net", "--json", json.to_str().unwrap()];
        let accepted = std::thread::spawn(move || {
            let mut seen = Vec::new();
            server.accept().unwrap().0.read_to_end(&mut seen).unwrap();
            seen
        });
        txos.sh(&options, &connect).expect(0);
        assert_eq!(accepted.join().unwrap(), b"x");
        assert!(
            Report::read(&json).mentions("effects", &format!("127.0.0.1:{port}")),
            "contacts are reported"
        );
    });
}

#[test]
fn a_host_that_is_allowed_by_name_is_reached_and_no_other() {
    for_both(|scratch, txos| {
        let servers =
            [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let [port, other] = [&servers[0], &servers[1]].map(|s| s.local_addr().unwrap().port());
        let client = |port| client(port, "sysread $s, my $x, 9; print $x; exit 0");
        let json = scratch.base().join("report.json");
        let allow = format!("net:127.0.0.1:{port}");
        let options = ["--allow", &allow, "--json", json.to_str().unwrap()];
        let serve = std::thread::spawn(move || {
            servers[0].accept().unwrap().0.write_all(b"hello").unwrap();
            servers
        });
        let out = txos.sh(&options, &format!("{}; {}; echo $?", client(port), client(other)));
        assert_eq!(out.expect(0).stdout, "hello134\n");
        out.says(&[&other.to_string(), "--allow net"]);
        assert!(Report::read(&json).mentions("effects", &format!("127.0.0.1:{port}")));
        let servers = serve.join().unwrap();
        // A socket that does not block, and a program that waits for it by poll.
        if exec::find("curl").is_some() {
            let serve = std::thread::spawn(move || {
                let (mut socket, _) = servers[0].accept().unwrap();
                let mut space = [0; 512];
                let _ = socket.read(&mut space).unwrap();
                socket.write_all(b"HTTP/1.0 200 OK\r\n\r\nbody").unwrap();
            });
            let script = format!("curl -sS http://127.0.0.1:{port}/");
            assert_eq!(txos.sh(&options, &script).expect(0).stdout, "body");
            serve.join().unwrap();
        } else {
            drop(servers);
        }
        // Nobody there: the error is the network's.
        let out = txos.sh(&options, &format!("{}; echo $?", client(port)));
        assert_eq!(out.expect(0).stdout, "111\n");
        // An address that is none, and no name either, so that no name server is asked.
        txos.sh(&["--allow", "net:127.0.0.1.:x"], "true").expect(125);
    });
}

#[test]
fn datagrams_to_the_world_are_refused_and_none_leaves() {
    for_both(|_, txos| {
        let outsider = UdpSocket::bind("127.0.0.1:0").unwrap();
        outsider.set_nonblocking(true).unwrap();
        let port = outsider.local_addr().unwrap().port();
        let script = format!(
            "perl -MSocket -e 'socket(my $s, PF_INET, SOCK_DGRAM, 0) or die; \
             for ([{port}, \"127.0.0.1\"], [9, \"192.0.2.1\"]) {{ \
             print defined(send($s, \"x\", 0, pack_sockaddr_in($_->[0], inet_aton($_->[1])))) ? \"sent\" : $! + 0, \" \" }}'"
        );
        let out = txos.sh(&[], &script);
        assert_eq!(out.expect(0).stdout, "134 134 ");
        out.says(&["sendto(192.0.2.1:9)", "--allow net"]);
        assert!(outsider.recv(&mut [0; 8]).is_err(), "a datagram came out");
    });
}

#[test]
fn where_nobody_listens_at_all_the_error_is_the_kernels_own() {
    for_both(|_, txos| {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let out = txos.sh(&[], &client(port, ""));
        out.expect(libc::ECONNREFUSED);
        assert!(!out.stderr.contains("refused"), "{out}");
    });
}

#[test]
fn an_outsider_that_would_not_answer_is_none() {
    for_both(|_, txos| {
        // A connection's own end, one that takes datagrams, and one that listens at another address.
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let client_end = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let beside = TcpListener::bind("127.0.0.2:0").unwrap();
        let outsiders = [
            client_end.local_addr().unwrap(),
            datagrams.local_addr().unwrap(),
            beside.local_addr().unwrap(),
        ];
        for outsider in outsiders {
            let out = txos.sh(&[], &client(outsider.port(), ""));
            out.expect(libc::ECONNREFUSED);
            assert!(!out.stderr.contains("refused"), "{outsider}: {out}");
        }
    });
}

#[test]
fn members_on_one_port_after_the_other_reach_one_another() {
    // Servers at one port, and then each at a port of its own, and a member that connects to each.
    let script = r#"perl -MIO::Socket::INET -MTime::HiRes=time -e '
        sub meet { my $port = shift; my $begun = time;
            my %here = (Listen => 1, LocalAddr => "127.0.0.1", ReuseAddr => 1);
            for (1 .. 300) {
                my $l = IO::Socket::INET->new(%here, LocalPort => $port) or die "listen: $!";
                my $c = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $l->sockport) or die "connect: $!";
                $l->accept or die "accept: $!";
            }
            time - $begun }
        meet(8731);
        printf "%.1f", meet(0) / meet(8731);'"#;
    for_both(|_, txos| {
        let out = txos.sh(&[], script);
        let times: f64 = out.expect(0).stdout.parse().expect("a number");
        // 10 and more while the list of all connections was read for each port that is new.
        assert!(times < 5.0, "a new port takes {times} times as long as a known one");
    });
}

#[test]
fn local_sockets_are_members_own_and_hosts_ones_need_a_flag() {
    for_both(|scratch, txos| {
        let path = scratch.inside().join("host.sock");
        let server = UnixListener::bind(&path).unwrap();
        let uid = std::fs::metadata(scratch.inside()).unwrap().uid();
        chown(&path, Some(uid), Some(uid)).unwrap();
        let client = "perl -MSocket -e 'socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die; \
                      connect($s, pack_sockaddr_un($ARGV[0])) or exit($! + 0); sysread $s, my $x, 9; print $x' ";
        let out = txos.sh(&[], &format!("{client} host.sock; echo $?"));
        assert_eq!(out.expect(0).stdout, format!("{}\n", libc::ECONNREFUSED));
        let allowed = path.to_str().unwrap();
        let serve =
            std::thread::spawn(move || server.accept().unwrap().0.write_all(b"hi").unwrap());
        let out = txos.sh(&["--allow", allowed], &format!("{client} {allowed}"));
        assert_eq!(out.expect(0).stdout, "hi");
        serve.join().unwrap();
        let own = format!(
            "perl -MSocket -e 'socket(my $l, PF_UNIX, SOCK_STREAM, 0) or die; bind($l, pack_sockaddr_un(\"own.sock\")) or die; \
             listen($l, 1); if (!fork) {{ exec(\"sh\", \"-c\", q(sleep 0.1)) }} accept(my $c, $l); syswrite $c, \"member\"' & \
             for i in $(seq 600); do [ -S own.sock ] && break; sleep 0.1; done; {client} own.sock; wait"
        );
        assert_eq!(txos.sh(&[], &own).expect(0).stdout, "member");
    });
}

#[test]
fn with_the_network_allowed_it_can_be_used_but_not_changed() {
    if exec::find("ip").is_none() {
        skip!("no ip(8)");
    }
    txos_tests::txos::for_one(txos_tests::who::Who::Root, |_, txos| {
        let out = txos.sh(&["--allow", "net"], "ip link set lo mtu 65000; echo $?");
        assert_eq!(out.expect(0).stdout, "2\n", "{out}");
    });
}

/// A client of one address that then turns its socket elsewhere: what was allowed is no way to more.
#[test]
fn a_socket_that_was_let_out_leads_nowhere_else() {
    for_both(|_, txos| {
        let allowed = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        other.set_nonblocking(true).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let [port, far] = [&allowed, &other].map(|s| s.local_addr().unwrap().port());
        let udp = datagrams.local_addr().unwrap().port();
        // Connected as allowed, disconnected (an address of no family), and connected to another port;
        // a member listens on that port inside, so that nothing is refused.
        let script = format!(
            "perl -MSocket -e 'my $to = sub {{ pack_sockaddr_in($_[0], inet_aton(\"127.0.0.1\")) }}; \
             socket(my $l, PF_INET, SOCK_STREAM, 0); bind($l, $to->({far})) or die; listen($l, 5) or die; \
             socket(my $u, PF_INET, SOCK_DGRAM, 0); bind($u, $to->({udp})) or die; \
             socket(my $s, PF_INET, SOCK_STREAM, 0); connect($s, $to->({port})) or die \"first: $!\"; \
             connect($s, pack(\"S x14\", 0)); connect($s, $to->({far})) or exit 9; syswrite $s, \"out\"; \
             socket(my $d, PF_INET, SOCK_DGRAM, 0); connect($d, $to->({port})) or die \"second: $!\"; \
             send($d, \"out\", 0, $to->({udp})); exit 0'"
        );
        let allow = format!("net:127.0.0.1:{port}");
        let out = txos.sh(&["--allow", &allow], &script);
        assert!([0, 9].contains(&out.code()), "{out}");
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(other.accept().is_err(), "a stream came out: {out}");
        assert!(datagrams.recv(&mut [0; 8]).is_err(), "a datagram came out: {out}");
    });
}

#[test]
fn datagrams_go_to_the_allowed_host_and_come_back() {
    for_both(|_, txos| {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let serve = std::thread::spawn(move || {
            let mut space = [0; 64];
            for _ in 0..2 {
                let (length, from) = server.recv_from(&mut space).unwrap();
                let answer = [b"got ", &space[..length]].concat();
                server.send_to(&answer, from).unwrap();
            }
        });
        let script = format!(
            "perl -MSocket -e 'for my $text (\"one\", \"two\") {{ socket(my $s, PF_INET, SOCK_DGRAM, 0); \
             connect($s, pack_sockaddr_in({port}, inet_aton(\"127.0.0.1\"))) or die; \
             send($s, $text, 0); recv($s, my $x, 64, 0); print \"$x\\n\" }}'"
        );
        let out = txos.sh(&["--allow", &format!("net:127.0.0.1:{port}")], &script);
        assert_eq!(out.expect(0).stdout, "got one\ngot two\n");
        serve.join().unwrap();
    });
}

/// A server whose answer to each request names how many there were.
fn counting_server() -> (u16, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    use std::sync::atomic::Ordering;
    let server = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = server.local_addr().expect("address").port();
    let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let Ok(mut stream) = stream else { return };
            let counted = std::sync::Arc::clone(&counted);
            std::thread::spawn(move || {
                let mut space = [0; 256];
                while let Ok(length @ 1..) = stream.read(&mut space) {
                    let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
                    let question = String::from_utf8_lossy(&space[..length]).into_owned();
                    let answer = format!("answer {number} to {question}");
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, count)
}

/// Asks `question` once for each word.
fn ask(port: u16, questions: &str) -> String {
    let each = "for my $q (@ARGV) { syswrite $s, \"$q\\n\"; sysread $s, my $x, 256; print $x }";
    format!("{} {questions}", client(port, each))
}

/// A file that the test's user owns.
fn file_of_the_user(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.inside().join(name);
    std::fs::write(&path, text).expect("write");
    let uid = std::fs::metadata(scratch.inside()).expect("stat").uid();
    chown(&path, Some(uid), Some(uid)).expect("chown");
    path
}

#[test]
fn a_retry_sees_the_recorded_answers_and_asks_nobody() {
    for_both(|scratch, txos| {
        let (port, count) = counting_server();
        let gate = txos_tests::gate::Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let read = file_of_the_user(scratch, "read", "before");
        let json = scratch.base().join("report.json");
        let script = format!(
            "{}cat read >/dev/null; {} >said; cp said {live}/said-$$; reach asked; await go; cat said",
            gate.functions(),
            ask(port, "first second")
        );
        let options = ["--net", "record", "--live", &live, "--json", json.to_str().unwrap()];
        let running = txos.start_sh(&options, &script);
        gate.wait("asked");
        std::fs::write(&read, "after!").unwrap();
        gate.open("go");
        let out = running.end(exec::LIMIT);
        out.expect(0).says(&["running again"]);
        assert_eq!(out.stdout, "answer 1 to first\nanswer 2 to second\n");
        assert_eq!(
            count.load(std::sync::atomic::Ordering::Relaxed),
            2,
            "the server was asked again"
        );
        let report = Report::read(&json);
        assert!(report.mentions("effects", &format!("127.0.0.1:{port}: replayed")), "{out}");
    });
}

#[test]
fn a_retry_that_asks_otherwise_is_live_again_and_says_so() {
    for_both(|scratch, txos| {
        let (port, count) = counting_server();
        let gate = txos_tests::gate::Gate::new(scratch.live());
        let live = scratch.live().display().to_string();
        let read = file_of_the_user(scratch, "read", "before");
        let script = format!(
            "{}{} >said; reach asked; await go; cat said",
            gate.functions(),
            ask(port, "$(cat read)")
        );
        let allow = format!("net:127.0.0.1:{port}");
        let options = ["--net", "record", "--allow", &allow, "--live", &live];
        let running = txos.start_sh(&options, &script);
        gate.wait("asked");
        std::fs::write(&read, "after").unwrap();
        gate.open("go");
        let out = running.end(exec::LIMIT);
        out.expect(0).says(&["running again", "live again"]);
        assert_eq!(out.stdout, "answer 2 to after\n");
        assert_eq!(count.load(std::sync::atomic::Ordering::Relaxed), 2);
    });
}
