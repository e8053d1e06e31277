//! What others than its own connection have to do with a running transaction.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{fstat, readlink},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use txos_capture::Judge;
use txos_store::Loss;

use crate::{
    Result, SessionError,
    guard::Deferred,
    pipes::Pipes,
    process::{Ended, Process},
    sys,
    tracker::Tracker,
    view::View,
};

/// `TX_NO_USER_ROLLBACK` of the flags of a transaction.
const NO_USER_ROLLBACK: u32 = 2;
/// `TX_NO_AUTO_RETRY`.
const NO_AUTO_RETRY: u32 = 4;

/// How long to wait before looking again for members that leave without ending.
const LOOK: Duration = Duration::from_millis(2);
/// The same when it has taken long.
const LOOK_LATER: Duration = Duration::from_millis(20);
/// How long to wait before listening again for how a member ended, and how often at the most.
const LOOK_SOON: Duration = Duration::from_micros(100);
const SILENCE: u32 = 20_000;
/// How long a member that was killed may take to die.
const DEATH: u32 = 500;

/// One running transaction.
pub(crate) struct Control {
    pub(crate) id: u64,
    pub(crate) namespace: OwnedFd,
    pub(crate) mounts: Vec<u32>,
    /// The namespace as `/proc/PID/ns/mnt` names it.
    name: Vec<u8>,
    /// The process that began it.
    process: i32,
    /// The last process of the machine when it began.
    born_after: i32,
    /// The flags that it began with.
    pub(crate) flags: u32,
    /// Somebody else gave it up.
    given_up: Mutex<Option<GivenUp>>,
    /// The process, if it is to be told at once that the transaction has lost.
    listens: Mutex<Option<OwnedFd>>,
    /// The namespaces that its threads came from.
    outside: Mutex<Vec<Vec<u8>>>,
    /// Signals that are sent when it has committed.
    deferred: Mutex<Vec<Deferred>>,
    /// Pipes of those that joined and have left.
    pipes: Mutex<Vec<Pipes>>,
    /// Who joined.
    joined: Mutex<Joined>,
    /// Holds changes by outsiders against what it has read.
    pub(crate) judge: Judge,
    began: Instant,
    /// Whether outsiders are listened to.
    heard: AtomicBool,
    /// Its end is under way: what it has read is nobody's affair any more.
    over: AtomicBool,
    /// What an outsider has done to it.
    loss: Mutex<Option<Loss>>,
}

/// How a transaction was given up before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It is to be tried again.
    Retry,
    ForGood,
    /// For good, since a member made a call that it does not support.
    Unsupported,
}

/// Connections that joined.
#[derive(Default)]
struct Joined {
    inside: usize,
    ever: usize,
    /// Nobody can join any more.
    closed: bool,
}

/// The running transactions of a session.
#[derive(Default)]
pub(crate) struct Controls(Mutex<HashMap<u64, Arc<Control>>>);

impl Controls {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Control>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread of a process begins a transaction in `view`.
    pub(crate) fn begin(
        &self,
        view: &View,
        process: i32,
        flags: u32,
        tracker: &Tracker,
    ) -> Result<Arc<Control>> {
        let failed = SessionError::step("look at the view's namespace");
        let namespace = &view.warm.namespace;
        let inode = fstat(namespace).map(|stat| stat.st_ino);
        let copied = namespace.try_clone().map_err(|_| rustix::io::Errno::MFILE);
        let (inode, namespace) = match (inode, copied) {
            (Ok(inode), Ok(namespace)) => (inode, namespace),
            (Err(errno), _) | (_, Err(errno)) => return Err(failed(errno)),
        };
        let listens = match flags & (NO_USER_ROLLBACK | NO_AUTO_RETRY) {
            // Where it cannot be told, it learns of it at its end.
            0 => Pid::from_raw(process).map(|pid| pidfd_open(pid, PidfdFlags::empty())),
            _ => None,
        };
        let control = Arc::new(Control {
            id: view.dir.meta.id.0,
            namespace,
            mounts: view.warm.mounts.clone(),
            name: format!("mnt:[{inode}]").into_bytes(),
            process,
            born_after: if tracker.is_told() { 0 } else { last_process() },
            flags,
            given_up: Mutex::new(None),
            listens: Mutex::new(listens.and_then(std::result::Result::ok)),
            outside: Mutex::default(),
            deferred: Mutex::default(),
            pipes: Mutex::default(),
            joined: Mutex::default(),
            judge: view.base.capture.judge(),
            began: Instant::now(),
            heard: AtomicBool::new(false),
            over: AtomicBool::new(false),
            loss: Mutex::default(),
        });
        self.all().insert(control.id, Arc::clone(&control));
        Ok(control)
    }

