use std::{fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc};

use txos_core::Conflict;

use crate::{Holds, IdMap};

/// Called once, from a worker thread, when the transaction has lost. It returns quickly: whoever
/// touched the object waits for it. It does not stop the capture.
pub type OnDoom = Arc<dyn Fn(&Conflict) + Send + Sync>;

/// What is captured, and how.
pub struct CaptureSpec {
    /// The directory that is mirrored; `/` for the whole system.
    pub root: PathBuf,
    /// Absolute paths that are answered as absent and left out of listings, with all below them:
    /// the state directories. They need not exist yet.
    pub hidden: Vec<PathBuf>,
    /// Absolute paths at and below which reads are recorded as relaxed and not validated. The
    /// name of such a path in its own directory is validated.
    pub relax: Vec<PathBuf>,
    /// Whether entries and contents may be handed to the kernel before they are asked for. They
    /// count as read; after a conflict on nothing but such an entry a retry turns this off.
    pub prefetch: bool,
    /// How many worker threads answer; 0 for what suits the machine.
    pub threads: usize,
    /// User ids inside the view.
    pub uids: IdMap,
    /// Group ids inside the view.
    pub gids: IdMap,
    /// Whether copies are to be told their originals in an attribute, because the overlay cannot
    /// note them (a view in a user namespace); see [`crate::ORIGIN_MARK`].
    pub mark_origins: bool,
    /// An open `/proc` of the process id name space in which the FUSE file system is mounted,
    /// through which it is seen where a program runs; `None` if that is the caller's own.
    pub proc_dir: Option<OwnedFd>,
    /// What other transactions are about to write: touches of it wait.
    pub holds: Arc<Holds>,
    /// Called when an object turns out to have another version than the one in the workset.
    pub on_doom: Option<OnDoom>,
}

impl Default for CaptureSpec {
    fn default() -> Self {
        CaptureSpec {
            root: PathBuf::from("/"),
            hidden: Vec::new(),
            relax: Vec::new(),
            prefetch: true,
            threads: 0,
            uids: IdMap::identity(),
            gids: IdMap::identity(),
            mark_origins: false,
            proc_dir: None,
            holds: Arc::default(),
            on_doom: None,
        }
    }
}

impl fmt::Debug for CaptureSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureSpec")
            .field("root", &self.root)
            .field("hidden", &self.hidden)
            .field("relax", &self.relax)
            .field("prefetch", &self.prefetch)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
