use std::{
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
};

use txos_core::{
    Conflict, NodeId, Origin, Origins, Workset,
    workset::{Bound, WorksetStats},
};

use crate::{
    CaptureError, CaptureSpec, Result,
    device::{BUFFER, Device, Received},
    mirror::Mirror,
    proto::{Reply, Request},
};

/// A running capture: worker threads that answer for one FUSE connection.
///
/// Dropping it stops the workers and loses what was captured.
pub struct Capture {
    device: Arc<Device>,
    mirror: Option<Arc<Mirror>>,
    workers: Vec<JoinHandle<()>>,
}

/// What a transaction has read, once its view is gone.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The workset.
    pub workset: Workset,
    /// The conflict that was met while the transaction ran, if one was.
    pub doomed: Option<Conflict>,
    /// How many requests the kernel sent.
    pub requests: u64,
}

impl Capture {
    /// Starts to answer requests on `fuse`, an open `/dev/fuse` that is mounted, or about to be.
    ///
    /// The threads see the mounts of the calling thread: that must not be the name space in which
    /// the view is mounted. The process ignores `SIGIO` from then on.
    ///
    /// # Errors
    /// If the root of the tree or `/proc` cannot be opened, or a thread not started.
    pub fn start(fuse: OwnedFd, spec: CaptureSpec) -> Result<Self> {
        txos_host::ignore_lease_breaks();
        let count = match spec.threads {
            0 => 2,
            count => count,
        };
        let mut capture = Capture {
            device: Arc::new(Device::new(fuse)?),
            mirror: Some(Arc::new(Mirror::new(spec)?)),
            workers: Vec::new(),
        };
        for number in 0..count {
            capture.spawn(number)?;
        }
        Ok(capture)
    }

    fn spawn(&mut self, number: usize) -> Result<()> {
        let Some(mirror) = self.mirror.clone() else { return Ok(()) };
        let device = Arc::clone(&self.device);
        let mut waiter = device.waiter()?;
        let work = move || {
            let mut buffer = vec![0; BUFFER];
            let mut reply = Reply::default();
            loop {
                let go_on = match device.receive(&mut buffer) {
                    Received::Request(length) => {
                        mirror.requests.fetch_add(1, Ordering::Relaxed);
                        let request = Request::parse(&buffer[..length]);
                        let answer =
                            request.and_then(|request| mirror.answer(&request, &mut reply));
                        if let Some(answer) = answer {
                            device.send(answer);
                        }
                        true
                    }
                    Received::Nothing => waiter.until_request(&device),
                    Received::NotMounted => waiter.until_mounted(),
                    Received::Ended => false,
                };
                if !go_on {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name(format!("capture-{number}"));
        self.workers.push(builder.spawn(work).map_err(CaptureError::Thread)?);
        Ok(())
    }

    /// From here on what is read counts as read by the transaction. Names and objects that were
    /// met before stay known, and names that were looked up count: the view was built upon them.
    pub fn begin_recording(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.begin_recording();
        }
    }

    /// The conflict that was met, once the transaction is doomed.
    pub fn doomed(&self) -> Option<Conflict> {
        self.mirror.as_ref()?.doom.conflict().cloned()
    }

    /// What has been captured up to now.
    pub fn stats(&self) -> WorksetStats {
        self.mirror.as_ref().map(|mirror| mirror.known().workset.stats()).unwrap_or_default()
    }

    /// How many requests the kernel has sent.
    pub fn requests(&self) -> u64 {
        self.mirror.as_ref().map_or(0, |mirror| mirror.requests.load(Ordering::Relaxed))
    }

    /// Ends the capture, after the view was unmounted or its processes are gone, and gives what
    /// was captured. Whoever still waits for an answer gets `ECONNABORTED`; a worker that waits
    /// for a disk finishes first.
    ///
    /// # Errors
    /// If a worker panicked: the workset may miss what was read then.
    pub fn stop(mut self) -> Result<Captured> {
        let panicked = self.end_workers();
        let mirror = self.mirror.take().and_then(Arc::into_inner).ok_or(CaptureError::Panicked)?;
        if panicked {
            return Err(CaptureError::Panicked);
        }
        let doomed = mirror.doom.conflict().cloned();
        let requests = mirror.requests.load(Ordering::Relaxed);
        Ok(Captured { workset: mirror.into_workset(), doomed, requests })
    }

    /// Whether any of them panicked.
    fn end_workers(&mut self) -> bool {
        self.device.stop();
        self.workers.drain(..).map(JoinHandle::join).filter(std::result::Result::is_err).count() > 0
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end_workers();
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
