//! What all workers share: the workset, the caches of open objects, and the way from a node to its
//! stable object.
//!
//! # Locking
//!
//! Each mutex guards its own data and is held for no system call. The order, where two are needed,
//! is: workset before caches.

mod ahead;
mod doom;
mod names;
mod open;
mod renew;

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use rustix::io::Errno;
use txos_core::{Attrs, Facet, NodeId, Seen, Workset, workset::Facets};
use txos_host::{ChangeClock, Listing, Tree, change_clock};

use crate::{
    CaptureSpec, Holds, Result,
    caller::Callers,
    counts::Counters,
    objects::{Lru, PathWatch},
    proto::NodeReply,
    wire::Wire,
};
pub(crate) use ahead::Ahead;
pub(crate) use doom::Doom;
pub(crate) use names::Answer;
pub(crate) use open::{OpenFile, now};
use renew::Again;

/// Open directories kept; together with the files a small part of any descriptor limit.
const DIRS: usize = 256;
/// Open files kept, for contents that are read in several pieces.
const FILES: usize = 64;
/// Listings kept, for directories that are listed in several pieces.
const LISTINGS: usize = 32;

/// The workset with what recognizes special paths while it grows.
pub(crate) struct Known {
    pub(crate) workset: Workset,
    hidden: PathWatch,
    relaxed: PathWatch,
    /// The change clock of each device, by index.
    clocks: Vec<Option<ChangeClock>>,
}

pub(crate) struct Mirror {
    tree: Tree,
    known: Mutex<Known>,
    dirs: Mutex<Lru<Arc<OwnedFd>>>,
    files: Mutex<Lru<Arc<OpenFile>>>,
    pub(crate) listings: Mutex<Lru<Arc<Listing>>>,
    recording: AtomicBool,
    pub(crate) doom: Doom,
    pub(crate) holds: Arc<Holds>,
    pub(crate) wire: Wire,
    pub(crate) callers: Callers,
    /// Whether copies are to be told their originals; see [`crate::ORIGIN_MARK`].
    pub(crate) mark_origins: bool,
    pub(crate) requests: Counters,
    ahead: Mutex<Ahead>,
    again: Again,
    epoch: AtomicU32,
}

/// A lock whose holder panicked is taken all the same: the panic ends the capture with an error
/// (see `Capture::stop`), and until then answers are better than a frozen view.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mirror {
    pub(crate) fn new(spec: CaptureSpec) -> Result<Self> {
        let tree = Tree::open(&spec.root)?;
        let again = Again::of(&spec);
        let known = again.nothing_known(&tree)?;
        let callers = Callers::new(spec.proc_dir)
            .map_err(|errno| txos_host::HostError::object("open", "/proc", errno))?;
        Ok(Mirror {
            tree,
            known: Mutex::new(known),
            dirs: Mutex::new(Lru::new(DIRS)),
            files: Mutex::new(Lru::new(FILES)),
            listings: Mutex::new(Lru::new(LISTINGS)),
            recording: AtomicBool::new(false),
            doom: Doom::new(spec.on_doom),
            holds: spec.holds,
            wire: Wire { uids: spec.uids, gids: spec.gids, groups: own_groups() },
            callers,
            mark_origins: spec.mark_origins,
            requests: Counters::default(),
            ahead: Mutex::new(Ahead::new(spec.prefetch)),
            again,
            epoch: AtomicU32::new(0),
        })
    }

    pub(crate) fn ahead(&self) -> MutexGuard<'_, Ahead> {
        lock(&self.ahead)
    }

    /// The stable tree.
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    pub(crate) fn into_workset(self) -> Workset {
        self.known.into_inner().unwrap_or_else(PoisonError::into_inner).workset
    }

    /// Closes all that is kept open, as a long time would.
    #[cfg(test)]
    pub(crate) fn forget_caches(&self) {
        *lock(&self.dirs) = Lru::new(DIRS);
        *lock(&self.files) = Lru::new(FILES);
        *lock(&self.listings) = Lru::new(LISTINGS);
    }

    pub(crate) fn begin_recording(&self) {
        self.recording.store(true, Ordering::Release);
    }

    pub(crate) fn recording(&self) -> bool {
        self.recording.load(Ordering::Acquire)
    }

    /// Takes note that facets of an object were read, and that somebody did ask for it.
    pub(crate) fn read(&self, node: NodeId, facets: Facets) {
        let mut known = self.known();
        if self.recording() {
            known.workset.mark(node, facets);
        }
        known.workset.unmark(node, Facets::SPECULATIVE);
    }

    /// The attributes of a node as the workset has them.
    pub(crate) fn first_attrs(&self, node: NodeId) -> std::result::Result<Attrs, Errno> {
        self.known().workset.attrs(node).ok_or(Errno::STALE)
    }

    /// Holds what an object shows now against what was read of it. Whatever facet the caller is
    /// about to answer from rests on the object being the same version.
    pub(crate) fn check_version(
        &self,
        node: NodeId,
        now: Option<&Attrs>,
        facet: Facet,
    ) -> std::result::Result<(), Errno> {
        let first = self.first_attrs(node)?;
        let seen = match now {
            None => Seen::Removed,
            Some(now) if now.id != first.id => Seen::Replaced,
            Some(now) if !first.same_shown(now) => Seen::Changed,
            Some(_) => return Ok(()),
        };
        self.doom_node(node, facet, seen);
        Err(Errno::STALE)
    }

    /// The clock of the device that holds `object`; `fd` is open on that device.
    pub(crate) fn clock(
        &self,
        object: &Attrs,
        fd: impl std::os::fd::AsFd,
    ) -> std::result::Result<ChangeClock, Errno> {
        let index = self.known().workset.device_index(object.id.dev);
        let Some(index) = index.map(usize::from) else { return Ok(ChangeClock::Unknown) };
        if let Some(Some(clock)) = self.known().clocks.get(index) {
            return Ok(*clock);
        }
        let clock = change_clock(fd)?;
        let mut known = self.known();
        if known.clocks.len() <= index {
            known.clocks.resize(index + 1, None);
        }
        known.clocks[index] = Some(clock);
        Ok(clock)
    }

    /// The answer for an object as the workset has it.
    pub(crate) fn node_reply(
        &self,
        workset: &Workset,
        node: NodeId,
    ) -> std::result::Result<NodeReply, Errno> {
        let attrs = workset.attrs(node).ok_or(Errno::STALE)?;
        let device = workset.device_index(attrs.id.dev).unwrap_or_default();
        Ok(self.wire.node(node.to_wire(self.epoch()), device, &attrs))
    }
}

/// The groups whose permissions this process has; none where the kernel does not say.
fn own_groups() -> Vec<u32> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    groups.into_iter().map(|group| group.as_raw()).collect()
}
