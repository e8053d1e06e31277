use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags, ResolveFlags, accessat, chmod, openat2, unlinkat},
    io::Errno,
};
use txos_host::{Tree, read_listing};

use crate::{Result, StoreError};

/// Removes `path` and all below it, following no link and entering no mount; an absent
/// path is no error. Directories of ours that we may not search are opened up first: the overlay
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
    match unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let mut levels = vec![Level::enter(&dir, name.to_owned(), &shown)?];
    while let Some(level) = levels.last_mut() {
        match level.children.pop() {
            Some(child) => match unlinkat(&level.fd, &child, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    let next = Level::enter(&level.fd, child, &shown)?;
                    levels.push(next);
                }
                Err(errno) => return Err(failed(errno)),
            },
            None => {
                let Some(done) = levels.pop() else { break };
                drop(done.fd);
                let parent = levels.last().map_or(&dir, |level| &level.fd);
                match unlinkat(parent, &done.name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
    }
    Ok(())
}

/// A directory being emptied; one descriptor for each level.
struct Level {
    name: OsString,
    fd: OwnedFd,
    children: Vec<OsString>,
}

impl Level {
    fn enter(parent: impl AsFd, name: OsString, shown: &Path) -> Result<Level> {
        let failed = |errno| StoreError::io("remove", PathBuf::from(shown), errno);
        let fd = open_dir(parent, &name).map_err(failed)?;
        let listing = read_listing(&fd).map_err(failed)?;
        let children = listing.entries.into_iter().map(|entry| entry.name).collect();
        Ok(Level { name, fd, children })
    }
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
            chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), Mode::RWXU)?;
            open(OFlags::RDONLY)
        }
        Err(errno) => Err(errno),
    }
}
