//! Doors: listening sockets of loops that poll.

use std::time::{Duration, Instant};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    fd::{AsFd, OwnedFd},
    io::{Errno, retry_on_intr},
    net::{SocketFlags, accept_with},
};

/// A listening socket of a loop that polls it.
///
/// Where no descriptor or no memory is to be had `accept(2)` fails and the connection stays: the socket
/// is as readable as before, and a loop that polls it would run at full speed, just where the machine is
/// short of everything. So a door is shut for a moment after such a failure and not polled, and the loop
/// hears whatever else it polls. Who waits outside stays there meanwhile.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    shut: Option<Instant>,
}

/// How long a door is shut.
const REST: Duration = Duration::from_millis(50);

impl Door {
    /// For a socket that listens.
    pub fn new(socket: OwnedFd) -> Door {
        Door { socket, shut: None }
    }

    /// What is polled: for connections, and for nothing while it is shut or has no `room`.
    pub fn polled(&self, room: bool) -> PollFd<'_> {
        let open = room && !self.is_shut();
        PollFd::new(&self.socket, if open { PollFlags::IN } else { PollFlags::empty() })
    }

    /// How long may be polled at the most by a loop that would wait for `wait` (`None` is for ever): not
    /// longer than it is shut.
    pub fn limit(&self, wait: Option<Duration>) -> Option<Timespec> {
        let wait = self.rest().into_iter().chain(wait).min()?;
        // A wait of no time at all would be none.
        let wait = wait.max(Duration::from_nanos(1));
        let tv_sec = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
        Some(Timespec { tv_sec, tv_nsec: wait.subsec_nanos().into() })
    }

    /// Takes a connection, if one waits and can be taken.
    pub fn accept(&mut self, flags: SocketFlags) -> Option<OwnedFd> {
        match retry_on_intr(|| accept_with(self.socket.as_fd(), flags)) {
            Ok(socket) => {
                self.shut = None;
                return Some(socket);
            }
            // Nobody waits, or not any more.
            Err(Errno::AGAIN | Errno::CONNABORTED) => {}
            Err(_) => self.shut = Some(Instant::now() + REST),
        }
        None
    }

    /// Whether it could not take who waited the last time, a moment ago.
    pub fn is_shut(&self) -> bool {
        self.rest().is_some()
    }

    fn rest(&self) -> Option<Duration> {
        let rest = self.shut?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}
