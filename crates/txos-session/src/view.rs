//! A view, from its making to its end.
//!
//! # Invariants
//!
//! - A view serves one transaction, and another one only if nothing happened in it: the kernel has asked
//!   its capture nothing, nothing was put into its upper directories, and nobody else was ever in it.
//! - What a view was shown before its transaction began, the way to where that is likely to begin, counts
//!   as read by that transaction.

use std::{
    ffi::OsString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2, readlink, stat},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use txos_capture::{Capture, CaptureSpec, IdMap};
use txos_core::{Stamp, TxId};
use txos_host::Tree;
use txos_protocol::{pair, send_all};
use txos_store::{ExclusiveLock, Loss, StateDir, TxDir};
use txos_view::{
    Credentials, Layer, SignalState, ViewSpec, Warm, detached_capture, plan_layers, warm,
};

use crate::{Result, SessionError, contender::Contender, sys};

/// Name under which the session holds the state directory's lock, and of its views.
pub const HOLDER: &str = "a program's transaction";

/// The machine as the session's views show it.
pub(crate) struct Host {
    pub(crate) state: StateDir,
    pub(crate) tree: Tree,
    credentials: Credentials,
    wanted: Vec<PathBuf>,
    /// What the mount table of a view shows: where the session is to be found.
    source: String,
    /// Taken before the state directory's lock: threads of one session wait here, and not by polling.
    turn: Mutex<()>,
    /// Where the last transaction began.
    place: Mutex<PathBuf>,
}

/// The state directory's lock, held until it is dropped.
pub(crate) struct Locked<'h> {
    pub(crate) lock: ExclusiveLock,
    _turn: MutexGuard<'h, ()>,
}

/// A view for one transaction.
pub(crate) struct View {
    pub(crate) warm: Warm,
    pub(crate) base: Base,
    pub(crate) dir: TxDir,
    /// When the transaction began that uses it.
    pub(crate) started: Stamp,
    ready: Mark,
}

/// How far a view has been used: two that are the same say that nothing happened in it in between.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    /// What the kernel has asked its capture.
    requests: u64,
    /// The change times of its upper directories, which move with everything that is put there.
    uppers: Vec<Option<(i64, i64)>>,
}

/// What one view passes on to the next.
pub(crate) struct Base {
    pub(crate) contender: Contender,
    pub(crate) capture: Capture,
    stable: OwnedFd,
}

/// What a transaction that has lost hands on to its next attempt.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    /// The attempt that has lost.
    pub(crate) id: TxId,
    /// When it first began.
    pub(crate) started: Stamp,
    /// How often it has lost.
    pub(crate) times: u32,
    /// The last time.
    pub(crate) last: Loss,
}

/// What is left of a view whose transaction has ended.
pub(crate) struct Used {
    warm: Warm,
    base: Base,
    /// Its directory, if no commit has used it up.
    dir: Option<TxDir>,
    /// The transaction whose commit did, and left it to be removed.
    left: Option<TxId>,
    /// Whether nothing of it is open anywhere, so that its base can serve again.
    clean: bool,
    /// What it was when it was ready, if nobody but the thread that began could have changed it since.
    ready: Option<Mark>,
}

impl Host {
    pub(crate) fn new(
        state: StateDir,
        credentials: Credentials,
        wanted: Vec<PathBuf>,
        name: &str,
    ) -> Result<Host> {
        let (tree, source) = (Tree::open("/")?, format!("txos@{name}"));
        let (turn, place) = Default::default();
        Ok(Host { state, tree, credentials, wanted, source, turn, place })
    }

    /// A thread begins a transaction: others are likely to begin where it does.
    pub(crate) fn begins(&self, task: i32) {
        if let Ok(place) = readlink(format!("/proc/{task}/cwd"), Vec::new()) {
            let place = PathBuf::from(OsString::from_vec(place.into_bytes()));
            *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }
    }

