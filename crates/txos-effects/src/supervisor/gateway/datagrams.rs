//! Datagrams between members and the hosts that they are allowed to reach.
//!
//! All members' sockets are connected to one socket of the gateway for each address family, and are told
//! apart by the address that they send from; each has a socket of its own outside. Threads end when
//! the transaction does; a datagram that is on its way then is lost, as datagrams may be.

use crate::supervisor::lock;
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
    sockets: Vec<Arc<UdpSocket>>,
    peers: Arc<Mutex<BTreeMap<SocketAddr, Arc<UdpSocket>>>>,
    over: Arc<AtomicBool>,
}

impl Datagrams {
    /// Takes a socket that is bound in the transaction's network, and begins to carry.
    pub(super) fn add(&mut self, socket: UdpSocket) -> rustix::io::Result<()> {
        let failed = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        socket.set_read_timeout(Some(TICK)).map_err(failed)?;
        let socket = Arc::new(socket);
        let (from, peers, over) =
            (Arc::clone(&socket), Arc::clone(&self.peers), Arc::clone(&self.over));
        let carry = move || {
            let mut bytes = vec![0; LONGEST];
            while !over.load(Ordering::Relaxed) {
                let Ok((length, member)) = from.recv_from(&mut bytes) else { continue };
                let peer = lock(&peers).get(&member).map(Arc::clone);
                if let Some(peer) = peer {
                    let _ = peer.send(&bytes[..length]);
                }
            }
        };
        start(carry)?;
        self.sockets.push(socket);
        Ok(())
    }

    /// Joins a member's socket to one outside.
    pub(super) fn join(&self, theirs: &OwnedFd, outside: UdpSocket) -> rustix::io::Result<()> {
        let failed = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let family = socket_domain(theirs)?;
        let socket = self.sockets.iter().find(|socket| socket_domain(socket) == Ok(family));
        let socket = Arc::clone(socket.ok_or(Errno::NETUNREACH)?);
        connect(theirs, &socket.local_addr().map_err(failed)?)?;
        let member: SocketAddr = getsockname(theirs)?.try_into()?;
        outside.set_read_timeout(Some(TICK)).map_err(failed)?;
        let outside = Arc::new(outside);
        {
            let mut peers = lock(&self.peers);
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
                    let _ = socket.send_to(&bytes[..length], member);
                }
            }
        })
    }

    /// Ends the threads.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Relaxed);
        lock(&self.peers).clear();
    }
}

fn start(work: impl FnOnce() + Send + 'static) -> rustix::io::Result<()> {
    let named = thread::Builder::new().name("txos-datagrams".to_owned());
    named.spawn(work).map(drop).map_err(|_| Errno::AGAIN)
}
