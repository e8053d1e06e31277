//! Messages between the manager and the processes of the view, one JSON value a packet.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg,
        socketpair,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Result, ViewError};

/// What the view tells the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromView {
    /// The device of the capture (with its descriptor): serve it.
    Capture,
    /// The master side of the view's terminal (with its descriptor).
    Terminal,
    /// Standard input as it was opened in the view (with its descriptor).
    Stdin,
    /// A file that had been open outside as it was opened in the view (with its descriptor).
    File {
        /// The number of the descriptor in the command.
        number: i32,
    },
    /// All is mounted; nothing has run yet.
    Ready,
    /// The listener of the system call filter (with its descriptor).
    Listener,
    /// The socket of the view's system log (with its descriptor): take the messages.
    Log,
    /// The socket of the view's journal (with its descriptor): take the messages.
    Journal,
    /// The listening socket of the view's journal (with its descriptor): take the streams.
    JournalStreams,
    /// The device of a file system of one file (with its descriptor): serve the log on it.
    ExemptLog {
        /// Which of [`ViewSpec::logs`](crate::ViewSpec::logs).
        index: usize,
    },
    /// A socket in the view's own network through which members can be let out (with its
    /// descriptor).
    Gateway,
    /// What the last processes left in the view's own IPC namespace (with the descriptor of a file that
    /// says it).
    Left,
    /// The command could not be executed.
    ExecFailed {
        /// The error number of `execve(2)`.
        errno: i32,
    },
    /// Something else failed before the command ran.
    Failed {
        /// A whole error line with its remedy.
        message: String,
    },
    /// The command has ended, with this `wait(2)` status.
    Exited {
        /// As `waitpid(2)` gives it.
        status: i32,
    },
    /// The command was stopped, by a key or by itself.
    Stopped,
    /// The command has ended; these processes of the transaction live on.
    Lingering {
        /// Their names, as `/proc/PID/comm` shows them.
        names: Vec<String>,
    },
    /// The answer to [`ToView::Numbers`].
    Numbers {
        /// The greatest process number that the view has used; `None` if that can't be told.
        used_up_to: Option<u32>,
    },
    /// The last process has ended.
    Ended,
}

/// What the manager tells init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToView {
    /// Run the command.
    Go,
    /// Send this signal to the command's process group.
    Signal {
        /// Signal number.
        signal: i32,
    },
    /// Say which process numbers have been used.
    Numbers,
}

/// One end of the connection.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Makes both ends; both are closed on exec.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn pair() -> Result<(Channel, Channel)> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|errno| ViewError::step("make a socket pair", errno))?;
        Ok((Channel(a), Channel(b)))
    }

    /// Takes over an inherited descriptor.
    pub fn from_fd(fd: OwnedFd) -> Channel {
        Channel(fd)
    }

    /// Sends `message`, with a descriptor where one belongs to it.
    ///
    /// # Errors
    /// [`ViewError::Gone`] if the other side is closed.
    pub fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.send_with(message, fd, SendFlags::empty())
    }

    /// The same, but never waits for the other side to read.
    ///
    /// # Errors
    /// As [`Channel::send`]; if too much has not been read yet.
    pub fn send_now(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> Result<()> {
        self.send_with(message, fd, SendFlags::DONTWAIT)
    }

    fn send_with(
        &self,
        message: &impl Serialize,
        fd: Option<BorrowedFd<'_>>,
        flags: SendFlags,
    ) -> Result<()> {
        let text =
            serde_json::to_vec(message).map_err(|error| ViewError::Message(error.to_string()))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = fd.map(|fd| [fd]);
        if let Some(fds) = &fds {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        loop {
            let flags = flags | SendFlags::NOSIGNAL;
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut ancillary, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ViewError::Gone("other side")),
                Err(errno) => return Err(ViewError::step("send a message", errno)),
            }
        }
    }

    /// Waits for a message; `None` when the other side is closed.
    ///
    /// # Errors
    /// If the message is not understood.
    pub fn receive<T: DeserializeOwned>(&self) -> Result<Option<(T, Option<OwnedFd>)>> {
        // How long it is, first: what does not fit into the buffer of a packet is lost.
        let whole = RecvFlags::PEEK | RecvFlags::TRUNC;
        let length = loop {
            match recv(&self.0, &mut [0; 1][..], whole) {
                Ok((_, length)) => break length,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => break 0,
                Err(errno) => return Err(ViewError::step("receive a message", errno)),
            }
        };
        let mut text = vec![0; length];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let count = loop {
            let mut slices = [IoSliceMut::new(&mut text)];
            match recvmsg(&self.0, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => break 0,
                Err(errno) => return Err(ViewError::step("receive a message", errno)),
            }
        };
        if count == 0 {
            return Ok(None);
        }
        let fd = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let message = serde_json::from_slice(&text[..count])
            .map_err(|error| ViewError::Message(error.to_string()))?;
        Ok(Some((message, fd)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_arrives_whole() {
        let (a, b) = Channel::pair().unwrap();
        let message = "x".repeat(150_000);
        a.send(&FromView::Failed { message: message.clone() }, None).unwrap();
        let (received, _) = b.receive::<FromView>().unwrap().unwrap();
        assert_eq!(received, FromView::Failed { message });
    }

    #[test]
    fn messages_carry_descriptors_and_end_with_the_peer() {
        let (a, b) = Channel::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        a.send(&FromView::Capture, Some(file.as_fd())).unwrap();
        a.send(&FromView::Exited { status: 3 }, None).unwrap();
        drop(a);
        let (first, fd) = b.receive::<FromView>().unwrap().unwrap();
        assert_eq!(first, FromView::Capture);
        assert!(fd.is_some());
        let (second, fd) = b.receive::<FromView>().unwrap().unwrap();
        assert_eq!(second, FromView::Exited { status: 3 });
        assert!(fd.is_none());
        assert!(b.receive::<FromView>().unwrap().is_none());
        assert!(matches!(b.send(&ToView::Go, None), Err(ViewError::Gone(_))));
    }
}
