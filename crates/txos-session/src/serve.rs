//! The connections of a session.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    fs::Access,
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
        socket_with,
    },
};
use txos_contention::{Outcome as Contention, standing_of, text::shortened};
use txos_core::{Stamp, TxId};
use txos_protocol::{Op, Reply, Request, Socket, VERSION};
use txos_store::{Loss, StateDir};
use txos_view::Credentials;

use crate::{
    Result, SessionError,
    commit::{Asked, Outcome, Reach},
    control::{Control, Controls, GivenUp},
    guard,
    order::{Orders, Place},
    pipes::{Pipes, Waiting},
    pool::Pool,
    process::{Ended, Process},
    tracker::Tracker,
    view::{Host, Lost, Used, View},
};

/// `TX_NONDURABLE` of the flags of a transaction.
const NONDURABLE: u32 = 1;

/// A session that serves programs.
pub struct Session {
    shared: Arc<Shared>,
    builder: thread::JoinHandle<()>,
    acceptor: thread::JoinHandle<()>,
    stop: Arc<OwnedFd>,
    name: String,
}

struct Shared {
    /// In the abstract namespace (unix(7)).
    name: String,
    host: Arc<Host>,
    pool: Arc<Pool>,
    orders: Orders,
    controls: Controls,
    tracker: Tracker,
    /// Transactions that wait for what is in a pipe.
    waiting: Waiting,
    connections: AtomicUsize,
    /// Rung when the last connection has closed.
    idle: OwnedFd,
}

/// What a connection is in.
enum Inside {
    /// A transaction that it began.
    Own(Box<Running>),
    /// One that it joined.
    Joined(Arc<Control>, i32, Pipes),
}

/// A transaction of one connection.
struct Running {
    view: View,
    control: Arc<Control>,
    /// The thread that began it.
    task: i32,
    flags: u32,
    place: Option<Place>,
    pipes: Pipes,
    /// When it first began, and how often it has lost.
    started: Stamp,
    times: u32,
}

/// One connection's state.
struct Seat {
    inside: Option<Inside>,
    /// Its last transaction lost: the next one is the same again.
    lost: Option<Lost>,
    /// Where its last ordered transaction stood.
    place: Option<Place>,
    /// What the program is called.
    command: String,
}

impl Session {
    /// Starts a session for the state directory. `wanted` are places where an ordinary user is likely to
    /// write (see [`txos_view::plan_layers`]).
    ///
    /// # Errors
    /// If the state directory can't be recovered, or a thread not started.
    pub fn start(
        state: StateDir,
        credentials: Credentials,
        wanted: Vec<PathBuf>,
    ) -> Result<Session> {
        let (listener, name) = listener()?;
        let host = Host::new(state, credentials, wanted, &name)?;
        let host = Arc::new(host);
        host.recover()?;
        let pool = Pool::new(Arc::clone(&host));
        let idle =
            eventfd(0, EventfdFlags::CLOEXEC).map_err(SessionError::step("make an event"))?;
        let builder = {
            let pool = Arc::clone(&pool);
            spawn("builder", move || pool.build())?
        };
        let (orders, controls, connections) = Default::default();
        let waiting = Waiting::new().map_err(SessionError::step("make an event"))?;
        let shared = Shared {
            name: name.clone(),
            host,
            pool,
            orders,
            controls,
            tracker: Tracker::new(),
            waiting,
            connections,
            idle,
        };
        let shared = Arc::new(shared);
        let stop =
            eventfd(0, EventfdFlags::CLOEXEC).map_err(SessionError::step("make an event"))?;
        let stop = Arc::new(stop);
        let acceptor = {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            spawn("accept", move || accept(&shared, &listener, &stop))?
        };
        Ok(Session { shared, builder, acceptor, stop, name })
    }

