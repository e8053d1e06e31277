use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use txos_core::{
    Conflict, NodeId, ObjectId, Origin, Origins, Stamp, Workset,
    workset::{Bound, WorksetStats},
};

use crate::{
    CaptureError, CaptureSpec, Requests, Result,
    crew::{LAST_ANSWER, Workers},
    device::Device,
    holds::Source,
    mirror::Mirror,
    touched::Judge,
};

/// Workers of a capture: one that leads, and others for slow answers.
const THREADS: usize = 4;
/// Between two looks whether somebody still judges.
const LOOK_POLL: Duration = Duration::from_micros(50);

/// A running capture: worker threads that answer for one FUSE connection.
///
/// Dropping it stops the workers and loses what was captured.
pub struct Capture {
    workers: Workers,
    mirror: Arc<Mirror>,
}

/// What a transaction has read, once its view is gone.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The workset.
    pub workset: Arc<Workset>,
    /// The conflict that was met while the transaction ran, if one was.
    pub doomed: Option<Conflict>,
    /// How many requests the kernel sent.
    pub requests: Requests,
    epoch: u32,
}

impl Capture {
    /// Starts to answer requests on `fuse`, an open `/dev/fuse` that is mounted, or about to be.
    /// Whoever mounts it closes every other copy of the descriptor then: the kernel ends the
    /// connection, and wakes who waits for it, when the last one is closed.
    ///
    /// The threads see the mounts of the calling thread: that must not be the name space in which
    /// the view is mounted. The process ignores `SIGIO` from then on.
    ///
    /// # Errors
    /// If the root of the tree or `/proc` cannot be opened, or a thread not started.
    pub fn start(fuse: OwnedFd, spec: CaptureSpec) -> Result<Self> {
        txos_host::ignore_lease_breaks();
        let size = if spec.threads == 0 { THREADS } else { spec.threads };
        let holds = Arc::clone(&spec.holds);
        let mirror = Arc::new(Mirror::new(spec)?);
        *holds.source() = Source::Live(Arc::downgrade(&mirror));
        let workers = Workers::start(Device::new(fuse), Arc::clone(&mirror), size)?;
        Ok(Capture { workers, mirror })
    }

    /// From here on what is read counts as read by the transaction. Names and objects that were
    /// met before stay known, and names that were looked up count: the view was built upon them.
    pub fn begin_recording(&self) {
        self.mirror.begin_recording();
    }

    /// The conflict that was met, once the transaction is doomed.
    pub fn doomed(&self) -> Option<Conflict> {
        self.mirror.doom.conflict()
    }

    /// A copy of what has been captured up to now, for a view whose programs have ended while it and
    /// its capture go on.
    pub fn captured(&self) -> Captured {
        let workset = self.mirror.known().workset.clone();
        Captured {
            workset: Arc::new(workset),
            doomed: self.doomed(),
            requests: self.requests(),
            epoch: self.mirror.epoch(),
        }
    }

    /// Forgets all that was captured, for another transaction: the next view over this capture begins
    /// with nothing known and nothing cached. No view over it may exist any more. Recording is off
    /// until [`Capture::begin_recording`].
    ///
    /// # Errors
    /// If the kernel can't drop its caches at once (before Linux 6.16), or the stable root can't be
    /// examined; the capture is of no use then.
    pub fn renew(&self) -> Result<()> {
        self.mirror.renew()?;
        self.workers.forget_entries()
    }

    /// Who holds changes by outsiders against what was read, for as long as the capture runs.
    pub fn judge(&self) -> Judge {
        Judge(Arc::downgrade(&self.mirror))
    }

    /// What has been captured up to now.
    pub fn stats(&self) -> WorksetStats {
        self.mirror.known().workset.stats()
    }

    /// How many requests the kernel has sent.
    pub fn requests(&self) -> Requests {
        self.mirror.requests.get()
    }

    /// Ends the capture, after the view was unmounted or its processes are gone, and gives what
    /// was captured. Whoever still waits for an answer gets `ECONNABORTED`, once no other copy of
    /// the device's descriptor is open. Takes at most some ten seconds.
    ///
    /// # Errors
    /// If a worker panicked, so that the workset may miss what was read, or if one does not come
    /// back from a call to the stable system.
    pub fn stop(mut self) -> Result<Captured> {
        self.mirror.holds.stop();
        self.workers.stop()?;
        let Capture { workers, mirror } = self;
        drop(workers);
        let holds = Arc::clone(&mirror.holds);
        // Whoever asks for what was read meanwhile waits until all of it is there again.
        let mut source = holds.source();
        *source = Source::None;
        let mirror = until_sole(mirror)?;
        let doomed = mirror.doom.conflict();
        let requests = mirror.requests.get();
        let epoch = mirror.epoch();
        let workset = Arc::new(mirror.into_workset());
        *source = Source::Whole(Arc::clone(&workset));
        Ok(Captured { workset, doomed, requests, epoch })
    }
}

/// The mirror itself, once no [`Judge`] is looking any more: they see that the capture has ended, and a
/// look takes some microseconds, or as long as the stable system lets it wait.
fn until_sole(mut mirror: Arc<Mirror>) -> Result<Mirror> {
    let deadline = Instant::now() + LAST_ANSWER;
    loop {
        mirror = match Arc::try_unwrap(mirror) {
            Ok(mirror) => return Ok(mirror),
            Err(shared) => shared,
        };
        if Instant::now() >= deadline {
            return Err(CaptureError::Stuck { threads: 1, seconds: LAST_ANSWER.as_secs() });
        }
        thread::sleep(LOOK_POLL);
    }
}

impl Captured {
    /// The stable object that an absolute path led to, as the transaction saw it; for shadow
    /// objects whose origin attribute says nothing.
    pub fn origin_of_path(&self, path: &Path) -> Option<Origin> {
        let mut node = NodeId::ROOT;
        for name in path.strip_prefix("/").unwrap_or(path) {
            match self.workset.bound(node, name.as_encoded_bytes())? {
                Bound::Object(next) => node = next,
                Bound::Absent => return None,
            }
        }
        self.workset.origin(node.raw())
    }
}

impl Origins for Captured {
    fn origin(&self, node_id: u64) -> Option<Origin> {
        self.workset.origin(NodeId::of_wire(self.epoch, node_id)?.raw())
    }

    fn copied(&self, id: &ObjectId) -> Option<Stamp> {
        self.workset.copied(id)
    }

    fn filled(&self, id: &ObjectId) -> Option<Stamp> {
        self.workset.filled(id)
    }
}
