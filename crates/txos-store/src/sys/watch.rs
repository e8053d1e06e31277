//! The disk as tests see it: a watcher is asked before each call and told afterwards.
//!
//! # Fault model
//!
//! - *Kill*: the call and all after it on this thread do nothing and fail with an errno that no
//!   code handles, so that no clean-up reaches the disk either.
//! - *Failure*: the call does nothing and fails once with the given errno.
//! - *Short count*: a write takes a part of its bytes.
//!
//! The watcher belongs to the thread; without one the calls go straight to the kernel.

use std::{
    cell::RefCell,
    ffi::{CStr, OsStr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustix::{
    fs::{AtFlags, FileType, RenameFlags, Timestamps},
    io::Errno,
};

use super::disk::{Disk, Flush, Io, Kernel, Name};

/// What a kill looks like to the code that runs into it.
pub(crate) const KILLED: Errno = Errno::OWNERDEAD;

#[allow(dead_code)] // watchers look at what they need
/// A call with what it is about; descriptors are those of the caller.
#[derive(Clone, Copy)]
pub(crate) enum Call<'a> {
    Write {
        file: BorrowedFd<'a>,
        bytes: &'a [u8],
        offset: u64,
    },
    Resize {
        file: BorrowedFd<'a>,
        size: u64,
    },
    Punch {
        file: BorrowedFd<'a>,
        offset: u64,
        length: u64,
    },
    Reserve {
        file: BorrowedFd<'a>,
    },
    Flush {
        file: BorrowedFd<'a>,
        what: Flush,
    },
    FlushFs {
        dir: BorrowedFd<'a>,
    },
    /// A new object, whatever its kind, under a name.
    Make {
        at: Name<'a>,
    },
    /// A new file without a name.
    Unnamed,
    Bind {
        file: BorrowedFd<'a>,
        to: Name<'a>,
    },
    Link {
        from: Name<'a>,
        to: Name<'a>,
    },
    Rename {
        from: Name<'a>,
        to: Name<'a>,
        flags: RenameFlags,
    },
    Unlink {
        at: Name<'a>,
        flags: AtFlags,
    },
    Attributes {
        object: BorrowedFd<'a>,
    },
}

#[allow(dead_code)] // as above
/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is done.
    Pass,
    /// It fails, and so do all after it.
    Kill,
    /// It fails this once.
    Fail(Errno),
    /// A write takes half of its bytes; anything else is done.
    Short,
}

/// Decides about calls and is told of them.
pub(crate) trait Watcher {
    /// Before the call.
    fn before(&mut self, call: &Call<'_>) -> Fate;

    /// Acts in the kernel's place, where it wants to.
    fn instead(&mut self, _call: &Call<'_>) -> Option<Io<()>> {
        None
    }

    /// After the call succeeded. `made` is the object that a call without a name made; `count` how
    /// much was written.
    fn after(&mut self, _call: &Call<'_>, _made: Option<BorrowedFd<'_>>, _count: usize) {}
}

thread_local! {
    static WATCHER: RefCell<Option<Rc<RefCell<dyn Watcher>>>> = const { RefCell::new(None) };
    static DEAD: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Lets `watcher` watch all calls of this thread while `act` runs; a kill ends with it.
pub(crate) fn watched<R>(watcher: Rc<RefCell<dyn Watcher>>, act: impl FnOnce() -> R) -> R {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            WATCHER.with_borrow_mut(Option::take);
            DEAD.set(false);
        }
    }
    WATCHER.with_borrow_mut(|slot| *slot = Some(watcher));
    let _off = Off;
    act()
}

/// Whether this thread was killed: what is shared in memory must then stay as it is, too.
pub(crate) fn dead() -> bool {
    DEAD.get()
}