    /// The session's name in the abstract namespace (unix(7)), for programs that look for it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Serves a connection, in a thread of its own.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn serve(&self, socket: Socket) -> Result<()> {
        serve(&self.shared, socket)
    }

    /// Waits until no connection is left, then gives all views up. The process is to end then.
    pub fn finish(self) {
        let Session { shared, builder, acceptor, stop, .. } = self;
        while shared.connections.load(Ordering::Acquire) > 0 {
            let mut count = [0; 8];
            let _ = rustix::io::read(&shared.idle, &mut count);
        }
        let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
        shared.pool.close();
        if acceptor.join().is_err() || builder.join().is_err() {
            tracing::error!("a thread of the session failed");
        }
    }
}

/// A socket that takes connections, with its name.
fn listener() -> Result<(OwnedFd, String)> {
    let failed = || SessionError::step("make the session's socket");
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(failed())?;
    let mut random = [0; 12];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(failed())?;
    let random: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = format!("txos.session.{random}");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(failed())?;
    bind(&socket, &address).map_err(failed())?;
    listen(&socket, 64).map_err(failed())?;
    Ok((socket, name))
}

/// Takes connections until `stop` becomes readable.
fn accept(shared: &Arc<Shared>, listener: &OwnedFd, stop: &OwnedFd) {
    let me = rustix::process::geteuid();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|errno| errno != Errno::INTR)
            || !fds[1].revents().is_empty()
        {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) else { continue };
        let peer = rustix::net::sockopt::socket_peercred(&socket);
        // A session commits with its own privileges: it serves nobody but its own user.
        if peer.is_ok_and(|peer| peer.uid == me)
            && let Err(error) = serve(shared, Socket::from(socket))
        {
            tracing::debug!(%error, "a connection");
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(format!("txos-{name}")).spawn(work).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::AGAIN);
        SessionError::step("start a thread")(errno)
    })
}

fn serve(shared: &Arc<Shared>, socket: Socket) -> Result<()> {
    let closing = Closing::new(shared);
    spawn("connection", move || closing.0.connection(&socket)).map(drop)
}

/// Counts a connection down, whatever way its thread ends.
struct Closing(Arc<Shared>);

impl Closing {
    fn new(shared: &Arc<Shared>) -> Closing {
        shared.connections.fetch_add(1, Ordering::AcqRel);
        Closing(Arc::clone(shared))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if self.0.connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = rustix::io::write(&self.0.idle, &1u64.to_ne_bytes());
        }
    }
}

/// An answer, with what is left of a view.
struct Answer {
    reply: Reply,
    used: Option<Used>,
}

impl From<i32> for Answer {
    fn from(code: i32) -> Answer {
        Answer { reply: Reply::code(code), used: None }
    }
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Answer {
        Answer::from(-errno.raw_os_error())
    }
}

impl Shared {
    /// Answers one connection until it closes.
    fn connection(self: &Arc<Self>, socket: &Socket) {
        let peer = rustix::net::sockopt::socket_peercred(socket).ok();
        let pid = peer.map_or(0, |peer| peer.pid.as_raw_pid());
        let process = Process::open(pid);
        let mut seat = Seat { inside: None, lost: None, place: None, command: command_of(pid) };
        let mut bytes = [0; Request::SIZE];
        while self.is_there(socket, process.as_ref(), seat.inside.as_mut()) {
            let Ok((length @ 1.., fds)) = socket.receive_all(&mut bytes) else { break };
            let Some(request) = Request::decode(&bytes[..length]) else {
                let _ = socket.send(&Reply::code(-Errno::PROTO.raw_os_error()).encode(), None);
                continue;
            };
            if request.op == Op::Connect {
                for fd in fds {
                    if let Err(error) = serve(self, Socket::from(fd)) {
                        tracing::debug!(%error, "a connection");
                    }
                }
                continue;
            }
            if request.op == Op::Guard {
                if self.guard(&request, pid, socket).is_err() {
                    break;
                }
                continue;
            }
            let Answer { reply, used } = self.answer(&request, fds, pid, &mut seat);
            let entered = matches!(request.op, Op::Begin | Op::BeginOrdered | Op::Join);
            let control =
                seat.inside.as_ref().filter(|_| entered && reply.code >= 0).map(Inside::control);
            let namespace = control.map(|control| control.namespace.as_fd());
            let sent = socket.send(&reply.encode(), namespace);
            // Renewed while the program goes on already.
            if let Some(used) = used {
                self.pool.give_back(used);
            }
            if sent.is_err() {
                break;
            }
        }
        if let Some(inside) = seat.inside {
            self.left(inside, process);
        }
        // Who lost and was to run again never will: those behind it must not wait for it.
        if let Some(place) = seat.place.filter(|place| !self.orders.is_past(*place)) {
            self.orders.pass(place);
        }
    }

