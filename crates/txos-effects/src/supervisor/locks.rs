//! Locks that members take are taken outside too, in the manager's name.
//!
//! A file that is written in a transaction has a shadow, and a lock on the shadow keeps only members
//! off. Programs that guard their files by a lock (dpkg its data base, say) must meet the locks of
//! outsiders, and outsiders theirs. So before a member's lock is taken inside, by the kernel, the
//! same lock is taken on the stable file of the same name:
//!
//! * Busy outside is busy inside: `EAGAIN`, or a wait where the caller asked to wait.
//! * It is held until [`Locks`] is dropped, when the transaction has committed or aborted, or until the
//!   attempt is over and is to be run again, and not given back when the member unlocks: what was done
//!   under it is not outside yet.
//! * Two transactions can wait for each other's locks. [`OnWait`] tells for what one waits and what it
//!   holds, so that the contention manager sees a circle; that this one natively had none, because a
//!   lock was given back in time, makes it no better.
//! * Members exclude one another by the kernel's lock on the shadow; towards outsiders they are one
//!   owner. A file that was locked for writing once stays so.
//! * flock(2) stays flock, and both kinds of fcntl(2) locks become open-file-description locks,
//!   which meet the process-bound ones.
//! * Nothing is proxied for files that have no stable counterpart, and for files that are let
//!   through, where the member's lock is the real one.
//!
//! The caller's `struct flock` is read from its memory; one that is changed meanwhile leaves other
//! ranges unguarded, which is the members' own loss.
//!
//! A wait is a thread here that tries again and again: it has to end when the caller is killed or
//! the transaction ends, and a signal that the caller handles ends it with `EINTR` (also where the
//! handler asks for restarts: a supervisor cannot restart a call).

use super::target::Target;
use super::{Request, Shared, lock};
use crate::sys::{self, Answer, Range};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use txos_core::contention::{FileLock, LockWait};

/// Size of `struct flock` on 64-bit machines.
const RECORD: usize = size_of::<libc::flock>();
/// Time between two tries: the first, and the longest.
const FIRST_TRY: Duration = Duration::from_millis(1);
const LAST_TRY: Duration = Duration::from_millis(20);

/// The locks that a transaction holds outside. Clones are one; the last that is dropped frees them.
#[derive(Clone, Default)]
pub struct Locks {
    held: Arc<Mutex<BTreeMap<Key, Proxy>>>,
    waits: Arc<Waits>,
}

/// Called with what members wait for and what is held, whenever that changes while one waits, and when
/// the last has stopped.
pub type OnWait = Box<dyn Fn(LockWait) + Send + Sync>;

/// For what members wait.
#[derive(Default)]
struct Waits {
    wanted: Mutex<Wanting>,
    tell: Option<OnWait>,
}

/// What is wanted, by the number of the wait.
type Wanting = BTreeMap<u64, FileLock>;

/// A member that waits.
struct Waiting<'l> {
    locks: &'l Locks,
    number: u64,
}

impl<'l> Waiting<'l> {
    fn begin(locks: &'l Locks, wanted: FileLock) -> Waiting<'l> {
        let mut all = lock(&locks.waits.wanted);
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, wanted);
        locks.tell(&all);
        Waiting { locks, number }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.locks.waits.wanted);
        all.remove(&self.number);
        self.locks.tell(&all);
    }
}

impl std::fmt::Debug for Locks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Locks").field(&lock(&self.held).len()).finish()
    }
}

/// Device, inode, and whether it is a flock(2) lock: the two kinds do not meet.
type Key = (u64, u64, bool);

#[derive(Debug)]
struct Proxy {
    file: OwnedFd,
    /// Whether it was locked for writing once.
    exclusive: bool,
    /// All that was ever locked.
    taken: Vec<FileLock>,
}

/// What a member asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    exclusive: bool,
    /// `None` for flock(2).
    range: Option<Range>,
    wait: bool,
}

/// A call about locks, understood.
enum Asked {
    /// Nothing that outsiders could notice.
    Nothing,
    /// Take a lock.
    Take(Wanted),
    /// Tell of one that is in the way (fcntl(2), `F_GETLK`).
    Tell(bool, Range),
}

