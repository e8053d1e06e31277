//! Leases on what a transaction keeps losing on, where there is no domain whose members could be held.
//!
//! While a read lease lasts, whoever opens the file for writing waits in the kernel (`fcntl(2)`,
//! `F_SETLEASE`): so what was read stays what it was until it is validated. That is all that can be
//! done to outsiders, and it is no guarantee: somebody who has the file open for writing already is
//! not kept off and no lease is granted then, nor are renames, removals and changes of attributes.
//!
//! # Invariants
//!
//! - A lease is given back before this transaction opens the file for writing itself: its own open
//!   would wait for its own lease.
//! - It lasts for one attempt with its validation, and no longer than the limit, which a thread keeps.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use txos_host::{Lease, ignore_lease_breaks};

/// At most so many: each is an open file.
const MOST: usize = 256;
/// How long a file that is open for writing is tried again; so that of a writer that comes and goes
/// the moment between is met.
const PATIENCE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_micros(200);

/// Leases, until this is dropped or their time is over.
#[derive(Debug)]
pub(super) struct Leases {
    held: Arc<Mutex<BTreeMap<PathBuf, Lease>>>,
    /// Ends the thread that keeps the limit.
    _end: Sender<()>,
}

impl Leases {
    /// Takes leases on those of `paths` on which the kernel grants one, for at most `limit`; none if
    /// it grants none.
    pub(super) fn take<'p>(
        paths: impl Iterator<Item = &'p PathBuf>,
        limit: Duration,
    ) -> Option<Leases> {
        ignore_lease_breaks();
        let until = Instant::now() + PATIENCE.min(limit);
        let taken: BTreeMap<PathBuf, Lease> = paths
            .take(MOST)
            .filter_map(|path| Some((path.clone(), granted(path, until)?)))
            .collect();
        if taken.is_empty() {
            return None;
        }
        let held = Arc::new(Mutex::new(taken));
        let (end, ended) = channel::<()>();
        let theirs = Arc::clone(&held);
        let keep = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                lock(&theirs).clear();
            }
        };
        // Without somebody to keep the limit there are no leases: they go with `held`.
        thread::Builder::new().name("txos-leases".into()).spawn(keep).ok()?;
        Some(Leases { held, _end: end })
    }

    /// What is leased.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        lock(&self.held).keys().cloned().collect()
    }

    /// Gives those back that this transaction is going to write.
    pub(super) fn give_back<'p>(&self, written: impl Iterator<Item = &'p Path>) {
        let mut held = lock(&self.held);
        if held.is_empty() {
            return;
        }
        // By identity: it may be written by another name than the one that was read.
        let identity =
            |path: &Path| fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
        let written: HashSet<(u64, u64)> = written.filter_map(|path| identity(path).ok()).collect();
        held.retain(|path, _| identity(path).is_ok_and(|object| !written.contains(&object)));
    }
}

fn granted(path: &Path, until: Instant) -> Option<Lease> {
    loop {
        match Lease::take(path) {
            Ok(lease) => return Some(lease),
            Err(Errno::AGAIN) if Instant::now() < until => thread::sleep(PAUSE),
            Err(errno) => {
                tracing::debug!(path = %path.display(), %errno, "no lease");
                return None;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::mpsc};

    use super::*;

    #[test]
    fn a_writer_waits_for_the_end_of_the_lease_and_for_no_longer_than_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let open = || {
            let (sender, opened) = mpsc::channel();
            let path = path.clone();
            thread::spawn(move || {
                drop(File::options().write(true).open(path).unwrap());
                sender.send(()).unwrap();
            });
            opened
        };
        let soon = Duration::from_millis(100);
        let Some(leases) = Leases::take([&path].into_iter(), Duration::from_secs(60)) else {
            return println!("Skip: no leases here");
        };
        assert_eq!(leases.paths(), std::slice::from_ref(&path));
        let opened = open();
        assert!(opened.recv_timeout(soon).is_err(), "it does not wait");
        leases.give_back([path.as_path()].into_iter());
        opened.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(leases.paths(), Vec::<PathBuf>::new());

        let writer = File::options().write(true).open(&path).unwrap();
        assert!(Leases::take([&path].into_iter(), Duration::from_secs(60)).is_none());
        drop(writer);
        let _leases = Leases::take([&path].into_iter(), soon).unwrap();
        open().recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