    /// Gives a thread the program of its filter, or takes the listener of it, and answers there.
    ///
    /// # Errors
    /// If the thread does not hear it.
    fn guard(self: &Arc<Self>, request: &Request, pid: i32, socket: &Socket) -> Result<(), Errno> {
        let code = |errno: Errno| Reply::code(-errno.raw_os_error()).encode();
        if request.sequence == 0 {
            return match guard::program(request.group) {
                Ok(program) => socket.send(&Reply::code(0).encode(), Some(program.as_fd())),
                Err(errno) => socket.send(&code(errno), None),
            };
        }
        let started = guard::listener(pid, request.group).and_then(|listener| {
            // As long as somebody has the filter, the session has to be there.
            let closing = Closing::new(self);
            let answer = move || {
                let shared = &closing.0;
                guard::answer_all(&listener, &shared.name, &shared.controls);
            };
            spawn("guard", answer).map_err(|error| error.errno())
        });
        match started {
            Ok(_) => socket.send(&Reply::code(0).encode(), None),
            Err(errno) => socket.send(&code(errno), None),
        }
    }

    /// Waits for a request, and serves the pipes meanwhile; `false` if the process has ended inside without
    /// one.
    fn is_there(
        &self,
        socket: &Socket,
        process: Option<&Process>,
        inside: Option<&mut Inside>,
    ) -> bool {
        let Some(inside) = inside else { return true };
        let mut again = false;
        loop {
            let (control, pipes) = inside.parts();
            // Others may hold the connection too: children that the program forked.
            let process = process.map(|process| PollFd::new(process, PollFlags::IN));
            let events = pipes.events().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let mut fds = vec![PollFd::new(socket, PollFlags::IN)];
            let watched = fds.len() + usize::from(process.is_some());
            fds.extend(process.into_iter().chain(events));
            let _ = poll(&mut fds, again.then_some(&SOON));
            let happened = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let (asked, ended) = (happened(&fds[0]), fds[..watched].iter().any(happened));
            let pumps = again || fds[watched..].iter().any(happened);
            drop(fds);
            if ended {
                return asked;
            }
            if pumps {
                again = control.pump(pipes);
            }
        }
    }

    fn answer(
        &self,
        request: &Request,
        fds: Vec<OwnedFd>,
        process: i32,
        seat: &mut Seat,
    ) -> Answer {
        let Seat { inside, lost, .. } = seat;
        match request.op {
            Op::Hello => VERSION.cast_signed().into(),
            Op::Begin | Op::BeginOrdered | Op::Join if inside.is_some() => Errno::INVAL.into(),
            Op::Begin | Op::BeginOrdered => self.begin(request, fds, process, seat),
            Op::Join => self.join(request, fds, process, inside),
            Op::End => match inside.take() {
                Some(Inside::Own(running)) => {
                    let over = self.end(*running, request.flags == 0);
                    *lost = over.lost;
                    Answer { reply: Reply::code(over.code), used: Some(over.used) }
                }
                Some(Inside::Joined(control, task, pipes)) => {
                    self.part(&control, task, pipes).into()
                }
                None => Errno::INVAL.into(),
            },
            Op::Abort => {
                let how = if request.flags != 0 { GivenUp::ForGood } else { GivenUp::Retry };
                match inside.take() {
                    Some(Inside::Own(running)) => {
                        *lost = None;
                        let used = Some(self.give_up(*running, how));
                        Answer { reply: Reply::code(0), used }
                    }
                    Some(Inside::Joined(control, task, pipes)) => {
                        control.give_up(how);
                        self.part(&control, task, pipes);
                        0.into()
                    }
                    // A member that was born in it.
                    None => match self.controls.of_process(request.task) {
                        Some(control) => {
                            control.give_up(how);
                            control.kill(&self.tracker);
                            0.into()
                        }
                        None => Errno::INVAL.into(),
                    },
                }
            }
            Op::Status => self.status(inside.as_ref()).into(),
            Op::IsMember => {
                let process = i32::try_from(request.group).unwrap_or(0);
                let is = inside.as_ref().map(Inside::control).is_some_and(|control| {
                    self.tracker.was_born(control.id, process) || control.holds(process)
                });
                i32::from(is).into()
            }
            Op::Connect | Op::Guard => Errno::PROTO.into(),
        }
    }