    /// Waits for the lock of the state directory.
    pub(crate) fn lock(&self) -> Result<Locked<'_>> {
        // What the mutex guards is a file lock of its own.
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = self.state.lock_exclusive(HOLDER, |_| std::ops::ControlFlow::Continue(()))?;
        Ok(Locked { lock, _turn: turn })
    }

    /// Finishes or discards what a crash left.
    pub(crate) fn recover(&self) -> Result<()> {
        let locked = self.lock()?;
        txos_store::recover_locked(&self.state, &locked.lock)?;
        Ok(())
    }

    fn new_dir(&self) -> Result<TxDir> {
        let id = self.state.next_id()?;
        Ok(TxDir::create(&self.state, id, HOLDER)?)
    }

    /// What the view is made of; its layers are added to `dir`.
    fn spec(&self, dir: &mut TxDir) -> Result<ViewSpec> {
        let scaffold = dir.path().join("view");
        match std::fs::create_dir(&scaffold) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                let errno =
                    rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                return Err(SessionError::Step { action: "make a directory for a view", errno });
            }
            _ => {}
        }
        let mut layers = Vec::new();
        for planned in plan_layers(self.credentials, &self.wanted)? {
            let mut layer: Layer = planned.layer;
            if planned.writable {
                let made = dir.add_layer(&self.tree, &layer.point)?;
                layer.upper = Some(made.upper.clone());
                layer.work = Some(made.work.clone());
            }
            layers.push(layer);
        }
        dir.save()?;
        Ok(ViewSpec {
            credentials: self.credentials,
            scaffold,
            layers,
            trees: Vec::new(),
            live: Vec::new(),
            logs: Vec::new(),
            groups: Vec::new(),
            gateway: false,
            acts_on_machine: false,
            private_network: false,
            // The program opens devices as it does outside.
            devices_guarded: true,
            program: PathBuf::new(),
            helpers: Vec::new(),
            originals: Vec::new(),
            requests: PathBuf::new(),
            plants: Vec::new(),
            directory: PathBuf::from("/"),
            terminal: [false; 3],
            signals: SignalState::default(),
            pass_fds: Vec::new(),
            command: Vec::new(),
        })
    }

    fn capture_spec(&self, contender: &Contender) -> CaptureSpec {
        let (uid, gid) = match self.credentials {
            Credentials::Privileged => (None, None),
            Credentials::User { uid, gid } => (Some(uid), Some(gid)),
        };
        CaptureSpec {
            hidden: vec![self.state.path().to_owned()],
            holds: contender.holds(),
            on_doom: Some(contender.on_doom()),
            // One that leads, and one for when it is slow.
            threads: 2,
            uids: IdMap::only(uid),
            gids: IdMap::only(gid),
            mark_origins: self.credentials != Credentials::Privileged,
            ..CaptureSpec::default()
        }
    }

    /// Makes a view, from nothing.
    pub(crate) fn view(&self) -> Result<View> {
        let made = detached_capture()?;
        let contender = Contender::new(self.state.path());
        let capture = Capture::start(made.device, self.capture_spec(&contender))?;
        self.over(Base { contender, capture, stable: made.mount }, self.new_dir()?)
    }

    /// Makes a view of what is left of another.
    pub(crate) fn renewed(&self, used: Used) -> Result<View> {
        let Used { warm, base, dir, clean, left, .. } = used;
        self.sweep(left);
        // The last descriptor of the namespace: its overlays are gone when this returns.
        drop(warm);
        if !clean || base.contender.is_gone() || base.capture.renew().is_err() {
            self.discard(base, dir);
            return self.view();
        }
        let dir = match dir {
            Some(mut dir) => {
                dir.clear_layers()?;
                // A transaction was told of by that number, or may have been.
                dir.renumber(&self.state, self.state.next_id()?)?;
                dir
            }
            None => self.new_dir()?,
        };
        self.over(base, dir)
    }

    fn over(&self, base: Base, mut dir: TxDir) -> Result<View> {
        let spec = self.spec(&mut dir)?;
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let failed = || SessionError::step("hand a view over");
        let (ours, theirs) = pair().map_err(failed())?;
        let (stable, theirs) = (base.stable.as_fd(), theirs.as_fd());
        let mounts = apart(&[stable, theirs], || {
            let warm = warm(&spec, stable, &self.source)?;
            base.capture.begin_recording();
            visit(&warm, &place);
            let both = [warm.namespace.as_fd(), warm.root.as_fd()];
            send_all(theirs, &[0], &both).map_err(failed())?;
            Ok::<_, SessionError>(warm.mounts)
        })??;
        let (_, both) = ours.receive_all(&mut [0]).map_err(failed())?;
        let both: [OwnedFd; 2] = both.try_into().map_err(|_| failed()(Errno::PROTO))?;
        let [namespace, root] = both;
        let warm = Warm { namespace, root, mounts };
        let ready = Mark::of(&base, &dir);
        Ok(View { warm, base, dir, started: now(), ready })
    }

    /// The view again, if the transaction in it did nothing at all and none of its attempts has lost: then it
    /// is as good as a new one, and nothing is known of its id.
    pub(crate) fn as_new(&self, used: Used) -> Result<View, Box<Used>> {
        match used {
            Used { warm, base, dir: Some(dir), clean: true, ready: Some(ready), .. }
                if ready == Mark::of(&base, &dir)
                    && dir.meta.loss.is_none()
                    && !base.contender.is_gone() =>
            {
                Ok(View { warm, base, dir, started: now(), ready })
            }
            used => Err(Box::new(used)),
        }
    }

    /// Forgets a view, with its directory, in a process that is about to end: the kernel does the rest.
    pub(crate) fn abandon(&self, used: Used) {
        let Used { warm, base, dir, left, .. } = used;
        self.sweep(left);
        drop(warm);
        // Its threads end with the process; to wait for each of them would take long.
        std::mem::forget(base.capture);
        self.remove(dir);
    }

    /// Gives a view up, with all it holds.
    pub(crate) fn drop_view(&self, used: Used) {
        let Used { warm, base, dir, left, .. } = used;
        self.sweep(left);
        drop(warm);
        self.discard(base, dir);
    }

    /// Removes what a commit has left.
    fn sweep(&self, left: Option<TxId>) {
        if let Some(Err(error)) = left.map(|id| self.state.remove_aside(id)) {
            tracing::debug!(%error, "the directory of a committed transaction");
        }
    }

    fn discard(&self, base: Base, dir: Option<TxDir>) {
        if let Err(error) = base.capture.stop() {
            tracing::debug!(%error, "the capture of a view");
        }
        self.remove(dir);
    }

    fn remove(&self, dir: Option<TxDir>) {
        if let Some(Err(error)) = dir.map(|dir| dir.remove(&self.state)) {
            tracing::debug!(%error, "the directory of a view");
        }
    }
}