thread_local! {
    static ORDERED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Lets the file systems of this thread pass for such as flush names along with objects.
pub(crate) fn pass_for_ordered(ordered: bool) {
    ORDERED.set(ordered);
}

/// Whether they shall.
pub(crate) fn passes_for_ordered() -> bool {
    ORDERED.get()
}

/// Kills at the `calls`-th call from now, counting from 0.
pub(crate) struct KillAt(pub u64);

impl Watcher for KillAt {
    fn before(&mut self, _call: &Call<'_>) -> Fate {
        match self.0 {
            0 => Fate::Kill,
            _ => {
                self.0 -= 1;
                Fate::Pass
            }
        }
    }
}

/// Kills at the first call after a commit record was flushed.
#[derive(Default)]
pub(crate) struct KillAfterRecord {
    written: bool,
    flushed: bool,
}

impl Watcher for KillAfterRecord {
    fn before(&mut self, _call: &Call<'_>) -> Fate {
        if self.flushed { Fate::Kill } else { Fate::Pass }
    }

    fn after(&mut self, call: &Call<'_>, _made: Option<BorrowedFd<'_>>, _count: usize) {
        match call {
            Call::Write { file, bytes, .. } => {
                self.written |= bytes.starts_with(b"TXJR") && journaled(*file);
            }
            Call::Flush { file, .. } => self.flushed |= self.written && journaled(*file),
            _ => {}
        }
    }
}

/// Fails so many flushes of the journal, from that of a commit record on.
pub(crate) struct FailRecordFlush {
    written: bool,
    left: u32,
}

impl FailRecordFlush {
    pub(crate) fn times(left: u32) -> FailRecordFlush {
        FailRecordFlush { written: false, left }
    }
}

impl Watcher for FailRecordFlush {
    fn before(&mut self, call: &Call<'_>) -> Fate {
        match call {
            Call::Write { file, bytes, .. } => {
                self.written |= bytes.starts_with(b"TXJR") && journaled(*file);
                Fate::Pass
            }
            Call::Flush { file, .. } if self.written && self.left > 0 && journaled(*file) => {
                self.left -= 1;
                Fate::Fail(Errno::IO)
            }
            _ => Fate::Pass,
        }
    }
}

fn journaled(file: BorrowedFd<'_>) -> bool {
    let path = std::fs::read_link(super::disk::magic(file)).unwrap_or_default();
    path.parent().is_some_and(|dir| dir.ends_with("journal"))
}

/// The kernel's disk behind a watcher.
#[derive(Clone, Copy)]
pub(crate) struct Watched;

pub(crate) fn disk() -> Watched {
    Watched
}

fn pass<R>(
    call: Call<'_>,
    act: impl FnOnce(bool) -> Io<R>,
    told: impl Fn(&R, &mut dyn Watcher),
) -> Io<R> {
    let _ = &call;
    if dead() {
        return Err(KILLED);
    }
    let watcher = WATCHER.with_borrow(Clone::clone);
    let Some(watcher) = watcher else { return act(false) };
    let fate = watcher.borrow_mut().before(&call);
    let done = match fate {
        Fate::Pass => act(false),
        Fate::Short => act(true),
        Fate::Fail(errno) => Err(errno),
        Fate::Kill => {
            DEAD.set(true);
            Err(KILLED)
        }
    };
    if let Ok(done) = &done {
        told(done, &mut *watcher.borrow_mut());
    }
    done
}

fn plain(call: Call<'_>, act: impl FnOnce() -> Io<()>) -> Io<()> {
    let watcher = WATCHER.with_borrow(Clone::clone);
    let instead = |watcher: Rc<RefCell<dyn Watcher>>| watcher.borrow_mut().instead(&call);
    pass(
        call,
        |_| watcher.and_then(instead).unwrap_or_else(act),
        |(), watcher| watcher.after(&call, None, 0),
    )
}

impl Disk for Watched {
    fn write(&self, file: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Io<usize> {
        let call = Call::Write { file, bytes, offset };
        let act = |short| {
            let length = if short { bytes.len().div_ceil(2) } else { bytes.len() };
            Kernel.write(file, &bytes[..length], offset)
        };
        pass(call, act, |count, watcher| watcher.after(&call, None, *count))
    }

    fn resize(&self, file: BorrowedFd<'_>, size: u64) -> Io<()> {
        plain(Call::Resize { file, size }, || Kernel.resize(file, size))
    }

    fn punch(&self, file: BorrowedFd<'_>, offset: u64, length: u64) -> Io<()> {
        plain(Call::Punch { file, offset, length }, || Kernel.punch(file, offset, length))
    }

    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Io<()> {
        plain(Call::Reserve { file }, || Kernel.reserve(file, size))
    }

    fn flush(&self, file: BorrowedFd<'_>, what: Flush) -> Io<()> {
        plain(Call::Flush { file, what }, || Kernel.flush(file, what))
    }

    fn flush_fs(&self, dir: BorrowedFd<'_>) -> Io<()> {
        plain(Call::FlushFs { dir }, || Kernel.flush_fs(dir))
    }

    fn create(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<OwnedFd> {
        let call = Call::Make { at: Name { dir, name } };
        pass(call, |_| Kernel.create(dir, name, mode), |_, watcher| watcher.after(&call, None, 0))
    }

    fn unnamed(&self, dir: BorrowedFd<'_>, mode: u32) -> Io<OwnedFd> {
        let told = |file: &OwnedFd, watcher: &mut dyn Watcher| {
            watcher.after(&Call::Unnamed, Some(file.as_fd()), 0);
        };
        pass(Call::Unnamed, |_| Kernel.unnamed(dir, mode), told)
    }

    fn bind(&self, file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()> {
        plain(Call::Bind { file, to: Name { dir, name } }, || Kernel.bind(file, dir, name))
    }

    fn mkdir(&self, dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Io<()> {
        plain(Call::Make { at: Name { dir, name } }, || Kernel.mkdir(dir, name, mode))
    }

    fn symlink(&self, target: &CStr, dir: BorrowedFd<'_>, name: &OsStr) -> Io<()> {
        plain(Call::Make { at: Name { dir, name } }, || Kernel.symlink(target, dir, name))
    }

    fn mknod(&self, dir: BorrowedFd<'_>, name: &OsStr, kind: FileType, device: u64) -> Io<()> {
        plain(Call::Make { at: Name { dir, name } }, || Kernel.mknod(dir, name, kind, device))
    }

    fn link(&self, from: Name<'_>, to: Name<'_>) -> Io<()> {
        plain(Call::Link { from, to }, || Kernel.link(from, to))
    }

    fn rename(&self, from: Name<'_>, to: Name<'_>, flags: RenameFlags) -> Io<()> {
        plain(Call::Rename { from, to, flags }, || Kernel.rename(from, to, flags))
    }

    fn unlink(&self, at: Name<'_>, flags: AtFlags) -> Io<()> {
        plain(Call::Unlink { at, flags }, || Kernel.unlink(at, flags))
    }

    fn chmod(&self, object: BorrowedFd<'_>, perm: u32) -> Io<()> {
        plain(Call::Attributes { object }, || Kernel.chmod(object, perm))
    }

    fn chown(&self, object: BorrowedFd<'_>, uid: u32, gid: u32) -> Io<()> {
        plain(Call::Attributes { object }, || Kernel.chown(object, uid, gid))
    }

    fn set_xattr(&self, object: BorrowedFd<'_>, name: &CStr, value: Option<&[u8]>) -> Io<()> {
        plain(Call::Attributes { object }, || Kernel.set_xattr(object, name, value))
    }

    fn set_times(&self, object: BorrowedFd<'_>, times: &Timestamps) -> Io<()> {
        plain(Call::Attributes { object }, || Kernel.set_times(object, times))
    }
}