    /// It has ended.
    pub(crate) fn end(&self, id: u64) {
        if let Some(control) = self.all().remove(&id) {
            control.over.store(true, Ordering::SeqCst);
        }
    }

    /// All that run.
    pub(crate) fn running(&self) -> Vec<Arc<Control>> {
        self.all().values().cloned().collect()
    }

    /// Whether none runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Control>> {
        self.all().get(&id).cloned()
    }

    /// The transaction in whose view a process is.
    pub(crate) fn of_process(&self, pid: i32) -> Option<Arc<Control>> {
        let name = namespace_of(pid)?;
        self.all().values().find(|control| control.name == name).cloned()
    }
}

impl Control {
    fn joined(&self) -> MutexGuard<'_, Joined> {
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process that began it.
    pub(crate) fn process(&self) -> i32 {
        self.process
    }

    /// Whether it began so long ago.
    pub(crate) fn lasts(&self, so_long: Duration) -> bool {
        self.began.elapsed() >= so_long
    }

    /// Whether nobody has asked that before.
    pub(crate) fn is_first_heard(&self) -> bool {
        !self.heard.swap(true, Ordering::SeqCst)
    }

    /// Whether its end is under way.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// An outsider has changed what it has read.
    pub(crate) fn lose(&self, loss: Loss) {
        if !self.is_over() {
            self.loss.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(loss);
            self.ring();
            self.give_up(GivenUp::Retry);
        }
    }

    /// What an outsider has done to it.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a thread is that which began, and can be rolled back: no other thread of its process can be in
    /// it then.
    pub(crate) fn rolls_back(&self, task: i32) -> bool {
        self.flags & NO_USER_ROLLBACK == 0 && self.process == task
    }

    /// A connection joins; `false` if it is too late.
    pub(crate) fn enter(&self) -> bool {
        let mut joined = self.joined();
        if !joined.closed {
            joined.inside += 1;
            joined.ever += 1;
        }
        !joined.closed
    }

    /// One that joined leaves.
    pub(crate) fn leave(&self) {
        self.joined().inside -= 1;
    }

    /// Whether nobody ever joined: who did may have kept something open.
    pub(crate) fn was_its_own(&self) -> bool {
        self.joined().ever == 0
    }

    /// Closes it for others once nobody is inside; `false` as long as somebody is.
    fn close(&self) -> bool {
        let mut joined = self.joined();
        joined.closed = joined.inside == 0;
        joined.closed
    }

    /// Gives the transaction up, for all members; the first one decides how.
    pub(crate) fn give_up(&self, how: GivenUp) {
        self.given_up_by().get_or_insert(how);
    }

    /// It has lost, and will be tried again: a program that can be rolled back need not go on. It is told
    /// so once, and not any more when its end has begun.
    pub(crate) fn ring(&self) {
        // Held until it is told, so that nothing is sent after `ends`.
        let mut listens = self.listens();
        let Some(process) = listens.take() else { return };
        self.give_up(GivenUp::Retry);
        if let Err(errno) = sys::ring(&process) {
            tracing::debug!(transaction = self.id, %errno, "it is not told that it has lost");
        }
    }

    /// Its end has begun: when this returns it is told nothing any more.
    pub(crate) fn ends(&self) {
        self.listens().take();
    }

    fn listens(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.listens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether and how somebody gave it up.
    pub(crate) fn given_up(&self) -> Option<GivenUp> {
        *self.given_up_by()
    }

    fn given_up_by(&self) -> MutexGuard<'_, Option<GivenUp>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a signal for the time after the commit.
    pub(crate) fn defer(&self, signal: Deferred) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(signal);
    }

