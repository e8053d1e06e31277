//! Objects of System V and POSIX communication that a transaction leaves: made outside after its commit.
//!
//! In its own IPC namespace a transaction shares them among its members alone. Natively they outlive
//! their makers, so what is still there when the last process has ended belongs to the changes: it is
//! taken there ([`collect`]), and made outside, with the same key or name, owner, mode and content
//! ([`publish`]). After an abort it is gone.
//!
//! Invariants:
//! * The namespace begins empty: a member that asked for a key or a name found it absent. So where one
//!   is there outside, the transaction does not commit ([`in_the_way`]).
//! * Nothing is made half: an object whose content cannot be kept whole is not made at all, and told
//!   ([`Left::gone`]).
//!
//! What is not exact, and so told instead: objects without a key (`IPC_PRIVATE`) are known to others by
//! number alone, which would be another one; and what is in `/dev/shm` besides plain files. A number
//! that a program wrote down for an object with a key is another one outside, too.
//!
//! Source: sysvipc(7), mq_overview(7), shm_overview(7), proc_sysvipc(5).

mod bytes;
mod make;
mod sys;
mod take;

pub use bytes::Bytes;

use serde::{Deserialize, Serialize};
use std::fmt;

/// Where POSIX shared memory and named semaphores lie.
const MEMORY: &str = "/dev/shm";
/// Where POSIX message queues lie.
const QUEUES: &str = "/dev/mqueue";

/// An object as it was when the last process had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits.
    pub mode: u32,
    /// What it is, and what it holds.
    pub kind: Kind,
}

/// Kinds of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A System V message queue: how many bytes it may hold, and its messages with their types.
    Queue(i32, u64, Vec<(i64, Bytes)>),
    /// A set of System V semaphores, with its values.
    Semaphores(i32, Vec<u16>),
    /// A segment of System V shared memory: its size, and its content up to the last byte that is not
    /// zero.
    Segment(i32, u64, Bytes),
    /// A POSIX message queue: its name, how many messages of what size it holds, and its messages with
    /// their priorities, in the order in which they are received.
    NamedQueue(String, [i64; 2], Vec<(u32, Bytes)>),
    /// POSIX shared memory: its name, its size, and its content up to the last byte that is not zero.
    NamedMemory(String, u64, Bytes),
}

/// What was left.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// What can be made outside.
    pub objects: Vec<Object>,
    /// What is gone with the transaction; each a name with its reason.
    pub gone: Vec<String>,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Queue(key, ..) => write!(f, "message queue with key {key:#x}"),
            Kind::Semaphores(key, _) => write!(f, "semaphores with key {key:#x}"),
            Kind::Segment(key, ..) => write!(f, "shared memory with key {key:#x}"),
            Kind::NamedQueue(name, ..) => write!(f, "{QUEUES}/{name}"),
            Kind::NamedMemory(name, ..) => write!(f, "{MEMORY}/{name}"),
        }
    }
}

/// Takes what is in the IPC namespace, `/dev/shm` and `/dev/mqueue` of the calling process. Messages are
/// taken out of their queues. To be called when nobody uses them any more.
///
/// # Errors
///
/// If what is there can't be told.
pub fn collect() -> std::io::Result<Left> {
    take::all()
}

/// Those of `objects` whose key or name somebody else uses in the caller's namespace.
pub fn in_the_way(objects: &[Object]) -> Vec<&Object> {
    objects.iter().filter(|object| make::exists(&object.kind)).collect()
}

/// Makes `objects` in the caller's namespace. Gives a line for each that could not be made; what was
/// begun of it is removed again.
pub fn publish(objects: &[Object]) -> Vec<String> {
    let failed = |object: &Object| {
        make::make(object).err().map(|error| format!("{object} could not be made: {error}"))
    };
    objects.iter().filter_map(failed).collect()
}

#[cfg(test)]
mod tests;
