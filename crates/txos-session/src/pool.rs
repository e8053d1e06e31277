//! Views that wait.
//!
//! A builder thread keeps some ready; how many follows from how many were in use at once when somebody
//! found none, and had to wait for the next.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    Result, SessionError,
    view::{Host, Used, View},
};

/// Views that are ready at first.
const FIRST: usize = 2;
/// Views that are ready at the most for each that is in use, and in all.
const EACH: usize = 4;
const MOST: usize = 16;

pub(crate) struct Pool {
    host: Arc<Host>,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    ready: VecDeque<View>,
    /// Used views, to be renewed or dropped.
    used: Vec<Used>,
    target: usize,
    /// How many are in use.
    taken: usize,
    /// How many wait for one.
    waiting: usize,
    /// Why none could be made, as long as nobody was told.
    failed: Option<SessionError>,
    closed: bool,
}

/// What the builder does next.
enum Work {
    Build,
    Renew(Used),
    Discard(Used),
    /// The process ends.
    Abandon(Used),
    End,
}

impl Pool {
    pub(crate) fn new(host: Arc<Host>) -> Arc<Pool> {
        let inner = Inner { target: FIRST, ..Inner::default() };
        Arc::new(Pool { host, inner: Mutex::new(inner), changed: Condvar::new() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Views are moved in and out whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A view that nobody has used since it was made or renewed.
    pub(crate) fn take(&self) -> Result<View> {
        let mut inner = self.inner();
        if inner.ready.is_empty() {
            let most = ((inner.taken + 1) * EACH).min(MOST);
            inner.target = (inner.target * 2).min(most).max(inner.target);
        }
        if inner.waiting == 0 {
            // What failed when nobody wanted a view says nothing of now.
            inner.failed = None;
        }
        inner.waiting += 1;
        let taken = loop {
            if let Some(view) = inner.ready.pop_front() {
                inner.taken += 1;
                break Ok(view);
            }
            if let Some(error) = inner.failed.take() {
                break Err(error);
            }
            self.changed.notify_all();
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        };
        inner.waiting -= 1;
        self.changed.notify_all();
        taken
    }

    /// Takes back a view that was used.
    pub(crate) fn give_back(&self, used: Used) {
        let again = self.host.as_new(used);
        let mut inner = self.inner();
        inner.taken -= 1;
        match again {
            // In front: its caches are the warmest.
            Ok(view) => inner.ready.push_front(view),
            Err(used) => inner.used.push(*used),
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// What the builder thread runs, until the pool is closed.
    pub(crate) fn build(&self) {
        loop {
            match self.next() {
                Work::Build => self.made(self.host.view()),
                Work::Renew(used) => self.made(self.host.renewed(used)),
                Work::Discard(used) => self.host.drop_view(used),
                Work::Abandon(used) => self.host.abandon(used),
                Work::End => return,
            }
        }
    }

    fn made(&self, view: Result<View>) {
        let mut inner = self.inner();
        match view {
            Ok(view) => inner.ready.push_back(view),
            Err(error) => {
                tracing::debug!(%error, "no view");
                inner.failed = Some(error);
            }
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn next(&self) -> Work {
        let mut inner = self.inner();
        loop {
            // A failure is told to whoever waits before it is tried again.
            let wanted =
                !inner.closed && inner.failed.is_none() && inner.ready.len() < inner.target;
            match inner.used.pop() {
                Some(used) if inner.closed => return Work::Abandon(used),
                Some(used) if wanted => return Work::Renew(used),
                Some(used) => return Work::Discard(used),
                None if wanted => return Work::Build,
                None => {}
            }
            if inner.closed {
                return match inner.ready.pop_front() {
                    Some(view) => Work::Abandon(view.used(false)),
                    None => Work::End,
                };
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the builder give all views up and end: the process is about to.
    pub(crate) fn close(&self) {
        self.inner().closed = true;
        self.changed.notify_all();
    }
}
