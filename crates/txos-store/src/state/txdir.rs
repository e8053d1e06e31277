//! The directory of one transaction.
//!
//! # Invariants
//!
//! - `meta.json` is one line of JSON for each time it was saved, and the last whole line counts. It
//!   only grows, so a power cut can take the last lines, and never mix two of them.
//! - What must be known after a power cut (stage directories elsewhere, that a transaction is
//!   prepared) is flushed before anything rests on it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};
use txos_core::{Attrs, Stamp, TxId};
use txos_host::{Tree, attrs_of};

use super::{Loss, StateDir, lock::open_lock};
use crate::{Result, StoreError, names, sys};

/// So long somebody may keep looking whether a transaction is alive.
const LOOKING: Duration = Duration::from_secs(10);

/// One overlay of a view: what it covers, and where its changes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Mount point on the host.
    #[serde(with = "names::path")]
    pub point: PathBuf,
    /// Upper directory of the overlay.
    #[serde(with = "names::path")]
    pub upper: PathBuf,
    /// Work directory of the overlay.
    #[serde(with = "names::path")]
    pub work: PathBuf,
    /// The mount point's attributes as the view took them over at its beginning.
    pub root: Attrs,
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TxState {
    /// Its command runs, or it is about to commit or abort.
    Running,
    /// It waits for a decision (`txos commit`, `txos abort`), also across reboots.
    Prepared,
}

/// What is kept about a transaction while it has a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxMeta {
    /// Which transaction.
    pub id: TxId,
    /// How far it is.
    pub state: TxState,
    /// What it runs, as words for a person.
    pub command: String,
    /// Process id of its manager.
    pub pid: u32,
    /// When it began; kept across retries.
    pub started: Stamp,
    /// Exit status of its command, once that has ended.
    pub status: Option<i32>,
    /// How many times it was started again.
    pub retries: u32,
    /// Why it lost the last time, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Its layers, the one at `/` first.
    pub layers: Vec<Layer>,
    /// Stage directories outside this one.
    #[serde(with = "names::paths", default)]
    pub stages: Vec<PathBuf>,
    /// When the directory that each was made in had been changed last, before.
    #[serde(default)]
    pub stage_times: Vec<Option<Stamp>>,
    /// Which of them is about to lose its name; its time is the one of just before that, then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<usize>,
}

/// A transaction as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxStatus {
    /// What it says of itself.
    pub meta: TxMeta,
    /// Whether a process of it is alive. One that is neither alive nor prepared was left by a
    /// crash.
    pub alive: bool,
}

/// The open directory of a transaction, locked while this lives.
#[derive(Debug)]
pub struct TxDir {
    /// What is kept about it; [`TxDir::save`] writes it.
    pub meta: TxMeta,
    path: PathBuf,
    tree: Tree,
    _lock: File,
}