    fn begin(&self, request: &Request, fds: Vec<OwnedFd>, process: i32, seat: &mut Seat) -> Answer {
        let Seat { inside, lost, place: last, command } = seat;
        let Request { group, sequence, task, flags, .. } = *request;
        let place = (request.op == Op::BeginOrdered).then_some(Place { group, sequence });
        if place.is_some_and(|place| self.orders.is_past(place)) {
            return Errno::EXIST.into();
        }
        let pipes = match Pipes::serve(fds, self.host.state.path(), &self.waiting) {
            Ok(pipes) => pipes,
            Err(errno) => return errno.into(),
        };
        self.host.begins(task);
        let lost = lost.take();
        let times = lost.as_ref().map_or(0, |lost| lost.times);
        let begun = self.pool.take().and_then(|mut view| {
            view.begin(lost.as_ref());
            match self.controls.begin(&view, process, flags, &self.tracker) {
                Ok(control) => {
                    let meta = &view.dir.meta;
                    let standing = standing_of(task, meta.id, meta.started, times);
                    view.base.contender.begin(standing, command, &control);
                    Ok((view, control))
                }
                Err(error) => {
                    self.pool.give_back(view.used(false));
                    Err(error)
                }
            }
        });
        match begun {
            Ok((view, control)) => {
                control.note_outside(task);
                self.tracker.enter(task, process, control.id);
                let (mounts, transaction) = (control.mounts.clone(), control.id);
                let started = view.dir.meta.started;
                let running = Running { view, control, task, flags, place, pipes, started, times };
                *inside = Some(Inside::Own(Box::new(running)));
                *last = place.or(*last);
                Answer { reply: Reply { code: 0, transaction, mounts }, used: None }
            }
            Err(error) => {
                tracing::warn!(%error, "no transaction");
                error.errno().into()
            }
        }
    }

    fn join(
        &self,
        request: &Request,
        fds: Vec<OwnedFd>,
        process: i32,
        inside: &mut Option<Inside>,
    ) -> Answer {
        let pipes = match Pipes::serve(fds, self.host.state.path(), &self.waiting) {
            Ok(pipes) => pipes,
            Err(errno) => return errno.into(),
        };
        let Some(control) = self.controls.get(request.group) else { return Errno::SRCH.into() };
        if !control.enter() {
            return Errno::SRCH.into();
        }
        control.note_outside(request.task);
        self.tracker.enter(request.task, process, control.id);
        let (mounts, transaction) = (control.mounts.clone(), control.id);
        *inside = Some(Inside::Joined(control, request.task, pipes));
        Answer { reply: Reply { code: 0, transaction, mounts }, used: None }
    }

    /// One that joined has left. Gives what it is told.
    fn part(&self, control: &Control, task: i32, mut pipes: Pipes) -> i32 {
        control.pump(&mut pipes);
        control.keep_pipes(pipes);
        self.tracker.leave(task);
        control.leave();
        control.given_up().map_or(0, told)
    }

