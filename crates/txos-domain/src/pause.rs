//! The pause of one commit.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use crate::{
    DomainError, Group, Result, Watchdog,
    ledger::{Claim, Ledger},
    members,
    wire::{MOST_FDS, What},
};

/// What is to be paused, and how long.
#[derive(Clone, Debug)]
pub struct PauserSpec {
    /// The domain, as the user named it.
    pub name: String,
    /// Its groups; what is below them is paused with them.
    pub groups: Vec<PathBuf>,
    /// Longest time from the first freeze to the decision.
    pub limit: Duration,
    /// How many times the freeze is tried.
    pub tries: u32,
}

/// Pauses a domain, as often as it is asked to.
#[derive(Debug)]
pub struct Pauser {
    spec: PauserSpec,
    ledger: Ledger,
    watchdog: Arc<Watchdog>,
}

/// A domain that stands still, until this is dropped.
#[derive(Debug)]
pub struct Pause {
    id: u64,
    limit: Duration,
    groups: Vec<(Group, Claim)>,
    ledger: Ledger,
    watchdog: Arc<Watchdog>,
    /// When the first group was asked to freeze.
    began: Cell<Instant>,
}

impl Pauser {
    /// Prepares pauses; freezes nothing yet.
    ///
    /// # Errors
    /// If there is no place for the ledger.
    pub fn new(spec: PauserSpec, watchdog: Arc<Watchdog>) -> Result<Pauser> {
        Ok(Pauser { spec, ledger: Ledger::open_own()?, watchdog })
    }

    /// Freezes the domain and returns when all of it stands still. What does not freeze within the
    /// limit is thawed and, after a wait, tried again.
    ///
    /// # Errors
    /// [`DomainError::NotFrozen`] after the last try; [`DomainError::Gone`] if the domain was
    /// removed; [`DomainError::Watchdog`]. Nothing is frozen then.
    pub fn pause(&self) -> Result<Pause> {
        let mut who = None;
        for attempt in 0..self.spec.tries.max(1) {
            if attempt > 0 {
                // Whoever waits for a disk has better odds the longer he is left alone.
                thread::sleep(Duration::from_millis(10) * 5u32.pow(attempt.min(4)));
            }
            let pause = self.begin()?;
            match pause.freeze() {
                Ok(true) => return Ok(pause),
                Ok(false) => {
                    who = pause.groups.iter().find_map(|(group, _)| members::stuck(group));
                }
                Err(error) => return Err(self.gone(error)),
            }
        }
        let tries = self.spec.tries.max(1);
        Err(DomainError::NotFrozen { limit: self.spec.limit, tries, who })
    }

    /// Opens and counts all groups, and arms the watchdog.
    fn begin(&self) -> Result<Pause> {
        let mut pause = Pause {
            id: 0,
            limit: self.spec.limit,
            groups: Vec::new(),
            ledger: self.ledger.clone(),
            watchdog: Arc::clone(&self.watchdog),
            began: Cell::new(Instant::now()),
        };
        if self.spec.groups.len() * 2 > MOST_FDS {
            let reason = format!("it has {} groups, too many", self.spec.groups.len());
            return Err(DomainError::Obstacle { name: self.spec.name.clone(), reason });
        }
        for path in &self.spec.groups {
            let group = Group::open(path).map_err(|error| self.gone(error))?;
            let claim = self.ledger.enter(&group, self.spec.limit)?;
            pause.groups.push((group, claim));
        }
        let fds: Vec<_> = (pause.groups.iter())
            .flat_map(|(group, claim)| [group.freeze_fd(), claim.fd()])
            .collect();
        pause.id = self.watchdog.arm(self.spec.limit, What::Pause, &fds)?;
        Ok(pause)
    }

    fn gone(&self, error: DomainError) -> DomainError {
        match error {
            DomainError::Io { errno: Errno::NOENT | Errno::NODEV, .. } => {
                DomainError::Gone(self.spec.name.clone())
            }
            other => other,
        }
    }
}

impl Pause {
    fn freeze(&self) -> Result<bool> {
        self.began.set(Instant::now());
        let deadline = self.began.get() + self.limit;
        for (group, claim) in &self.groups {
            if !self.ledger.freeze(claim, group, self.limit)? {
                return Ok(false);
            }
        }
        for (group, _) in &self.groups {
            if !group.wait_frozen(deadline)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// To be called between the last validation and the commit record: from here on the pause lasts
    /// until it is dropped, or until recovery has finished the apply.
    ///
    /// # Errors
    /// [`DomainError::Expired`] if the limit is over, [`DomainError::Watchdog`] if there is no
    /// watchdog any more, [`DomainError::NotFrozen`] if somebody thawed a group meanwhile. The commit
    /// must not take place then.
    pub fn decide(&self) -> Result<()> {
        if !self.watchdog.decide(self.id, self.began.get() + self.limit)? {
            return Err(DomainError::Expired(self.limit));
        }
        for (group, _) in &self.groups {
            if !group.is_frozen()? {
                let who = Some(format!("somebody thawed {}", group.path().display()));
                return Err(DomainError::NotFrozen { limit: self.limit, tries: 1, who });
            }
        }
        Ok(())
    }

    /// When the members began to stop.
    pub fn began(&self) -> Instant {
        self.began.get()
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        for (group, claim) in &self.groups {
            self.ledger.leave(claim, group.freeze_fd());
        }
        self.watchdog.done(self.id);
    }
}
