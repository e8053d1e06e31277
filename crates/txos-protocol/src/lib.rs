//! What a program that uses transactions (libtxos) and its session (`txos __session`) say to one another.
//!
//! One connection (`SOCK_SEQPACKET`, unix(7)) belongs to one thread of a program, or to one process that
//! was forked inside a transaction. The thread asks, the session answers; each question has one answer,
//! and nothing is said unasked. Both sides come from one build, so the messages are plain numbers in the
//! machine's own order, and a version is compared when a connection is made.
//!
//! ```text
//! Hello    version                   ▶ version
//! Connect  + a socket                  (no answer: the socket is a new connection)
//! Begin    flags, group, sequence    ▶ transaction, mount ids + mount namespace
//!          (each from a thread, named)
//!          + for each pipe that is carried the program's end, and the session's end of the inner one
//! End                                ▶ outcome
//! Abort                              ▶ 0
//! Status                             ▶ 0, or 1 for a doomed transaction
//! IsMember process                   ▶ 1, or 0: whether it was born in the transaction
//! Join     transaction + as above    ▶ mount ids + mount namespace
//! Guard    address of the gate       ▶ 0 + the program of the filter
//! Guard    number of its listener, 1 ▶ 0 (the session has taken it)
//! ```
//!
//! # Invariants
//!
//! - A code below zero is an error number of errno(3), negated.
//! - A connection that closes is a member that has left: how it ended decides what that means (the
//!   session looks at the process, not at the connection).

mod channel;

pub use channel::{Socket, pair, receive, receive_all, send, send_all};

/// Compared when a connection is made.
pub const VERSION: u32 = 3;

/// The process to which a thread sends a signal (tgkill(2)) to learn which session answers for it: none
/// has such a number, so without a guard the call fails. The second argument is where the name goes, the
/// third how long it may be; the session answers with its length.
pub const ASKED: i32 = -0x7478_6f73;

/// The fifth argument of rt_sigtimedwait(2) as the library makes it, which notes what it takes. The kernel
/// takes four.
pub const NOTED: i64 = 0x7478_6f73;

/// What comes along with the signal by which the session tells a thread that its transaction has lost, as with
/// sigqueue(3). Who has no handler for it hears nothing.
pub const RUNG: i64 = 0x7478_6f73_7274;

/// The flags of an Abort.
pub mod abort {
    /// The transaction will be tried again.
    pub const RETRY: u32 = 0;
    /// It will not.
    pub const FOR_GOOD: u32 = 1;
    /// It has lost, as the session said itself, and will be tried again when the winner has ended.
    pub const LOST: u32 = 2;
}

/// Greatest number of mount ids in a reply: so many overlays a view has at the most.
pub const MOUNTS: usize = 64;

/// Greatest number of descriptors in a message.
pub const DESCRIPTORS: usize = 128;

/// A question. Which of the numbers mean something depends on `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked for.
    pub op: Op,
    /// Flags of a transaction that begins (`TX_*`); the version of a Hello.
    pub flags: u32,
    /// The thread that asks (gettid(2)).
    pub task: i32,
    /// The group of an ordered transaction; the transaction of a Join; what a Guard hands over; the process
    /// of an IsMember.
    pub group: u64,
    /// The place of an ordered transaction in its group; 1 for the second part of a Guard.
    pub sequence: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Compare versions.
    Hello = 1,
    /// Take the socket that comes along as a further connection.
    Connect,
    /// Begin a transaction.
    Begin,
    /// Begin one that commits in its place of an order.
    BeginOrdered,
    /// The member has done its part.
    End,
    /// Give the transaction up, for all members.
    Abort,
    /// Is it doomed?
    Status,
    /// Become a member of a running transaction.
    Join,
    /// Have the filter's program, and hand its listener over.
    Guard,
    /// Was a process born in it?
    IsMember,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Reply {
    /// 0 or more: success; else an error number, negated.
    pub code: i32,
    /// Which transaction.
    pub transaction: u64,
    /// Mount ids of its view.
    pub mounts: Vec<u32>,
}

impl Request {
    /// Bytes of a request.
    pub const SIZE: usize = 28;

    /// A question that needs no further numbers.
    pub fn plain(op: Op) -> Request {
        Request { op, flags: 0, task: 0, group: 0, sequence: 0 }
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&(self.op as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.task.to_ne_bytes());
        bytes[12..20].copy_from_slice(&self.group.to_ne_bytes());
        bytes[20..].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes
    }

    /// From bytes; `None` if they are no request of this version.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut rest = Rest(bytes);
        let op = Op::from_raw(rest.u32()?)?;
        let (flags, task) = (rest.u32()?, rest.u32()?.cast_signed());
        let (group, sequence) = (rest.u64()?, rest.u64()?);
        let request = Request { op, flags, task, group, sequence };
        rest.0.is_empty().then_some(request)
    }
}

impl Op {
    fn from_raw(raw: u32) -> Option<Op> {
        use Op::{Abort, Begin, BeginOrdered, Connect, End, Guard, Hello, IsMember, Join, Status};
        [Hello, Connect, Begin, BeginOrdered, End, Abort, Status, Join, Guard, IsMember]
            .into_iter()
            .find(|op| *op as u32 == raw)
    }
}

impl Reply {
    /// Greatest size of a reply in bytes.
    pub const LIMIT: usize = 16 + 4 * MOUNTS;

    /// One that is a code and nothing else.
    pub fn code(code: i32) -> Reply {
        Reply { code, ..Reply::default() }
    }

    /// As bytes; mounts beyond [`MOUNTS`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mounts = &self.mounts[..self.mounts.len().min(MOUNTS)];
        let mut bytes = Vec::with_capacity(Self::LIMIT);
        bytes.extend(self.code.to_ne_bytes());
        bytes.extend((mounts.len() as u32).to_ne_bytes());
        bytes.extend(self.transaction.to_ne_bytes());
        bytes.extend(mounts.iter().flat_map(|mount| mount.to_ne_bytes()));
        bytes
    }

    /// From bytes; `None` if they are no reply.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut rest = Rest(bytes);
        let code = rest.u32()?.cast_signed();
        let count = rest.u32()? as usize;
        let transaction = rest.u64()?;
        let mounts = (0..count.min(MOUNTS)).map(|_| rest.u32()).collect::<Option<_>>()?;
        Some(Reply { code, transaction, mounts })
    }
}

/// What is left to be read of a message.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_were() {
        let request =
            Request { op: Op::BeginOrdered, flags: 3, task: -4, group: 1 << 40, sequence: 9 };
        assert_eq!(Request::decode(&request.encode()), Some(request));
        let reply = Reply { code: -11, transaction: 7, mounts: vec![1, 2, 3] };
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        assert_eq!(Request::decode(&[]), None);
        let mut bytes = Request::plain(Op::End).encode();
        assert_eq!(Request::decode(&bytes[..27]), None);
        bytes[0] = 99;
        assert_eq!(Request::decode(&bytes), None);
        let mut bytes = Reply { mounts: vec![1], ..Reply::default() }.encode();
        bytes.pop();
        assert_eq!(Reply::decode(&bytes), None);
    }
}