    /// Commits once the last member has left.
    fn end(&self, mut running: Running, clean: bool) -> Over {
        self.tracker.leave(running.task);
        let alive = format!("/proc/{}", running.task);
        let ended = running.control.wait(&self.tracker, &mut running.pipes);
        let lost_before = (running.started, running.times);
        if let Some(how) = running.control.given_up() {
            let loss = running.view.base.contender.lost();
            let used = self.give_up(running, how);
            let lost = loss.filter(|_| how == GivenUp::Retry);
            return Over {
                lost: lost.map(|lost| lost_again(lost_before, &lost)),
                code: told(how),
                used,
            };
        }
        if ended == Ended::Killed {
            return Over::cancelled(self.give_up(running, GivenUp::ForGood));
        }
        // Who waits in an order for somebody that never comes, and ends, is passed over.
        let wanted = || rustix::fs::access(&alive, Access::EXISTS).is_ok();
        if let Some(place) = running.place {
            // Who waits for its turn is waited for by nobody: its predecessor could be the one.
            running.view.base.contender.stuck(true);
            if !self.orders.wait(place, &wanted) {
                return Over::cancelled(self.give_up(running, GivenUp::ForGood));
            }
            running.view.base.contender.stuck(false);
        }
        // After those before it in an order: they may have read from the same pipes.
        let mut joined = running.control.take_pipes();
        let mut all = std::iter::once(&mut running.pipes).chain(&mut joined);
        if let Err(errno) = all.try_for_each(Pipes::settle) {
            let code = -errno.raw_os_error();
            return Over { code, ..Over::cancelled(self.give_up(running, GivenUp::ForGood)) };
        }
        if !running.pipes.is_unchanged() || !joined.iter().all(Pipes::is_unchanged) {
            return Over { code: AGAIN, ..Over::cancelled(self.give_up(running, GivenUp::Retry)) };
        }
        let Running { view, control, flags, place, pipes, .. } = running;
        let process = control.process();
        let own =
            |id: TxId| self.controls.get(id.0).is_some_and(|other| other.process() == process);
        let alone = control.was_its_own() && !self.tracker.has_started(control.id);
        self.forget(&control);
        let reach = match (clean, alone) {
            (true, true) => Reach::Alone,
            (true, false) => Reach::Clean,
            (false, _) => Reach::Open,
        };
        let asked = Asked { wanted: &wanted, own: &own };
        let (outcome, used) = self.host.commit(view, flags & NONDURABLE == 0, reach, &asked);
        let contender = used.contender();
        let mut lost = None;
        let code = match outcome {
            Ok(Outcome::Committed) => {
                contender.end(Contention::Committed, Vec::new());
                joined.into_iter().chain([pipes]).for_each(Pipes::commit);
                control.send_deferred();
                0
            }
            Ok(Outcome::Conflict(conflicts)) => {
                contender.end(Contention::Aborted, conflicts.iter().map(|c| c.facet).collect());
                let (started, times) = lost_before;
                let last = Loss::new(times + 1, "somebody else".to_owned(), &conflicts);
                lost = Some(Lost { started, times: times + 1, last });
                AGAIN
            }
            Ok(Outcome::Lost(to)) => {
                contender.end_lost(wanted);
                lost = Some(lost_again(lost_before, &to));
                AGAIN
            }
            Ok(Outcome::Cancelled) => {
                contender.end(Contention::Aborted, Vec::new());
                -Errno::CANCELED.raw_os_error()
            }
            Err(error) => {
                contender.end(Contention::Aborted, Vec::new());
                tracing::warn!(%error, "no commit");
                -error.errno().raw_os_error()
            }
        };
        if let Some(place) = place.filter(|_| code != AGAIN) {
            self.orders.pass(place);
        }
        Over { code, used, lost }
    }