impl View {
    /// A transaction begins in it, again if it has lost before.
    pub(crate) fn begin(&mut self, lost: Option<&Lost>) {
        self.started = now();
        let meta = &mut self.dir.meta;
        meta.started = lost.map_or(self.started, |lost| lost.started);
        meta.retries = lost.map_or(0, |lost| lost.times);
        meta.loss = lost.map(|lost| lost.last.clone());
        // Where people look for it; what has not lost has nothing to say.
        if let Some(Err(error)) = lost.map(|_| self.dir.save()) {
            tracing::debug!(%error, "the last loss is not told");
        }
    }

    /// It has ended without a commit.
    pub(crate) fn used(self, clean: bool) -> Used {
        let (dir, left) = (Some(self.dir), None);
        Used { warm: self.warm, base: self.base, dir, left, clean, ready: None }
    }

    /// It has ended, and nobody but the thread that began was ever in it.
    pub(crate) fn used_alone(self, clean: bool) -> Used {
        let ready = Some(self.ready.clone());
        Used { ready, ..self.used(clean) }
    }

    /// Whether nothing was done in it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.ready == Mark::of(&self.base, &self.dir)
    }

    /// A commit uses its directory up.
    pub(crate) fn split(self, clean: bool) -> (TxDir, Used) {
        let left = Some(self.dir.meta.id);
        (self.dir, Used { warm: self.warm, base: self.base, dir: None, left, clean, ready: None })
    }
}

impl Used {
    /// The view's place at the contention manager.
    pub(crate) fn contender(&self) -> &Contender {
        &self.base.contender
    }
}

impl Mark {
    fn of(base: &Base, dir: &TxDir) -> Mark {
        let changed =
            |path: &PathBuf| stat(path).ok().map(|s| (s.st_ctime, s.st_ctime_nsec as i64));
        let uppers = dir.meta.layers.iter().map(|layer| changed(&layer.upper)).collect();
        Mark { requests: base.capture.requests().total(), uppers }
    }
}

/// Walks to a directory in a view, so that the kernel knows the way. The names on it count as read by
/// the transaction that gets the view.
fn visit(warm: &Warm, place: &Path) {
    let Ok(below) = place.strip_prefix("/") else { return };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Whether it is there is the affair of who begins.
    let _ = openat2(&warm.root, below, flags, Mode::empty(), ResolveFlags::IN_ROOT);
}

/// The time that the kernel gives files.
pub(crate) fn now() -> Stamp {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    Stamp { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

/// Runs `work` in a thread of its own, whose namespaces end with it, and its table of descriptors: of the session's it
/// has those alone that are `kept`, which are all that `work` may use, and the three standard ones.
///
/// The kernel asks the device of a capture for what is done in a view, and whoever waits for the answer waits even when
/// he is killed. The device is closed when nobody has it any more, and the wait over. So whoever has it never waits, or
/// a session that is killed in between would neither answer nor end. Of anything else a copy would keep locks held and
/// connections open that another thread gives up meanwhile.
fn apart<T: Send>(kept: &[BorrowedFd<'_>], work: impl FnOnce() -> T + Send) -> Result<T> {
    let with_kept = || {
        sys::keep_only(kept).map_err(SessionError::step("leave a session's descriptors"))?;
        Ok(work())
    };
    std::thread::scope(|scope| scope.spawn(with_kept).join().map_err(|_| SessionError::Panicked)?)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        io::fcntl_getfd,
        pipe::pipe,
    };

    use super::*;

    #[test]
    fn what_another_thread_closes_meanwhile_is_closed() {
        let (reader, writer) = pipe().unwrap();
        let (go, wait) = channel();
        let (done, closed) = channel();
        let other = std::thread::spawn(move || {
            wait.recv().unwrap();
            drop(writer);
            done.send(()).unwrap();
        });
        let kept = reader.as_fd();
        let ended = apart(&[kept], move || {
            go.send(()).unwrap();
            closed.recv().unwrap();
            let mut ends = [PollFd::new(&kept, PollFlags::IN)];
            poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            ends[0].revents().contains(PollFlags::HUP)
        });
        assert!(ended.unwrap(), "the other end is still open");
        other.join().unwrap();
    }

    #[test]
    fn the_rest_of_the_session_keeps_its_descriptors() {
        let (reader, writer) = pipe().unwrap();
        apart(&[], || ()).unwrap();
        assert!(fcntl_getfd(&reader).is_ok() && fcntl_getfd(&writer).is_ok());
    }
}
