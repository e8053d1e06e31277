//! The journal of version 1: one file, 16 bytes of header, records one after the other.

use std::{collections::BTreeMap, path::Path};

use txos_core::TxId;

use super::{
    REMEDY,
    frame::{self, Found, Kind},
    plan,
};
use crate::{Result, StoreError, plan::Plan};

/// What a journal of version 1 begins with.
pub(super) const HEADER: &[u8; 16] = b"txos journal  1\n";

/// The plans that are committed and not done, and how many bytes at the end are no whole record.
///
/// # Errors
/// [`StoreError::Damaged`] for anything that a crash does not explain.
pub(crate) fn replay(path: &Path, bytes: &[u8]) -> Result<(Vec<Plan>, u64)> {
    let damaged = |detail: String| StoreError::damaged(path, detail, REMEDY);
    if !bytes.starts_with(HEADER) {
        // A crash may have come before the header was there; nothing was decided before it.
        let begun = HEADER.starts_with(bytes) || bytes.iter().all(|byte| *byte == 0);
        if !begun || bytes.len() > HEADER.len() {
            return Err(damaged("it does not begin as a journal does".to_owned()));
        }
        return Ok((Vec::new(), bytes.len() as u64));
    }
    let mut pending: BTreeMap<TxId, Plan> = BTreeMap::new();
    let mut at = HEADER.len();
    let mut torn = 0;
    while at < bytes.len() {
        match frame::decode(&bytes[at..]) {
            Found::Frame(frame, length) if frame.version == 1 => {
                match frame.kind {
                    Kind::Commit => {
                        let plan = plan::decode(frame.payload, 1)
                            .map_err(|error| damaged(format!("at byte {at}: {}", error.0)))?;
                        pending.insert(frame.tx, plan);
                    }
                    Kind::Done => drop(pending.remove(&frame.tx)),
                    _ => return Err(damaged(format!("at byte {at}: a record out of place"))),
                }
                at += length;
            }
            Found::Frame(..) | Found::Unknown(_) => {
                return Err(damaged(format!("at byte {at}: a record of another version")));
            }
            Found::Broken if frame::any(&bytes[at + 1..]).next().is_some() => {
                return Err(damaged(format!("at byte {at}: a broken record before a whole one")));
            }
            Found::Broken => {
                torn = (bytes.len() - at) as u64;
                break;
            }
        }
    }
    Ok((pending.into_values().collect(), torn))
}
