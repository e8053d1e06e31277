//! Sockets between members: local ones, and those of the internet over loopback.

use super::Book;
use super::sys::{
    Answer, BAD, Room, close, fd, fork, get, in_child, ints, longs, name, open, pair, put, room,
    said, told, wait_for, word,
};
use crate::call;

/// An address of 127.0.0.1.
pub(super) fn loopback(port: u16) -> Room {
    let mut bytes = vec![2, 0];
    bytes.extend(port.to_be_bytes());
    bytes.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    room(&bytes)
}

fn loopback6(port: u16) -> Room {
    let mut bytes = vec![10, 0];
    bytes.extend(port.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    room(&bytes)
}

fn local(path: &str) -> (Room, usize) {
    let mut bytes = vec![1, 0];
    bytes.extend(path.as_bytes());
    bytes.push(0);
    (room(&bytes), bytes.len())
}

fn socket(family: i32, kind: i32) -> i32 {
    fd(call!(SYS_socket, family, kind | libc::SOCK_CLOEXEC, 0))
}

/// The port that a socket was given.
fn port_of(at: i32) -> u16 {
    let address = room(&[]);
    let _ = call!(SYS_getsockname, at, address, ints(&[100]));
    let bytes = address.bytes(2, 2);
    u16::from_be_bytes([bytes[0], bytes[1]])
}

pub(super) fn run(book: &mut Book) {
    creation(book);
    streams(book, "tcp", libc::AF_INET);
    streams(book, "tcp6", libc::AF_INET6);
    datagrams(book);
    locals(book);
    messages(book);
    options(book);
    wrong(book);
}

fn creation(book: &mut Book) {
    for (family_name, family) in [
        ("local", libc::AF_UNIX),
        ("inet", libc::AF_INET),
        ("inet6", libc::AF_INET6),
        ("none", 0),
        ("ipx", libc::AF_IPX),
        ("99", 99),
        ("-1", -1),
    ] {
        for (kind_name, kind) in [
            ("stream", libc::SOCK_STREAM),
            ("datagram", libc::SOCK_DGRAM),
            ("seqpacket", libc::SOCK_SEQPACKET),
            ("rdm", libc::SOCK_RDM),
            ("wrong", 77),
        ] {
            for protocol in [0, 6, 17, 999] {
                let made = call!(SYS_socket, family, kind, protocol);
                book.note(format_args!("socket {family_name} {kind_name} {protocol}"), said(made));
                if let Ok(made) = made {
                    close(&[made as i32]);
                }
            }
        }
        let two = ints(&[-1, -1]);
        let made = call!(SYS_socketpair, family, libc::SOCK_STREAM, 0, two);
        book.note(format_args!("socketpair {family_name}"), said(made));
        close(&[two.int(0), two.int(1)]);
    }
}

fn address(family: i32, port: u16) -> (Room, usize) {
    match family {
        libc::AF_INET => (loopback(port), 16),
        _ => (loopback6(port), 28),
    }
}

fn streams(book: &mut Book, how: &str, family: i32) {
    let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
    let server = socket(family, libc::SOCK_STREAM);
    let (any, length) = address(family, 0);
    note("bind", said(call!(SYS_bind, server, any, length)));
    note("bind again", said(call!(SYS_bind, server, any, length)));
    note("accept before listen", said(call!(SYS_accept4, server, 0, 0, 0)));
    note("listen", said(call!(SYS_listen, server, 5)));
    let port = port_of(server);
    let (there, length) = address(family, port);
    let second = socket(family, libc::SOCK_STREAM);
    note("bind where one listens", said(call!(SYS_bind, second, there, length)));
    close(&[second]);
    let child = fork(|| {
        let client = socket(family, libc::SOCK_STREAM);
        if call!(SYS_connect, client, there, length).is_err() {
            return 1;
        }
        let _ = put(client, "hello");
        i32::from(get(client, 20) != "\"world\"")
    });
    let client = fd(call!(SYS_accept4, server, room(&[]), ints(&[100]), libc::SOCK_CLOEXEC));
    note("received", get(client, 5));
    note("sent", told(put(client, "world")));
    note("client", wait_for(child).to_string());
    note("end", get(client, 5));
    let _ = call!(SYS_shutdown, client, 1);
    note(
        "write after shutdown",
        said(call!(SYS_sendto, client, room(b"x"), 1, libc::MSG_NOSIGNAL, 0, 0)),
    );
    close(&[client]);
    let waiting = socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    note(
        "connect at once",
        said(call!(SYS_connect, waiting, there, length))
            .replace("E115", "begins")
            .replace("ok", "begins"),
    );
    let found =
        call!(SYS_ppoll, ints(&[waiting, i32::from(libc::POLLOUT)]), 1, longs(&[5, 0]), 0, 8);
    note("connected later", told(found));
    let state = ints(&[-1]);
    let _ = call!(SYS_getsockopt, waiting, libc::SOL_SOCKET, libc::SO_ERROR, state, ints(&[4]));
    note("state", state.int(0).to_string());
    note(
        "connect again",
        said(call!(SYS_connect, waiting, there, length))
            .replace("E106", "connected")
            .replace("ok", "connected"),
    );
    let none = socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
    let _ = call!(SYS_bind, none, any, address(family, 0).1);
    note("accept none", said(call!(SYS_accept4, none, 0, 0, 0)));
    let (free, length) = address(family, port_of(none));
    let refused = socket(family, libc::SOCK_STREAM);
    note("connect to nobody", said(call!(SYS_connect, refused, free, length)));
    note(
        "send unconnected",
        said(call!(SYS_sendto, none, room(b"x"), 1, libc::MSG_NOSIGNAL, 0, 0)),
    );
    close(&[server, waiting, none, refused]);
}

fn datagrams(book: &mut Book) {
    for (how, family) in [("udp", libc::AF_INET), ("udp6", libc::AF_INET6)] {
        let mut note = |case: &str, answer: String| book.note(format_args!("{how} {case}"), answer);
        let (one, two) = (socket(family, libc::SOCK_DGRAM), socket(family, libc::SOCK_DGRAM));
        let (any, length) = address(family, 0);
        note("bind", said(call!(SYS_bind, one, any, length)));
        let (there, length) = address(family, port_of(one));
        note("sendto", told(call!(SYS_sendto, two, room(b"first"), 5, 0, there, length)));
        note("connect", said(call!(SYS_connect, two, there, length)));
        note("send", told(put(two, "second")));
        note("send empty", told(call!(SYS_sendto, two, 0, 0, 0, 0, 0)));
        note("peek", told(call!(SYS_recvfrom, one, room(&[]), 3, libc::MSG_PEEK, 0, 0)));
        note("cut", told(call!(SYS_recvfrom, one, room(&[]), 3, libc::MSG_TRUNC, 0, 0)));
        note("whole", get(one, 100));
        note("empty", get(one, 100));
        note("no more", told(call!(SYS_recvfrom, one, room(&[]), 3, libc::MSG_DONTWAIT, 0, 0)));
        note("too long", said(call!(SYS_sendto, two, room(&[0; 70_000]), 70_000, 0, 0, 0)));
        let unspecified = room(&[0; 16]);
        note("disconnect", said(call!(SYS_connect, two, unspecified, 16)));
        note("send then", said(put(two, "x")));
        close(&[one, two]);
    }
}

fn locals(book: &mut Book) {
    for (how, kind) in [
        ("stream", libc::SOCK_STREAM),
        ("datagram", libc::SOCK_DGRAM),
        ("packet", libc::SOCK_SEQPACKET),
    ] {
        let path = format!("socket-{how}");
        let mut note =
            |case: &str, answer: String| book.note(format_args!("local {how} {case}"), answer);
        let server = socket(libc::AF_UNIX, kind);
        let (there, length) = local(&path);
        note("bind", said(call!(SYS_bind, server, there, length)));
        note("bind again", said(call!(SYS_bind, socket(libc::AF_UNIX, kind), there, length)));
        note("listen", said(call!(SYS_listen, server, 5)));
        let client = socket(libc::AF_UNIX, kind);
        note("connect", said(call!(SYS_connect, client, there, length)));
        note("send", told(put(client, "local")));
        let served = match call!(SYS_accept4, server, 0, 0, 0) {
            Ok(at) => at as i32,
            Err(error) => {
                note("accept", name(error));
                server
            }
        };
        note("receive", get(served, 100));
        let credentials = ints(&[0, 0, 0]);
        let asked = call!(
            SYS_getsockopt,
            served,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials,
            ints(&[12])
        );
        note("peer", format!("{} {}", said(asked), i32::from(credentials.int(0) > 0)));
        let _ = call!(SYS_unlinkat, libc::AT_FDCWD, path.as_str(), 0);
        note("after unlink", said(call!(SYS_connect, socket(libc::AF_UNIX, kind), there, length)));
        let mut hidden = vec![1, 0, 0];
        hidden.extend(format!("case-{how}").bytes());
        let (at, length) = (room(&hidden), hidden.len());
        let server = socket(libc::AF_UNIX, kind);
        note("abstract bind", said(call!(SYS_bind, server, at, length)));
        let _ = call!(SYS_listen, server, 1);
        note("abstract connect", said(call!(SYS_connect, socket(libc::AF_UNIX, kind), at, length)));
        note("autobind", said(call!(SYS_bind, socket(libc::AF_UNIX, kind), room(&[1, 0]), 2)));
        close(&[client, served, server]);
    }
    let (long, _) = local(&"p".repeat(200));
    book.note("local long", said(call!(SYS_bind, socket(1, 1), long, 203)));
    let file = local("d/file");
    book.note("connect to a file", said(call!(SYS_connect, socket(1, 1), file.0, file.1)));
}

/// Messages with descriptors and credentials.
fn messages(book: &mut Book) {
    let (one, two) = pair(libc::SOCK_STREAM);
    let file = open("d/file", libc::O_RDONLY);
    let data = room(b"with");
    let vector = longs(&[word(data) as i64, 4]);
    let control = room(&[]);
    control.put(0, &20i64.to_ne_bytes());
    control.put(8, &libc::SOL_SOCKET.to_ne_bytes());
    control.put(12, &libc::SCM_RIGHTS.to_ne_bytes());
    control.put(16, &file.to_ne_bytes());
    let header = |vector: &Room, control: &Room, size: i64| {
        longs(&[0, 0, word(vector) as i64, 1, word(control) as i64, size, 0])
    };
    book.note("send a descriptor", told(call!(SYS_sendmsg, one, header(&vector, &control, 24), 0)));
    let space = room(&[]);
    let into = longs(&[word(space) as i64, 100]);
    let found = room(&[]);
    let answer = call!(SYS_recvmsg, two, header(&into, &found, 100), libc::MSG_CMSG_CLOEXEC);
    book.note("receive it", told(answer));
    book.note("through it", get(found.int(4), 100));
    control.put(16, &899i32.to_ne_bytes());
    book.note("send a closed one", said(call!(SYS_sendmsg, one, header(&vector, &control, 24), 0)));
    book.note("bad message", said(call!(SYS_sendmsg, one, BAD, 0)));
    book.note("bad vector", said(call!(SYS_sendmsg, one, longs(&[0, 0, 8, 1, 0, 0, 0]), 0)));
    book.note(
        "many vectors",
        said(call!(SYS_sendmsg, one, longs(&[0, 0, word(vector) as i64, 5000, 0, 0, 0]), 0)),
    );
    let (three, four) = pair(libc::SOCK_DGRAM);
    // The last word of an entry is how much of it was sent.
    let list = longs(&[0, 0, word(vector) as i64, 1, 0, 0, 0, 0]);
    book.note("sendmmsg", told(call!(SYS_sendmmsg, three, list, 1, 0)));
    book.note("recvmmsg", {
        let into = longs(&[0, 0, word(into) as i64, 1, 0, 0, 0, 0]);
        told(call!(SYS_recvmmsg, four, into, 1, libc::MSG_DONTWAIT, 0))
    });
    book.note("recvmmsg none", {
        let into = longs(&[0, 0, word(into) as i64, 1, 0, 0, 0, 0]);
        told(call!(SYS_recvmmsg, four, into, 1, libc::MSG_DONTWAIT, 0))
    });
    close(&[one, two, three, four, file]);
}

fn options(book: &mut Book) {
    for (kind_name, family, kind) in [
        ("tcp", libc::AF_INET, libc::SOCK_STREAM),
        ("udp", libc::AF_INET, libc::SOCK_DGRAM),
        ("local", libc::AF_UNIX, libc::SOCK_STREAM),
    ] {
        for (option_name, level, option, value) in [
            ("reuse", libc::SOL_SOCKET, libc::SO_REUSEADDR, 1),
            ("reuse port", libc::SOL_SOCKET, libc::SO_REUSEPORT, 1),
            ("keep alive", libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            ("broadcast", libc::SOL_SOCKET, libc::SO_BROADCAST, 1),
            ("pass credentials", libc::SOL_SOCKET, libc::SO_PASSCRED, 1),
            ("time stamp", libc::SOL_SOCKET, libc::SO_TIMESTAMP, 1),
            ("priority 6", libc::SOL_SOCKET, libc::SO_PRIORITY, 6),
            ("low water", libc::SOL_SOCKET, libc::SO_RCVLOWAT, 2),
            ("no delay", libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
            ("cork", libc::IPPROTO_TCP, libc::TCP_CORK, 1),
            ("idle", libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 10),
            ("time to live", libc::IPPROTO_IP, libc::IP_TTL, 9),
            ("service", libc::IPPROTO_IP, libc::IP_TOS, 16),
            ("unknown", libc::SOL_SOCKET, 9999, 1),
            ("unknown level", 9999, 1, 1),
        ] {
            let at = socket(family, kind);
            let set = call!(SYS_setsockopt, at, level, option, ints(&[value]), 4);
            let read = ints(&[-7]);
            let got = call!(SYS_getsockopt, at, level, option, read, ints(&[4]));
            let case = format!("{kind_name} {option_name}");
            book.note(case, format_args!("{} {} {}", said(set), said(got), read.int(0)));
            close(&[at]);
        }
    }
}

fn wrong(book: &mut Book) {
    let at = socket(libc::AF_INET, libc::SOCK_STREAM);
    let calls: &[(&str, Answer)] = &[
        ("bind short", call!(SYS_bind, at, loopback(0), 3)),
        ("bind bad", call!(SYS_bind, at, BAD, 16)),
        ("bind negative", call!(SYS_bind, at, loopback(0), -1)),
        ("bind other family", call!(SYS_bind, at, local("x").0, 10)),
        ("bind foreign", call!(SYS_bind, at, room(&[2, 0, 0, 0, 192, 0, 2, 1]), 16)),
        ("connect short", call!(SYS_connect, at, loopback(1), 3)),
        ("connect bad", call!(SYS_connect, at, BAD, 16)),
        ("getsockname bad", call!(SYS_getsockname, at, BAD, ints(&[16]))),
        ("getsockname negative", call!(SYS_getsockname, at, room(&[]), ints(&[-1]))),
        ("getpeername", call!(SYS_getpeername, at, room(&[]), ints(&[16]))),
        ("shutdown wrong", call!(SYS_shutdown, at, 9)),
        ("getsockopt bad", call!(SYS_getsockopt, at, 1, 2, BAD, ints(&[4]))),
        ("getsockopt negative", call!(SYS_getsockopt, at, 1, 2, ints(&[0]), ints(&[-1]))),
        ("setsockopt short", call!(SYS_setsockopt, at, 1, 2, ints(&[1]), 1)),
        ("accept flags", call!(SYS_accept4, at, 0, 0, 0x1234)),
        (
            "recv out of band",
            call!(SYS_recvfrom, at, room(&[]), 1, libc::MSG_OOB | libc::MSG_DONTWAIT, 0, 0),
        ),
    ];
    for (case, answer) in calls {
        book.note(case, said(*answer));
    }
    close(&[at]);
    let low = in_child(|| {
        let at = socket(libc::AF_INET, libc::SOCK_STREAM);
        call!(SYS_bind, at, loopback(1), 16).map_or_else(|error| error, |_| 0)
    });
    book.note("bind port 1", name(low));
}
