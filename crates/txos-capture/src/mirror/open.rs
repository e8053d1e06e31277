//! Opening the stable object behind a node.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::PathBuf,
    sync::Arc,
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    time::{ClockId, clock_gettime},
};
use txos_core::{Attrs, Facet, FileKind, NodeId, Seen, Stamp, workset::Facets};
use txos_host::{WriterProbe, attrs_of, open_content, open_dir_below, probe_writers};

use super::{Mirror, lock};

/// An open regular file of the stable system.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) fd: OwnedFd,
    /// Whether an unchanged change time will prove an unchanged content.
    pub(crate) proven: bool,
}

/// How to get to a directory: from an open one above it (`None`: the root), by a relative path.
struct WayDown {
    from: Option<Arc<OwnedFd>>,
    path: PathBuf,
}

impl Mirror {
    /// The directory of a node, open (`O_PATH`), and the same object as in the workset.
    ///
    /// # Errors
    /// `ESTALE` if something else is in its place now; the transaction is doomed then.
    pub(crate) fn dir(&self, node: NodeId) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(open) = lock(&self.dirs).get(node) {
            return Ok(open);
        }
        let WayDown { from, path } = self.way_down(node)?;
        let at = from.as_ref().map_or(self.tree.root(), |dir| dir.as_fd());
        let open = match open_dir_below(at, &path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(self.lost(node, Seen::Removed));
            }
            other => Arc::new(other?),
        };
        if attrs_of(&open)?.id != self.first_attrs(node)?.id {
            return Err(self.lost(node, Seen::Replaced));
        }
        lock(&self.dirs).insert(node, Arc::clone(&open));
        Ok(open)
    }

    fn lost(&self, node: NodeId, seen: Seen) -> Errno {
        self.doom_node(node, Facet::Binding, seen);
        Errno::STALE
    }

    /// The nearest open directory above a node, and the relative path from there to it.
    fn way_down(&self, node: NodeId) -> Result<WayDown, Errno> {
        let known = self.known();
        let mut names = Vec::new();
        let mut at = node;
        let mut from = None;
        while let Some((dir, name)) = known.workset.first_name(at) {
            names.push(name);
            at = dir;
            from = lock(&self.dirs).get(at);
            if from.is_some() {
                break;
            }
        }
        if names.is_empty() && node != NodeId::ROOT {
            return Err(Errno::STALE);
        }
        let path = names.into_iter().rev().map(OsStr::from_bytes).collect();
        Ok(WayDown { from, path })
    }

    /// The open directory that holds a node's first name, and that name.
    pub(crate) fn place(&self, node: NodeId) -> Result<(Arc<OwnedFd>, OsString), Errno> {
        let (dir, name) = {
            let known = self.known();
            let (dir, name) = known.workset.first_name(node).ok_or(Errno::STALE)?;
            (dir, OsString::from_vec(name.to_vec()))
        };
        Ok((self.dir(dir)?, name))
    }

    /// The file of a node, open for reading, of the version in the workset. Its content counts as
    /// read from here on.
    ///
    /// # Errors
    /// `ESTALE` if it has changed; the transaction is doomed then.
    pub(crate) fn file(&self, node: NodeId) -> Result<Arc<OpenFile>, Errno> {
        let cached = lock(&self.files).get(node);
        if let Some(open) = cached {
            self.check_version(node, Some(&attrs_of(&open.fd)?), Facet::Content)?;
            return Ok(open);
        }
        if self.first_attrs(node)?.kind != FileKind::File {
            return Err(Errno::INVAL);
        }
        let (dir, name) = self.place(node)?;
        let fd = match open_content(&dir, &name) {
            Err(Errno::NOENT | Errno::LOOP) => {
                self.doom_node(node, Facet::Content, Seen::Removed);
                return Err(Errno::STALE);
            }
            other => other?,
        };
        let attrs = attrs_of(&fd)?;
        self.check_version(node, Some(&attrs), Facet::Content)?;
        let open = Arc::new(OpenFile { proven: self.proven(node, &attrs, &fd)?, fd });
        let hashed = if open.proven { Facets::empty() } else { Facets::HASHED };
        self.read(node, Facets::CONTENT | hashed);
        lock(&self.files).insert(node, Arc::clone(&open));
        Ok(open)
    }

    /// Whether the change time will prove the content: the clock is fine enough, and nobody has
    /// the file open for writing. The probe comes after the version was read, and again whenever
    /// the file is opened again.
    fn proven(&self, node: NodeId, attrs: &Attrs, fd: &OwnedFd) -> Result<bool, Errno> {
        if self.known().workset.facets(node).contains(Facets::HASHED) {
            return Ok(false);
        }
        let clock = self.clock(attrs, fd)?;
        Ok(clock.proves(attrs.ctime, now()) && probe_writers(fd) == WriterProbe::Quiet)
    }

    /// A node's directory opened for reading its names.
    pub(crate) fn readable_dir(&self, node: NodeId) -> Result<OwnedFd, Errno> {
        let dir = self.dir(node)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&dir, c".", flags, Mode::empty());
        match open(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => open(flags),
            other => other,
        }
    }
}

/// The time by which change times are judged.
pub(crate) fn now() -> Stamp {
    let time = clock_gettime(ClockId::Realtime);
    Stamp { sec: time.tv_sec, nsec: time.tv_nsec as u32 }
}