impl Locks {
    /// No locks; `tell` hears for which ones somebody waits.
    pub fn telling(tell: OnWait) -> Locks {
        let waits = Waits { wanted: Mutex::default(), tell: Some(tell) };
        Locks { waits: Arc::new(waits), ..Locks::default() }
    }

    /// Gives all of them back: what was done under them is undone.
    pub fn give_back(&self) {
        lock(&self.held).clear();
    }

    fn tell(&self, wanting: &Wanting) {
        let Some(tell) = &self.waits.tell else { return };
        let held = lock(&self.held);
        let holds = held.values().flat_map(|proxy| proxy.taken.iter().cloned()).collect();
        drop(held);
        tell(LockWait { wants: wanting.values().cloned().collect(), holds });
    }

    /// Takes a lock, and says so if somebody waits for another.
    fn take_and_tell(&self, stable: &Stable, wanted: Wanted) -> rustix::io::Result<()> {
        self.take(stable, wanted)?;
        let wanting = lock(&self.waits.wanted);
        if !wanting.is_empty() {
            self.tell(&wanting);
        }
        Ok(())
    }

    /// Takes a lock on a stable file, without waiting. `EAGAIN` when an outsider has it.
    fn take(&self, stable: &Stable, wanted: Wanted) -> rustix::io::Result<()> {
        let mut held = lock(&self.held);
        let key = (stable.status.st_dev, stable.status.st_ino, wanted.range.is_none());
        let known = held.get(&key);
        let exclusive = wanted.exclusive || known.is_some_and(|proxy| proxy.exclusive);
        let opened = if known.is_none() { Some(stable.open()?) } else { None };
        let Some(file) = opened.as_ref().or(known.map(|proxy| &proxy.file)) else {
            return Err(Errno::NOLCK);
        };
        match wanted.range {
            None if exclusive => {
                rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?;
            }
            None => rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)?,
            Some(range) => sys::lock_range(file, exclusive, range)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOLCK))?,
        }
        if let Some(file) = opened {
            held.insert(key, Proxy { file, exclusive, taken: Vec::new() });
        }
        if let Some(proxy) = held.get_mut(&key) {
            let lock = stable.lock(wanted);
            proxy.exclusive = exclusive;
            if !proxy.taken.contains(&lock) {
                proxy.taken.push(lock);
            }
        }
        Ok(())
    }

    /// The descriptor that holds the range locks of a file, if there are any.
    fn find(&self, stable: &Stable, exclusive: bool, range: Range) -> Option<(bool, Range)> {
        let held = lock(&self.held);
        let key = (stable.status.st_dev, stable.status.st_ino, false);
        let found = match held.get(&key) {
            Some(proxy) => sys::find_lock(&proxy.file, exclusive, range),
            None => sys::find_lock(stable.open().ok()?, exclusive, range),
        };
        found.ok().flatten()
    }
}

/// The file outside that a member's descriptor has the shadow of.
struct Stable {
    /// Opened for its identity alone.
    place: OwnedFd,
    path: PathBuf,
    status: Stat,
}

impl Stable {
    /// The counterpart of a descriptor of the caller's; `None` where there is none, or where the
    /// descriptor is on the stable file itself.
    fn of(target: &Target<'_>, fd: u64) -> Option<Stable> {
        let link = format!("/proc/{}/fd/{}", target.pid(), fd as u32);
        let path = fs::read_link(&link).ok()?;
        let inside = fs::metadata(&link).ok()?;
        if !target.waits() || path.is_relative() {
            return None;
        }
        if ["/proc", "/sys", "/dev"].iter().any(|part| path.starts_with(part)) {
            return None;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let place = rustix::fs::openat2(CWD, &path, flags, Mode::empty(), resolve).ok()?;
        let status = rustix::fs::fstat(&place).ok()?;
        // Opening anything else could have effects of its own.
        let kind = FileType::from_raw_mode(status.st_mode);
        let plain = matches!(kind, FileType::RegularFile | FileType::Directory);
        let same = (inside.dev(), inside.ino()) == (status.st_dev, status.st_ino);
        (plain && !same).then_some(Stable { place, path, status })
    }

    /// The lock that is wanted on it.
    fn lock(&self, wanted: Wanted) -> FileLock {
        let bytes = wanted.range.map(|Range { start, len }| match len {
            0 => (start, i64::MAX),
            1.. => (start, start.saturating_add(len)),
            // Those before the start (fcntl(2)).
            _ => (start.saturating_add(len), start),
        });
        let path = super::target::printable(self.path.as_os_str().as_encoded_bytes());
        let (dev, ino) = (self.status.st_dev, self.status.st_ino);
        FileLock { path, dev, ino, bytes, exclusive: wanted.exclusive }
    }

    /// Opens it for locking; for writing too where that is permitted, which a write lock needs.
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        use std::os::fd::AsRawFd;
        let again = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        let open = |flags| {
            rustix::fs::open(
                Path::new(&again),
                flags | OFlags::CLOEXEC | OFlags::NOCTTY,
                Mode::empty(),
            )
        };
        open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))
    }
}

