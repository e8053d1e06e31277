use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::io::Errno;
use txos_core::{Conflict, Detail, Facet, Seen, Stamp};
use txos_store::{Exclusive, SmallCommitted, SmallOptions, StoreError};

use crate::{
    Error, Result, System,
    lease::Lease,
    log::{Deed, Log},
    seen,
    shadow::{Ix, Shadow},
    turn::{self, Age, Turn},
    validate,
    walk::Place,
};

/// A transaction over files, in process: reads are plain calls whose results are remembered, writes
/// stay in memory until [`Transaction::commit`] makes all of them at once.
///
/// Inside it a program sees what it has written. Relative paths begin in the directory that was the
/// working directory when the transaction began. Dropped without a commit, it has changed nothing.
///
/// # Guarantees
///
/// - *Atomic and durable*: after [`Transaction::commit`] returned, all of its changes are there,
///   also after a power cut (unless it is not durable, see [`crate::Options::durable`]); otherwise none.
/// - *Isolated*: it commits only if every name, attribute, listing and byte that it has read is
///   still the same at that moment. Bytes are compared by value and by range, so two transactions
///   that write different parts of one file do not meet. Others may see its changes one after
///   the other for the moment in which they are applied, if they are no transactions themselves.
/// - *Times*: what it changes has the time of the commit, or the one that it set.
/// - *Permissions* are the caller's own, asked of the kernel at each call.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) system: Arc<System>,
    pub(crate) shadow: Shadow,
    pub(crate) log: Log,
    /// Where relative paths begin.
    pub(crate) begin_at: PathBuf,
    /// Effective user and group of the caller.
    pub(crate) caller: (u32, u32),
    pub(crate) umask: Option<u32>,
    /// Files that are open for reading.
    pub(crate) files: HashMap<Ix, Arc<OwnedFd>>,
    /// How many directories are open.
    pub(crate) handles: usize,
    /// Others had committed so often when all that was read was last known to hold.
    commits: (u64, u64),
    doomed: Option<Conflict>,
    /// While it has one, no other transaction commits.
    lease: Option<Lease>,
    age: Age,
}