    /// Keeps the pipes of one that joined and has left.
    pub(crate) fn keep_pipes(&self, pipes: Pipes) {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner).push(pipes);
    }

    /// What was kept so.
    pub(crate) fn take_pipes(&self) -> Vec<Pipes> {
        std::mem::take(&mut *self.pipes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does what there is to do for a member's pipes; see [`Pipes::pump`]. A transaction whose pipes cannot be
    /// held any more is given up.
    pub(crate) fn pump(&self, pipes: &mut Pipes) -> bool {
        pipes.pump().unwrap_or_else(|errno| {
            tracing::warn!(transaction = self.id, %errno, "a pipe cannot be held any more");
            self.give_up(GivenUp::Unsupported);
            false
        })
    }

    /// It has committed: what was kept is sent, in order.
    pub(crate) fn send_deferred(&self) {
        let deferred = &mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.drain(..).for_each(|signal| signal.send());
    }

    /// A thread is about to enter, from where it will go back to.
    pub(crate) fn note_outside(&self, task: i32) {
        let mut outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = namespace_of(task).filter(|name| !outside.contains(name)) {
            outside.push(name);
        }
    }

    /// Whether a thread's descriptor stands for a namespace that a member came from.
    pub(crate) fn is_way_back(&self, task: i32, fd: i32) -> bool {
        let name = readlink(format!("/proc/{task}/fd/{fd}"), Vec::new());
        let outside = self.outside.lock().unwrap_or_else(PoisonError::into_inner);
        name.is_ok_and(|name| outside.iter().any(|known| *known == name.as_bytes()))
    }

    /// Whether a process or thread is in the view.
    pub(crate) fn holds(&self, task: i32) -> bool {
        namespace_of(task).is_some_and(|name| name == self.name)
    }

    /// Processes in the view that were born there, and `threads`; the others have connections.
    fn processes(&self, tracker: &Tracker, threads: bool) -> Vec<i32> {
        let mut candidates = match tracker.is_told() {
            true => tracker.born(self.id),
            false => born_since(self.born_after),
        };
        if threads {
            candidates.extend(tracker.threads(self.process));
        }
        let inside = |pid: &i32| self.holds(*pid) && !tracker.has_entered(*pid);
        candidates.into_iter().filter(inside).collect()
    }

    /// Waits until no member is left, and serves the pipes meanwhile. Gives how they ended: killed, if one
    /// was.
    pub(crate) fn wait(&self, tracker: &Tracker, pipes: &mut Pipes) -> Ended {
        let mut killed = false;
        let (mut rounds, mut silence) = (0, 0);
        loop {
            let processes = self.processes(tracker, true);
            // How they ended may be told a moment after they have gone.
            if processes.is_empty()
                && silence < SILENCE
                && tracker.will_hear(self.id, |pid| namespace_of(pid).is_some())
            {
                silence += 1;
                thread::sleep(LOOK_SOON);
                continue;
            }
            if processes.is_empty() && self.close() {
                let killed = killed || tracker.has_killed(self.id);
                return if killed { Ended::Killed } else { Ended::Exited };
            }
            if self.given_up().is_some() {
                return Ended::Killed;
            }
            // One of them; the others are found again. It may leave without ending.
            let first = processes.first().and_then(|pid| Process::open(*pid));
            let pause = if rounds < 50 { LOOK } else { LOOK_LATER };
            let ended = first.map(|process| process.ended_within(pause, pipes.events()));
            self.pump(pipes);
            match ended {
                Some(Some(Ended::Killed)) if !tracker.is_told() => killed = true,
                Some(_) => {}
                None => thread::sleep(pause),
            }
            rounds += 1;
        }
    }

    /// Kills all members that were born in the transaction, and waits for their deaths.
    pub(crate) fn kill(&self, tracker: &Tracker) {
        for _ in 0..DEATH {
            let processes = self.processes(tracker, false);
            if processes.is_empty() {
                return;
            }
            for pid in processes {
                let process = Pid::from_raw(pid).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
                // The number could be another's by now: what is behind it is looked at again.
                if let Some(Ok(process)) = process
                    && self.holds(pid)
                {
                    let _ = pidfd_send_signal(process, Signal::KILL);
                }
            }
            thread::sleep(LOOK);
        }
        tracing::warn!(transaction = self.id, "a member does not die");
    }
}

/// The mount namespace of a process or thread; `None` for one that has ended.
pub(crate) fn namespace_of(pid: i32) -> Option<Vec<u8>> {
    readlink(format!("/proc/{pid}/ns/mnt"), Vec::new()).ok().map(|name| name.into_bytes())
}

/// The number that the kernel gave out last (proc_loadavg(5)).
fn last_process() -> i32 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().last().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Processes that were born since a number was given out.
fn born_since(number: i32) -> Vec<i32> {
    /// So many are tried one by one.
    const FEW: i32 = 256;
    let last = last_process();
    if last == number {
        return Vec::new();
    }
    if (number..number.saturating_add(FEW)).contains(&last) {
        return (number + 1..=last).collect();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
