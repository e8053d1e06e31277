//! Where a thread is: its mount namespace, its root and its working directory.
//!
//! # Invariants
//!
//! - No thread goes on in a view whose transaction is over.
//! - A thread unshares its file system attributes once, before it enters a view for the first time: no
//!   other thread is ever taken along.
//! - Outside is the mount namespace that the thread was in when it began; whatever happens inside, it is
//!   back there, with its root, after the end.
//! - The umask is not touched by any of this.

use std::{
    ffi::CString,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    rc::Rc,
    sync::OnceLock,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, mkdir, open, readlink, rmdir, stat, statx},
    io::Errno,
    process::{chdir, chroot, fchdir, getcwd},
    rand::{GetRandomFlags, getrandom},
};

use crate::{
    descriptors::{self, high},
    sys::{self, Held},
};

/// A mount namespace and a root. A thread keeps those that it was in last: it is there the next time, too.
#[derive(Debug)]
pub(crate) struct Home {
    namespace: Held,
    root: Held,
    /// Of the root.
    identity: (u64, u64),
}

/// What a thread has to get back to.
#[derive(Debug)]
pub(crate) struct Outside {
    home: Rc<Home>,
    directory: Held,
    /// Path of the working directory.
    path: CString,
    /// Path of the root, if that is not the root of the namespace.
    chroot: Option<CString>,
}

impl Outside {
    /// Where the calling thread is now. What it knows of its home is used if it still is there.
    ///
    /// # Errors
    /// `ENOENT` if the working directory was removed: it has no place in a view.
    pub(crate) fn here(known: &mut Option<Rc<Home>>) -> Result<Outside, Errno> {
        let home = Outside::home(known)?;
        let _low = descriptors::low();
        let directory = held(".", OFlags::PATH | OFlags::DIRECTORY)?;
        let path = getcwd(Vec::new())?;
        if !path.to_bytes().starts_with(b"/") {
            return Err(Errno::NOENT);
        }
        Ok(Outside { home, directory, path, chroot: None })
    }

    /// The home of the calling thread. What is known of it is used if it still is there.
    ///
    /// # Errors
    /// If the process is out of descriptors, or `/proc` is not mounted.
    pub(crate) fn home(known: &mut Option<Rc<Home>>) -> Result<Rc<Home>, Errno> {
        let _low = descriptors::low();
        match known {
            Some(home) if home.is_here()? => Ok(Rc::clone(home)),
            _ => {
                // Before its numbers are given out again, if the program has closed them.
                *known = None;
                Ok(Rc::clone(known.insert(Rc::new(Home::here()?))))
            }
        }
    }

    /// Enters a view, at the same places. The thread's file system attributes are its own already.
    ///
    /// # Errors
    /// If a place is not there in the view; the thread is outside then.
    pub(crate) fn enter(&mut self, view: BorrowedFd<'_>) -> Result<(), Errno> {
        let inside = (|| {
            self.chroot = self.chroot_path()?;
            sys::enter_mounts(view)?;
            if let Some(root) = &self.chroot {
                chroot(root)?;
            }
            chdir(&self.path)
        })();
        if inside.is_err() {
            self.leave(Where::AsBefore);
        }
        inside
    }

    /// Leaves the view for where the thread was before.
    ///
    /// If the kernel refuses, since the thread gave up for good the right to do so, the process ends, and
    /// the transaction with it: it must not go on in a view that nobody else sees and that never commits.
    pub(crate) fn leave(&self, directory: Where) {
        if let Err(errno) = self.go_back(directory) {
            sys::end_process(&format!("cannot leave the view of the transaction: {errno}"));
        }
    }

    fn go_back(&self, directory: Where) -> Result<(), Errno> {
        // A thread that was started inside shares these attributes by now.
        sys::unshare_fs()?;
        sys::enter_mounts(self.home.namespace.as_fd())?;
        if self.chroot.is_some() {
            fchdir(&self.home.root)?;
            chroot(c".")?;
        }
        match directory {
            // What has gone meanwhile can't be entered; the old place is as good as any other then.
            Where::At(path) if chdir(&path).is_ok() => Ok(()),
            _ => fchdir(&self.directory),
        }
    }

