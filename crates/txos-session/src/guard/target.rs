//! What can be learnt about the thread that made a call.
//!
//! Its memory is looked at once, when the call has been made already: a program that changes it meanwhile
//! misleads its own transaction.

use std::{
    fs::{File, OpenOptions},
    os::{fd::BorrowedFd, unix::fs::FileExt},
};

use txos_effects::notify::{Notified, notif_valid};

/// Longest address (`struct sockaddr_un`).
const ADDRESS: usize = 110;

/// The maker of a call.
pub(super) struct Target<'a> {
    listener: BorrowedFd<'a>,
    id: u64,
    task: i32,
}

/// Whom a socket call reaches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A local socket with a name in the file system.
    Path(Vec<u8>),
    /// Nobody, or the kernel.
    Own,
    /// Somebody outside.
    Outside,
}

impl<'a> Target<'a> {
    pub(super) fn new(listener: BorrowedFd<'a>, call: &Notified) -> Target<'a> {
        Target { listener, id: call.id, task: call.pid.cast_signed() }
    }

    /// The thread.
    pub(super) fn task(&self) -> i32 {
        self.task
    }

    fn waits(&self) -> bool {
        notif_valid(self.listener, self.id)
    }

    fn memory(&self) -> String {
        format!("/proc/{}/mem", self.task)
    }

    /// As many bytes of its memory as there are.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let length = File::open(self.memory()).and_then(|memory| memory.read_at(bytes, address));
        // The number could be another thread's by now.
        if self.waits() { length.unwrap_or(0) } else { 0 }
    }

    /// The first eight bytes there, or the first four.
    pub(super) fn number(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) >= 4).then(|| u64::from_ne_bytes(bytes))
    }

    /// Writes to its memory; `false` if there is none.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> bool {
        let memory = OpenOptions::new().write(true).open(self.memory());
        self.waits() && memory.is_ok_and(|memory| memory.write_all_at(bytes, address).is_ok())
    }

    /// Whom an address names.
    pub(super) fn peer(&self, address: u64, length: u64) -> Peer {
        if address == 0 {
            return Peer::Own;
        }
        let mut bytes = [0; ADDRESS];
        let length = usize::try_from(length & u64::from(u32::MAX)).unwrap_or(0).min(ADDRESS);
        let got = self.read(address, &mut bytes[..length]);
        peer(&bytes[..got])
    }
}

/// Whom the bytes of an address name (`struct sockaddr`); wrong ones are left to the kernel.
fn peer(bytes: &[u8]) -> Peer {
    let [low, high, name @ ..] = bytes else { return Peer::Own };
    match i32::from(u16::from_ne_bytes([*low, *high])) {
        libc::AF_UNIX => match name.split(|byte| *byte == 0).next() {
            Some(path @ [_, ..]) => Peer::Path(path.to_vec()),
            // None at all, or an abstract one.
            _ if name.is_empty() => Peer::Own,
            _ => Peer::Outside,
        },
        libc::AF_UNSPEC | libc::AF_NETLINK => Peer::Own,
        _ => Peer::Outside,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let with = |family: i32, name: &[u8]| {
            let mut bytes = (family as u16).to_ne_bytes().to_vec();
            bytes.extend(name);
            peer(&bytes)
        };
        assert_eq!(with(libc::AF_UNIX, b"/dev/log\0"), Peer::Path(b"/dev/log".to_vec()));
        assert_eq!(with(libc::AF_UNIX, b"\0abstract"), Peer::Outside);
        assert_eq!(with(libc::AF_UNIX, b""), Peer::Own);
        assert_eq!(with(libc::AF_INET, &[0, 80, 1, 1, 1, 1]), Peer::Outside);
        assert_eq!(with(libc::AF_NETLINK, &[0; 10]), Peer::Own);
        assert_eq!(peer(&[]), Peer::Own);
    }
}
