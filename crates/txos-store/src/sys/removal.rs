use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags, ResolveFlags, accessat, openat2},
    io::Errno,
};
use txos_host::{Tree, read_listing};

use super::disk::{Disk, Name, disk};
use crate::{Result, StoreError};

/// Removes `path` and all below it, following no link and entering no mount; an absent
/// path is no error, nor is what somebody else removes meanwhile. Directories of ours that we may not search are opened up first: the overlay
/// leaves some with mode 0.
pub(crate) fn remove_tree(tree: &Tree, path: &Path) -> Result<()> {
    let shown = tree.at().join(path);
    let failed = |errno| StoreError::io("remove", &shown, errno);
    let dir = match tree.dir(path.parent().unwrap_or(Path::new(""))) {
        Ok(dir) => dir,
        Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let Some(name) = path.file_name() else { return Err(failed(Errno::BUSY)) };
    match unlink(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let Some(first) = Level::enter(&dir, name.to_owned(), &shown)? else { return Ok(()) };
    let mut levels = vec![first];
    let mut ended = Ended::default();
    while let Some(level) = levels.last_mut() {
        match level.children.pop() {
            Some(child) => match unlink(&level.fd, &child, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    let next = Level::enter(&level.fd, child, &shown)?;
                    levels.extend(next);
                }
                Err(errno) => return Err(failed(errno)),
            },
            None => {
                let Some(done) = levels.pop() else { break };
                let parent = levels.last().map_or(&dir, |level| &level.fd);
                match unlink(parent, &done.name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                ended.push(done.fd);
            }
        }
    }
    Ok(())
}

/// Directories that have lost their names and are freed when their descriptors are closed.
///
/// Freeing one can take milliseconds: ext4 without a journal waits until the device has discarded
/// its block (`discard` in ext4(5)), 12 times for an empty transaction. A device discards many
/// blocks at once in hardly more time than one, so the waits are made at the same time.
#[derive(Default)]
struct Ended(Vec<OwnedFd>);

impl Ended {
    /// Most descriptors that are held, and most threads at a time.
    const MOST: usize = 32;
    /// What freeing takes at most where there is nothing to wait for.
    const QUICK: Duration = Duration::from_micros(100);

    fn push(&mut self, dir: OwnedFd) {
        self.0.push(dir);
        if self.0.len() >= Self::MOST {
            self.free();
        }
    }

    fn free(&mut self) {
        let mut slow = false;
        thread::scope(|scope| {
            for dir in self.0.drain(..) {
                if slow {
                    // Where no thread is to be had the closure is dropped, and `dir` with it.
                    let _ = thread::Builder::new().spawn_scoped(scope, move || drop(dir));
                } else {
                    let began = Instant::now();
                    drop(dir);
                    slow = began.elapsed() > Self::QUICK;
                }
            }
        });
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.free();
    }
}

/// A directory being emptied; one descriptor for each level.
struct Level {
    name: OsString,
    fd: OwnedFd,
    children: Vec<OsString>,
}

impl Level {
    fn enter(parent: impl AsFd, name: OsString, shown: &Path) -> Result<Option<Level>> {
        let failed = |errno| StoreError::io("remove", PathBuf::from(shown), errno);
        let fd = match open_dir(parent, &name) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed)?,
        };
        let listing = read_listing(&fd).map_err(failed)?;
        let children = listing.entries.into_iter().map(|entry| entry.name).collect();
        Ok(Some(Level { name, fd, children }))
    }
}

fn unlink(dir: impl AsFd, name: &OsStr, flags: AtFlags) -> std::result::Result<(), Errno> {
    disk().unlink(Name { dir: dir.as_fd(), name }, flags)
}

fn open_dir(parent: impl AsFd, name: &OsStr) -> std::result::Result<OwnedFd, Errno> {
    let open = |flags| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&parent, name, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let place = open(OFlags::PATH)?;
    let writable = || accessat(&place, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS);
    match open(OFlags::RDONLY) {
        Ok(fd) if writable().is_ok() => Ok(fd),
        Ok(_) | Err(Errno::ACCESS) => {
            disk().chmod(place.as_fd(), 0o700)?;
            open(OFlags::RDONLY)
        }
        Err(errno) => Err(errno),
    }
}
