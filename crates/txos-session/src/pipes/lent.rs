//! What members read from a pipe that comes from outside.
//!
//! They are lent a copy of what waits there. It is taken away only when they commit, so an outer pipe that
//! fills up meanwhile is made larger, for the time of the transaction.

use std::{
    collections::HashMap,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll::EventFlags, poll},
    fs::{FlockOperation, Mode, OFlags, fcntl_setfl, flock, fstat, open},
    io::{Errno, ioctl_fionread, read, write},
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, tee},
};
use txos_host::Bell;

/// What an outer pipe grows to at the most.
const MOST: usize = 64 << 20;
/// Room that is as good as none.
const PAGE: usize = 4096;

/// How long one that is lent what waits has at the least to read it, whoever else waits: else of several that all
/// want to read none ever would.
const TURN: Duration = Duration::from_millis(5);

/// Which pipe: device and inode.
type Key = (u64, u64);

/// How many transactions of a session wait for another one that was lent what waits in a pipe.
#[derive(Clone)]
pub(crate) struct Waiting {
    counts: Arc<Mutex<HashMap<Key, usize>>>,
    /// Rung for each that begins to wait.
    bell: Arc<Bell>,
}

impl Waiting {
    /// Nobody waits.
    ///
    /// # Errors
    /// If the session is out of descriptors.
    pub(crate) fn new() -> Result<Waiting, Errno> {
        Ok(Waiting { counts: Arc::default(), bell: Arc::new(Bell::new()?) })
    }

    /// What becomes readable, and never is read.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, usize>> {
        // Each change is one step.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, key: Key) {
        *self.all().entry(key).or_default() += 1;
        let _ = self.bell.ring();
    }

    fn take(&self, key: Key) {
        let mut all = self.all();
        if let Some(count) = all.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&key);
            }
        }
    }

    fn has(&self, key: Key) -> bool {
        self.all().contains_key(&key)
    }
}

/// A pipe that members read from.
pub(super) struct Lent {
    /// As the program has it: only there the end shows.
    given: OwnedFd,
    /// Opened again where that can be: locks belong to open files, and so does whether reading waits.
    outer: OwnedFd,
    /// The session's end of the inner pipe: that for writing, or, where members have both ends and after the
    /// end of what comes, that for reading.
    inner: OwnedFd,
    /// Whether all was lent, and nobody writes outside any more.
    ended: bool,
    /// Whether members write to the inner pipe as well.
    both: bool,
    /// What was seen outside.
    record: Vec<u8>,
    /// How much of it was put into the inner pipe.
    lent: usize,
    /// How much of it members have read; all of it where they have both ends.
    taken: usize,
    /// Where they have both ends: what was left in the inner pipe.
    left: Vec<u8>,
    /// Room of the outer pipe before.
    room: usize,
    key: Key,
    place: Place,
    /// When it became the one that is lent what waits.
    since: Instant,
    waiting: Waiting,
}

/// Among the transactions that read from a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing has been there to read.
    None,
    /// Another one is lent what is there.
    Waits,
    /// This one is.
    Holds,
}

