//! Connections to what `--allow net:HOST[:PORT]` names, made in the caller's place.
//!
//! The caller's socket lives in the transaction's own network namespace, which has no way out; and an
//! address that the filter looked at could be another one when the kernel reads it. So the supervisor
//! copies the address, makes a socket of the same kind outside, connects it, and puts it where the
//! caller's was (`SECCOMP_IOCTL_NOTIF_ADDFD`). What a member can reach is so exactly what was named.
//!
//! Limits, told in the table of effects: the connection is there when the call returns, also on a
//! socket that does not block; options that were set before are those of a new socket; and only
//! connected sockets get out, so a datagram to a host needs connect(2) before it.

use super::target::Target;
use super::{Request, Shared, lock};
use crate::policy::Host;
use crate::sys::{self, Answer, Notified};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_error, socket_protocol, socket_type};
use rustix::net::{SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

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
        &self,
        target: &Target<'_>,
        call: Notified,
        address: SocketAddr,
    ) -> rustix::io::Result<()> {
        let fd = call.args[0] as i32;
        let theirs = socket_of(target, fd)?;
        let kind = socket_type(&theirs)?;
        if kind != SocketType::STREAM && kind != SocketType::DGRAM {
            return Err(Errno::from_raw_os_error(crate::ENOTXSUPPORT));
        }
        let flags = flags_of(target.pid(), fd);
        let protocol = socket_protocol(&theirs)?;
        let family = socket_domain(&theirs)?;
        let no_wait = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let ours = socket_with(family, kind, no_wait, protocol)?;
        match connect(&ours, &address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => self.wait_connected(target, ours.as_fd())?,
            Err(errno) => return Err(errno),
        }
        rustix::io::ioctl_fionbio(&ours, flags & libc::O_NONBLOCK != 0)?;
        let close_on_exec = flags & libc::O_CLOEXEC != 0;
        sys::notif_put_fd(self.listener.as_fd(), call.id, ours.as_fd(), fd, close_on_exec)
    }

    fn wait_connected(
        &self,
        target: &Target<'_>,
        socket: BorrowedFd<'_>,
    ) -> rustix::io::Result<()> {
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        loop {
            let mut fds =
                [PollFd::new(&socket, PollFlags::OUT), PollFd::new(&self.stop, PollFlags::IN)];
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
fn flags_of(pid: u32, fd: i32) -> i32 {
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
