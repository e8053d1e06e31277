//! Sockets.

use super::{Case, Entry, Fate, by, cases, plain, when};
use Fate::*;

const SOCKETS: &[Case] = &[
    by(
        "AF_UNIX",
        &[(0, 1)],
        ProcessPrivate,
        "Between members; also pairs. Gone with them at commit and at abort.",
    ),
    by(
        "AF_INET",
        &[(0, 2)],
        ProcessPrivate,
        "In the transaction's own network namespace, where members reach one another over \
         loopback; gone at the end. With --allow net in the host's.",
    ),
    by("AF_INET6", &[(0, 10)], ProcessPrivate, "As AF_INET."),
    by(
        "AF_NETLINK, NETLINK_ROUTE or NETLINK_SOCK_DIAG",
        &[(0, 16), (2, 0)],
        ProcessPrivate,
        "Interfaces, routes and sockets of the transaction's own network namespace. With --allow \
         net the host's, to be read only.",
    ),
    by(
        "AF_NETLINK, NETLINK_AUDIT, NETLINK_SELINUX, NETLINK_KOBJECT_UEVENT",
        &[(0, 16), (2, 9)],
        Absent,
        "EPROTONOSUPPORT, as on a kernel without it: programs that change accounts take any other \
         error for a failure.",
    ),
    by("AF_NETLINK, other protocols", &[(0, 16), (2, 12)], Flag, "134 without --allow net."),
    by("AF_ALG", &[(0, 38)], Absent, "EAFNOSUPPORT: users of it have ciphers of their own."),
    by(
        "AF_PACKET, AF_VSOCK and every other family",
        &[(0, 40)],
        Flag,
        "It leaves the transaction: 134, unless --allow net; then outside the transaction.",
    ),
];

const FAR: Case = when(
    "an address outside loopback",
    Flag,
    "134 and a line, unless --allow net; then it is outside the transaction: not undone by an abort, and \
     the report lists what was contacted.",
);

const NEAR: Case = when(
    "a loopback port where an outsider listens and no member",
    Flag,
    "134 and a line instead of a plain ECONNREFUSED, unless --allow net.",
);

const LOG: Case = when(
    "/dev/log",
    Deferred,
    "Messages to the system log are kept, sent in order after the commit, and dropped by an abort.",
);

const JOURNAL: Case = when(
    "/run/systemd/journal/socket",
    Deferred,
    "Entries of the journal are kept the same way, also those that come as a memory file. (The journal \
     names txos as their sender.)",
);

const LOCAL: Case = when(
    "a local socket of an outsider",
    Flag,
    "ECONNREFUSED inside (EACCES for an ordinary user where it is another user's), and the report names \
     it; --allow PATH lets it through. Abstract names of outsiders do not exist in the view.",
);

const CONNECT: &[Case] = &[
    FAR,
    NEAR,
    when(
        "connect to what --allow net:HOST[:PORT] names",
        Flag,
        "Connected outside in the caller's place, and carried to and from its socket, which stays in \
         the transaction's network (getpeername names a gateway there; the call returns when the \
         connection is there); not undone by an abort, and reported.",
    ),
    when(
        "connect with --net record",
        Flag,
        "The same, to every host or to those that --allow net:HOST names; each TCP stream is \
         recorded, and a retry that sends the same bytes gets the recorded answer without anybody \
         being asked. Where it sends others, the stream is live again, and a line says so.",
    ),
    LOG,
    JOURNAL,
    when(
        "/run/systemd/journal/stdout",
        Deferred,
        "Streams into the journal (systemd-cat) are kept line by line among the other messages, sent \
         after the commit, and dropped by an abort.",
    ),
    LOCAL,
];

const SEND: &[Case] = &[
    FAR,
    NEAR,
    when(
        "an address that --allow net:HOST[:PORT] names, on a socket that is not connected",
        Refused,
        "134 and a line: only what connect(2) has connected is carried there.",
    ),
    LOG,
    JOURNAL,
    LOCAL,
];

const PEER_SAYS: &str = "To members freely, over loopback and local sockets; gone with them at commit and at \
    abort.";

pub(super) const ROWS: &[Entry] = &[
    cases(
        &["socket", "socketpair"],
        Flag,
        "A socket by family; what members say to one another ends with them at commit and at abort.",
        SOCKETS,
    ),
    cases(&["connect"], ProcessPrivate, PEER_SAYS, CONNECT),
    cases(&["sendto", "sendmsg", "sendmmsg"], ProcessPrivate, PEER_SAYS, SEND),
    plain(
        &["bind"],
        Transactional,
        "An address of the transaction's own network namespace; the name of a local socket is made \
         in the shadow and outside at commit, with nobody behind it.",
    ),
    plain(
        &[
            "listen",
            "accept",
            "accept4",
            "shutdown",
            "getsockname",
            "getpeername",
            "setsockopt",
            "getsockopt",
            "recvfrom",
            "recvmsg",
            "recvmmsg",
        ],
        ProcessPrivate,
        "About a socket of a member, and what its peers sent; gone with it at commit and at abort.",
    ),
];
