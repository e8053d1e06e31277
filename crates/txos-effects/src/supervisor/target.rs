//! What can be learnt about the thread that made a call: its memory and its name.
//!
//! Invariant: bytes read from a target count only after the request was found still waiting
//! *afterwards*; before, the number in the request may belong to another process already.
//! Source: seccomp_unotify(2), "Caveats regarding the use of SECCOMP_IOCTL_NOTIF_ID_VALID".

use crate::sys::{self, Notified};
use rustix::fd::BorrowedFd;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::fs::FileExt;

/// Longest string that is read for a line.
const MAX_TEXT: usize = 200;
/// Messages of one sendmmsg(2) that are looked at: for the wording of lines, so not all of them.
const MAX_MESSAGES: u64 = 16;
/// Longest name of a program that is kept.
const MAX_COMM: usize = 32;

/// The maker of a request.
pub(super) struct Target<'a> {
    /// None where the caller is its own target, in a test.
    listener: Option<BorrowedFd<'a>>,
    call: Notified,
}

/// Where a socket call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Peer {
    Net(SocketAddr),
    Local(String),
    Other,
}

impl<'a> Target<'a> {
    pub(super) fn new(listener: BorrowedFd<'a>, call: Notified) -> Target<'a> {
        Target { listener: Some(listener), call }
    }

    /// This process, as if it had made the call.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of_own(call: Notified) -> Target<'static> {
        Target { listener: None, call }
    }

    /// The thread, as the manager names it.
    pub(super) fn pid(&self) -> u32 {
        self.call.pid
    }

    /// Whether the call still waits for its answer.
    pub(super) fn waits(&self) -> bool {
        self.listener.is_none_or(|listener| sys::notif_valid(listener, self.call.id))
    }

