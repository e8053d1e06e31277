//! Commits whose file systems are not mounted: their records wait in files of their own, so that
//! segments can be used again. What they will change stays closed to transactions.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::Ordering::SeqCst,
};

use txos_core::TxId;

use super::{
    Journal, REMEDY, Turn,
    frame::{self, Found, Frame, Kind, VERSION},
    plan,
};
use crate::{
    Result, StoreError,
    plan::Plan,
    small::of_plan,
    sys::{Flush, flush_open},
};

const PREFIX: &str = "waiting.";

impl Journal {
    /// Puts a plan aside until its file systems are there; it is flushed.
    pub(crate) fn put_aside(&self, _turn: &Turn<'_>, plan: &Plan) -> Result<()> {
        let path = self.waiting_path(plan.tx);
        let payload = plan::encode(plan);
        let bytes = frame::encode(&Frame {
            kind: Kind::Commit,
            tx: plan.tx,
            sequence: 0,
            flushed: 0,
            payload: &payload,
            version: VERSION,
        });
        let failed = |error: std::io::Error| StoreError::std("write", &path, &error);
        let aside = self.dir.join("aside");
        fs::write(&aside, bytes).map_err(failed)?;
        let file = fs::File::open(&aside).map_err(failed)?;
        let flush = |file| {
            flush_open(file, Flush::All).map_err(|errno| StoreError::io("flush", &path, errno))
        };
        flush(&file)?;
        fs::rename(&aside, &path).map_err(failed)?;
        flush(&fs::File::open(&self.dir).map_err(failed)?)?;
        self.count_waiting()
    }

    /// Counts them, for all who commit.
    pub(super) fn count_waiting(&self) -> Result<()> {
        self.control.waiting.store(self.waiting()?.len() as u32, SeqCst);
        Ok(())
    }

    /// The plans that wait.
    pub(crate) fn waiting(&self) -> Result<Vec<Plan>> {
        let failed = |error: std::io::Error| StoreError::std("read", &self.dir, &error);
        let mut plans = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
                continue;
            }
            let path = entry.path();
            let damaged = |detail: &str| StoreError::damaged(&path, detail, REMEDY);
            let bytes = fs::read(&path).map_err(|error| StoreError::std("read", &path, &error))?;
            let frame = match frame::decode(&bytes) {
                Found::Frame(frame, length) if length == bytes.len() => frame,
                _ => return Err(damaged("it is no whole record")),
            };
            let plan = plan::decode(frame.payload, frame.version);
            plans.push(plan.map_err(|error| damaged(error.0))?);
        }
        plans.sort_by_key(|plan| plan.made);
        Ok(plans)
    }

    /// Whether there is any.
    pub(crate) fn waits(&self) -> Result<bool> {
        Ok(!self.waiting()?.is_empty())
    }

    /// Refuses a plan that would change, or has read, what another one changes that waits for its
    /// file system.
    pub(crate) fn require_open(&self, plan: &Plan, reads: &[u64]) -> Result<()> {
        if self.control.waiting.load(SeqCst) == 0 {
            return Ok(());
        }
        let waiting = self.waiting()?;
        let keys = |plan: &Plan| -> std::collections::HashSet<u64> {
            let keys = of_plan(plan).into_iter().map(|(key, _)| key.number());
            keys.filter(|key| key & 1 == 0).collect()
        };
        let mut wanted = keys(plan);
        wanted.extend(reads);
        match waiting.iter().find(|other| !keys(other).is_disjoint(&wanted)) {
            None => Ok(()),
            Some(other) => {
                let reason = format!(
                    "transaction {} is committed and waits for a file system that is not mounted; \
                     it changes the same",
                    other.tx
                );
                let point = other.areas.first().map_or(self.dir.as_path(), |area| &area.point);
                Err(StoreError::refused(point, reason, "mount it, then run txos recover"))
            }
        }
    }

    /// A plan that waited is done.
    pub(crate) fn waited(&self, tx: TxId) -> Result<()> {
        let path = self.waiting_path(tx);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::std("remove", &path, &error))
            }
            Err(_) => Ok(()),
            Ok(()) => self.count_waiting(),
        }
    }

    /// A plan that waited is given up: its record is kept at `to`.
    pub(crate) fn keep_waiting(&self, tx: TxId, to: &Path) -> Result<()> {
        match fs::rename(self.waiting_path(tx), to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::std("save", to, &error))
            }
            _ => self.count_waiting(),
        }
    }

    fn waiting_path(&self, tx: TxId) -> PathBuf {
        self.dir.join(format!("{PREFIX}{tx}"))
    }
}
