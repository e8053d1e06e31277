//! Messages between txos, its watchdog, and the watchdog's second: one JSON value a packet, with
//! descriptors.

use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Descriptors in one message; the kernel takes 253.
pub(crate) const MOST_FDS: usize = 250;
/// Longest message, in bytes.
const LIMIT: usize = 64 * 1024;

/// What txos asks of its watchdog. Of what the second is told, some is the watchdog's own decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Watch over this; comes with the descriptors. Answered by [`Answer::Armed`].
    Arm(Watch),
    /// May the commit be decided? Answered by [`Answer::Go`] or [`Answer::Expired`].
    Decide(u64),
    /// It is over: txos has thawed.
    Done(u64),
    /// To the second: everything was ended in order.
    Quit,
}

/// One thing to watch over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    /// Number given by txos.
    pub(crate) id: u64,
    /// Until when it may last: time left when the message was sent.
    pub(crate) limit: Duration,
    /// What it is.
    pub(crate) what: What,
}

/// A pause or a hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum What {
    /// Groups, each with two descriptors: its `cgroup.freeze`, and the claim.
    Pause,
    /// Held groups, by path.
    Hold(Vec<PathBuf>),
}

/// What the watchdog answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It watches.
    Armed(u64),
    /// The commit may be decided; from here on the limit does not bind.
    Go(u64),
    /// The limit is over, and the domain runs again.
    Expired(u64),
}

/// One end of a connection, packets in order.
#[derive(Debug)]
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn pair() -> Result<(Wire, Wire), Errno> {
        let (a, b) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Wire(a), Wire(b)))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Wire {
        Wire(fd)
    }

    /// Sends without waiting for room: a peer that does not read is as good as dead.
    pub(crate) fn send(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let text = serde_json::to_vec(message).map_err(|_| Errno::INVAL)?;
        if fds.len() > MOST_FDS {
            return Err(Errno::TOOMANYREFS);
        }
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&text)], &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    /// The next message; `None` if the other side is closed.
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Result<Option<(T, Vec<OwnedFd>)>, Errno> {
        let mut text = vec![0; LIMIT];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let count = loop {
            let mut slices = [IoSliceMut::new(&mut text)];
            match recvmsg(&self.0, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received.bytes,
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => break 0,
                Err(errno) => return Err(errno),
            }
        };
        if count == 0 {
            return Ok(None);
        }
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                fds.extend(received);
            }
        }
        let message = serde_json::from_slice(&text[..count]).map_err(|_| Errno::BADMSG)?;
        Ok(Some((message, fds)))
    }

    /// Waits until there is something to receive, or the other side is closed; `false` if neither
    /// happens for so long (`None`: for ever).
    pub(crate) fn wait(&self, patience: Option<Duration>) -> Result<bool, Errno> {
        let time = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs().min(1 << 30) as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], time.as_ref()) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_descriptors_travel_and_the_end_is_seen() {
        let (a, b) = Wire::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let fds = vec![file.as_fd(); MOST_FDS];
        let watch = Watch { id: 1, limit: Duration::from_millis(3), what: What::Pause };
        a.send(&Ask::Arm(watch.clone()), &fds).unwrap();
        assert_eq!(a.send(&Ask::Quit, &vec![file.as_fd(); MOST_FDS + 1]), Err(Errno::TOOMANYREFS));
        assert!(b.wait(None).unwrap());
        let (message, got) = b.receive::<Ask>().unwrap().unwrap();
        assert_eq!((message, got.len()), (Ask::Arm(watch), MOST_FDS));
        assert!(!b.wait(Some(Duration::from_millis(1))).unwrap());
        drop(a);
        assert!(b.receive::<Ask>().unwrap().is_none());
        assert!(b.send(&Ask::Quit, &[]).is_err());
    }
}