    fn give_up(&self, running: Running, how: GivenUp) -> Used {
        let Running { view, control, task, place, .. } = running;
        self.tracker.leave(task);
        control.give_up(how);
        control.kill(&self.tracker);
        self.forget(&control);
        let contender = &view.base.contender;
        match contender.lost() {
            Some(_) => {
                let alive = format!("/proc/{task}");
                contender.end_lost(|| rustix::fs::access(&alive, Access::EXISTS).is_ok());
            }
            None => contender.end(Contention::Aborted, Vec::new()),
        }
        if let Some(place) = place.filter(|_| how != GivenUp::Retry) {
            self.orders.pass(place);
        }
        view.used(control.was_its_own())
    }

    fn forget(&self, control: &Control) {
        self.controls.end(control.id);
        self.tracker.forget(control.id);
    }

    /// 1 for a transaction that has lost.
    fn status(&self, inside: Option<&Inside>) -> i32 {
        let Some(inside) = inside else { return -Errno::INVAL.raw_os_error() };
        if inside.control().given_up().is_some() {
            return 1;
        }
        // Who joined hears of no more than that.
        let Inside::Own(running) = inside else { return 0 };
        let capture = &running.view.base.capture;
        if capture.doomed().is_some() {
            return 1;
        }
        match self.host.validate(&capture.captured()) {
            Ok(conflicts) => i32::from(!conflicts.is_empty()),
            Err(error) => -error.errno().raw_os_error(),
        }
    }

    /// The connection closed inside a transaction: what that means shows when the process has ended.
    fn left(&self, mut inside: Inside, process: Option<Process>) {
        let (control, pipes) = inside.parts();
        let ended = process.map_or(Ended::Killed, |process| {
            let mut again = true;
            loop {
                let pause = if again { SOON_ENOUGH } else { LONG };
                if let Some(ended) = process.ended_within(pause, pipes.events()) {
                    break ended;
                }
                again = control.pump(pipes);
            }
        });
        match (inside, ended) {
            (Inside::Own(running), Ended::Exited) => {
                self.pool.give_back(self.end(*running, false).used);
            }
            (Inside::Own(running), Ended::Killed) => {
                self.pool.give_back(self.give_up(*running, GivenUp::ForGood));
            }
            (Inside::Joined(control, task, pipes), ended) => {
                if ended == Ended::Killed {
                    control.give_up(GivenUp::ForGood);
                }
                self.part(&control, task, pipes);
            }
        }
    }
}

/// How a transaction ended.
struct Over {
    /// What the program is told.
    code: i32,
    used: Used,
    /// For its next attempt.
    lost: Option<Lost>,
}

impl Over {
    fn cancelled(used: Used) -> Over {
        Over { code: -Errno::CANCELED.raw_os_error(), used, lost: None }
    }
}

/// What the next attempt is handed on by one that has lost to another transaction.
fn lost_again((started, times): (Stamp, u32), to: &txos_contention::Lost) -> Lost {
    let times = times + 1;
    Lost { started, times, last: Loss::new(times, to.to_string(), &[to.conflict()]) }
}

/// What a process runs, in words for people.
fn command_of(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    shortened(&words.join(" "))
}

impl Inside {
    fn control(&self) -> &Control {
        match self {
            Inside::Own(running) => &running.control,
            Inside::Joined(control, ..) => control,
        }
    }

    fn parts(&mut self) -> (&Control, &mut Pipes) {
        match self {
            Inside::Own(running) => (&running.control, &mut running.pipes),
            Inside::Joined(control, _, pipes) => (control, pipes),
        }
    }
}

/// When to look at pipes again, whatever their events say.
const SOON: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
const SOON_ENOUGH: Duration = Duration::from_millis(10);
/// How long to wait for an end at a time.
const LONG: Duration = Duration::from_secs(3600);

const AGAIN: i32 = -Errno::AGAIN.raw_os_error();

/// What a member is told of a transaction that was given up before its end.
fn told(how: GivenUp) -> i32 {
    match how {
        GivenUp::Retry => AGAIN,
        GivenUp::ForGood => -Errno::CANCELED.raw_os_error(),
        GivenUp::Unsupported => -guard::UNSUPPORTED,
    }
}
