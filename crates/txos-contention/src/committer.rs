//! A transaction without a view at the manager: it is known there for the time of its commit.
//!
//! What it has read it compares itself, by value and byte range, when it commits; so it tells nobody what
//! that is, and never loses here. What it writes is held against the others as anybody's is: readers
//! of lower rank lose at once, for those of higher rank it waits.
//!
//! # Invariants
//!
//! - Nothing is asked, and no manager started, where none runs.
//! - Nothing depends on it for safety: whatever the manager says or does not, the commit validates.
//! - It waits no longer than [`LONGEST`], and for a transaction of its own process no longer than
//!   [`OWN_LONGEST`]: that one may need something of the thread that waits.

use std::{
    fmt,
    os::fd::AsFd,
    path::Path,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use txos_core::{Stamp, TxId, contention::Written};
use txos_view::Channel;

use crate::{
    Ended, PATIENCE,
    memory::memory_file,
    message::{Rival, ToManager, ToTransaction, Word},
    rank::standing_of,
    socket::Place,
    text::command_of,
};

/// How long a transaction that is ready waits for those who come first by their rank, where it may not
/// wait for ever.
pub const LONGEST: Duration = Duration::from_secs(30);
/// And for those of its own process.
pub const OWN_LONGEST: Duration = Duration::from_millis(20);

/// The manager of a state directory, where one runs.
pub struct Committers {
    place: Place,
    command: OnceLock<String>,
}

/// What a commit asks its turn for.
#[derive(Debug)]
pub struct Commit<'a> {
    /// A number that no other transaction of the state directory has or had.
    pub id: TxId,
    /// When it first began.
    pub started: Stamp,
    /// How often it has lost.
    pub losses: u32,
    /// What it would write.
    pub written: &'a Written,
    /// How many objects it has read.
    pub read: u64,
}

/// A commit that is known to the manager, until it is dropped or has ended.
pub struct Committer {
    channel: Channel,
    read: u64,
    waited: Duration,
}

impl Committers {
    /// Of the state directory at `state`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn of(state: &Path) -> Result<Committers> {
        Ok(Committers { place: Place::of(state)?, command: OnceLock::new() })
    }

    /// Makes a commit known, which is to come; `None` where no manager runs.
    ///
    /// # Errors
    /// If what is there is no manager.
    pub fn announce(&self, commit: &Commit<'_>) -> Result<Option<Committer>> {
        if !self.are_asked() {
            return Ok(None);
        }
        let Some(channel) = self.place.connect()? else { return Ok(None) };
        let process = std::process::id();
        let standing = standing_of(0, commit.id, commit.started, commit.losses);
        let command = self.command.get_or_init(|| command_of(std::process::id())).clone();
        channel.send(&ToManager::Begin { standing, attempt: 0, process, command }, None)?;
        let file = memory_file(&commit.written.encode())?;
        let (read, written) = (commit.read, commit.written.len() as u64);
        channel.send(&ToManager::Ready { read, written }, Some(file.as_fd()))?;
        Ok(Some(Committer { channel, read, waited: Duration::ZERO }))
    }

    /// Whether somebody may be there to be asked.
    pub fn are_asked(&self) -> bool {
        self.place.has_socket()
    }
}

impl fmt::Debug for Committers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committers").finish_non_exhaustive()
    }
}

/// What the manager said.
enum Heard {
    /// The commit may go on.
    Granted,
    /// It comes after this one.
    Waits(Rival),
    /// Something else.
    Other,
    /// Nothing, for as long as it was waited.
    Nothing,
    /// It has ended.
    Gone,
}

impl Committer {
    /// Waits until it is this one's turn, or it has waited long enough.
    pub fn wait(&mut self) {
        let began = Instant::now();
        // It asks others, who may be stopped.
        let mut until = began + PATIENCE;
        let (mut waits, mut impatient) = (false, false);
        loop {
            match self.hear(until.saturating_duration_since(Instant::now())) {
                Heard::Granted | Heard::Gone => break,
                Heard::Waits(_) if impatient => {}
                Heard::Waits(winner) => {
                    waits = true;
                    let own = winner.pid == std::process::id();
                    until = began + if own { OWN_LONGEST } else { LONGEST };
                }
                Heard::Other => {}
                Heard::Nothing if waits && !impatient => {
                    impatient = true;
                    let _ = self.channel.send_now(&ToManager::Impatient, None);
                    // Only one that commits right now is waited for.
                    until = Instant::now() + PATIENCE;
                }
                Heard::Nothing => break,
            }
        }
        if waits {
            self.waited = began.elapsed();
        }
    }

    /// It is over.
    pub fn end(self, mut ended: Ended) {
        ended.waited_us = u64::try_from(self.waited.as_micros()).unwrap_or(u64::MAX);
        let _ = self.channel.send_now(&ToManager::Leave(Some(ended)), None);
    }

    fn hear(&self, longest: Duration) -> Heard {
        let wait = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(longest.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&wait)) {
            Ok(0) => return Heard::Nothing,
            Err(Errno::INTR) => return Heard::Other,
            Ok(_) => {}
            Err(_) => return Heard::Gone,
        }
        let Ok(Some((message, _))) = self.channel.receive::<ToTransaction>() else {
            return Heard::Gone;
        };
        let read = self.read;
        let answer = match message {
            ToTransaction::Attempt(_, Word::Grant) => return Heard::Granted,
            ToTransaction::Attempt(_, Word::Wait(winner)) => return Heard::Waits(winner),
            // By value and range, as only the commit itself compares, it may have read none of it.
            ToTransaction::Ask { hold } => ToManager::Answer { hold, met: None, read },
            ToTransaction::Count => ToManager::Count { read },
            _ => return Heard::Other,
        };
        match self.channel.send_now(&answer, None) {
            Ok(()) => Heard::Other,
            Err(_) => Heard::Gone,
        }
    }
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer").field("waited", &self.waited).finish_non_exhaustive()
    }
}
