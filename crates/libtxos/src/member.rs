//! A thread's way through a transaction.
//!
//! ```text
//!            begin                                  end: committed
//!  outside ──────────▶ inside ──────────────────────────────────────▶ outside
//!                        │  ▲  nested begin and end only count
//!                        │  └─┘
//!                        └── abort, or end: lost ──▶ outside, as before the beginning
//! ```
//!
//! # Invariants
//!
//! - A thread has one transaction at the most; inner ones are part of it (flat nesting).
//! - Whatever fails on the way in leaves the thread as it was.
//! - Signals wait while the library is at work, so that a handler which begins a transaction finds
//!   everything in order.

use std::{
    cell::RefCell,
    os::fd::{AsFd, AsRawFd},
    rc::Rc,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::getpid,
    thread::gettid,
};
use txos_protocol::{Op, Request, abort};

use crate::{
    checkpoint::{self, Taken},
    conduits::Conduits,
    descriptors::{Departure, Luggage, Packed, Unsupported, high},
    flags::{
        ENOTXSUPPORT, KNOWN, TX_DEFER_SIGNALS, TX_LIVE_DANGEROUSLY, TX_NO_AUTO_RETRY,
        TX_NO_USER_ROLLBACK,
    },
    guard,
    link::{Link, session_of_view},
    mappings,
    phases::{self, Phase},
    place::{self, Home, Outside, Where, working_directory},
    sys::{self, Held, Mask, Rights, Uncancelled},
    tables::{Reserved, Tables},
    task::{has_own_table, is_single_threaded},
};

/// What a thread knows of its transactions.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    link: Option<Link>,
    inside: Option<Inside>,
    /// Conflicts lost in a row.
    losses: u32,
    /// In a program that was started inside a transaction: how many of its own beginnings are open.
    nested: u32,
    /// The signals that were blocked before a transaction that defers them.
    deferring: Option<Mask>,
    /// Whether the thread could be cancelled before a stand-in took its place.
    cancelling: Option<i32>,
    /// Over which a snapshot is asked to report: reading and writing end.
    ask: Option<(Held, Held)>,
    /// Where it was outside the last time.
    home: Option<Rc<Home>>,
    /// The process in which this thread's file system attributes are its own.
    unshared: i32,
    /// The thread that has the guard: a forked child has it too, but by another number.
    guarded: i32,
}

/// A transaction that runs.
#[derive(Debug)]
struct Inside {
    id: u64,
    flags: i32,
    /// The process that began it; in a child that it forked since, another one.
    pid: i32,
    depth: u32,
    mounts: Vec<u32>,
    outside: Outside,
    luggage: Luggage,
    /// Where the thread's own table of descriptors is other threads', too.
    tables: Option<Tables>,
}

/// What a thread takes along that leaves a view.
#[derive(Debug)]
struct Left {
    flags: i32,
    departure: Result<Departure, Errno>,
    /// Where it was in the view.
    place: Where,
    tables: Option<Tables>,
}

/// How a transaction is entered.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Begin,
    Ordered(Place),
    /// A running one.
    Join(u64),
}

/// A place in an order of commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) group: u64,
    pub(crate) sequence: u64,
}

/// Whose files are open at a beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// The thread's alone.
    Own,
    /// Those of all threads: a copy, in the table of a stand-in.
    OfAll,
    /// None of that kind.
    Nothing,
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::default();
}

/// Mount ids of the views of all threads of this process.
static VIEWS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The process that entered the last of them: one that was forked inside has them, too.
static VIEWS_OF: AtomicI32 = AtomicI32::new(0);

/// How many losses in a row are borne.
static LIMIT: AtomicU32 = AtomicU32::new(100);

/// Sets how many losses in a row are borne.
pub(crate) fn set_limit(limit: u32) {
    LIMIT.store(limit, Ordering::Relaxed);
}