    /// The path of the root in its namespace; `None` for the namespace's own root. The working directory
    /// is anywhere afterwards.
    fn chroot_path(&self) -> Result<Option<CString>, Errno> {
        let Home { namespace, root, identity: own } = &*self.home;
        if NAMESPACE_ROOT.get().is_some_and(|known| known == own) {
            return Ok(None);
        }
        // Entering a namespace, even one's own, leads to its root (setns(2)).
        sys::enter_mounts(namespace.as_fd())?;
        let top = open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let top = identity(top.as_fd(), "").unwrap_or_default();
        if NAMESPACE_ROOT.get_or_init(|| top) == own {
            return Ok(None);
        }
        // From up there the way to it shows.
        let link = format!("/proc/thread-self/fd/{}", root.as_raw_fd());
        readlink(link, Vec::new()).map(Some)
    }
}

/// What the namespace's own root is, once it was looked up.
static NAMESPACE_ROOT: OnceLock<(u64, u64)> = OnceLock::new();

impl Home {
    fn here() -> Result<Home, Errno> {
        let namespace = held(NAMESPACE, OFlags::RDONLY)?;
        let root = held("/", OFlags::PATH | OFlags::DIRECTORY)?;
        let identity = identity(root.as_fd(), "")?;
        Ok(Home { namespace, root, identity })
    }

    /// Whether the calling thread is there, and the descriptors are what they were.
    fn is_here(&self) -> Result<bool, Errno> {
        let namespace = stat(NAMESPACE)?;
        Ok(self.namespace.is((namespace.st_dev, namespace.st_ino))
            && identity(CWD, "/")? == self.identity
            && self.namespace.is_intact()
            && self.root.is_intact())
    }
}

/// The calling thread's mount namespace (proc_pid_ns(5)).
const NAMESPACE: &str = "/proc/thread-self/ns/mnt";

fn held(path: &str, flags: OFlags) -> Result<Held, Errno> {
    let opened = open(path, flags | OFlags::CLOEXEC, Mode::empty())?;
    Held::dup(opened.as_fd(), high())
}

/// Whether the calling thread's root is on one of these mounts.
pub(crate) fn root_is_on(mounts: &[u32]) -> bool {
    identity(CWD, "/")
        .is_ok_and(|(mount, _)| u32::try_from(mount).is_ok_and(|id| mounts.contains(&id)))
}

/// Mount and inode.
fn identity(of: BorrowedFd<'_>, path: &str) -> Result<(u64, u64), Errno> {
    let stat = statx(of, path, AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::MNT_ID)?;
    Ok((stat.stx_mnt_id, stat.stx_ino))
}

/// Where a thread's working directory is after it left a view.
#[derive(Debug)]
pub(crate) enum Where {
    /// Where it was before.
    AsBefore,
    /// Where it went inside.
    At(CString),
}

/// Goes to the directory where a thread was inside, after the commit. If somebody has removed it already,
/// the thread is in a directory that is not there any more, as it would be without a transaction.
pub(crate) fn go_to(path: &CString) {
    let gone = || {
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let name = format!("/tmp/.txos-{:016x}", u64::from_ne_bytes(random));
        mkdir(&name, Mode::RWXU)?;
        let entered = chdir(&name);
        rmdir(&name)?;
        entered
    };
    if let Err(errno) = chdir(path).or_else(|_| gone()) {
        sys::end_process(&format!("cannot enter the working directory: {errno}"));
    }
}

/// The path of the working directory, where it has one.
pub(crate) fn working_directory() -> Where {
    match getcwd(Vec::new()) {
        Ok(path) if path.to_bytes().starts_with(b"/") => Where::At(path),
        _ => Where::AsBefore,
    }
}
