//! Sockets, shared memory and message queues.

use super::*;

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
