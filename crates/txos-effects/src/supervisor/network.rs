//! Whom an address of the network reaches: members, or nobody but outsiders.
//!
//! Without `--allow net` the transaction has a network namespace of its own with nothing but
//! loopback, so no call can reach an outsider, whatever the address says; what is decided here is
//! only whether the caller is told so, by a refusal with a line that names the flag, or meets the
//! kernel's own `ENETUNREACH` or `ECONNREFUSED`. That is why an address may be read from memory
//! that the caller could change meanwhile.
//!
//! Outside is asked first: mostly nobody is there, and of outside one address can be asked for
//! ([`asked`]). Of the transaction's namespace there is only the list of all, which takes milliseconds.
//!
//! Source: proc_pid_net(5), `tcp`, `tcp6`, `udp`, `udp6`.

mod asked;

use super::lock;
use asked::Kernel;
use rustix::net::SocketType;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;

/// State of a listening TCP socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Both kinds of sockets that have ports, and their tables.
const KINDS: [(SocketType, [&str; 2]); 2] =
    [(SocketType::STREAM, ["tcp", "tcp6"]), (SocketType::DGRAM, ["udp", "udp6"])];

/// The loopback ports on which members were seen.
#[derive(Debug, Default)]
pub(super) struct Members {
    ports: Mutex<BTreeSet<u16>>,
    outside: Kernel,
}

impl Members {
    /// The address in words when only outsiders could be reached there, `None` when it is a matter
    /// of members. `pid` is the caller, `kind` tells its socket's, if that can be told.
    pub(super) fn outside(
        &self,
        address: SocketAddr,
        pid: u32,
        kind: impl FnOnce() -> Option<SocketType>,
    ) -> Option<String> {
        let port = address.port();
        let host = address.ip().to_canonical();
        if !stays_inside(host) {
            return Some(address.to_string());
        }
        if port == 0 || lock(&self.ports).contains(&port) {
            return None;
        }
        // Natively nobody would answer either: then the kernel's own error is the honest one.
        let there = SocketAddr::new(loopback(host), port);
        let mut found = KINDS.map(|(kind, _)| (kind, self.answers(kind, there)));
        if found.iter().all(|(_, answers)| !answers) {
            return None;
        }
        if let Some(kind) = kind() {
            found.iter_mut().filter(|(other, _)| *other != kind).for_each(|(_, is)| *is = false);
        }
        if !found.iter().any(|(_, answers)| *answers) {
            return None;
        }
        if KINDS.iter().any(|(kind, _)| is_bound(&format!("/proc/{pid}/net"), *kind, port)) {
            lock(&self.ports).insert(port);
            return None;
        }
        Some(format!("{address}, where a process outside listens"))
    }

    /// Whether somebody outside answers there.
    fn answers(&self, kind: SocketType, there: SocketAddr) -> bool {
        let asked = self.outside.answers(kind, there);
        asked.unwrap_or_else(|| is_bound("/proc/self/net", kind, there.port()))
    }
}

/// Whether an address is one of loopback; the unspecified address means loopback to connect(2).
fn stays_inside(host: IpAddr) -> bool {
    host.is_loopback() || host.is_unspecified()
}

/// Where connect(2) goes to.
fn loopback(host: IpAddr) -> IpAddr {
    match host {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        host => host,
    }
}

/// Whether a socket is there for others, in the network namespace of `net`. Unreadable: no.
fn is_bound(net: &str, kind: SocketType, port: u16) -> bool {
    let tables = KINDS.iter().filter(|(other, _)| *other == kind).flat_map(|(_, tables)| tables);
    tables.into_iter().any(|table| {
        let text = fs::read_to_string(format!("{net}/{table}")).unwrap_or_default();
        let wanted = (kind == SocketType::STREAM).then_some(LISTENING);
        text.lines().skip(1).any(|line| port_of(line, wanted) == Some(port))
    })
}

/// The local port of a line, if its socket is in the wanted state.
fn port_of(line: &str, state: Option<&str>) -> Option<u16> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let local = fields.next()?;
    let found = fields.nth(1)?;
    let port = u16::from_str_radix(local.rsplit(':').next()?, 16).ok()?;
    state.is_none_or(|state| state == found).then_some(port)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0";
        assert_eq!(port_of(line, Some(LISTENING)), Some(8080));
        assert_eq!(port_of(&line.replace(" 0A ", " 01 "), Some(LISTENING)), None);
        assert_eq!(port_of("", None), None);
    }

    #[test]
    fn loopback_is_inside_and_a_listener_outside_is_told() {
        let members = Members::default();
        let far = "192.0.2.7:80".parse().unwrap();
        let stream = || Some(SocketType::STREAM);
        assert_eq!(members.outside(far, 1, stream), Some("192.0.2.7:80".to_owned()));
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = server.local_addr().unwrap();
        // For a caller that does not exist no member can be seen: the listener is an outsider.
        let told = members.outside(near, u32::MAX, stream).unwrap();
        assert!(told.contains("a process outside listens"), "{told}");
        assert!(members.outside(near, u32::MAX, || None).is_some(), "whatever it asks with");
        assert_eq!(members.outside(near, u32::MAX, || Some(SocketType::DGRAM)), None);
        let anywhere = SocketAddr::from(([0, 0, 0, 0], near.port()));
        assert!(members.outside(anywhere, u32::MAX, stream).is_some());
        // For a caller of this process's own network it is a member.
        assert_eq!(members.outside(near, std::process::id(), stream), None);
        let mapped = format!("[::ffff:127.0.0.1]:{}", near.port()).parse().unwrap();
        assert_eq!(members.outside(mapped, std::process::id(), stream), None);
    }
}
