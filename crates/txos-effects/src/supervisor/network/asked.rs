//! Asks the kernel which socket of this process's network namespace would answer at an address.
//!
//! The lists in `/proc/net` show every connection of the machine, and to make them the kernel walks a
//! table of some hundred thousand places: milliseconds for each look. sock_diag(7) looks one address up,
//! as it would for a packet, in microseconds.
//!
//! A kernel that can't be asked says of every address what it says where nobody is. So it is asked
//! something first that has an answer everywhere else.

use super::super::lock;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLMSG_DONE`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST`, `NLM_F_DUMP`.
const REQUEST: u16 = 0x1;
const DUMP: u16 = 0x300;
/// States of sockets: one that listens, as a bit.
const LISTENING: u32 = 1 << 10;
/// `struct nlmsghdr` and `struct inet_diag_req_v2`.
const HEADER: usize = 16;
const ASKED: usize = HEADER + 56;
/// Longer than any answer about one socket.
const ANSWER: usize = 8192;
/// A port of a sender that no connection has, so that only sockets answer which anybody may reach.
const NO_PORT: u16 = 0;

/// The socket that is asked, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    socket: Mutex<Socket>,
}

#[derive(Debug, Default)]
enum Socket {
    #[default]
    Unasked,
    Open(OwnedFd),
    /// This kernel can't be asked.
    None,
}

impl Kernel {
    /// Whether a socket of this kind answers whoever writes to `address`; `None` if the kernel does not tell.
    pub(super) fn answers(&self, kind: SocketType, address: SocketAddr) -> Option<bool> {
        let mut socket = lock(&self.socket);
        if matches!(*socket, Socket::Unasked) {
            *socket = open().map_or(Socket::None, Socket::Open);
        }
        let Socket::Open(open) = &*socket else { return None };
        let found = ask(open, &question(kind, address, None));
        if found.is_none() {
            *socket = Socket::None;
        }
        found
    }
}

/// A socket that both kinds can be asked with.
fn open() -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol).ok()?;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], NO_PORT));
    // A list of no sockets at all, which ends well where the kind is known.
    let known = |kind| ask(&socket, &question(kind, nowhere, Some(0))) == Some(true);
    (known(SocketType::STREAM) && known(SocketType::DGRAM)).then_some(socket)
}

/// The message that asks for the socket at `address`, or for a list of all in these `states`.
fn question(kind: SocketType, address: SocketAddr, states: Option<u32>) -> [u8; ASKED] {
    let mut bytes = [0; ASKED];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let flags = REQUEST | states.map_or(0, |_| DUMP);
    put(0, &(ASKED as u32).to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &flags.to_ne_bytes());
    let family = match address {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let protocol = if kind == SocketType::STREAM { libc::IPPROTO_TCP } else { libc::IPPROTO_UDP };
    put(HEADER, &[family as u8, protocol as u8]);
    put(HEADER + 4, &states.unwrap_or(LISTENING).to_ne_bytes());
    // Both ends of the packet that is looked up, first the answering socket's; but the kernel takes them
    // the other way round for datagrams, "for historical reasons". Both have the same address.
    let ends = [address.port(), NO_PORT];
    let [first, second] = if kind == SocketType::STREAM { ends } else { [ends[1], ends[0]] };
    put(HEADER + 8, &first.to_be_bytes());
    put(HEADER + 10, &second.to_be_bytes());
    for at in [HEADER + 12, HEADER + 28] {
        match address.ip() {
            IpAddr::V4(ip) => put(at, &ip.octets()),
            IpAddr::V6(ip) => put(at, &ip.octets()),
        }
    }
    // Whatever its cookie is.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

/// Sends a question, which the kernel answers before the call returns. Whether there is such a socket, or
/// the list came; `None` where nothing is told.
fn ask(socket: &OwnedFd, question: &[u8]) -> Option<bool> {
    send(socket, question, SendFlags::empty()).ok()?;
    let mut answer = [0; ANSWER];
    let (length, _) = recv(socket, &mut answer, RecvFlags::DONTWAIT).ok()?;
    let number = |at: usize| answer[..length].get(at..)?.first_chunk::<4>().copied();
    let kind = u16::from_ne_bytes(*number(4)?.first_chunk::<2>()?);
    match kind {
        BY_FAMILY | DONE => Some(true),
        ERROR if i32::from_ne_bytes(number(HEADER)?) == -Errno::NOENT.raw_os_error() => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn whoever_listens_is_found_and_nobody_else() {
        let kernel = Kernel::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = listener.local_addr().unwrap();
        let Some(found) = kernel.answers(SocketType::STREAM, near) else {
            eprintln!("Skip: this kernel does not answer sock_diag(7)");
            return;
        };
        assert!(found);
        let answers = |kind, address: SocketAddr| kernel.answers(kind, address).unwrap();
        assert!(!answers(SocketType::DGRAM, near), "a listener takes no datagrams");
        let beside = SocketAddr::new([127, 0, 0, 2].into(), near.port());
        assert!(!answers(SocketType::STREAM, beside), "it listens at one address");
        // A connection's own end answers nobody, nor does what is left of it.
        let (ours, theirs) = (TcpStream::connect(near).unwrap(), listener.accept().unwrap());
        let end = ours.local_addr().unwrap();
        assert!(!answers(SocketType::STREAM, end));
        drop((ours, theirs, listener));
        assert!(!answers(SocketType::STREAM, near) && !answers(SocketType::STREAM, end));
    }

    #[test]
    fn datagrams_find_who_takes_them_from_anybody() {
        let kernel = Kernel::default();
        let everywhere = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = everywhere.local_addr().unwrap().port();
        let near = SocketAddr::from(([127, 0, 0, 1], port));
        let Some(found) = kernel.answers(SocketType::DGRAM, near) else { return };
        assert!(found);
        // One that is connected hears its peer alone.
        everywhere.connect("127.0.0.1:9").unwrap();
        assert_eq!(kernel.answers(SocketType::DGRAM, near), Some(false));
        assert_eq!(kernel.answers(SocketType::STREAM, near), Some(false));
    }

    #[test]
    fn listeners_of_both_families_are_found_by_either() {
        let kernel = Kernel::default();
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        for near in ["127.0.0.1", "::1"] {
            let near = SocketAddr::new(near.parse().unwrap(), port);
            assert_ne!(kernel.answers(SocketType::STREAM, near), Some(false), "{near}");
        }
    }
}
