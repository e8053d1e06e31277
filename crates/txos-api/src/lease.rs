//! An attempt that cannot lose to other transactions, for one that has lost too often.
//!
//! While a lease lives, nobody else commits in its state directory. The store's lock belongs to the
//! thread that took it, and a transaction may be committed by any; so a thread of the lease's own
//! takes the lock and makes the commit.
//!
//! # Invariants
//!
//! - A lease keeps others waiting no longer than [`LONGEST`]: an attempt that takes longer, or that
//!   itself waits for somebody's commit, goes on as an ordinary one.
//! - Whatever becomes of the lease, the commit is made, once.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use txos_store::{Exclusive, Result};

use crate::System;

/// So long a lease holds others up at most.
const LONGEST: Duration = Duration::from_secs(1);

/// A commit: with the store to itself, if the lease still holds.
type Job = Box<dyn FnOnce(Option<&mut Exclusive<'_>>) + Send>;

/// Nobody else commits while it lives, or for [`LONGEST`].
#[derive(Debug)]
pub(crate) struct Lease {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Lease {
    /// Waits until nobody commits; `None` where no lease can be had, for want of a thread or since
    /// the store takes no commits, which the attempt's own commit will say.
    pub(crate) fn take(system: &Arc<System>) -> Option<Lease> {
        let (jobs, requests) = channel::<Job>();
        let (ready, taken) = channel();
        let system = Arc::clone(system);
        let serve = move || match system.store().exclusive() {
            Ok(exclusive) => {
                let _ = ready.send(());
                serve(exclusive, &requests);
            }
            Err(_) => drop(ready),
        };
        let thread = thread::Builder::new().name("txos-lease".into()).spawn(serve).ok()?;
        taken.recv().ok().map(|()| Lease { jobs, thread })
    }

    /// Lets the lease's thread make a commit, and gives what that gave.
    ///
    /// # Errors
    /// What `commit` gives.
    pub(crate) fn commit<T: Send + 'static>(
        self,
        commit: impl FnOnce(Option<&mut Exclusive<'_>>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = channel();
        let job: Job = Box::new(move |exclusive| {
            let _ = answer.send(commit(exclusive));
        });
        if let Err(returned) = self.jobs.send(job) {
            returned.0(None);
        }
        match (answered.recv(), self.thread) {
            (Ok(answer), _) => answer,
            // It panicked, as the caller would have.
            (Err(_), thread) => match thread.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("a commit that returns is answered"),
            },
        }
    }
}

fn serve(mut exclusive: Exclusive<'_>, requests: &Receiver<Job>) {
    match requests.recv_timeout(LONGEST) {
        Ok(job) => job(Some(&mut exclusive)),
        Err(RecvTimeoutError::Disconnected) => {}
        Err(RecvTimeoutError::Timeout) => {
            drop(exclusive);
            if let Ok(job) = requests.recv() {
                job(None);
            }
        }
    }
}
