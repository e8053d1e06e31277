//! Connections that leave the transaction: to what `--allow net:HOST[:PORT]` names, and, with `--net
//! record`, to all hosts, each stream recorded so that a retry sees the same bytes.
//!
//! A member's socket lives in the transaction's own network namespace, which has no way out, and it
//! stays there: nothing that a member does with it afterwards (disconnect it, connect or bind it
//! anew, send elsewhere) reaches an outsider. The view has made sockets in that namespace for the
//! manager ([`Gateway`]); at connect(2) the supervisor copies the address, connects outside, then
//! connects the member's socket to the gateway, and carries the bytes between the two. What a member
//! can reach is so exactly what was named, whatever it writes into its memory meanwhile.
//!
//! * A stream is carried by a thread of its own ([`relay`]), which also records and replays
//!   ([`tapes`]).
//! * Datagrams are told apart by the port of the member's socket ([`datagrams`]); they are never
//!   recorded.
//!
//! Limits, told in the table of effects: the connection is there when the call returns, also on a
//! socket that does not block; getpeername(2) names the gateway; and only connected sockets get out,
//! so a datagram to a host needs connect(2) before it.

mod datagrams;
mod relay;
mod tapes;

pub use tapes::Tapes;

use super::target::Target;
use super::{Request, Shared, lock};
use crate::policy::Host;
use crate::sys::{Answer, Notified};
use datagrams::Datagrams;
use relay::Relay;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_error, socket_type};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getsockname, socket_with};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Streams that are carried at a time; a further connect(2) gets `EAGAIN`.
const MAX_STREAMS: usize = 256;
/// Longest wait for a connection that is made within the machine.
const NEAR: Duration = Duration::from_secs(30);

/// The sockets in the transaction's network namespace through which its members get out.
#[derive(Debug, Default)]
pub struct Gateway {
    listeners: Mutex<Vec<TcpListener>>,
    datagrams: Datagrams,
    carried: Mutex<Vec<JoinHandle<()>>>,
}

impl Gateway {
    /// Takes a socket that the view has made: a listening one, or one for datagrams, bound to
    /// loopback.
    ///
    /// # Errors
    /// If it is neither.
    pub fn add(&mut self, socket: OwnedFd) -> rustix::io::Result<()> {
        match socket_type(&socket)? {
            SocketType::STREAM => {
                let listener = TcpListener::from(socket);
                let set = listener.set_nonblocking(true);
                set.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                lock(&self.listeners).push(listener);
                Ok(())
            }
            SocketType::DGRAM => self.datagrams.add(UdpSocket::from(socket)),
            _ => Err(Errno::PROTOTYPE),
        }
    }

    /// Connects a member's socket to the gateway; gives the other end.
    fn join(&self, theirs: &OwnedFd) -> rustix::io::Result<TcpStream> {
        // One at a time, so that the end that is accepted belongs to this one.
        let listeners = lock(&self.listeners);
        let family = socket_domain(theirs)?;
        let wanted = |listener: &&TcpListener| socket_domain(listener.as_fd()) == Ok(family);
        let listener = listeners.iter().find(wanted).ok_or(Errno::NETUNREACH)?;
        let there = listener.local_addr().map_err(|_| Errno::NETUNREACH)?;
        match connect(theirs, &there) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => {
                let mut made = [PollFd::new(theirs, PollFlags::OUT)];
                poll(&mut made, Some(&timespec(NEAR)))?;
                socket_error(theirs)??;
            }
            Err(errno) => return Err(errno),
        }
        let member: SocketAddr = getsockname(theirs)?.try_into()?;
        let until = Instant::now() + NEAR;
        loop {
            match listener.accept() {
                Ok((stream, from)) if from == member => return Ok(stream),
                // Somebody who was not asked about: it is closed again.
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Errno::TIMEDOUT);
                    }
                    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&timespec(left)))?;
                }
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }

    /// Waits until what the members sent is outside. They have ended.
    pub(super) fn finish(&self) {
        for carrier in lock(&self.carried).drain(..) {
            let _ = carrier.join();
        }
        self.datagrams.finish();
    }
}

