//! The supervisor: answers, in the manager, what the filter in the transaction asks.
//!
//! Invariants:
//! * Every request is answered exactly once. One that nobody answered is answered by its drop.
//! * What is refused is decided on registers alone, by the same [rules](crate::filter::rules) that
//!   the filter was compiled from; where a peer's address is looked at too, the network namespace
//!   and not the look keeps the call inside.
//! * One thread at a time waits for the next request. Before an answer that can take long (memory that
//!   has to be paged in, a message, a line to the user), and where a further request waits already, it
//!   gives its place to another one. So a slow answer holds up nobody.
//! * It ends when the last process with the filter has gone, or by [`Supervisor::finish`]; requests
//!   that come later fail with `ENOSYS`, which the kernel answers when the listener is closed.
//!
//! Source: seccomp_unotify(2).

mod describe;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gateway;
mod hidden;
mod locks;
mod network;
mod report;
mod signals;
mod target;
mod turn;

pub use gateway::{Gateway, Tapes};
pub use locks::{Locks, OnWait};
pub use report::{Contact, EffectsReport, Notice, Refusal};
pub use signals::{Numbers, Signals, Waiting};
pub(crate) use target::printable;

use crate::filter::class::Class;
use crate::filter::rules::{Action, Ask, rule_of};
use crate::filter::{Arch, under_policy};
use crate::sys::{self, Answer, Notified, TIMEX_SIZE};
use crate::{ENOTXSUPPORT, Error, OnUnsupported, Policy};
use report::{Collector, Kind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::Timespec;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use target::{Peer, Target};
use turn::{Turn, Waiting as TurnWaiting};
use txos_host::Bell;

/// `ADJ_OFFSET_SS_READ`: the one mode of adjtimex(2) besides 0 that changes nothing.
const ADJ_OFFSET_SS_READ: u32 = 0xa001;

/// So many threads answer at once at the most.
const MAX_THREADS: usize = 32;

/// Threads that may answer later at a time; a call that comes then gets `ENOLCK`.
const MAX_WAITERS: usize = 64;

/// What the manager wants to hear of.
pub struct Hooks {
    /// A line for the user; once for each kind of event. Called on a supervisor thread.
    pub notice: Box<dyn Fn(&Notice) + Send + Sync>,
    /// The policy is [`OnUnsupported::Abort`] and a member made such a call: kill the transaction.
    /// The call has not been answered yet; it fails when this returns, so it is never made.
    pub abort: Box<dyn Fn(&Refusal) + Send + Sync>,
    /// Where the locks are held that members take. Outlives the supervisor: a lock is held until
    /// the transaction has ended.
    pub locks: Locks,
    /// Where the signals are kept that members send to processes outside, for the commit.
    pub signals: Signals,
    /// Tells the greatest process number that the view has used.
    pub numbers: Numbers,
    /// What the view has made for connections that are allowed out.
    pub gateway: Gateway,
    /// Where streams are recorded (`--net record`). Outlives the supervisor: a retry replays them.
    pub tapes: Tapes,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// A running supervisor. Dropping it ends it.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
    sync_wake_up: bool,
}

#[derive(Debug)]
struct Shared {
    listener: OwnedFd,
    stop: Bell,
    policy: Policy,
    hooks: Hooks,
    /// Whose turn it is to wait for calls.
    turn: Turn,
    /// So many threads there may be.
    most: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    collected: Mutex<Collector>,
    members: network::Members,
    /// The greatest process number that the view is known to have used.
    used: AtomicU32,
    /// Threads that answer a call later.
    waiters: AtomicUsize,
}

impl Supervisor {
    /// Starts to answer on `listener`, by one thread, and by up to `most` (at least one) while there are
    /// more calls than threads that wait for one.
    ///
    /// `policy` must be the one that the child built its filter from.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when no thread or descriptor can be had.
    pub fn start(
        listener: OwnedFd,
        policy: Policy,
        hooks: Hooks,
        most: usize,
    ) -> Result<Supervisor, Error> {
        let stop = Bell::new().map_err(Error::system("make the supervisor's stop event"))?;
        let sync_wake_up = sys::notif_sync_wake_up(listener.as_fd());
        let (turn, collected) = (Turn::default(), Mutex::default());
        let (members, used, waiters, threads) = Default::default();
        let shared = Arc::new(Shared {
            listener,
            stop,
            policy,
            hooks,
            turn,
            most: most.max(1),
            threads,
            collected,
            members,
            used,
            waiters,
        });
        shared.add_thread().map_err(Error::system("start a supervisor thread"))?;
        Ok(Supervisor { shared, sync_wake_up })
    }

    /// One for each processor, and not more than a few: what [`Supervisor::start`] takes.
    pub fn a_thread_a_processor() -> usize {
        thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS)
    }

    /// Whether the kernel hands over between caller and supervisor on one processor (Linux 6.6):
    /// some 5 µs instead of 28 µs a request.
    pub fn sync_wake_up(&self) -> bool {
        self.sync_wake_up
    }

    /// What was seen so far.
    pub fn report(&self) -> EffectsReport {
        lock(&self.shared.collected).report()
    }

    /// Ends the supervisor and gives the report. Call it when the transaction's processes have
    /// ended: calls that still wait are answered with `ENOSYS`.
    pub fn finish(mut self) -> EffectsReport {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        let _ = self.shared.stop.ring();
        self.shared.hooks.gateway.finish();
        // One that ends may have added another one before.
        loop {
            let Some(thread) = lock(&self.shared.threads).pop() else { return };
            if thread.join().is_err() {
                lock(&self.shared.collected).trouble("a supervisor thread failed");
            }
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.end();
    }
}

/// A poisoned lock guards plain counters here: they are still worth reporting.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Starts one more thread, if there may be one.
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let mut threads = lock(&self.threads);
        if threads.len() < self.most {
            let shared = Arc::clone(self);
            let name = "txos-supervisor".to_owned();
            let thread = thread::Builder::new().name(name).spawn(move || shared.answer_all())?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Lets another thread take the next call, because this one has its own to answer, which may take
    /// long. Where no further thread can be had, the next call waits.
    fn hand_over(self: &Arc<Self>) {
        if self.turn.give() == TurnWaiting::Nobody {
            let _ = self.add_thread();
        }
    }

    fn answer_all(self: &Arc<Self>) {
        loop {
            self.turn.take();
            match self.next() {
                Ok(Some(call)) => {
                    // While calls come one by one, one thread answers them: it is the one that the
                    // kernel has on the caller's processor, and handing over costs more than most
                    // answers.
                    if self.another_waits() {
                        self.hand_over();
                    }
                    self.answer_one(call);
                }
                Ok(None) => {
                    self.turn.give();
                    return;
                }
                // The caller was killed between the event and our look.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(error) => {
                    let text = format!("supervisor: cannot read its listener: {error}");
                    self.turn.give();
                    (self.hooks.notice)(&Notice::Trouble(text));
                    return;
                }
            }
        }
    }

    /// Answers one request. A hook that panics refuses its call and no other.
    fn answer_one(self: &Arc<Self>, call: Notified) {
        let request = Request::new(self.listener.as_fd(), call);
        let answered = panic::catch_unwind(AssertUnwindSafe(|| self.answer(request)));
        if answered.is_err() {
            lock(&self.collected).trouble("a call was refused because answering it failed");
        }
    }

    /// Whether a further call waits already.
    fn another_waits(&self) -> bool {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::IN)
    }

    /// The next request; `None` when there will be none any more.
    fn next(&self) -> rustix::io::Result<Option<Notified>> {
        let mut fds =
            [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        poll(&mut fds, None)?;
        let (listener, stop) = (fds[0].revents(), fds[1].revents());
        if listener.contains(PollFlags::IN) {
            return sys::notif_recv(self.listener.as_fd()).map(Some);
        }
        let over = listener.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        if over || !stop.is_empty() { Ok(None) } else { Err(Errno::INTR) }
    }

    fn answer(self: &Arc<Self>, request: Request<'_>) {
        let call = request.call;
        let target = Target::new(self.listener.as_fd(), call);
        let rule = Arch::HOST.name(call.nr).and_then(rule_of);
        let action = rule.map_or(Action::Allow, |rule| rule.decide(&call.args));
        let name = rule.map_or("unknown", |rule| rule.call);
        let action = under_policy(action, &self.policy);
        if reads_memory(action, name) {
            self.hand_over();
        }
        match action {
            Action::Ask(Ask::Contact) => self.contact(request, name, &target),
            Action::Ask(Ask::Signal) => request.answer(self.signal(name, &call, &target)),
            Action::Ask(Ask::Outsider) => {
                let number = call.args[0] as u32;
                match self.names_outsider(number, &target) {
                    true => {
                        let detail = format!("process {number}");
                        self.refuse(request, Class::Process, name, detail, &target);
                    }
                    false => request.answer(Answer::Proceed),
                }
            }
            Action::Ask(Ask::Lock) => self.lock(request, name, &target),
            Action::Ask(Ask::Hide) => {
                let hidden = self.policy.hidden_attribute.as_deref().unwrap_or_default();
                request.answer(hidden::answer(name, &call.args, &target, hidden));
            }
            Action::Ask(Ask::Clock) => match read_clock(name, &call, &target) {
                Some(answer) => request.answer(answer),
                None => self.refuse(request, Class::Clock, name, String::new(), &target),
            },
            Action::Ask(Ask::Refuse(class)) => {
                let detail = describe::detail(name, &call.args, &target);
                self.refuse(request, class, name, detail, &target);
            }
            Action::Errno(0) => request.answer(Answer::Value(0)),
            Action::Errno(errno) => request.answer(Answer::Errno(i32::from(errno))),
            // The filter asks about nothing that the rules allow: filter and supervisor differ.
            Action::Allow => drop(request),
        }
    }

    /// Has a call answered by a thread of its own, because that can take long.
    fn answer_later<F>(self: &Arc<Self>, request: Request<'_>, name: &str, answer: F)
    where
        F: FnOnce(&Arc<Shared>, Notified) -> Answer + Send + 'static,
    {
        if self.waiters.fetch_add(1, Ordering::Relaxed) >= MAX_WAITERS {
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            return request.answer(Answer::Errno(libc::ENOLCK));
        }
        let shared = Arc::clone(self);
        let call = request.defer();
        let work = move || {
            // Answered by its drop, should the answer never come.
            let request = Request::new(shared.listener.as_fd(), call);
            let answer = answer(&shared, call);
            request.answer(answer);
            shared.waiters.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name(name.to_owned()).spawn(work).is_err() {
            self.waiters.fetch_sub(1, Ordering::Relaxed);
            Request::new(self.listener.as_fd(), call).answer(Answer::Errno(libc::ENOLCK));
        }
    }

    /// Lets a call go on that stays inside, or is allowed out; refuses it else.
    fn contact(self: &Arc<Self>, request: Request<'_>, call: &str, target: &Target<'_>) {
        for peer in target.peers(call) {
            match peer {
                Peer::Net(address) if self.policy.allow_net => {
                    lock(&self.collected).contact(false, address.to_string(), target.comm());
                }
                Peer::Net(address) => {
                    let kind = || gateway::kind_of(target, request.call.args[0] as i32);
                    if let Some(detail) = self.members.outside(address, target.pid(), kind) {
                        let hosts = &self.policy.allow_hosts;
                        let allowed = (self.policy.record && hosts.is_empty())
                            || gateway::is_allowed(hosts, address);
                        if allowed && call == "connect" {
                            return self.reach(request, address);
                        }
                        if call == "connect" && self.policy.on_unsupported == OnUnsupported::Allow {
                            self.warn(Class::Network, call, detail, target);
                            return self.reach(request, address);
                        }
                        return self.refuse(request, Class::Network, call, detail, target);
                    }
                }
                Peer::Local(path) => lock(&self.collected).contact(true, path, target.comm()),
                Peer::Other => {}
            }
        }
        request.answer(Answer::Proceed);
    }

    fn refuse(
        self: &Arc<Self>,
        request: Request<'_>,
        class: Class,
        call: &str,
        detail: String,
        target: &Target<'_>,
    ) {
        let policy = match (self.policy.on_unsupported, class.can_be_allowed(call)) {
            (OnUnsupported::Allow, false) => OnUnsupported::Error,
            (policy, _) => policy,
        };
        if policy == OnUnsupported::Allow {
            self.warn(class, call, detail, target);
            return request.answer(Answer::Proceed);
        }
        let make = |detail| refusal(class, call, detail, target);
        let refused = (policy == OnUnsupported::Abort).then(|| make(detail.clone()));
        let first = lock(&self.collected).call(Kind::Refused, call, detail, make);
        if let Some(first) = first {
            self.hand_over();
            (self.hooks.notice)(&match policy {
                OnUnsupported::Abort => Notice::Aborting(first),
                _ => Notice::Refused(first),
            });
        }
        if let Some(refused) = refused {
            self.hand_over();
            (self.hooks.abort)(&refused);
        }
        request.answer(Answer::Errno(ENOTXSUPPORT));
    }

    /// Notes that a call is let through, and tells it once.
    fn warn(self: &Arc<Self>, class: Class, call: &str, detail: String, target: &Target<'_>) {
        let make = |detail| refusal(class, call, detail, target);
        let first = lock(&self.collected).call(Kind::Allowed, call, detail, make);
        if let Some(first) = first {
            self.hand_over();
            (self.hooks.notice)(&Notice::Allowed(first));
        }
    }
}

/// A call of this class as the report has it.
fn refusal(class: Class, call: &str, detail: String, target: &Target<'_>) -> Refusal {
    Refusal {
        call: call.to_owned(),
        detail,
        class,
        flag: class.flag().to_owned(),
        count: 1,
        first: target.comm(),
    }
}

/// Whether the answer needs memory of the target's.
fn reads_memory(action: Action, call: &str) -> bool {
    match action {
        Action::Ask(Ask::Contact | Ask::Clock | Ask::Hide) => true,
        Action::Ask(Ask::Lock) => call != "flock",
        Action::Ask(Ask::Signal) => call.contains("sigqueue"),
        Action::Ask(Ask::Refuse(_)) => describe::reads_memory(call),
        _ => false,
    }
}

/// Makes a reading adjtimex(2) or clock_adjtime(2) in the target's place, because whether it reads
/// stands in memory that the target could change after our look. `None`: it would change something.
fn read_clock(name: &str, call: &Notified, target: &Target<'_>) -> Option<Answer> {
    let fault = Some(Answer::Errno(libc::EFAULT));
    let (clock, address) = match name {
        "adjtimex" => (libc::CLOCK_REALTIME, call.args[0]),
        _ => (call.args[0] as i32, call.args[1]),
    };
    // A negative clock is a descriptor of the target's.
    if clock < 0 {
        return None;
    }
    let mut modes = [0; 4];
    if !matches!(target.read(address, &mut modes), Ok(4)) {
        return fault;
    }
    let modes = u32::from_ne_bytes(modes);
    if modes != 0 && modes != ADJ_OFFSET_SS_READ {
        return None;
    }
    let mut timex = [0; TIMEX_SIZE];
    match sys::clock_read(clock, modes, &mut timex) {
        Ok(state) if target.write(address, &timex).is_ok() => Some(Answer::Value(state)),
        Ok(_) => fault,
        Err(error) => Some(Answer::Errno(error.raw_os_error().unwrap_or(libc::EINVAL))),
    }
}

/// A request that waits. Dropped without an answer, it fails with [`ENOTXSUPPORT`]: a caller is
/// never left waiting, whatever happened here.
struct Request<'a> {
    listener: BorrowedFd<'a>,
    call: Notified,
    answered: bool,
}

impl<'a> Request<'a> {
    fn new(listener: BorrowedFd<'a>, call: Notified) -> Request<'a> {
        Request { listener, call, answered: false }
    }

    /// Takes the call out, for whoever answers it later.
    fn defer(mut self) -> Notified {
        self.answered = true;
        self.call
    }

    fn answer(mut self, answer: Answer) {
        self.answered = true;
        // It fails only when the caller has gone meanwhile: then nobody waits any more.
        let _ = sys::notif_send(self.listener, self.call.id, answer);
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let answer = Answer::Errno(ENOTXSUPPORT);
            let _ = sys::notif_send(self.listener, self.call.id, answer);
        }
    }
}
