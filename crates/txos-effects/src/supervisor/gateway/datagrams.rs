//! Datagrams between members and the hosts that they are allowed to reach.
//!
//! All members' sockets are connected to one socket of the gateway for each address family, and are told
//! apart by the address that they send from; each has a socket of its own outside. Threads end when
//! the transaction does, after what its members sent; an answer that comes later is lost, as datagrams may be.

use crate::supervisor::lock;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::sockopt::socket_domain;
use rustix::net::{connect, getsockname};
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Sockets outside at a time.
const MAX_PEERS: usize = 64;
/// Longest datagram.
const LONGEST: usize = 65_536;
/// How often a thread looks whether it is still needed.
const TICK: Duration = Duration::from_millis(100);

/// The gateway's sockets, and the sockets outside by the members' addresses.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    carriers: Vec<Arc<Carrier>>,
    over: Arc<AtomicBool>,
}

/// A socket of the gateway.
#[derive(Debug)]
struct Carrier {
    socket: UdpSocket,
    peers: Mutex<BTreeMap<SocketAddr, Arc<UdpSocket>>>,
    /// Held from taking a datagram to sending it on.
    carrying: Mutex<()>,
}

impl Carrier {
    /// Sends on what has come.
    fn carry(&self) {
        let _carrying = lock(&self.carrying);
        let mut bytes = vec![0; LONGEST];
        while let Ok((length, member)) = self.socket.recv_from(&mut bytes) {
            let peer = lock(&self.peers).get(&member).map(Arc::clone);
            if let Some(peer) = peer {
                let _ = peer.send(&bytes[..length]);
            }
        }
    }
}

impl Datagrams {
    /// Takes a socket that is bound in the transaction's network, and begins to carry.
    pub(super) fn add(&mut self, socket: UdpSocket) -> rustix::io::Result<()> {
        let failed = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        socket.set_nonblocking(true).map_err(failed)?;
        let (peers, carrying) = Default::default();
        let carrier = Arc::new(Carrier { socket, peers, carrying });
        let (from, over) = (Arc::clone(&carrier), Arc::clone(&self.over));
        start(move || {
            while !over.load(Ordering::Relaxed) {
                let mut come = [PollFd::new(&from.socket, PollFlags::IN)];
                if matches!(poll(&mut come, Some(&super::timespec(TICK))), Ok(1)) {
                    from.carry();
                }
            }
        })?;
        self.carriers.push(carrier);
        Ok(())
    }

    /// Joins a member's socket to one outside.
    pub(super) fn join(&self, theirs: &OwnedFd, outside: UdpSocket) -> rustix::io::Result<()> {
        let failed = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let family = socket_domain(theirs)?;
        let mut carriers = self.carriers.iter();
        let carrier = carriers.find(|carrier| socket_domain(&carrier.socket) == Ok(family));
        let carrier = Arc::clone(carrier.ok_or(Errno::NETUNREACH)?);
        connect(theirs, &carrier.socket.local_addr().map_err(failed)?)?;
        let member: SocketAddr = getsockname(theirs)?.try_into()?;
        outside.set_read_timeout(Some(TICK)).map_err(failed)?;
        let outside = Arc::new(outside);
        {
            let mut peers = lock(&carrier.peers);
            if peers.len() >= MAX_PEERS {
                return Err(Errno::AGAIN);
            }
            peers.insert(member, Arc::clone(&outside));
        }
        let over = Arc::clone(&self.over);
        start(move || {
            let mut bytes = vec![0; LONGEST];
            while !over.load(Ordering::Relaxed) {
                if let Ok(length) = outside.recv(&mut bytes) {
                    let _ = carrier.socket.send_to(&bytes[..length], member);
                }
            }
        })
    }

    /// Sends on what members that have ended sent, and ends the threads.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
        for carrier in &self.carriers {
            carrier.carry();
            lock(&carrier.peers).clear();
        }
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> rustix::io::Result<()> {
    let named = thread::Builder::new().name("txos-datagrams".to_owned());
    named.spawn(work).map(drop).map_err(|_| Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    #[test]
    fn what_was_sent_before_the_end_is_outside_after_it() {
        let here = || UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..20 {
            let (outsider, member, ours) = (here(), here(), here());
            ours.connect(outsider.local_addr().unwrap()).unwrap();
            let mut datagrams = Datagrams::default();
            datagrams.add(here()).unwrap();
            let member = OwnedFd::from(member);
            datagrams.join(&member, ours).unwrap();
            for _ in 0..50 {
                rustix::io::write(&member, b"text").unwrap();
            }
            drop(member);
            datagrams.finish();
            outsider.set_nonblocking(true).unwrap();
            let come =
                std::iter::repeat_with(|| outsider.recv(&mut [0; 8])).take_while(Result::is_ok);
            assert_eq!(come.count(), 50);
        }
    }
}
