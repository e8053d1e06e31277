//! One descriptor over a socket: how the listener gets from the child to the manager.
//!
//! Both ends are the two halves of one `UnixStream::pair` that the manager made before the child. The
//! child cannot send the listener in a message: sendmsg(2) is one of the calls that the filter asks
//! about, and nobody answers yet. So it writes its process id and the descriptor's number, which
//! write(2) lets through always, and the other side takes a copy (pidfd_getfd(2)) and says so.
//!
//! The two must be in one pid namespace, and the receiver may trace the sender (it is its parent).

use crate::Error;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Hands `fd` over, waits until the other side has it, and closes it here, so that the sender's later
/// program cannot find it.
///
/// # Errors
///
/// [`Error::System`] when the other side is gone. Source: pidfd_getfd(2), Linux 5.6.
pub fn send_fd(stream: &UnixStream, fd: OwnedFd) -> Result<(), Error> {
    let mut stream = stream;
    let mut message = [0; 8];
    message[..4].copy_from_slice(&getpid().as_raw_nonzero().get().to_ne_bytes());
    message[4..].copy_from_slice(&fd.as_raw_fd().to_ne_bytes());
    let sent = stream.write_all(&message).and_then(|()| stream.read_exact(&mut [0]));
    sent.map_err(Error::system("hand a descriptor over"))
}

/// Waits for one descriptor; it is closed on exec.
///
/// # Errors
///
/// [`Error::NoListener`] when the other side ended without sending one, [`Error::System`] else.
pub fn recv_fd(stream: &UnixStream) -> Result<OwnedFd, Error> {
    let mut stream = stream;
    let mut message = [0; 8];
    stream.read_exact(&mut message).map_err(|_| Error::NoListener)?;
    let number =
        |at: usize| message[at..].first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    let pid = Pid::from_raw(number(0)).ok_or(Error::NoListener)?;
    let taken = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|process| pidfd_getfd(&process, number(4), PidfdGetfdFlags::empty()))
        .map_err(Error::system("take a descriptor of the child"))?;
    stream.write_all(&[1]).map_err(Error::system("take a descriptor of the child"))?;
    Ok(taken)
}
