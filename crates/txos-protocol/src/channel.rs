use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};

use crate::DESCRIPTORS;

/// One end of a connection.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// Both ends of a new connection, closed on exec.
///
/// # Errors
/// If the process is out of descriptors.
pub fn pair() -> Result<(Socket, Socket), Errno> {
    let (a, b) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((Socket(a), Socket(b)))
}

/// Sends a message on a connection, with a descriptor where one belongs to it.
///
/// # Errors
/// `EPIPE` if the other side is gone.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    send_all(socket, bytes, fd.as_slice())
}

/// Sends a message on a connection, with descriptors, [`DESCRIPTORS`] at the most.
///
/// # Errors
/// `EPIPE` if the other side is gone.
pub fn send_all(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Err(Errno::PIPE),
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits for a message on a connection. Gives its length, 0 when the other side is gone, and a
/// descriptor that came along.
///
/// # Errors
/// What the kernel gives.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let (length, fds) = receive_all(socket, bytes)?;
    Ok((length, fds.into_iter().next()))
}

/// The same with all descriptors that came along.
///
/// # Errors
/// What the kernel gives.
pub fn receive_all(socket: impl AsFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut slices = [IoSliceMut::new(bytes)];
        match recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => break 0,
            Err(errno) => return Err(errno),
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            fds.extend(came);
        }
    }
    Ok((length, fds))
}

impl Socket {
    /// See [`send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        send(&self.0, bytes, fd)
    }

    /// See [`receive_all`].
    ///
    /// # Errors
    /// As there.
    pub fn receive_all(&self, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
        receive_all(&self.0, bytes)
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        socket.0
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Socket {
        Socket(fd)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
