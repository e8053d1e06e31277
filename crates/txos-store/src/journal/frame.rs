//! The envelope of a record.
//!
//! ```text
//! frame   = magic:"TXJR" version:u16=3 kind:u16 tx:u64 length:u32 sequence:u64 flushed:u64
//!           payload:length checksum:u64
//! version 1 had neither sequence nor flushed; 3 differs from 2 in the payload alone
//! ```
//!
//! The checksum is XXH3-64 of all bytes before it. Kinds: 1 commit (payload: plan), 2 done (no
//! payload, version 1 only), 3 prepared (payload: plan, then what is expected), 4 checkpoint (no
//! payload: all before it is done), 5 void (whatever it was, it was not decided).
//!
//! `sequence` is that of the segment: a segment is used again without being wiped, and what an
//! earlier life left in it does not count. `flushed` is up to where the segment was known to be
//! on disk when the record was written: what is broken before that mark is damage, what is broken
//! behind it a crash may have left.

use txos_core::TxId;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 4] = b"TXJR";
/// The version that is written.
pub(crate) const VERSION: u16 = 3;
const HEAD_1: usize = 20;
const HEAD: usize = 36;
const CHECKSUM: usize = 8;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The transaction is committed; the payload says what to apply.
    Commit,
    /// All of it is applied and flushed.
    Done,
    /// The transaction is prepared and waits for a decision.
    Prepared,
    /// All that comes before is applied and flushed.
    Checkpoint,
    /// A record whose flush failed: it was never decided.
    Void,
}

const KINDS: [(Kind, u16); 5] = [
    (Kind::Commit, 1),
    (Kind::Done, 2),
    (Kind::Prepared, 3),
    (Kind::Checkpoint, 4),
    (Kind::Void, 5),
];

impl Kind {
    fn number(self) -> u16 {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or(0, |(_, number)| *number)
    }

    fn from_number(number: u16) -> Option<Self> {
        KINDS.iter().find(|(_, known)| *known == number).map(|(kind, _)| *kind)
    }
}

/// A whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: Kind,
    pub tx: TxId,
    /// Of the segment; 0 outside one.
    pub sequence: u64,
    pub flushed: u64,
    pub payload: &'a [u8],
    /// Of the format.
    pub version: u16,
}

/// What is found where a record should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A record, and how many bytes it takes.
    Frame(Frame<'a>, usize),
    /// A whole record of another version or kind.
    Unknown(u16),
    /// No whole record.
    Broken,
}

pub(crate) fn encode(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size(frame.payload.len()));
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(frame.kind.number().to_le_bytes());
    bytes.extend(frame.tx.0.to_le_bytes());
    bytes.extend((frame.payload.len() as u32).to_le_bytes());
    bytes.extend(frame.sequence.to_le_bytes());
    bytes.extend(frame.flushed.to_le_bytes());
    bytes.extend(frame.payload);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

/// How many bytes a record with so much payload takes.
pub(crate) fn size(payload: usize) -> usize {
    HEAD + payload + CHECKSUM
}

pub(crate) fn decode(bytes: &[u8]) -> Found<'_> {
    read(bytes).unwrap_or(Found::Broken)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn read(bytes: &[u8]) -> Option<Found<'_>> {
    if bytes.get(..4)? != MAGIC {
        return None;
    }
    let version = u16::from_le_bytes(number(bytes, 4)?);
    let head = if version == 1 { HEAD_1 } else { HEAD };
    let length = u32::from_le_bytes(number(bytes, 16)?) as usize;
    let body = bytes.get(..head.checked_add(length)?)?;
    let checksum = bytes.get(body.len()..body.len() + CHECKSUM)?;
    if xxh3_64(body).to_le_bytes() != checksum {
        return None;
    }
    let kind = Kind::from_number(u16::from_le_bytes(number(bytes, 6)?));
    let Some(kind) = kind.filter(|_| (1..=VERSION).contains(&version)) else {
        return Some(Found::Unknown(version));
    };
    let tx = TxId(u64::from_le_bytes(number(bytes, 8)?));
    let (sequence, flushed) = match version {
        1 => (0, 0),
        _ => (u64::from_le_bytes(number(bytes, 20)?), u64::from_le_bytes(number(bytes, 28)?)),
    };
    let payload = &body[head..];
    let frame = Frame { kind, tx, sequence, flushed, payload, version };
    Some(Found::Frame(frame, body.len() + CHECKSUM))
}

/// The whole records that begin anywhere in `bytes`.
pub(crate) fn any(bytes: &[u8]) -> impl Iterator<Item = Found<'_>> {
    bytes
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, window)| window == MAGIC)
        .map(|(at, _)| decode(&bytes[at..]))
        .filter(|found| *found != Found::Broken)
}
