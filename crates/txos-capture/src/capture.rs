use std::{os::fd::OwnedFd, path::Path, sync::Arc};

use txos_core::{
    Conflict, NodeId, Origin, Origins, Workset,
    workset::{Bound, WorksetStats},
};

use crate::{
    CaptureError, CaptureSpec, Requests, Result, crew::Workers, device::Device, mirror::Mirror,
};

/// Workers of a capture: one that leads, and others for slow answers.
const THREADS: usize = 4;

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
    pub workset: Workset,
    /// The conflict that was met while the transaction ran, if one was.
    pub doomed: Option<Conflict>,
    /// How many requests the kernel sent.
    pub requests: Requests,
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
        let mirror = Arc::new(Mirror::new(spec)?);
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
        self.mirror.doom.conflict().cloned()
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
        self.workers.stop()?;
        let Capture { workers, mirror } = self;
        drop(workers);
        let mirror = Arc::into_inner(mirror).ok_or(CaptureError::Panicked)?;
        let doomed = mirror.doom.conflict().cloned();
        let requests = mirror.requests.get();
        Ok(Captured { workset: mirror.into_workset(), doomed, requests })
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
        self.workset.origin(node_id)
    }
}