impl TxDir {
    /// Makes the directory of a new transaction `id`, removing what another of that id left.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(state: &StateDir, id: TxId, command: &str) -> Result<TxDir> {
        // Who looks for what a crash left holds the table, too: it finds the directory locked, or
        // not at all.
        let _table = state.table()?;
        state.discard(id)?;
        let path = state.path().join(StateDir::tx_path(id));
        make(&path)?;
        // The clock that the kernel takes file times from: none of them will be earlier.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let started = Stamp { sec: now.tv_sec, nsec: now.tv_nsec as u32 };
        let meta = TxMeta {
            id,
            state: TxState::Running,
            command: command.to_owned(),
            pid: std::process::id(),
            started,
            status: None,
            retries: 0,
            loss: None,
            layers: Vec::new(),
            stages: Vec::new(),
            stage_times: Vec::new(),
            leaving: None,
        };
        let dir = Self::locked(path, meta)?;
        dir.save()?;
        Ok(dir)
    }

    /// Opens the directory of an existing transaction that no process holds.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if there is none or a process holds it.
    pub fn open(state: &StateDir, id: TxId) -> Result<TxDir> {
        let path = state.path().join(StateDir::tx_path(id));
        let Some(meta) = read_meta(&path)? else {
            let reason = format!("there is no transaction {id}");
            return Err(StoreError::refused(path, reason, "see txos ps and txos log"));
        };
        Self::locked(path, meta)
    }

    fn locked(path: PathBuf, meta: TxMeta) -> Result<TxDir> {
        let lock = open_lock(&path.join("lock"))?;
        let failed = |errno| StoreError::io("lock", path.join("lock"), errno);
        let until = Instant::now() + LOOKING;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            // Whoever asks whether it is alive holds the lock for a moment, shared; its owner does
            // not share it.
            let shared = flock(&lock, FlockOperation::NonBlockingLockShared);
            if shared == Err(Errno::WOULDBLOCK) || Instant::now() > until {
                let reason = format!("transaction {} is held by process {}", meta.id, meta.pid);
                return Err(StoreError::refused(path, reason, "wait for it, or end it"));
            }
            let _ = flock(&lock, FlockOperation::Unlock);
            thread::sleep(Duration::from_millis(1));
        }
        let tree = Tree::open(&path)?;
        Ok(TxDir { meta, path, tree, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory for what does not fit into memory (held output, standard input).
    pub fn spill(&self) -> PathBuf {
        self.path.clone()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Makes an empty layer for the mount at `point` of the host, its upper directory like the
    /// host's directory there in owner, mode, times and extended attributes.
    ///
    /// # Errors
    /// If it cannot be created, or not made alike.
    pub fn add_layer(&mut self, host: &Tree, point: &Path) -> Result<&Layer> {
        let number = self.meta.layers.len().to_string();
        let relative = PathBuf::from(format!("upper.{number}"));
        let (upper, work) = (self.path.join(&relative), self.path.join(format!("work.{number}")));
        for dir in [&upper, &work] {
            make(dir)?;
        }
        let Some(like) = sys::Object::open(host, point)? else {
            return Err(StoreError::refused(point, "is no mount point any more", "try again"));
        };
        let Some(new) = sys::Object::open(&self.tree, &relative)? else {
            return Err(StoreError::refused(upper, "vanished", "keep out of the state directory"));
        };
        if (new.attrs.uid, new.attrs.gid) != (like.attrs.uid, like.attrs.gid) {
            // An ordinary user's view shows the owners that its user namespace maps (EPERM); one
            // that is not mapped here either cannot even be named (EINVAL).
            match new.chown(like.attrs.uid, like.attrs.gid) {
                Err(StoreError::Io { errno: Errno::PERM | Errno::INVAL, .. }) => {}
                other => other?,
            }
        }
        new.chmod(like.attrs.perm)?;
        for (name, value) in like.xattrs()? {
            // What looks like an overlay's own would be taken for this one's. What this caller may
            // not set, the view could not set either.
            let overlays = name.to_bytes().split(|byte| *byte == b'.').nth(1);
            if overlays == Some(b"overlay") {
                continue;
            }
            match new.set_xattr(&name, Some(&value)) {
                Err(StoreError::Io {
                    errno: Errno::PERM | Errno::NOTSUP | Errno::INVAL, ..
                }) => {}
                other => other?,
            }
        }
        new.set_times(Some(like.attrs.atime), Some(like.attrs.mtime))?;
        // Where an ordinary user could not take over owner and mode, the view begins with others,
        // and that they differ is not the command's doing.
        let made = attrs_of(new.fd()).map_err(|errno| StoreError::io("examine", &upper, errno))?;
        let root = Attrs { uid: made.uid, gid: made.gid, perm: made.perm, ..like.attrs };
        let layer = Layer { point: point.to_owned(), upper, work, root };
        self.meta.layers.push(layer);
        Ok(&self.meta.layers[self.meta.layers.len() - 1])
    }

    /// Empties all layers for another attempt.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn clear_layers(&mut self) -> Result<()> {
        sys::remove_tree(&self.tree, Path::new("stage"))?;
        for number in 0..self.meta.layers.len() {
            for part in ["upper", "work"] {
                sys::remove_tree(&self.tree, Path::new(&format!("{part}.{number}")))?;
            }
        }
        self.meta.layers.clear();
        Ok(())
    }

    /// Makes it the directory of another transaction, `id`, that has no layers and has not lost yet.
    ///
    /// # Errors
    /// If it cannot be renamed or written.
    pub fn renumber(&mut self, state: &StateDir, id: TxId) -> Result<()> {
        let path = state.path().join(StateDir::tx_path(id));
        // Who looks for what a crash left holds it, too: it finds the old number or the new one.
        let table = state.table()?;
        fs::rename(&self.path, &path).map_err(|error| StoreError::std("rename", &path, &error))?;
        self.path = path;
        self.tree = Tree::open(&self.path)?;
        (self.meta.id, self.meta.retries, self.meta.loss) = (id, 0, None);
        self.save()?;
        drop(table);
        Ok(())
    }

    /// Writes `meta`. A power cut leaves this or an earlier one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self) -> Result<()> {
        self.append().map(drop)
    }

    /// Writes `meta` so that it survives a power cut when this returns.
    pub(crate) fn save_flushed(&self) -> Result<()> {
        let file = self.append()?;
        sys::flush_open(&file, sys::Flush::All)
            .map_err(|errno| StoreError::io("flush", self.meta_path(), errno))
    }

    fn append(&self) -> Result<File> {
        append_meta(&self.path, &self.meta)
    }

    fn meta_path(&self) -> PathBuf {
        meta_path(&self.path)
    }

    /// Removes the directory with all that is in it.
    ///
    /// # Errors
    /// If something in it cannot be removed.
    pub fn remove(self, state: &StateDir) -> Result<()> {
        state.discard(self.meta.id)
    }
}

