//! Messages to the system log: kept while the transaction runs, sent in order after its commit.
//!
//! The view binds a datagram socket of its own at `/dev/log`, where syslog(3), logger(1) and shells
//! send to; the manager takes what arrives. After an abort nothing was logged. Each message is one
//! datagram, at the commit as it was inside, with the time that the program wrote into it.
//!
//! Invariant: nothing is lost for being late: [`Messages::finish`] is called when the last process has
//! ended, and takes what still lies in the socket.

use crate::Error;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Where programs find the log.
pub const LOG: &str = "/dev/log";
/// Longest message that is kept whole, in bytes; the log itself takes no longer ones.
const LONGEST: usize = 8192;
/// So many messages are kept at the most; what comes later is counted.
const MAX_MESSAGES: usize = 10_000;

/// Messages that are being taken.
#[derive(Debug)]
pub struct Messages {
    socket: Arc<OwnedFd>,
    taker: JoinHandle<Vec<String>>,
}

impl Messages {
    /// Starts to take messages from the bound socket.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no thread can be had.
    pub fn take(socket: OwnedFd) -> Result<Messages, Error> {
        let socket = Arc::new(socket);
        let from = Arc::clone(&socket);
        let taker = thread::Builder::new()
            .name("txos-log".to_owned())
            .spawn(move || take_all(&from))
            .map_err(Error::system("start a thread for the log"))?;
        Ok(Messages { socket, taker })
    }

    /// Ends, and gives all that was sent.
    pub fn finish(self) -> Vec<String> {
        // The reader gets what lies there before it sees the end.
        let _ = shutdown(&*self.socket, Shutdown::Read);
        self.taker.join().unwrap_or_default()
    }
}

fn take_all(socket: &OwnedFd) -> Vec<String> {
    let mut messages = Vec::new();
    let mut dropped = 0u64;
    let mut space = [0; LONGEST];
    while let Ok((_, length)) = retry_on_intr(|| recv(socket, &mut space, RecvFlags::empty())) {
        // A datagram of no bytes says nothing, so it can stand for the end.
        if length == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&space[..length.min(LONGEST)]);
        match messages.len() < MAX_MESSAGES {
            true => messages.push(text.into_owned()),
            false => dropped += 1,
        }
    }
    if dropped > 0 {
        messages
            .push(format!("<13>txos: {dropped} further messages of a transaction were dropped"));
    }
    messages
}

/// Sends `messages` to the log of the host, in order; gives how many it took. Where there is no log
/// they are dropped, as syslog(3) does.
pub fn deliver(messages: &[String]) -> usize {
    send_to(LOG, messages)
}

fn send_to(log: &str, messages: &[String]) -> usize {
    let Ok(socket) = UnixDatagram::unbound() else { return 0 };
    if messages.is_empty() || socket.connect(log).is_err() {
        return 0;
    }
    let sent = |message: &&String| match socket.send(message.as_bytes()) {
        Ok(_) => true,
        Err(error) => Errno::from_io_error(&error) == Some(Errno::MSGSIZE),
    };
    messages.iter().take_while(sent).count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    #[test]
    fn messages_come_back_in_order_and_are_sent_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        let taken = Messages::take(UnixDatagram::bind(&inside).unwrap().into()).unwrap();
        let member = UnixDatagram::unbound().unwrap();
        for number in 0..300 {
            member.send_to(format!("<13>m{number}").as_bytes(), &inside).unwrap();
        }
        let messages = taken.finish();
        assert_eq!(messages.len(), 300);
        assert!(messages.iter().enumerate().all(|(n, text)| *text == format!("<13>m{n}")));
        let outside = dir.path().join("outside");
        let host = UnixDatagram::bind(&outside).unwrap();
        assert_eq!(send_to(outside.to_str().unwrap(), &messages[..5]), 5);
        let mut space = [0; 64];
        let length = host.recv(&mut space).unwrap();
        assert_eq!(&space[..length], b"<13>m0");
        assert_eq!(send_to("/nonexistent/log", &messages), 0);
    }
}