impl Shared {
    /// Answers a call about locks.
    pub(super) fn lock(self: &Arc<Self>, request: Request<'_>, call: &str, target: &Target<'_>) {
        let args = request.call.args;
        let asked = match call {
            "flock" => flock(args[1] as i32),
            _ => fcntl(args, target),
        };
        let stable = match asked {
            Asked::Nothing => None,
            _ => Stable::of(target, args[0]),
        };
        let Some(stable) = stable else { return request.answer(Answer::Proceed) };
        match asked {
            Asked::Nothing => request.answer(Answer::Proceed),
            Asked::Tell(exclusive, range) => {
                let found = self.hooks.locks.find(&stable, exclusive, range);
                request.answer(match found {
                    Some((exclusive, range)) => tell(target, args[2], exclusive, range),
                    None => Answer::Proceed,
                });
            }
            Asked::Take(wanted) => match self.take(&stable, wanted) {
                Err(Errno::AGAIN) if wanted.wait => self.wait_for(request, stable, wanted),
                taken => request.answer(answer_of(taken)),
            },
        }
    }

    fn take(&self, stable: &Stable, wanted: Wanted) -> rustix::io::Result<()> {
        let taken = self.hooks.locks.take_and_tell(stable, wanted);
        if taken.is_ok() {
            let path = super::target::printable(stable.path.as_os_str().as_encoded_bytes());
            lock(&self.collected).locked(path);
        }
        taken
    }

    /// Tries again in a thread of its own, until the lock is there or nobody wants it any more.
    fn wait_for(self: &Arc<Self>, request: Request<'_>, stable: Stable, wanted: Wanted) {
        self.answer_later(request, "txos-lock", move |shared, call| {
            let target = Target::new(shared.listener.as_fd(), call);
            shared.try_until(&stable, wanted, &target)
        });
    }

    fn try_until(&self, stable: &Stable, wanted: Wanted, target: &Target<'_>) -> Answer {
        let _waiting = Waiting::begin(&self.hooks.locks, stable.lock(wanted));
        let mut pause = FIRST_TRY;
        loop {
            let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
            let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
            let stopped = !matches!(poll(&mut stop, Some(&timeout)), Ok(0));
            if stopped || !target.waits() || target.has_signal() {
                return Answer::Errno(libc::EINTR);
            }
            match self.take(stable, wanted) {
                Err(Errno::AGAIN) => pause = (pause * 2).min(LAST_TRY),
                taken => return answer_of(taken),
            }
        }
    }
}

/// A lock that cannot be had outside for another reason than being busy (a file system without
/// locks, say) does not keep members from theirs.
fn answer_of(taken: rustix::io::Result<()>) -> Answer {
    match taken {
        Err(Errno::AGAIN) => Answer::Errno(libc::EAGAIN),
        _ => Answer::Proceed,
    }
}

/// Understands flock(2).
fn flock(operation: i32) -> Asked {
    let exclusive = match operation & !libc::LOCK_NB {
        libc::LOCK_EX => true,
        libc::LOCK_SH => false,
        _ => return Asked::Nothing,
    };
    let wait = operation & libc::LOCK_NB == 0;
    Asked::Take(Wanted { exclusive, range: None, wait })
}

