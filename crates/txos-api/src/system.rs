use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    process::geteuid,
    rand::{GetRandomFlags, getrandom},
};
use txos_contention::Committers;
use txos_core::Attrs;
use txos_host::{HostError, Tree, attrs_of};
use txos_store::{Privilege, StateDir, Store};

use crate::{Error, Result, Transaction, transaction::now, turn::Age};

/// First wait before a transaction is run again, and the longest; doubled with each loss, and
/// chosen at random below that, so that two that met do not meet again.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// So often a closure loses to others; then it is run while no other transaction commits.
const LOSSES: u32 = 8;

/// How transactions are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a commit survives a power cut when it returns. Default: yes.
    pub durable: bool,
    /// How often a closure is run again after a conflict. Default: 100.
    pub retries: u32,
    /// The state directory, as an absolute path; `None` for the one of the user (`$TXOS_STATE`,
    /// `/var/lib/txos` for root, `~/.local/state/txos` for others). Transactions of one state
    /// directory know of each other; to those of another one they are outsiders.
    pub state: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options { durable: true, retries: 100, state: None }
    }
}

/// The stable system, opened for transactions. Cheap to share, for several threads at once.
#[derive(Debug)]
pub struct System {
    store: Store,
    tree: Tree,
    options: Options,
    /// `None` where the state directory can't be opened for it.
    committers: Option<Committers>,
}

/// The one of all who ask for none in particular.
static SHARED: OnceLock<Arc<System>> = OnceLock::new();

impl System {
    /// Opens it. What a crash left in the state directory is finished or discarded first.
    ///
    /// # Errors
    /// If the state directory cannot be used, or the root directory cannot be opened.
    pub fn open(options: Options) -> Result<Arc<System>> {
        let path = match &options.state {
            Some(path) => path.clone(),
            None => txos_store::default_directory()?,
        };
        let privilege = if geteuid().is_root() { Privilege::Root } else { Privilege::User };
        let store = Store::open(StateDir::open(path, privilege)?)?;
        let committers = Committers::of(store.state().path()).ok();
        Ok(Arc::new(System { store, tree: Tree::open("/")?, options, committers }))
    }

    /// The one with default options, opened by the first who asks.
    ///
    /// # Errors
    /// As [`System::open`].
    pub fn shared() -> Result<Arc<System>> {
        if let Some(system) = SHARED.get() {
            return Ok(Arc::clone(system));
        }
        let system = System::open(Options::default())?;
        Ok(Arc::clone(SHARED.get_or_init(|| system)))
    }

    /// The state directory of the one that is [shared](Self::shared), if it was opened already.
    #[doc(hidden)]
    pub fn state_of_shared() -> Option<&'static std::path::Path> {
        SHARED.get().map(|system| system.store.state().path())
    }

    /// How its transactions are run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Begins a transaction that the caller commits, and runs again where that is wanted.
    ///
    /// # Errors
    /// If the working directory is gone.
    pub fn begin(self: &Arc<Self>) -> Result<Transaction> {
        Transaction::begin(self)
    }

    /// Runs `body` as one transaction and commits what it did; runs it again, from the start, when
    /// something that it had read has changed. An error that it returns aborts the transaction.
    ///
    /// `body` may run several times, so what it does beside the transaction must bear that. After
    /// eight losses no other transaction of the state directory commits while it runs, for a second
    /// at most: so it loses to outsiders alone.
    ///
    /// # Errors
    /// What `body` returns; [`Error::Retries`] after too many losses; otherwise as
    /// [`Transaction::commit`].
    pub fn transaction<T>(
        self: &Arc<Self>,
        mut body: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        self.attempts(|mut transaction| {
            let value = body(&mut transaction)?;
            transaction.commit()?;
            Ok(value)
        })
    }

    /// As [`System::transaction`], for a `body` that commits the transaction itself, or does not.
    ///
    /// # Errors
    /// What `body` returns, but for [`Error::Conflict`], after which it is run again;
    /// [`Error::Retries`] after too many losses.
    pub fn attempts<T>(
        self: &Arc<Self>,
        mut body: impl FnMut(Transaction) -> Result<T>,
    ) -> Result<T> {
        self.attempts_of(self.options.retries, &mut body)
    }

    /// As [`System::attempts`], run again at most `retries` times.
    ///
    /// # Errors
    /// As [`System::attempts`].
    pub fn attempts_of<T>(
        self: &Arc<Self>,
        retries: u32,
        body: &mut dyn FnMut(Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempts = 0;
        let started = now();
        loop {
            // The last attempt, and each after some losses, cannot lose to other transactions.
            let alone = attempts > 0 && attempts >= LOSSES.min(retries);
            let transaction =
                if alone { Transaction::begin_alone(self) } else { Transaction::begin(self) };
            let result = body(transaction?.again(Age { started, losses: attempts }));
            attempts += 1;
            match result {
                Err(Error::Conflict(last)) if attempts > retries => {
                    return Err(Error::Retries { attempts, last });
                }
                Err(Error::Conflict(_)) => pause(attempts),
                result => return result,
            }
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The contention manager, where one may run.
    pub(crate) fn committers(&self) -> Option<&Committers> {
        self.committers.as_ref()
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The root directory, open for lookups, and its attributes.
    pub(crate) fn root(&self) -> Result<(Arc<OwnedFd>, Attrs)> {
        let failed = |errno| HostError::object("open the directory", Path::new("/"), errno);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, "/", flags, Mode::empty()).map_err(failed)?;
        let attrs = attrs_of(&root).map_err(failed)?;
        Ok((Arc::new(root), attrs))
    }

    /// How many commits have begun to be visible, and how many are wholly.
    pub(crate) fn commits(&self) -> (u64, u64) {
        let commits = self.store.commits();
        (commits.started, commits.ended)
    }

    /// The same at a moment when none is half visible.
    pub(crate) fn quiet_commits(&self) -> (u64, u64) {
        let mut looks = 0u32;
        loop {
            let (started, ended) = self.commits();
            if started == ended {
                return (started, ended);
            }
            looks += 1;
            if looks < 100 { std::hint::spin_loop() } else { thread::sleep(FIRST_PAUSE) }
        }
    }
}

/// Waits a random time after the loss with this number.
fn pause(loss: u32) {
    let longest = FIRST_PAUSE.saturating_mul(1 << loss.min(10)).min(LONGEST_PAUSE);
    let mut random = [0; 4];
    let share = match getrandom(&mut random, GetRandomFlags::empty()) {
        Ok(_) => f64::from(u32::from_ne_bytes(random)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    };
    thread::sleep(longest.mul_f64(share));
}
