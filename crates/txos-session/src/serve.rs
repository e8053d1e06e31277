//! The connections of a session.

mod ending;

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
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};
use txos_contention::{standing_of, text::command_of};
use txos_core::Stamp;
use txos_host::{Bell, Door};
use txos_protocol::{Op, Reply, Request, Socket, VERSION, abort};
use txos_store::{Outcome as Logged, StateDir};
use txos_view::Credentials;

use crate::{
    Result, SessionError,
    commit::Done,
    control::{Control, Controls, GivenUp},
    guard,
    order::{Orders, Place},
    outsiders::Outsiders,
    pipes::{Pipes, Waiting},
    pool::Pool,
    process::Process,
    tracker::Tracker,
    view::{Host, Lost, Used, View},
};

use self::ending::Past;

/// `TX_NONDURABLE` of the flags of a transaction.
const NONDURABLE: u32 = 1;

/// A session that serves programs.
pub struct Session {
    shared: Arc<Shared>,
    builder: thread::JoinHandle<()>,
    listener: thread::JoinHandle<()>,
    acceptor: thread::JoinHandle<()>,
    stop: Arc<Bell>,
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
    outsiders: Outsiders,
    /// Transactions that wait for what is in a pipe.
    waiting: Waiting,
    connections: AtomicUsize,
    /// Rung when the last connection has closed.
    idle: Bell,
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
    /// What its program runs.
    command: String,
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
        let idle = Bell::new().map_err(SessionError::step("make an event"))?;
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
            outsiders: Outsiders::default(),
            waiting,
            connections,
            idle,
        };
        let shared = Arc::new(shared);
        let stop = Arc::new(Bell::new().map_err(SessionError::step("make an event"))?);
        let acceptor = {
            let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
            spawn("accept", move || accept(&shared, listener, &stop))?
        };
        let listener = {
            let shared = Arc::clone(&shared);
            spawn("outside", move || shared.outsiders.listen(&shared.controls))?
        };
        Ok(Session { shared, builder, listener, acceptor, stop, name })
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
        let Session { shared, builder, listener, acceptor, stop, .. } = self;
        while shared.connections.load(Ordering::Acquire) > 0 {
            shared.idle.wait();
        }
        let _ = stop.ring();
        shared.pool.close();
        shared.outsiders.close();
        if [acceptor, builder, listener].map(|thread| thread.join().is_err()).contains(&true) {
            tracing::error!("a thread of the session failed");
        }
    }
}

/// A socket that takes connections, with its name.
fn listener() -> Result<(Door, String)> {
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
    Ok((Door::new(socket), name))
}

/// Takes connections until `stop` becomes readable.
fn accept(shared: &Arc<Shared>, mut door: Door, stop: &Bell) {
    let me = rustix::process::geteuid();
    loop {
        let mut fds = [door.polled(true), PollFd::new(stop, PollFlags::IN)];
        let polled = poll(&mut fds, door.limit(None).as_ref());
        if polled.is_err_and(|errno| errno != Errno::INTR) || !fds[1].revents().is_empty() {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let Some(socket) = door.accept(SocketFlags::CLOEXEC) else { continue };
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
            let _ = self.0.idle.ring();
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
        let mut seat =
            Seat { inside: None, lost: None, place: None, command: command_of(pid.unsigned_abs()) };
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
        if let Some(lost) = seat.lost {
            let note = Past::of_loser(lost);
            self.host.note(note.note(Logged::Conflicted, &seat.command, Done::default()));
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
        let started = guard::listener(request.task, pid, request.group).and_then(|listener| {
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
            Op::End => match inside.take().inspect(Inside::ends) {
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
                let how = match request.flags {
                    abort::FOR_GOOD => GivenUp::ForGood,
                    _ => GivenUp::Retry,
                };
                match inside.take().inspect(Inside::ends) {
                    Some(Inside::Own(running)) if request.flags == abort::LOST => {
                        let over = self.lose(*running);
                        *lost = over.lost;
                        Answer { reply: Reply::code(over.code), used: Some(over.used) }
                    }
                    Some(Inside::Own(running)) => {
                        *lost = None;
                        if how == GivenUp::ForGood {
                            let past = Past::of(&running);
                            let done = Done::default();
                            self.host.note(past.note(Logged::Aborted, &running.command, done));
                        }
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
                            // A thread of the process that began says so itself: that one goes on, and hears of it.
                            if request.sequence == 0 || control.process() != process {
                                control.kill(&self.tracker);
                            }
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
                let (started, command) = (view.dir.meta.started, command.clone());
                let running =
                    Running { view, control, task, flags, place, pipes, started, times, command };
                *inside = Some(Inside::Own(Box::new(running)));
                self.outsiders.begun();
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
}

impl Inside {
    fn control(&self) -> &Control {
        match self {
            Inside::Own(running) => &running.control,
            Inside::Joined(control, ..) => control,
        }
    }

    /// A transaction of its own is about to end.
    fn ends(&self) {
        if let Inside::Own(running) = self {
            running.control.ends();
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
