use std::{
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};
use txos_core::Attrs;

use crate::{HostError, Result, attrs_at, attrs_of};

/// A pinned directory beneath which paths are resolved; for the whole system, `/`.
///
/// Paths given to it may be absolute (`/` then stands for the pinned directory) or relative, and
/// hold no `..`.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    at: PathBuf,
}

/// So many bytes of a path are resolved at once; the kernel takes 4095 (`PATH_MAX`).
const STRETCH: usize = 3000;

const WALK: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

impl Tree {
    /// Pins the directory `at`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(at: impl AsRef<Path>) -> Result<Self> {
        let at = at.as_ref();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, at, flags, Mode::empty())
            .map_err(|errno| HostError::object("open the directory", at, errno))?;
        Ok(Tree { root, at: at.to_owned() })
    }

    /// The pinned directory.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Where the pinned directory was when it was opened.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Opens `path` with `flags`, following no symbolic link, not even a last one
    /// (`O_PATH | O_NOFOLLOW` opens the link itself).
    ///
    /// # Errors
    /// What `openat2(2)` gives: `ELOOP` where a parent is a link, `EXDEV` where the path leaves
    /// the tree.
    pub fn open_at(&self, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let relative = beneath(path);
        let open = |dir: BorrowedFd<'_>, path: &Path, flags| {
            openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), WALK)
        };
        if relative.as_os_str().len() <= STRETCH {
            return open(self.root(), relative, flags);
        }
        // Longer than the kernel takes at once: on the way, a directory every so often.
        let mut at: Option<OwnedFd> = None;
        let mut stretch = PathBuf::new();
        for part in relative {
            if stretch.as_os_str().len() + part.len() > STRETCH {
                let dir = at.as_ref().map_or(self.root(), AsFd::as_fd);
                at = Some(open(dir, &stretch, OFlags::PATH | OFlags::DIRECTORY)?);
                stretch.clear();
            }
            stretch.push(part);
        }
        open(at.as_ref().map_or(self.root(), AsFd::as_fd), &stretch, flags)
    }

    /// Opens the directory `path` so that names in it can be examined and changed (`O_PATH`).
    ///
    /// # Errors
    /// If the path is not a directory reached without symbolic links.
    pub fn dir(&self, path: &Path) -> Result<OwnedFd> {
        self.open_at(path, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| HostError::object("open the directory", path, errno))
    }

    /// Opens the parent of `path` and gives the last name.
    ///
    /// # Errors
    /// If the parent cannot be opened, or the path is the root.
    pub fn parent<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr)> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(HostError::object("open the parent of", path, Errno::BUSY));
        };
        Ok((self.dir(parent)?, name))
    }

    /// The attributes of `path`; `None` if it, or a parent of it, is absent, or a link is in the parent's
    /// place.
    ///
    /// # Errors
    /// If the path cannot be examined for another reason.
    pub fn attrs(&self, path: &Path) -> Result<Option<Attrs>> {
        let failed = |errno| HostError::object("read the attributes of", path, errno);
        let Some(name) = path.file_name() else {
            return attrs_of(&self.root).map(Some).map_err(failed);
        };
        let parent = path.parent().unwrap_or(Path::new(""));
        match self.open_at(parent, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(dir) => attrs_at(dir, name).map_err(failed),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// `path` as `openat2` wants it beneath a directory: relative, and `.` for the directory itself.
fn beneath(path: &Path) -> &Path {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.as_os_str().is_empty() { Path::new(".") } else { relative }
}