impl Lent {
    pub(super) fn new(
        given: OwnedFd,
        inner: OwnedFd,
        both: bool,
        waiting: &Waiting,
    ) -> Result<Lent, Errno> {
        let outer = reopened(&given, OFlags::RDONLY);
        let outer = outer.or_else(|_| given.try_clone().map_err(|_| Errno::MFILE))?;
        let stat = fstat(&outer)?;
        if !both {
            fcntl_setfl(&inner, OFlags::NONBLOCK)?;
        }
        let mut lent = Lent {
            room: fcntl_getpipe_size(&outer)?,
            given,
            outer,
            inner,
            ended: false,
            both,
            record: Vec::new(),
            lent: 0,
            taken: 0,
            left: Vec::new(),
            key: (stat.st_dev, stat.st_ino),
            place: Place::None,
            since: Instant::now(),
            waiting: waiting.clone(),
        };
        // What waits already is there at once.
        lent.pump()?;
        Ok(lent)
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = (BorrowedFd<'_>, EventFlags)> {
        let room = (!self.both && !self.ended).then(|| (self.inner.as_fd(), EventFlags::OUT));
        [(self.given.as_fd(), EventFlags::IN)].into_iter().chain(room)
    }

    /// Lends what waits outside, as far as there is room. Gives whether it waits for another transaction.
    pub(super) fn pump(&mut self) -> Result<bool, Errno> {
        let there = waits_in(&self.outer)?;
        if there > self.lent && self.place != Place::Holds && !self.hold() {
            return Ok(true);
        }
        let had_its_turn = self.place == Place::Holds && self.since.elapsed() >= TURN;
        if had_its_turn && self.waiting.has(self.key) && self.give_way()? {
            return Ok(true);
        }
        if self.ended {
            return Ok(self.waiting.has(self.key));
        }
        self.lend()?;
        // The end first: what comes before it is there then.
        let ended = self.has_ended();
        let there = waits_in(&self.outer)?;
        let all_lent = there <= self.lent;
        // Room outside is made when members have read all that there is: not for those that read nothing.
        let fills_up = all_lent && there * 2 >= fcntl_getpipe_size(&self.outer)?;
        let unread = waits_in(&self.inner)?;
        if fills_up && unread == 0 {
            self.grow()?;
        }
        if all_lent && !self.both && ended {
            self.inner = reopened(&self.inner, OFlags::RDONLY)?;
            self.ended = true;
        }
        // Nothing tells that something was read.
        let others_wait = self.place == Place::Holds && self.waiting.has(self.key);
        Ok(others_wait || (fills_up && unread > 0 && !self.ended))
    }

    /// Becomes the one that is lent what waits; `false` if another one is.
    fn hold(&mut self) -> bool {
        let held = flock(&self.outer, FlockOperation::NonBlockingLockExclusive).is_ok();
        if self.place == Place::None && !held {
            self.waiting.add(self.key);
        } else if self.place == Place::Waits && held {
            self.waiting.take(self.key);
        }
        self.place = if held { Place::Holds } else { Place::Waits };
        self.since = Instant::now();
        held
    }

    /// Takes back what was lent, if nobody has read any of it, so that another transaction can be lent it.
    fn give_way(&mut self) -> Result<bool, Errno> {
        if self.both || waits_in(&self.inner)? != self.lent {
            return Ok(false);
        }
        let into = reopened(&self.inner, OFlags::WRONLY)?;
        let back = drained(&reopened(&self.inner, OFlags::RDONLY)?)?;
        if back.len() < self.lent {
            // Somebody has begun to read just now: the rest is his.
            put(&into, &back)?;
            return Ok(false);
        }
        (self.inner, self.ended) = (into, false);
        self.record.clear();
        self.lent = 0;
        let _ = flock(&self.outer, FlockOperation::Unlock);
        self.waiting.add(self.key);
        self.place = Place::Waits;
        Ok(true)
    }

    /// Lends as much as there is room for of what waits: all of it, or until the inner pipe is full. Where it is not
    /// full nothing tells that members have read.
    fn lend(&mut self) -> Result<(), Errno> {
        loop {
            if self.lent == self.record.len() && waits_in(&self.outer)? > self.lent {
                let copy = copied(&self.outer)?;
                self.record.extend(copy.get(self.lent..).unwrap_or_default());
            }
            let new = &self.record[self.lent..];
            let length = match self.both {
                _ if new.is_empty() => return Ok(()),
                true => put(&reopened(&self.inner, OFlags::WRONLY)?, new)?,
                false => put(&self.inner, new)?,
            };
            let is_full = length < new.len();
            self.lent += length;
            if is_full {
                return Ok(());
            }
        }
    }

    /// Makes room outside, so that who writes there can go on.
    fn grow(&self) -> Result<(), Errno> {
        let room = fcntl_getpipe_size(&self.outer)?;
        if room >= MOST {
            return Err(Errno::NOBUFS);
        }
        match fcntl_setpipe_size(&self.outer, room * 2) {
            // It may not: that matters only when it is full.
            Err(_) if waits_in(&self.outer)? + PAGE <= room => Ok(()),
            result => result.map(drop),
        }
    }

    /// Whether nobody writes outside any more.
    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.given, PollFlags::IN)];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// See [`super::Pipes::settle`].
    pub(super) fn settle(&mut self) -> Result<(), Errno> {
        self.taken = self.lent;
        if self.both {
            self.left = drained(&reopened(&self.inner, OFlags::RDONLY)?)?;
        } else {
            self.taken -= waits_in(&self.inner)?.min(self.taken);
        }
        if self.taken == 0 {
            self.release();
        }
        Ok(())
    }

    pub(super) fn is_unchanged(&self) -> bool {
        self.taken == 0
            || copied(&self.outer).is_ok_and(|now| now.starts_with(&self.record[..self.taken]))
    }

    pub(super) fn commit(self) {
        let put_back = self.both && !self.left.is_empty();
        if let Err(errno) = self.take().and_then(|()| match put_back {
            true => self.put_back(),
            false => Ok(()),
        }) {
            tracing::warn!(%errno, "what was read from a pipe cannot be taken");
        }
    }

    /// Takes outside what was read.
    fn take(&self) -> Result<(), Errno> {
        let (mut rest, mut bytes) = (self.taken, [0; 64 * 1024]);
        while rest > 0 && waits_in(&self.outer)? > 0 {
            let most = rest.min(bytes.len());
            match read(&self.outer, &mut bytes[..most]) {
                Ok(0) => break,
                Ok(length) => rest -= length,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Puts what members have left in their pipe before what has come since.
    fn put_back(&self) -> Result<(), Errno> {
        let since = drained(&self.outer)?;
        let all = [&self.left[..], &since].concat();
        let into = reopened(&self.outer, OFlags::WRONLY)?;
        let mut rest = &all[..];
        loop {
            rest = &rest[put(&into, rest)?..];
            if rest.is_empty() {
                return Ok(());
            }
            let room = fcntl_getpipe_size(&self.outer)?;
            self.grow()?;
            if fcntl_getpipe_size(&self.outer)? == room {
                return Err(Errno::NOBUFS);
            }
        }
    }

    fn release(&mut self) {
        match self.place {
            Place::Waits => self.waiting.take(self.key),
            // The open file may be the program's, where it could not be opened again.
            Place::Holds => drop(flock(&self.outer, FlockOperation::Unlock)),
            Place::None => {}
        }
        self.place = Place::None;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.release();
        if fcntl_getpipe_size(&self.outer).is_ok_and(|room| room > self.room) {
            // As long as more waits than that it stays larger.
            let _ = fcntl_setpipe_size(&self.outer, self.room);
        }
    }
}

/// The same pipe, in an open file of its own that waits for nothing.
fn reopened(pipe: &OwnedFd, mode: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    open(path, mode | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
}

fn waits_in(pipe: &OwnedFd) -> Result<usize, Errno> {
    Ok(usize::try_from(ioctl_fionread(pipe)?).unwrap_or(usize::MAX))
}

/// A copy of all that waits in a pipe.
fn copied(pipe: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let room = fcntl_getpipe_size(pipe)?;
    let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    fcntl_setpipe_size(&into, room)?;
    match tee(pipe, &into, room, SpliceFlags::NONBLOCK) {
        Ok(_) => drained(&out),
        Err(Errno::AGAIN) => Ok(Vec::new()),
        Err(errno) => Err(errno),
    }
}

/// Takes all that waits in a pipe.
fn drained(pipe: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let (mut all, mut bytes) = (Vec::new(), vec![0; 64 * 1024]);
    while waits_in(pipe)? > 0 {
        match read(pipe, &mut bytes) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(length) => all.extend(&bytes[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(all)
}

/// Writes as much as there is room for; gives how much that was.
fn put(pipe: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match write(pipe, &bytes[done..]) {
            Ok(length) => done += length,
            // Full, or nobody reads: then nobody misses it.
            Err(Errno::AGAIN | Errno::PIPE) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
