//! The envelope of a record.
//!
//! ```text
//! frame = magic:"TXJR" version:u16 kind:u16 tx:u64 length:u32 payload:length checksum:u64
//! ```
//!
//! The checksum is XXH3-64 of all bytes before it. Kinds: 1 commit (payload: plan), 2 done (no
//! payload), 3 prepared (payload: plan, then workset blob).

use txos_core::TxId;
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 4] = b"TXJR";
const VERSION: u16 = 1;
const HEAD: usize = 20;
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
}

impl Kind {
    fn number(self) -> u16 {
        match self {
            Kind::Commit => 1,
            Kind::Done => 2,
            Kind::Prepared => 3,
        }
    }

    fn from_number(number: u16) -> Option<Self> {
        [Kind::Commit, Kind::Done, Kind::Prepared].into_iter().find(|kind| kind.number() == number)
    }
}

/// A whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub kind: Kind,
    pub tx: TxId,
    pub payload: &'a [u8],
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
    let mut bytes = Vec::with_capacity(HEAD + frame.payload.len() + CHECKSUM);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(frame.kind.number().to_le_bytes());
    bytes.extend(frame.tx.0.to_le_bytes());
    bytes.extend((frame.payload.len() as u32).to_le_bytes());
    bytes.extend(frame.payload);
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Found<'_> {
    read(bytes).unwrap_or(Found::Broken)
}

fn read(bytes: &[u8]) -> Option<Found<'_>> {
    let head = bytes.get(..HEAD)?;
    if &head[..4] != MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(head[16..20].try_into().ok()?) as usize;
    let body = bytes.get(..HEAD.checked_add(length)?)?;
    let checksum = bytes.get(body.len()..body.len() + CHECKSUM)?;
    if xxh3_64(body).to_le_bytes() != checksum {
        return None;
    }
    let version = u16::from_le_bytes(head[4..6].try_into().ok()?);
    let number = u16::from_le_bytes(head[6..8].try_into().ok()?);
    let kind = match Kind::from_number(number) {
        Some(kind) if version == VERSION => kind,
        _ => return Some(Found::Unknown(version)),
    };
    let tx = TxId(u64::from_le_bytes(head[8..16].try_into().ok()?));
    Some(Found::Frame(Frame { kind, tx, payload: &body[HEAD..] }, body.len() + CHECKSUM))
}

/// Whether a whole record begins anywhere in `bytes`.
pub(crate) fn any(bytes: &[u8]) -> bool {
    bytes
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, window)| window == MAGIC)
        .any(|(at, _)| decode(&bytes[at..]) != Found::Broken)
}