/// Understands the lock commands of fcntl(2).
fn fcntl(args: [u64; 6], target: &Target<'_>) -> Asked {
    let mut bytes = [0; RECORD];
    if !matches!(target.read(args[2], &mut bytes), Ok(RECORD)) {
        return Asked::Nothing;
    }
    let short = |at: usize| i32::from(i16::from_ne_bytes([bytes[at], bytes[at + 1]]));
    let long = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |b| i64::from_ne_bytes(*b));
    let (kind, whence) = (short(0), short(2));
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => position(target.pid(), args[0]),
        _ => fs::metadata(format!("/proc/{}/fd/{}", target.pid(), args[0] as u32))
            .map_or(0, |status| i64::try_from(status.len()).unwrap_or(i64::MAX)),
    };
    let range = Range { start: base.saturating_add(long(8)), len: long(16) };
    let exclusive = match kind {
        libc::F_WRLCK => true,
        libc::F_RDLCK => false,
        _ => return Asked::Nothing,
    };
    match args[1] as i32 {
        libc::F_GETLK | libc::F_OFD_GETLK => Asked::Tell(exclusive, range),
        command => {
            let wait = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
            Asked::Take(Wanted { exclusive, range: Some(range), wait })
        }
    }
}

/// Reads the arguments of any fcntl(2).
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(args: [u64; 6], target: &Target<'_>) {
    if let Asked::Take(Wanted { range: Some(range), .. }) | Asked::Tell(_, range) =
        fcntl(args, target)
    {
        let _ = range.start.checked_add(range.len);
    }
}

/// Where a descriptor of a process stands. Source: proc_pid_fdinfo(5).
fn position(pid: u32, fd: u64) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd as u32)).unwrap_or_default();
    let field = text.lines().find_map(|line| line.strip_prefix("pos:"));
    field.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Writes an outsider's lock into the caller's `struct flock`. The holder has no pid in the view: it
/// is given as -1, as the kernel gives holders that are no process.
fn tell(target: &Target<'_>, address: u64, exclusive: bool, range: Range) -> Answer {
    let mut bytes = [0; RECORD];
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as i16;
    bytes[0..2].copy_from_slice(&kind.to_ne_bytes());
    bytes[2..4].copy_from_slice(&(libc::SEEK_SET as i16).to_ne_bytes());
    bytes[8..16].copy_from_slice(&range.start.to_ne_bytes());
    bytes[16..24].copy_from_slice(&range.len.to_ne_bytes());
    bytes[24..28].copy_from_slice(&(-1i32).to_ne_bytes());
    match target.write(address, &bytes) {
        Ok(()) => Answer::Value(0),
        Err(_) => Answer::Errno(libc::EFAULT),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
    use super::*;

    fn stable(path: &Path) -> Stable {
        let place = rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
        let status = rustix::fs::fstat(&place).unwrap();
        Stable { place, path: path.to_owned(), status }
    }

    const ALL: Option<Range> = Some(Range { start: 0, len: 0 });

    #[test]
    fn a_lock_is_held_until_the_last_clone_is_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stable = stable(file.path());
        for range in [None, ALL] {
            let (one, other) = (Locks::default(), Locks::default());
            let wanted = Wanted { exclusive: true, range, wait: false };
            one.take(&stable, wanted).unwrap();
            one.take(&stable, wanted).unwrap();
            let clone = one.clone();
            drop(one);
            assert_eq!(other.take(&stable, wanted), Err(Errno::AGAIN));
            let shared = Wanted { exclusive: false, ..wanted };
            // Asking for less does not give up what is held.
            clone.take(&stable, shared).unwrap();
            assert_eq!(other.take(&stable, shared), Err(Errno::AGAIN));
            drop(clone);
            other.take(&stable, wanted).unwrap();
        }
    }

    #[test]
    fn shared_locks_of_two_meet_and_ranges_are_kept_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stable = stable(file.path());
        let (one, other) = (Locks::default(), Locks::default());
        let shared = Wanted { exclusive: false, range: ALL, wait: false };
        one.take(&stable, shared).unwrap();
        other.take(&stable, shared).unwrap();
        let range = Range { start: 5, len: 5 };
        assert!(!one.find(&stable, true, range).unwrap().0);
        drop(other);
        assert!(one.find(&stable, true, range).is_none());
    }

    #[test]
    fn operations_are_understood() {
        assert!(matches!(flock(libc::LOCK_UN), Asked::Nothing));
        let Asked::Take(wanted) = flock(libc::LOCK_EX | libc::LOCK_NB) else { panic!() };
        assert_eq!(wanted, Wanted { exclusive: true, range: None, wait: false });
    }
}
