//! One descriptor over a socket: how the listener gets from the child to the manager.
//!
//! Both ends are the two halves of one `UnixStream::pair` that the manager made before the child.

use crate::{Error, filter::rules::HANDOVER_FLAGS};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;

/// Sends `fd` and closes it here, so that the sender's later program cannot find it.
///
/// # Errors
///
/// [`Error::System`] when the other side is gone. Source: unix(7), `SCM_RIGHTS`.
pub fn send_fd(stream: &UnixStream, fd: OwnedFd) -> Result<(), Error> {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::from_bits_retain(HANDOVER_FLAGS);
    sendmsg(stream, &[IoSlice::new(b"f")], &mut control, flags)
        .map_err(Error::system("send a descriptor"))?;
    Ok(())
}

/// Waits for one descriptor; it is closed on exec.
///
/// # Errors
///
/// [`Error::NoListener`] when the other side ended without sending one, [`Error::System`] else.
pub fn recv_fd(stream: &UnixStream) -> Result<OwnedFd, Error> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut space_for_byte = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(stream, &mut space_for_byte, &mut control, RecvFlags::CMSG_CLOEXEC))
        .map_err(Error::system("receive a descriptor"))?;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    rights.ok_or(Error::NoListener)
}