impl Transaction {
    /// Begins one.
    ///
    /// # Errors
    /// If the working directory is gone, or the root directory cannot be read.
    pub(crate) fn begin(system: &Arc<System>) -> Result<Transaction> {
        let failed = |errno| Error::Os { action: "begin in", path: PathBuf::from("."), errno };
        let begin_at = std::env::current_dir()
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::NOENT)))?;
        let (root, attrs) = system.root()?;
        Ok(Transaction {
            system: Arc::clone(system),
            shadow: Shadow::new(attrs, root),
            log: Log::default(),
            begin_at,
            caller: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            umask: None,
            files: HashMap::new(),
            handles: 0,
            commits: system.quiet_commits(),
            doomed: None,
            lease: None,
            age: Age { started: now(), losses: 0 },
        })
    }

    /// The same for one that has lost too often.
    ///
    /// # Errors
    /// As [`Transaction::begin`].
    pub(crate) fn begin_alone(system: &Arc<System>) -> Result<Transaction> {
        let lease = Lease::take(system);
        Ok(Transaction { lease, ..Transaction::begin(system)? })
    }

    /// Makes all changes at once, if everything that was read is still the same.
    ///
    /// A transaction that has changed nothing only checks what it read.
    ///
    /// # Errors
    /// [`Error::Conflict`] if something changed; [`Error::Os`] where a change is not possible any
    /// more; otherwise if the store fails. Nothing was changed then, but for
    /// [`StoreError::Unfinished`], which says that the commit took place and will be finished.
    pub fn commit(self) -> Result<()> {
        let durable = self.system.options().durable;
        self.commit_as(durable)
    }

    /// As [`Transaction::commit`], with the durability given here: a commit that is not durable is
    /// atomic towards everyone who is running, and may be lost, as a whole, in a power cut.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_as(mut self, durable: bool) -> Result<()> {
        if let Some(conflict) = self.doomed.take() {
            return Err(Error::Conflict(vec![conflict]));
        }
        if self.log.is_empty() {
            return self.check();
        }
        let Transaction { system, shadow, log, lease, age, .. } = self;
        match in_turn(&system, shadow, &log, durable, lease, &age) {
            Ok(_) => Ok(()),
            Err(StoreError::Operation { index, path, errno }) => {
                let path = log.path(index).map_or(path, Path::to_owned);
                if errno == Errno::LOOP {
                    // The path is free of links: somebody had put one there for a moment.
                    let (facet, detail) = (Facet::Binding, Detail::None);
                    let conflict = Conflict { path, facet, seen: Seen::Replaced, detail };
                    return Err(Error::Conflict(vec![conflict]));
                }
                Err(Error::Os { action: "commit the change of", path, errno })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets all changes; the same as dropping it.
    pub fn abort(self) {}

    /// Makes one call: an error gets the words for people, and what others have committed meanwhile
    /// is held against all that was read before the caller sees the result.
    pub(crate) fn call<T>(
        &mut self,
        action: &'static str,
        path: &Path,
        call: impl FnOnce(&mut Self, &Path) -> Result<T, Errno>,
    ) -> Result<T> {
        let result = call(self, path);
        if self.system.commits() != self.commits {
            self.check()?;
        }
        if let Some(conflict) = &self.doomed {
            return Err(Error::Conflict(vec![conflict.clone()]));
        }
        result.map_err(|errno| Error::Os { action, path: path.to_owned(), errno })
    }

    /// Holds all that was read against what is stable between two commits of others.
    fn check(&mut self) -> Result<()> {
        loop {
            let before = self.system.quiet_commits();
            let conflicts = validate::conflicts(&self.shadow, self.system.tree());
            if let Some(first) = conflicts.first() {
                // Seen while somebody's changes were half applied it may be none; it is a loss all
                // the same, and running again costs less than to find out.
                self.doomed = Some(first.clone());
                return Err(Error::Conflict(conflicts));
            }
            if self.system.commits() == before {
                self.commits = before;
                return Ok(());
            }
        }
    }

    /// Someone else has changed the object of `ix` since it was first seen.
    pub(crate) fn doom(&mut self, ix: Ix) {
        let path = self.shadow.original(ix).unwrap_or_default();
        let detail = Detail::None;
        self.doomed.get_or_insert(Conflict {
            path,
            facet: Facet::Binding,
            seen: Seen::Changed,
            detail,
        });
    }

    /// Notes a change of what is at `place`.
    pub(crate) fn note(&mut self, place: &Place, deed: Deed) -> Result<(), Errno> {
        let path = self.path_of(place)?;
        self.log.push(path, deed);
        Ok(())
    }

    /// The path of `place` as it is now.
    pub(crate) fn path_of(&self, place: &Place) -> Result<PathBuf, Errno> {
        let path = match (&place.name, place.object) {
            (Some((dir, name)), _) => self.shadow.current(*dir).map(|path| path.join(name)),
            (None, Some(dir)) => self.shadow.current(dir),
            (None, None) => None,
        };
        path.ok_or(Errno::NOENT)
    }

    /// It is one that was run before.
    pub(crate) fn again(self, age: Age) -> Transaction {
        Transaction { age, ..self }
    }

    /// The bits that the process takes from the mode of what it makes (`umask(2)`).
    pub(crate) fn umask(&mut self) -> Result<u32, Errno> {
        if let Some(umask) = self.umask {
            return Ok(umask);
        }
        // Asking by umask(2) would set it for a moment, also for other threads.
        let status = std::fs::read_to_string("/proc/self/status")
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let umask = line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
        let umask = umask.ok_or(Errno::IO)?;
        self.umask = Some(umask);
        Ok(umask)
    }
}

pub(crate) fn now() -> Stamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Stamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

/// Commits when it is its turn.
fn in_turn(
    system: &Arc<System>,
    shadow: Shadow,
    log: &Log,
    durable: bool,
    lease: Option<Lease>,
    age: &Age,
) -> Result<SmallCommitted, StoreError> {
    let written = turn::written(system, log);
    let read = shadow.iter().count() as u64;
    let announce = || Turn::announce(system, age, read, written.as_ref());
    let Some(lease) = lease else {
        let mut turn = announce();
        turn.wait();
        let made = decide(&shadow, log, system, durable, None);
        turn.end(&made);
        return made;
    };
    let (theirs, all) = (Arc::clone(system), log.clone());
    let made = lease.commit(move |alone| decide(&shadow, &all, &theirs, durable, alone));
    if made.is_ok() {
        let mut turn = announce();
        turn.wait();
        turn.end(&made);
    }
    made
}

/// Validates and commits; `alone` if nobody else can.
fn decide(
    shadow: &Shadow,
    log: &Log,
    system: &System,
    durable: bool,
    alone: Option<&mut Exclusive<'_>>,
) -> Result<SmallCommitted, StoreError> {
    let operations = log.operations();
    let mut validate = || match validate::conflicts(shadow, system.tree()) {
        conflicts if conflicts.is_empty() => Ok(()),
        conflicts => Err(conflicts),
    };
    let keys = seen::keys(shadow);
    let options = SmallOptions { durable, reads: Some(&keys), follow: false };
    match alone {
        Some(exclusive) => exclusive.commit_small(&operations, &options, &mut validate),
        None => system.store().commit_small(&operations, &options, &mut validate),
    }
}