    /// Whether a signal that the thread handles waits for it. Source: proc_pid_status(5).
    pub(super) fn has_signal(&self) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let mask = |name: &str| {
            let field = text.lines().find_map(|line| line.strip_prefix(name));
            field.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
        };
        let pending = mask("SigPnd:") | mask("ShdPnd:");
        pending & mask("SigCgt:") & !mask("SigBlk:") != 0
    }

    /// Where the call goes: connect(2), sendto(2), sendmsg(2), sendmmsg(2).
    pub(super) fn peers(&self, call: &str) -> Vec<Peer> {
        let args = self.call.args;
        match call {
            "connect" => vec![self.peer(args[1], args[2])],
            "sendto" => vec![self.peer(args[4], args[5])],
            "sendmsg" => vec![self.peer_of_message(args[1])],
            "sendmmsg" => {
                let messages = (args[2] & u64::from(u32::MAX)).min(MAX_MESSAGES);
                let at = |n| args[1].saturating_add(n * size_of::<libc::mmsghdr>() as u64);
                (0..messages).map(|n| self.peer_of_message(at(n))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The address in the `struct msghdr` at `address`; none is the peer of a connected socket.
    fn peer_of_message(&self, address: u64) -> Peer {
        let mut header = [0; 12];
        match self.read(address, &mut header) {
            Ok(12) => {}
            _ => return Peer::Other,
        }
        let [name, length] = [header.first_chunk::<8>(), header.last_chunk::<8>()];
        let (Some(name), Some(length)) = (name, length) else { return Peer::Other };
        match u64::from_ne_bytes(*name) {
            0 => Peer::Other,
            name => self.peer(name, u64::from_ne_bytes(*length) >> 32),
        }
    }

    /// Name of the program, as the kernel keeps it; empty when it cannot be told.
    pub(super) fn comm(&self) -> String {
        let comm = fs::read(format!("/proc/{}/comm", self.call.pid)).unwrap_or_default();
        match self.waits() {
            true => printable(&comm[..comm.len().min(MAX_COMM)]),
            false => String::new(),
        }
    }

    /// Fills `bytes` from the target's memory at `address`, as far as it is mapped.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let memory = File::open(format!("/proc/{}/mem", self.call.pid))?;
        let read = read_mapped(&memory, address, bytes)?;
        match self.waits() {
            true => Ok(read),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Writes all of `bytes` to the target's memory at `address`.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        let memory = OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.call.pid))?;
        // After the opening: the file belongs to the memory that it was opened on.
        if !self.waits() {
            return Err(io::ErrorKind::NotFound.into());
        }
        memory.write_all_at(bytes, address)
    }

    /// A string argument, made printable; `?` when it cannot be read. For the wording of a line only.
    pub(super) fn text(&self, address: u64) -> String {
        if address == 0 {
            return "NULL".to_owned();
        }
        let mut bytes = [0; MAX_TEXT];
        match self.read(address, &mut bytes) {
            Ok(read) => {
                let end = bytes[..read].iter().position(|&b| b == 0).unwrap_or(read);
                printable(&bytes[..end])
            }
            Err(_) => "?".to_owned(),
        }
    }

    /// The socket address argument of `length` bytes at `address`.
    pub(super) fn peer(&self, address: u64, length: u64) -> Peer {
        let mut bytes = [0; size_of::<libc::sockaddr_un>()];
        let length = bytes.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        match self.read(address, &mut bytes[..length]) {
            Ok(read) => peer_of(&bytes[..read]),
            Err(_) => Peer::Other,
        }
    }
}

/// Reads until the first address that is not mapped.
fn read_mapped(memory: &File, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match memory.read_at(&mut bytes[done..], address.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads a `struct sockaddr` of the families that a user knows. Source: ip(7), ipv6(7), unix(7).
pub(super) fn peer_of(bytes: &[u8]) -> Peer {
    let Some((family, rest)) = bytes.split_first_chunk::<2>() else { return Peer::Other };
    let port = |at: &[u8]| at.first_chunk::<2>().map(|b| u16::from_be_bytes(*b));
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => match (port(rest), rest.get(2..6).and_then(|a| a.first_chunk::<4>())) {
            (Some(port), Some(&host)) => {
                Peer::Net(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(host), port)))
            }
            _ => Peer::Other,
        },
        libc::AF_INET6 => match (port(rest), rest.get(6..22).and_then(|a| a.first_chunk::<16>())) {
            (Some(port), Some(&host)) => {
                let address = SocketAddrV6::new(Ipv6Addr::from(host), port, 0, 0);
                Peer::Net(SocketAddr::V6(address))
            }
            _ => Peer::Other,
        },
        libc::AF_UNIX => match rest.split_first() {
            Some((0, name)) => Peer::Local(format!("@{}", printable(name))),
            Some(_) => {
                let end = rest.iter().position(|&b| b == 0).unwrap_or(rest.len());
                Peer::Local(printable(&rest[..end]))
            }
            None => Peer::Other,
        },
        _ => Peer::Other,
    }
}

/// Bytes of a member as text that a terminal can be shown: no control characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end()
        .chars()
        .flat_map(|c| {
            let escaped = steers(c).then(|| c.escape_default());
            let plain = (!steers(c)).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

/// Whether a character steers a terminal, breaks a line, or turns the text around it.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "addresses of the tests are well formed")]
    use super::*;

    #[test]
    fn addresses_are_told_as_users_write_them() {
        let v4 = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0];
        assert_eq!(peer_of(&v4), Peer::Net("127.0.0.1:80".parse().unwrap()));
        let mut v6 = vec![10, 0, 1, 187, 0, 0, 0, 0];
        v6.extend(Ipv6Addr::LOCALHOST.octets());
        assert_eq!(peer_of(&v6), Peer::Net("[::1]:443".parse().unwrap()));
        assert_eq!(peer_of(b"\x01\0/run/x\0junk"), Peer::Local("/run/x".into()));
        assert_eq!(peer_of(b"\x01\0\0name"), Peer::Local("@name".into()));
        assert_eq!(peer_of(&v4[..5]), Peer::Other);
        assert_eq!(peer_of(b""), Peer::Other);
    }

    #[test]
    fn a_members_bytes_cannot_steer_the_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
        assert_eq!(printable("a\u{202e}b\u{9b}".as_bytes()), "a\\u{202e}b\\u{9b}");
    }
}
