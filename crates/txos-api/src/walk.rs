//! From a path to a node: names are looked up one by one, in the shadow first.
//!
//! Symbolic links are followed as the kernel does (`path_resolution(7)`), at most
//! [`MOST_LINKS`] of them, but by this code: so that links and directories that the transaction
//! has made, moved or removed count, and so that what was walked through is known.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags, openat, readlinkat},
    io::Errno,
};
use txos_host::{attrs_at, attrs_of, open_content};

use crate::{
    shadow::{Binding, Body, Ix, Shadow},
    transaction::Transaction,
};

/// As many links as the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// So many directories, and so many files, are kept open.
const MOST_HANDLES: usize = 200;

/// Where a path leads.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The directory of the last name, and that name; `None` for the root and what ends in a dot.
    pub name: Option<(Ix, OsString)>,
    /// What is there.
    pub object: Option<Ix>,
}

impl Transaction {
    /// Follows `path`; its last part too if it is a symbolic link and `follow`.
    pub(crate) fn walk(&mut self, path: &Path, follow: bool) -> Result<Place, Errno> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(Errno::NOENT);
        }
        if bytes.contains(&0) {
            return Err(Errno::INVAL);
        }
        let mut left: VecDeque<OsString> = VecDeque::new();
        if !path.is_absolute() {
            let begin = self.begin_at.clone();
            prepend(&mut left, begin.as_os_str());
        }
        append(&mut left, path.as_os_str());
        let mut place = Place { name: None, object: Some(Ix::ROOT) };
        let mut links = 0;
        while let Some(part) = left.pop_front() {
            let dir = match place.object {
                Some(object) => object,
                None => return Err(Errno::NOENT),
            };
            if self.shadow.dir(dir).is_none() {
                return Err(Errno::NOTDIR);
            }
            self.walk_through(dir);
            if part == "." {
                place = Place { name: None, object: Some(dir) };
                continue;
            }
            if part == ".." {
                let parent = self.shadow.dir(dir).and_then(|body| body.parent.as_ref());
                let above = parent.map_or(Ix::ROOT, |(above, _)| *above);
                place = Place { name: None, object: Some(above) };
                continue;
            }
            let object = self.lookup(dir, &part)?;
            if let Some(link) = object.filter(|object| self.is_link(*object))
                && (follow || !left.is_empty())
            {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP);
                }
                let target = self.target(link)?;
                if target.is_empty() {
                    return Err(Errno::NOENT);
                }
                prepend(&mut left, &target);
                let begin = if target.as_bytes()[0] == b'/' { Ix::ROOT } else { dir };
                place = Place { name: None, object: Some(begin) };
                continue;
            }
            place = Place { name: Some((dir, part)), object };
        }
        Ok(place)
    }

    /// What `name` in `dir` is bound to.
    pub(crate) fn lookup(&mut self, dir: Ix, name: &OsStr) -> Result<Option<Ix>, Errno> {
        if name.as_bytes().len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        let body = self.shadow.dir(dir).ok_or(Errno::NOTDIR)?;
        if let Some(binding) = body.names.get(name) {
            return Ok(binding.now);
        }
        let stable = if self.shadow.node(dir).stable.is_none() {
            None
        } else {
            let handle = self.handle(dir)?;
            attrs_at(&*handle, name)?
                .map(|attrs| self.shadow.stable(attrs, Some((dir, name.to_owned()))))
        };
        if let Some(body) = self.shadow.dir_mut(dir) {
            body.names.insert(name.to_owned(), Binding { stable, now: stable });
        }
        Ok(stable)
    }

    /// A stable directory, open for lookups.
    pub(crate) fn handle(&mut self, dir: Ix) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(handle) = self.shadow.dir(dir).and_then(|body| body.handle.clone()) {
            return Ok(handle);
        }
        let (parent, name) = home(&self.shadow, dir)?;
        let above = self.handle(parent)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = Arc::new(openat(&*above, &name, flags, Mode::empty())?);
        self.same(dir, &*handle)?;
        if self.handles >= MOST_HANDLES {
            self.close_handles();
        }
        self.handles += 1;
        if let Some(body) = self.shadow.dir_mut(dir) {
            body.handle = Some(Arc::clone(&handle));
        }
        Ok(handle)
    }

    /// A stable file, open for reading.
    pub(crate) fn file(&mut self, ix: Ix) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(file) = self.files.get(&ix) {
            return Ok(Arc::clone(file));
        }
        let (dir, name) = home(&self.shadow, ix)?;
        let file = Arc::new(open_content(&*self.handle(dir)?, &name)?);
        self.same(ix, &*file)?;
        if self.files.len() >= MOST_HANDLES {
            self.files.clear();
        }
        self.files.insert(ix, Arc::clone(&file));
        Ok(file)
    }

    /// The target of a symbolic link.
    pub(crate) fn target(&mut self, ix: Ix) -> Result<OsString, Errno> {
        if let Body::Symlink(Some(target)) = &self.shadow.node(ix).body {
            return Ok(target.clone());
        }
        let (dir, name) = home(&self.shadow, ix)?;
        let handle = self.handle(dir)?;
        let target = OsString::from_vec(readlinkat(&*handle, &name, Vec::new())?.into_bytes());
        let node = self.shadow.node_mut(ix);
        node.body = Body::Symlink(Some(target.clone()));
        if let Some(stable) = &mut node.stable {
            stable.seen.link = Some(target.clone());
        }
        Ok(target)
    }

    fn is_link(&self, ix: Ix) -> bool {
        matches!(self.shadow.node(ix).body, Body::Symlink(_))
    }

    fn walk_through(&mut self, dir: Ix) {
        if let Some(stable) = &mut self.shadow.node_mut(dir).stable {
            stable.seen.perms = true;
        }
    }

    /// Whether `fd` is the object of `ix`; else somebody has changed the name since it was first
    /// looked up, and the transaction is lost.
    fn same(&mut self, ix: Ix, fd: impl AsFd) -> Result<(), Errno> {
        let now = attrs_of(fd)?;
        match &self.shadow.node(ix).stable {
            Some(stable) if stable.attrs.id == now.id => Ok(()),
            _ => {
                self.doom(ix);
                Err(Errno::STALE)
            }
        }
    }

    fn close_handles(&mut self) {
        self.handles = 0;
        self.shadow.close_handles();
    }
}

fn home(shadow: &Shadow, ix: Ix) -> Result<(Ix, OsString), Errno> {
    let stable = shadow.node(ix).stable.as_ref();
    stable.and_then(|stable| stable.home.clone()).ok_or(Errno::STALE)
}

fn parts(path: &OsStr) -> impl DoubleEndedIterator<Item = OsString> {
    let bytes = path.as_bytes();
    // A slash at the end asks for a directory, as a dot after it does.
    let dot = (bytes.last() == Some(&b'/')).then(|| OsString::from("."));
    let parts = bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(|part| OsStr::from_bytes(part).to_owned()).chain(dot)
}

fn append(left: &mut VecDeque<OsString>, path: &OsStr) {
    left.extend(parts(path));
}

fn prepend(left: &mut VecDeque<OsString>, path: &OsStr) {
    for part in parts(path).rev() {
        left.push_front(part);
    }
}