/// What entering gives where the transaction has lost already: `-ESTALE`.
const LOST: i32 = -Errno::STALE.raw_os_error();

/// An error number as these calls return it.
fn negative(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

/// Runs `work` with the thread's state. Where that is not to be had, since a handler came while the
/// library was at work or the thread is ending, the answer is `EDEADLK`.
fn with(work: impl FnOnce(&mut Thread) -> i32) -> i32 {
    let mut mask = Mask::block_all();
    let mut uncancelled = Uncancelled::now();
    let answer = THREAD.try_with(|thread| match thread.try_borrow_mut() {
        Ok(mut thread) => {
            let answer = work(&mut thread);
            thread.settle_signals(&mut mask);
            thread.settle_cancelling(&mut uncancelled);
            checkpoint::signals::settle(|signal| mask.blocks(signal));
            answer
        }
        Err(_) => negative(Errno::DEADLK),
    });
    mask.set();
    answer.unwrap_or_else(|_| negative(Errno::DEADLK))
}

pub(crate) fn begin(flags: i32, place: Option<Place>) -> i32 {
    if flags & !KNOWN != 0 {
        return negative(Errno::INVAL);
    }
    let entry = place.map_or(Entry::Begin, Entry::Ordered);
    with(|thread| thread.begin(flags, entry).unwrap_or_else(|code| code))
}

pub(crate) fn join(id: i64) -> i32 {
    let Ok(id) = u64::try_from(id) else { return negative(Errno::INVAL) };
    with(|thread| match &thread.inside {
        Some(_) => negative(Errno::INVAL),
        None => {
            let joined =
                thread.guard(0).and_then(|()| thread.enter(TX_NO_USER_ROLLBACK, Entry::Join(id)));
            match joined {
                Ok(()) => 0,
                Err(LOST) => negative(Errno::CANCELED),
                Err(code) => code,
            }
        }
    })
}

pub(crate) fn id() -> i64 {
    let mut id = None;
    with(|thread| {
        id = thread.inside.as_ref().and_then(|inside| i64::try_from(inside.id).ok());
        0
    });
    id.unwrap_or_else(|| negative(Errno::INVAL).into())
}

pub(crate) fn end() -> i32 {
    with(Thread::end)
}

pub(crate) fn abort(no_restart: bool) {
    with(|thread| {
        thread.abort(no_restart);
        0
    });
}

/// The session says that the transaction has lost: the program is rolled back, and does not come back from here.
/// Called by a signal handler, at any place of the program: no memory may be asked for, since the program may
/// be just about to.
#[cfg(target_arch = "x86_64")]
pub(crate) fn lost_already() {
    let _ = THREAD.try_with(|thread| {
        // Who comes while the library is at work comes again: signals wait then.
        if let Ok(mut thread) = thread.try_borrow_mut() {
            thread.lost_already();
        }
    });
}

/// Whether the calling thread is in a transaction.
pub(crate) fn is_inside() -> bool {
    let mut inside = false;
    with(|thread| {
        inside = thread.inside.is_some() || thread.nested > 0;
        0
    });
    inside
}

/// Whether the calling thread's transaction has carried a number into its view.
pub(crate) fn carries(fd: i32) -> bool {
    let mut carries = false;
    with(|thread| {
        carries = thread.inside.as_ref().is_some_and(|inside| inside.luggage.has(fd));
        0
    });
    carries
}

pub(crate) fn status() -> i32 {
    with(|thread| match (&thread.inside, &thread.link) {
        (Some(_), Some(link)) => match link.ask(&Request::plain(Op::Status)) {
            Ok((reply, _)) => reply.code,
            Err(errno) => negative(errno),
        },
        _ => negative(Errno::INVAL),
    })
}

impl Thread {
    /// Gives the retry count, or an error to be returned.
    fn begin(&mut self, flags: i32, entry: Entry) -> Result<i32, i32> {
        if let Some(inside) = &mut self.inside {
            inside.depth += 1;
            return Ok(self.losses.cast_signed());
        }
        if session_of_view().map_err(negative)?.is_some() || is_in_a_view() {
            // The program, or the thread, was started inside a transaction, and is a part of it.
            self.nested += 1;
            return Ok(0);
        }
        phases::start();
        if flags & TX_NO_USER_ROLLBACK != 0 {
            self.guard(flags)?;
            return self.enter_until_in(flags, entry);
        }
        // A thread that goes on while another is put back would find its memory changed.
        if !is_single_threaded().map_err(negative)? {
            return Err(-ENOTXSUPPORT);
        }
        // Whatever the library needs itself is there before the checkpoint, and so after a rollback.
        self.guard(flags)?;
        let ask = self.ask().map_err(negative)?;
        checkpoint::limits::hook().map_err(negative)?;
        self.losses = 0;
        let before = checkpoint::Before::look().map_err(negative)?;
        let deferred = flags & TX_DEFER_SIGNALS != 0;
        match checkpoint::take(ask, high()).map_err(negative)? {
            Taken::First => {}
            Taken::Again(tries @ 0..) => {
                before.restore(deferred);
                self.losses = tries.cast_unsigned();
            }
            Taken::Again(code) => {
                before.restore(deferred);
                checkpoint::release();
                return Err(code);
            }
        }
        phases::was(Phase::Checkpoint);
        let tries = self.enter_until_in(flags, entry).inspect_err(|_| checkpoint::release())?;
        checkpoint::signals::watch();
        Ok(tries)
    }

    /// Enters, again and again where the transaction has lost on the way: by what has to be looked up for it, while
    /// nothing of the program has run in it. Gives the retry count, or an error to be returned.
    fn enter_until_in(&mut self, flags: i32, entry: Entry) -> Result<i32, i32> {
        loop {
            match self.enter(flags, entry) {
                Ok(()) => return Ok(self.losses.cast_signed()),
                Err(LOST) if self.lost() == negative(Errno::AGAIN) => {}
                Err(LOST) => return Err(negative(Errno::BUSY)),
                Err(code) => return Err(code),
            }
        }
    }

    /// Has a connection, and a filter on calls that a transaction does not support, unless all are let
    /// through.
    fn guard(&mut self, flags: i32) -> Result<(), i32> {
        self.link()?;
        let task = gettid().as_raw_pid();
        if self.guarded == task || flags & TX_LIVE_DANGEROUSLY != 0 {
            return Ok(());
        }
        let _rights = Rights::all();
        // A program that may have no filter, or has another supervisor's, cannot have calls refused.
        guard::install(self.link()?).map_err(|_| -ENOTXSUPPORT)?;
        self.guarded = task;
        Ok(())
    }

    /// The pipe over which a snapshot is asked.
    fn ask(&mut self) -> Result<[i32; 2], Errno> {
        if self.ask.as_ref().is_none_or(|(read, write)| !(read.is_intact() && write.is_intact())) {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            self.ask = Some((Held::dup(read.as_fd(), high())?, Held::dup(write.as_fd(), high())?));
        }
        self.ask
            .as_ref()
            .map(|(read, write)| [read.as_raw_fd(), write.as_raw_fd()])
            .ok_or(Errno::BADF)
    }

    /// Enters a view of a new transaction.
    fn enter(&mut self, flags: i32, entry: Entry) -> Result<(), i32> {
        let pid = getpid().as_raw_pid();
        if self.unshared != pid {
            let _rights = Rights::all();
            sys::unshare_fs().map_err(negative)?;
            self.unshared = pid;
        }
        self.link()?;
        if !sys::has_room() {
            return Err(negative(Errno::NOMEM));
        }
        let lenient = flags & TX_LIVE_DANGEROUSLY != 0;
        // What it changes in its table of descriptors concerns no thread outside.
        let owns_table = is_single_threaded().and_then(|alone| Ok(alone || has_own_table()?));
        if owns_table.map_err(negative)? {
            return self.enter_view(flags, entry, Open::Own, &mut None);
        }
        let views = VIEWS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let packed = Packed::look(&views).map_err(negative)?;
        if packed.has_rings() && !lenient {
            return Err(-ENOTXSUPPORT);
        }
        if !packed.has_something() {
            return self.enter_view(flags, entry, Open::Nothing, &mut None);
        }
        // It is known to both then.
        Outside::home(&mut self.home).map_err(negative)?;
        let mut tables = Some(Tables::part(&views).map_err(negative)?);
        let entered = self.enter_view(flags, entry, Open::OfAll, &mut tables);
        if let Some(tables) = tables {
            tables.join(None);
        }
        entered
    }

    /// The part of [`enter`](Self::enter) that is the same whatever table the thread has. It takes `tables` if it
    /// succeeds.
    fn enter_view(
        &mut self,
        flags: i32,
        entry: Entry,
        open: Open,
        tables: &mut Option<Tables>,
    ) -> Result<(), i32> {
        let _rights = Rights::all();
        let lenient = flags & TX_LIVE_DANGEROUSLY != 0;
        let carries = open != Open::Nothing;
        let mut packed = Packed::default();
        if carries {
            packed = Packed::look(&[]).map_err(negative)?;
            let locked = packed.without_locked().map_err(negative)?;
            let signals = packed.has_signals() && flags & TX_NO_USER_ROLLBACK == 0;
            // Those of other threads come and go.
            let sockets = packed.has_sockets() && open == Open::Own;
            if !lenient && (locked || sockets || packed.has_rings() || signals) {
                return Err(-ENOTXSUPPORT);
            }
        }
        if !lenient && mappings::writes_to_a_file().map_err(negative)? {
            return Err(-ENOTXSUPPORT);
        }
        let pipes = packed.take_pipes();
        let conduits = match carries && !lenient {
            true => Conduits::new(pipes).map_err(negative)?.map_err(|_| -ENOTXSUPPORT)?,
            false => Conduits::default(),
        };
        let mut outside = Outside::here(&mut self.home).map_err(negative)?;
        let (op, Place { group, sequence }) = match entry {
            Entry::Begin => (Op::Begin, Place { group: 0, sequence: 0 }),
            Entry::Ordered(place) => (Op::BeginOrdered, place),
            Entry::Join(id) => (Op::Join, Place { group: id, sequence: 0 }),
        };
        let link = self.link.as_ref().ok_or_else(|| negative(Errno::NOTCONN))?;
        let request = Request { op, flags: flags.cast_unsigned(), task: 0, group, sequence };
        phases::was(Phase::Look);
        let asked = link.ask_with(&request, &conduits.given());
        phases::was(Phase::Ask);
        let (reply, namespace) = asked.map_err(negative)?;
        let namespace = match (reply.code, namespace) {
            (0.., Some(namespace)) => namespace,
            (0.., None) => return Err(negative(Errno::PROTO)),
            (code, _) => return Err(code),
        };
        let entered = outside.enter(namespace.as_fd()).and_then(|()| match open {
            Open::OfAll => sys::show_own_table().inspect_err(|_| outside.leave(Where::AsBefore)),
            _ => Ok(()),
        });
        phases::was(Phase::Enter);
        let carried = entered.and_then(|()| match carries {
            true => packed.carry(&reply.mounts, lenient),
            false => Ok(Ok(Luggage::default())),
        });
        let carried = carried.and_then(|carried| match carried {
            Ok(mut luggage) => match luggage.carry_pipes(conduits) {
                Ok(()) => Ok(Ok(luggage)),
                Err(errno) => {
                    luggage.restore();
                    Err(errno)
                }
            },
            unsupported => Ok(unsupported),
        });
        let luggage = match carried {
            Ok(Ok(luggage)) => luggage,
            failed => {
                if entered.is_ok() {
                    outside.leave(Where::AsBefore);
                }
                let lost = matches!(failed, Err(Errno::STALE));
                self.tell_abort(if lost { abort::LOST } else { abort::FOR_GOOD });
                return Err(match failed {
                    Ok(Err(Unsupported(_))) => -ENOTXSUPPORT,
                    Err(errno) => negative(errno),
                    Ok(Ok(_)) => 0,
                });
            }
        };
        VIEWS.lock().unwrap_or_else(PoisonError::into_inner).extend(&reply.mounts);
        VIEWS_OF.store(getpid().as_raw_pid(), Ordering::Relaxed);
        let (id, mounts) = (reply.transaction, reply.mounts);
        let (pid, tables) = (getpid().as_raw_pid(), tables.take());
        self.inside = Some(Inside { id, flags, pid, depth: 0, mounts, outside, luggage, tables });
        phases::was(Phase::Carry);
        Ok(())
    }

    /// What is blocked once the library is done: `mask` is what the program had blocked.
    fn settle_signals(&mut self, mask: &mut Mask) {
        let defers = self.inside.as_ref().is_some_and(|i| i.flags & TX_DEFER_SIGNALS != 0);
        match (&self.deferring, defers) {
            (None, true) => {
                self.deferring = Some(*mask);
                *mask = Mask::all();
            }
            (Some(before), false) => {
                *mask = *before;
                self.deferring = None;
            }
            _ => {}
        }
    }

    /// Whether the thread can be cancelled once the library is done: not as long as another one stands in for it,
    /// since the one that is told sleeps, and what it is told would wait for is never done.
    fn settle_cancelling(&mut self, uncancelled: &mut Uncancelled) {
        let stands_in = self.inside.as_ref().is_some_and(|inside| inside.tables.is_some());
        match (self.cancelling, stands_in) {
            (None, true) => {
                self.cancelling =
                    Some(std::mem::replace(&mut uncancelled.before, Uncancelled::DISABLE));
            }
            (Some(before), false) => {
                uncancelled.before = before;
                self.cancelling = None;
            }
            _ => {}
        }
    }

    fn link(&mut self) -> Result<&Link, i32> {
        if self.link.as_ref().is_none_or(|link| !link.is_ours()) {
            self.link = Some(Link::open().map_err(negative)?);
        }
        self.link.as_ref().ok_or_else(|| negative(Errno::NOTCONN))
    }

    fn end(&mut self) -> i32 {
        let Some(inside) = &mut self.inside else {
            let Some(left) = self.nested.checked_sub(1) else { return negative(Errno::INVAL) };
            self.nested = left;
            return 0;
        };
        if inside.depth > 0 {
            inside.depth -= 1;
            return 0;
        }
        phases::start();
        let _rights = Rights::all();
        if inside.pid != getpid().as_raw_pid() {
            return self.part();
        }
        self.settle_noted();
        let Some(left) = self.leave() else { return negative(Errno::INVAL) };
        let Left { flags, departure, place, tables } = left;
        let rolls_back = flags & TX_NO_USER_ROLLBACK == 0;
        let (code, departure, reserved) = match departure {
            Ok(departure) => {
                let (code, reserved) = self.ask_for_end(&departure, tables.as_ref());
                (code, Some(departure), reserved)
            }
            Err(errno) => {
                self.tell_abort(abort::RETRY);
                (negative(errno), None, None)
            }
        };
        let lost = code == negative(Errno::AGAIN) && departure.is_some();
        let again = lost && flags & TX_NO_AUTO_RETRY == 0;
        if again && rolls_back {
            checkpoint::rollback(next_try(self.losses));
        }
        match departure {
            Some(departure) if code == 0 => departure.arrive(),
            Some(departure) => departure.retreat(),
            None => {}
        }
        if let Some(tables) = tables {
            tables.join(reserved);
        }
        if code == 0
            && let Where::At(path) = place
        {
            place::go_to(&path);
        }
        if again {
            return self.lost();
        }
        self.losses = 0;
        if rolls_back {
            checkpoint::release();
        }
        phases::was(Phase::Return);
        if lost { negative(Errno::CANCELED) } else { code }
    }

    /// Asks the session to commit. Gives its answer, and after a commit the numbers that are reserved for what was
    /// opened inside.
    fn ask_for_end(
        &mut self,
        departure: &Departure,
        tables: Option<&Tables>,
    ) -> (i32, Option<Reserved>) {
        let reserved =
            match tables.map_or(Ok(None), |tables| tables.reserve(departure.renewed()).map(Some)) {
                Ok(Some(None)) => Err(Errno::AGAIN),
                Ok(reserved) => Ok(reserved.flatten()),
                Err(errno) => Err(errno),
            };
        let reserved = match reserved {
            Ok(reserved) => reserved,
            Err(errno) => {
                self.tell_abort(abort::RETRY);
                return (negative(errno), None);
            }
        };
        let kept = u32::from(departure.keeps_something());
        let asked =
            self.link().map(|link| link.ask(&Request { flags: kept, ..Request::plain(Op::End) }));
        phases::was(Phase::Commit);
        let code = match asked {
            Ok(Ok((reply, _))) => reply.code,
            Ok(Err(errno)) => negative(errno),
            Err(code) => code,
        };
        checkpoint::signals::miss_bell();
        match (reserved, tables) {
            (Some(reserved), Some(tables)) if code != 0 => {
                tables.release(reserved);
                (code, None)
            }
            (reserved, _) => (code, reserved),
        }
    }

    /// See [`lost_already`].
    #[cfg(target_arch = "x86_64")]
    fn lost_already(&mut self) {
        let own = |inside: &&Inside| {
            inside.pid == getpid().as_raw_pid() && inside.flags & TX_NO_USER_ROLLBACK == 0
        };
        if self.inside.as_ref().filter(own).is_none() {
            return;
        }
        let _rights = Rights::all();
        self.settle_noted();
        let Some(inside) = &self.inside else { return };
        inside.outside.leave(Where::AsBefore);
        self.tell_abort(abort::LOST);
        checkpoint::rollback(next_try(self.losses))
    }

    /// Forgets the signals that members sent: they are not delivered again after a rollback.
    fn settle_noted(&mut self) {
        let Ok(link) = self.link() else { return };
        checkpoint::signals::forget(|pid| {
            let request =
                Request { group: u64::from(pid.cast_unsigned()), ..Request::plain(Op::IsMember) };
            link.ask(&request).is_ok_and(|(reply, _)| reply.code == 1)
        });
    }

    /// The end of a child that was forked inside: from here on it is free. The transaction goes on, so what
    /// it has open in the view stays what it is; what was open before is the child's again.
    fn part(&mut self) -> i32 {
        let Some(left) = self.leave() else { return negative(Errno::INVAL) };
        self.losses = 0;
        checkpoint::signals::unwatch();
        if let Some(tables) = left.tables {
            tables.join(None);
        }
        match left.departure {
            Ok(departure) => {
                departure.part();
                0
            }
            Err(errno) => negative(errno),
        }
    }

    /// What the program is told of a lost conflict.
    fn lost(&mut self) -> i32 {
        match next_try(self.losses) {
            tries @ 0.. => {
                self.losses = tries.cast_unsigned();
                negative(Errno::AGAIN)
            }
            code => {
                self.losses = 0;
                code
            }
        }
    }

    fn abort(&mut self, no_restart: bool) {
        let Some(inside) = &self.inside else {
            if self.nested > 0 {
                self.abort_from_within(no_restart);
            }
            return;
        };
        if inside.pid != getpid().as_raw_pid() {
            return self.abort_from_within(no_restart);
        }
        let _rights = Rights::all();
        self.settle_noted();
        let Some(Left { flags, departure, tables, .. }) = self.leave() else { return };
        let no_restart = no_restart || flags & TX_NO_AUTO_RETRY != 0;
        self.tell_abort(if no_restart { abort::FOR_GOOD } else { abort::RETRY });
        if flags & TX_NO_USER_ROLLBACK == 0 {
            let code = negative(Errno::CANCELED);
            checkpoint::rollback(if no_restart { code } else { next_try(self.losses) });
        }
        match departure {
            Ok(departure) => departure.retreat(),
            Err(errno) => eprintln!("libtxos: cannot look at the open descriptors: {errno}"),
        }
        if let Some(tables) = tables {
            tables.join(None);
        }
        self.losses = if no_restart { 0 } else { self.losses + 1 };
    }

    /// The abort of a process that was born inside: it ends with the transaction.
    fn abort_from_within(&mut self, no_restart: bool) {
        let how = if no_restart { abort::FOR_GOOD } else { abort::RETRY };
        if is_in_a_view() && VIEWS_OF.load(Ordering::Relaxed) == getpid().as_raw_pid() {
            // A thread beside the one that began, who hears of it at its end.
            let request = Request { flags: how, sequence: 1, ..Request::plain(Op::Abort) };
            let _ = self.link().map(|link| link.ask(&request));
            return;
        }
        self.tell_abort(how);
        // Killed by the session already, unless that is gone: then nothing was ever committed.
        guard::kill_this_process();
    }

    fn tell_abort(&mut self, how: u32) {
        let request = Request { flags: how, ..Request::plain(Op::Abort) };
        if let Ok(link) = self.link() {
            // A session that is gone has aborted everything.
            let _ = link.ask(&request);
        }
        checkpoint::signals::miss_bell();
    }

    /// Leaves the view.
    ///
    /// A thread that gave up for good the right to leave ends with its process, and the transaction with it:
    /// it must not go on in a view that nobody sees and that will never commit.
    fn leave(&mut self) -> Option<Left> {
        let Inside { flags, mounts, outside, luggage, tables, .. } = self.inside.take()?;
        let own = self.link.as_ref().map_or(-1, Link::number);
        let place = working_directory();
        let departure = Departure::look(luggage, own, &mounts);
        phases::was(Phase::LookAgain);
        VIEWS.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !mounts.contains(id));
        if tables.as_ref().is_some_and(Tables::is_here) {
            // Whatever is left goes with the view.
            let _ = sys::hide_own_table();
        }
        outside.leave(Where::AsBefore);
        phases::was(Phase::Leave);
        let departure = departure.map_err(|(errno, mut luggage)| {
            luggage.restore();
            errno
        });
        Some(Left { flags, departure, place, tables })
    }
}

impl Drop for Thread {
    /// The thread ends: that counts as the end of its transaction.
    fn drop(&mut self) {
        if let Some(inside) = &mut self.inside {
            if inside.pid != getpid().as_raw_pid() {
                return;
            }
            inside.depth = 0;
            let mask = Mask::block_all();
            let _uncancelled = Uncancelled::now();
            self.end();
            mask.set();
        }
    }
}

/// Whether the calling thread, which has begun nothing, is in a view of its process: another thread that was in it has
/// started it, or has forked its process.
fn is_in_a_view() -> bool {
    let views = VIEWS.lock().unwrap_or_else(PoisonError::into_inner);
    !views.is_empty() && place::root_is_on(&views)
}

/// What a beginning gives after so many losses and one more: the number of tries, or `-EBUSY` when they
/// are too many.
fn next_try(losses: u32) -> i32 {
    match losses.checked_add(1).filter(|tries| *tries <= LIMIT.load(Ordering::Relaxed)) {
        Some(tries) => tries.cast_signed(),
        None => negative(Errno::BUSY),
    }
}
