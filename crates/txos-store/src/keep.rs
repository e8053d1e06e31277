//! Prepared transactions: all of it is staged and flushed, and waits for a decision across reboots.
//!
//! `tx/ID/prepared` holds one record (see docs/journal.md): the plan, and what the stable system
//! must still be like. `tx/ID/workset` and `tx/ID/report` hold what the caller keeps beside it.
//! `meta.json` says "prepared" only after all of that is flushed.

use std::{fs, os::fd::OwnedFd, path::Path};

use rustix::{fs::OFlags, io::Errno};
use txos_core::{Stamp, TxId};
use txos_host::{Tree, attrs_of};

use crate::{
    Prepared, Result, StateDir, StoreError, TxDir, TxState,
    apply::Held,
    journal::{
        codec::{Decoded, Decoder, Encoder},
        frame::{self, Found, Frame, Kind, VERSION},
        plan as plan_codec,
    },
    plan::Plan,
    sys,
    verify::Expectation,
};

/// What a prepared transaction keeps.
pub(crate) struct Kept {
    pub plan: Plan,
    pub expectations: Vec<Expectation>,
    pub workset: Vec<u8>,
    pub report: Vec<u8>,
}

const REMEDY: &str = "abort the transaction";

/// Writes and flushes all of it.
pub(crate) fn write(tx: &mut TxDir, kept: &Kept) -> Result<()> {
    let payload = encode(kept);
    let record = frame::encode(&Frame {
        kind: Kind::Prepared,
        tx: kept.plan.tx,
        sequence: 0,
        flushed: 0,
        payload: &payload,
        version: VERSION,
    });
    let parts = [("prepared", &record), ("workset", &kept.workset), ("report", &kept.report)];
    for (name, bytes) in parts {
        let path = tx.path().join(name);
        fs::write(&path, bytes).map_err(|error| StoreError::std("write", &path, &error))?;
    }
    sys::flush_file_system(tx.tree())?;
    tx.meta.state = TxState::Prepared;
    tx.save_flushed()?;
    sys::flush_file_system(tx.tree())
}

/// Reads it back.
pub(crate) fn read(tx: &TxDir) -> Result<Kept> {
    let part = |name: &str| {
        let path = tx.path().join(name);
        fs::read(&path).map_err(|error| StoreError::std("read", &path, &error))
    };
    let path = tx.path().join("prepared");
    let record = part("prepared")?;
    let damaged = |detail: &str| StoreError::damaged(&path, detail, REMEDY);
    let frame = match frame::decode(&record) {
        Found::Frame(frame, length) if length == record.len() => frame,
        Found::Unknown(_) => return Err(damaged("it was written by another version of txos")),
        _ => return Err(damaged("it is no whole record")),
    };
    if frame.kind != Kind::Prepared || frame.tx != tx.meta.id {
        return Err(damaged("it is the record of something else"));
    }
    let (plan, expectations) =
        decode(frame.payload, frame.version).map_err(|error| damaged(error.0))?;
    Ok(Kept { plan, expectations, workset: part("workset")?, report: part("report")? })
}

fn encode(kept: &Kept) -> Vec<u8> {
    let mut to = Encoder::default();
    to.blob(&plan_codec::encode(&kept.plan));
    to.list(&kept.expectations, |to, expected| {
        to.path(&expected.at);
        to.path(&expected.point);
        to.list(&expected.names, |to, (path, id)| {
            to.path(path);
            to.option(*id, Encoder::ident);
        });
        to.list(&expected.removed, |to, (path, count)| {
            to.path(path);
            to.u64(*count);
        });
    });
    to.bytes
}

fn decode(bytes: &[u8], version: u16) -> Decoded<(Plan, Vec<Expectation>)> {
    let mut from = Decoder::new(bytes);
    let plan = plan_codec::decode(from.blob()?, version)?;
    let expectations = from.list(|from| {
        Ok(Expectation {
            at: from.path(true)?,
            point: from.path(true)?,
            names: from.list(|from| Ok((from.path(false)?, from.option(Decoder::ident)?)))?,
            removed: from.list(|from| Ok((from.path(false)?, from.u64()?)))?,
        })
    })?;
    from.end()?;
    Ok((plan, expectations))
}

/// Reads any bytes; what is read means the same when it is written and read again.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8], version: u16) {
    if let Ok((plan, expectations)) = decode(bytes, version) {
        let kept = Kept { plan, expectations, workset: Vec::new(), report: Vec::new() };
        let again = decode(&encode(&kept), frame::VERSION);
        assert!(again.is_ok_and(|(plan, expected)| {
            plan == kept.plan && expected.len() == kept.expectations.len()
        }));
    }
}

impl StateDir {
    /// Opens a transaction that [`Prepared::keep`] left waiting, and locks it.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if there is none, it does not wait, or an object that it writes in
    /// place cannot be written now; [`StoreError::Damaged`] if its record is.
    pub fn prepared(&self, id: TxId) -> Result<Prepared<'_>> {
        let tx = TxDir::open(self, id)?;
        if tx.meta.state != TxState::Prepared {
            let reason = format!("transaction {id} does not wait for a decision");
            return Err(StoreError::refused(tx.path(), reason, "see txos ps"));
        }
        let kept = read(&tx)?;
        crate::recover::require_areas(&kept.plan)?;
        let held = kept
            .plan
            .writes
            .iter()
            .map(|write| hold(&kept.plan.areas[write.area as usize].point, &write.path));
        let held = held.collect::<Result<Vec<_>>>()?;
        Ok(Prepared::resumed(self, tx, kept, held))
    }

    /// What [`Prepared::keep`] kept as the report of transaction `id`.
    ///
    /// # Errors
    /// If there is none.
    pub fn prepared_report(&self, id: TxId) -> Result<Vec<u8>> {
        let path = self.path().join(Self::tx_path(id)).join("report");
        fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let reason = format!("transaction {id} does not wait for a decision");
                StoreError::refused(&path, reason, "see txos ps and txos log")
            }
            _ => StoreError::std("read", &path, &error),
        })
    }
}

/// Opens an in-place target. Its version is not known any more, so that its content is compared.
fn hold(point: &Path, path: &Path) -> Result<Held> {
    let tree = Tree::open(point)?;
    let shown = point.join(path);
    let file: OwnedFd = match tree.open_at(path, OFlags::RDWR | OFlags::NOFOLLOW) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            return Err(crate::delta::changed_outside(&shown, "it is gone"));
        }
        Err(errno) => {
            let reason = format!("cannot be written now ({errno})");
            return Err(StoreError::refused(&shown, reason, "see whether it is in use"));
        }
    };
    let mut attrs = attrs_of(&file).map_err(|errno| StoreError::io("examine", &shown, errno))?;
    attrs.ctime = Stamp::default();
    Ok(Held { file: Some(file), attrs })
}
