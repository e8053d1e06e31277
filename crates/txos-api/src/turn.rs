//! A commit's turn among the transactions that run in views, where the contention manager of the state
//! directory runs.
//!
//! Who has read what a commit would change, and ranks lower, has lost at once and runs again after it;
//! for one that ranks higher the commit waits, with nothing locked, half a minute at the most. An
//! attempt that has the store to itself waits for nobody, since all wait for it: it is told of when it
//! is over. Without a manager, which is asked for by one look at a name, validation decides alone.

use txos_contention::{Commit, Committer, Ended, Ending};
use txos_core::{Stamp, contention::Written};
use txos_store::{SmallCommitted, StoreError};

use crate::{System, log::Log};

/// How old a transaction is.
#[derive(Clone, Debug)]
pub(crate) struct Age {
    /// When it first began.
    pub(crate) started: Stamp,
    /// How often it has lost.
    pub(crate) losses: u32,
}

/// The turn of one commit.
#[derive(Debug, Default)]
pub(crate) struct Turn(Option<Committer>);

/// What a commit would change, where somebody is there to be told.
pub(crate) fn written(system: &System, log: &Log) -> Option<Written> {
    system.committers().filter(|committers| committers.are_asked())?;
    // What can't be planned can't be committed either, and the commit says why.
    system.store().written(&log.operations()).ok()
}

impl Turn {
    /// Makes the commit known.
    pub(crate) fn announce(
        system: &System,
        age: &Age,
        read: u64,
        written: Option<&Written>,
    ) -> Turn {
        let announce = |written| {
            let commit = Commit {
                id: system.store().state().next_id().ok()?,
                started: age.started,
                losses: age.losses,
                written,
                read,
            };
            // What is no manager decides nothing.
            system.committers()?.announce(&commit).ok()?
        };
        Turn(written.and_then(announce))
    }

    /// Waits until it has come.
    pub(crate) fn wait(&mut self) {
        if let Some(committer) = &mut self.0 {
            committer.wait();
        }
    }

    /// The commit is over.
    pub(crate) fn end(self, made: &Result<SmallCommitted, StoreError>) {
        let Some(committer) = self.0 else { return };
        let (ending, outside) = match made {
            Ok(_) | Err(StoreError::Unfinished { .. }) => (Ending::Committed, Vec::new()),
            Err(StoreError::Conflict(conflicts)) => {
                (Ending::Aborted, conflicts.iter().map(|conflict| conflict.facet).collect())
            }
            Err(_) => (Ending::Aborted, Vec::new()),
        };
        committer.end(Ended { ending, outside, ..Ended::default() });
    }
}