pub(super) fn status(state: &StateDir, id: TxId) -> Result<Option<TxStatus>> {
    let path = state.path().join(StateDir::tx_path(id));
    let Some(meta) = read_meta(&path)? else { return Ok(None) };
    Ok(Some(TxStatus { meta, alive: alive(&path) }))
}

/// Whether a process holds the transaction whose directory is at `path`.
pub(super) fn alive(path: &Path) -> bool {
    match File::open(path.join("lock")) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
        Err(_) => false,
    }
}

/// What was last said of the transaction whose directory is at `path`: `None` if that is nothing,
/// or a power cut took it.
pub(super) fn read_meta(path: &Path) -> Result<Option<TxMeta>> {
    let file = meta_path(path);
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::std("read", &file, &error)),
    };
    let last = last_meta(&text);
    if last.is_none() && path.join("prepared").exists() {
        let detail = "no line of it can be read, and the transaction waits for a decision";
        let remedy = "remove the transaction's directory if it is not wanted any more";
        return Err(StoreError::damaged(&file, detail, remedy));
    }
    Ok(last)
}

fn meta_path(dir: &Path) -> PathBuf {
    dir.join("meta.json")
}

/// Says of the transaction whose directory is `dir` what holds from now on.
pub(crate) fn append_meta(dir: &Path, meta: &TxMeta) -> Result<File> {
    let path = meta_path(dir);
    let failed = |error: io::Error| StoreError::std("write", &path, &error);
    let mut text = serde_json::to_vec(meta).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    let mut options = OpenOptions::new();
    let file =
        options.read(true).append(true).create(true).mode(0o600).open(&path).map_err(failed)?;
    let end = file.metadata().map_err(failed)?.len();
    sys::write_all(&file, &text, end).map_err(|errno| StoreError::io("write", &path, errno))?;
    Ok(file)
}

/// When something was last said of the transaction whose directory is `dir`.
pub(crate) fn meta_time(dir: &Path) -> Option<Stamp> {
    let attrs = attrs_of(File::open(meta_path(dir)).ok()?).ok()?;
    Some(attrs.mtime)
}

/// The last whole line that can be read.
pub(crate) fn last_meta(text: &[u8]) -> Option<TxMeta> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').rev();
    lines.find_map(|line| serde_json::from_slice(line.strip_suffix(b"\n")?).ok())
}

fn make(path: &Path) -> Result<()> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|error| StoreError::std("create the directory", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Privilege;

    #[test]
    fn another_transaction_in_the_same_directory_has_another_number_and_no_past() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path().join("s"), Privilege::Root).unwrap();
        let mut dir = TxDir::create(&state, TxId(3), "one").unwrap();
        let by = "somebody else".to_owned();
        (dir.meta.retries, dir.meta.loss) = (1, Some(Loss::new(1, by, &[])));
        dir.save().unwrap();
        dir.renumber(&state, TxId(4)).unwrap();
        assert!(state.status(TxId(3)).unwrap().is_none());
        let now = state.status(TxId(4)).unwrap().unwrap();
        assert!(now.alive);
        assert_eq!((now.meta.id, now.meta.retries, now.meta.loss), (TxId(4), 0, None));
        let host = Tree::open("/").unwrap();
        let layer = dir.add_layer(&host, Path::new("/")).unwrap().clone();
        assert!(layer.upper.starts_with(dir.path()) && layer.upper.is_dir());
        dir.remove(&state).unwrap();
        assert!(!state.is_alive(TxId(4)) && state.transaction_ids().unwrap().is_empty());
    }

    #[test]
    fn the_last_whole_line_counts_wherever_a_power_cut_ends_the_file() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path().join("s"), Privilege::Root).unwrap();
        let mut dir = TxDir::create(&state, TxId(3), "make install").unwrap();
        let first = fs::metadata(dir.meta_path()).unwrap().len() as usize;
        dir.meta.stages.push("/elsewhere/.stage".into());
        dir.save_flushed().unwrap();
        let whole = fs::read(dir.meta_path()).unwrap();
        for end in 0..=whole.len() {
            fs::write(dir.meta_path(), &whole[..end]).unwrap();
            let stages = read_meta(dir.path()).unwrap().map(|meta| meta.stages.len());
            let wanted = match end {
                end if end == whole.len() => Some(1),
                end if end >= first => Some(0),
                _ => None,
            };
            assert_eq!(stages, wanted, "cut at {end} of {}", whole.len());
        }
        // A file whose size survived and whose last bytes did not ends in zeros.
        let mut zeros = whole[..first].to_vec();
        zeros.resize(whole.len(), 0);
        fs::write(dir.meta_path(), &zeros).unwrap();
        assert_eq!(read_meta(dir.path()).unwrap().unwrap().stages.len(), 0);
        fs::write(dir.path().join("prepared"), "").unwrap();
        fs::write(dir.meta_path(), [0; 9]).unwrap();
        assert!(matches!(read_meta(dir.path()), Err(StoreError::Damaged { .. })));
    }
}