fn timespec(time: Duration) -> Timespec {
    let tv_sec = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Whether one of `hosts` covers the address.
pub(super) fn is_allowed(hosts: &[Host], address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    hosts.iter().any(|host| {
        host.ip.to_canonical() == ip && host.port.is_none_or(|port| port == address.port())
    })
}

impl Shared {
    /// Connects outside for the caller, in a thread of its own, and answers its connect(2).
    pub(super) fn reach(self: &Arc<Self>, request: Request<'_>, address: SocketAddr) {
        let target = Target::new(self.listener.as_fd(), request.call);
        lock(&self.collected).contact(false, address.to_string(), target.comm());
        self.answer_later(request, "txos-reach", move |shared, call| {
            let target = Target::new(shared.listener.as_fd(), call);
            match shared.connect_outside(&target, call, address) {
                Ok(()) => Answer::Value(0),
                Err(errno) => Answer::Errno(errno.raw_os_error()),
            }
        });
    }

    fn connect_outside(
        self: &Arc<Self>,
        target: &Target<'_>,
        call: Notified,
        address: SocketAddr,
    ) -> rustix::io::Result<()> {
        let theirs = socket_of(target, call.args[0] as i32)?;
        let gateway = &self.hooks.gateway;
        match socket_type(&theirs)? {
            SocketType::DGRAM => {
                let outside = self.connect_to(target, address, SocketType::DGRAM)?;
                gateway.datagrams.join(&theirs, UdpSocket::from(outside))
            }
            SocketType::STREAM => self.start_relay(target, &theirs, address),
            _ => Err(Errno::from_raw_os_error(crate::ENOTXSUPPORT)),
        }
    }

    fn start_relay(
        self: &Arc<Self>,
        target: &Target<'_>,
        theirs: &OwnedFd,
        address: SocketAddr,
    ) -> rustix::io::Result<()> {
        let gateway = &self.hooks.gateway;
        lock(&gateway.carried).retain(|carrier| !carrier.is_finished());
        if lock(&gateway.carried).len() >= MAX_STREAMS {
            return Err(Errno::AGAIN);
        }
        let recorded = self.policy.record.then(|| self.hooks.tapes.begin(address));
        let replayed = recorded.as_ref().is_some_and(tapes::Recorder::replays);
        // A recorded answer needs nobody outside, unless it turns out not to fit.
        let outside = match replayed {
            true => None,
            false => Some(TcpStream::from(self.connect_to(target, address, SocketType::STREAM)?)),
        };
        let relay = Relay { inside: gateway.join(theirs)?, outside, address, recorded };
        let shared = Arc::clone(self);
        let carry = move || {
            if let Some(said) = relay.carry(&shared.stop) {
                lock(&shared.collected).replayed(&said);
                if said.contains("again") || said.contains("differs") {
                    (shared.hooks.notice)(&super::Notice::Trouble(said));
                }
            }
        };
        let carrier = thread::Builder::new().name("txos-relay".to_owned()).spawn(carry);
        lock(&gateway.carried).push(carrier.map_err(|_| Errno::AGAIN)?);
        Ok(())
    }

    /// A socket outside that is connected to `address`. The wait for it ends with the caller.
    fn connect_to(
        &self,
        target: &Target<'_>,
        address: SocketAddr,
        kind: SocketType,
    ) -> rustix::io::Result<OwnedFd> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let ours = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        match connect(&ours, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => self.wait_connected(target, &ours)?,
            Err(errno) => return Err(errno),
        }
        rustix::io::ioctl_fionbio(&ours, false)?;
        Ok(ours)
    }

    fn wait_connected(&self, target: &Target<'_>, socket: &OwnedFd) -> rustix::io::Result<()> {
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        loop {
            let mut fds =
                [PollFd::new(socket, PollFlags::OUT), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut fds, Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
            let (connected, stopped) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
            if stopped || !target.waits() || target.has_signal() {
                return Err(Errno::INTR);
            }
            if connected {
                return socket_error(socket)?;
            }
        }
    }
}

/// Of what kind the caller's socket is, if that can be told.
pub(super) fn kind_of(target: &Target<'_>, fd: i32) -> Option<SocketType> {
    socket_type(socket_of(target, fd).ok()?).ok()
}

/// The caller's socket itself.
fn socket_of(target: &Target<'_>, fd: i32) -> rustix::io::Result<OwnedFd> {
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    let pid = group.and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    if !target.waits() {
        return Err(Errno::SRCH);
    }
    pidfd_getfd(&process, fd, PidfdGetfdFlags::empty())
}

/// Flags of an open file and its descriptor. Source: proc_pid_fdinfo(5).
pub(super) fn flags_of(pid: u32, fd: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("flags:"));
    field.and_then(|value| i32::from_str_radix(value.trim(), 8).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "addresses of the tests are well formed")]
    use super::*;

    #[test]
    fn a_host_covers_its_ports_and_no_other_host() {
        let hosts = [
            Host { ip: "192.0.2.1".parse().unwrap(), port: Some(80) },
            Host { ip: "2001:db8::1".parse().unwrap(), port: None },
        ];
        let allowed = |address: &str| is_allowed(&hosts, address.parse().unwrap());
        assert!(allowed("192.0.2.1:80") && allowed("[2001:db8::1]:5"));
        assert!(allowed("[::ffff:192.0.2.1]:80"));
        assert!(!allowed("192.0.2.1:81") && !allowed("192.0.2.2:80"));
    }
}
