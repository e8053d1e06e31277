//! Whether all that a transaction has read is still so.
//!
//! Called under the commit lock, when no other transaction of this state directory can change
//! anything; and after others have committed, so that a transaction never goes on long with a
//! mixture of what was and what is.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, openat, readlinkat},
    io::Errno,
};
use txos_core::{Attrs, Conflict, Facet, Seen as Happened};
use txos_host::{
    Tree, attrs_at, attrs_of, open_content, read_listing, read_xattrs_at, xattrs_hash,
};

use crate::{
    seen::{Seen, hash, read_range},
    shadow::{Ix, Shadow},
};

/// What has changed of all that was read; empty if all holds.
pub(crate) fn conflicts(shadow: &Shadow, root: &Tree) -> Vec<Conflict> {
    let mut found = Vec::new();
    for (ix, node) in shadow.iter() {
        let (Some(stable), Some(body)) = (&node.stable, shadow.dir(ix)) else { continue };
        let Some(path) = shadow.original(ix) else { continue };
        let quiet = body.names.is_empty() && stable.seen == Seen::default();
        if quiet {
            continue;
        }
        let mut directory = Directory { shadow, path, found: &mut found };
        match root.open_at(&directory.path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(handle) => directory.check(ix, &handle),
            Err(errno) => directory.lost(errno),
        }
    }
    found
}

/// A directory that was walked through.
struct Directory<'a> {
    shadow: &'a Shadow,
    path: PathBuf,
    found: &'a mut Vec<Conflict>,
}

impl Directory<'_> {
    fn check(&mut self, ix: Ix, handle: &OwnedFd) {
        let Some(stable) = &self.shadow.node(ix).stable else { return };
        let now = match attrs_of(handle) {
            Ok(now) => now,
            Err(errno) => return self.lost(errno),
        };
        if now.id != stable.attrs.id {
            return self.tell(self.path.clone(), Facet::Binding, Happened::Replaced, "");
        }
        if stable.seen.perms && !stable.attrs.same_perms(&now) {
            self.tell(self.path.clone(), Facet::Perms, Happened::Changed, "");
        } else if stable.seen.attrs && !stable.attrs.same_shown(&now) {
            self.tell(self.path.clone(), Facet::Attrs, Happened::Changed, "");
        }
        if let Some(listing) = &stable.seen.listing {
            match listed(handle) {
                Ok(names) if names == *listing => {}
                Ok(_) => self.tell(self.path.clone(), Facet::Listing, Happened::Changed, ""),
                Err(errno) => self.unreadable(self.path.clone(), Facet::Listing, errno),
            }
        }
        if let Some(seen) = stable.seen.xattrs {
            self.xattrs(handle, OsStr::new(""), self.path.clone(), seen);
        }
        self.names(ix, handle);
    }

    fn names(&mut self, dir: Ix, handle: &OwnedFd) {
        let Some(body) = self.shadow.dir(dir) else { return };
        let names: BTreeMap<&OsString, Option<Ix>> =
            body.names.iter().map(|(name, binding)| (name, binding.stable)).collect();
        for (name, stable) in names {
            let path = self.path.join(name);
            match (attrs_at(handle, name), stable) {
                (Ok(None), None) => {}
                (Ok(None), Some(_)) => self.tell(path, Facet::Binding, Happened::Removed, ""),
                (Ok(Some(_)), None) => self.tell(path, Facet::Binding, Happened::Created, ""),
                (Ok(Some(now)), Some(ix)) => self.object(ix, &now, handle, name, path),
                (Err(errno), _) => self.unreadable(path, Facet::Binding, errno),
            }
        }
    }

    fn object(&mut self, ix: Ix, now: &Attrs, handle: &OwnedFd, name: &OsStr, path: PathBuf) {
        let Some(stable) = &self.shadow.node(ix).stable else { return };
        let (then, seen) = (&stable.attrs, &stable.seen);
        if then.id != now.id || then.kind != now.kind {
            return self.tell(path, Facet::Binding, Happened::Replaced, "");
        }
        // A directory's own facets are looked at where it is opened.
        if self.shadow.dir(ix).is_some() {
            return;
        }
        if seen.attrs && !then.same_shown(now) {
            return self.tell(path, Facet::Attrs, Happened::Changed, "");
        }
        if seen.size && then.size != now.size {
            return self.tell(path, Facet::Content, Happened::Changed, "its size");
        }
        if let Some(link) = &seen.link {
            match readlinkat(handle, name, Vec::new()) {
                Ok(target) if OsString::from_vec(target.to_bytes().to_vec()) == *link => {}
                Ok(_) => self.tell(path.clone(), Facet::Link, Happened::Changed, ""),
                Err(errno) => self.unreadable(path.clone(), Facet::Link, errno),
            }
        }
        if let Some(seen) = seen.xattrs {
            self.xattrs(handle, name, path.clone(), seen);
        }
        if !seen.ranges.is_empty() {
            self.content(handle, name, path, seen);
        }
    }

    fn content(&mut self, handle: &OwnedFd, name: &OsStr, path: PathBuf, seen: &Seen) {
        let file = match open_content(handle, name) {
            Ok(file) => file,
            Err(errno) => return self.unreadable(path, Facet::Content, errno),
        };
        for range in &seen.ranges {
            match read_range(&file, range.from, range.to) {
                Ok(bytes) if hash(&bytes) == range.hash => {}
                Ok(_) => return self.tell(path, Facet::Content, Happened::Changed, ""),
                Err(errno) => return self.unreadable(path, Facet::Content, errno),
            }
        }
    }

    fn xattrs(&mut self, handle: &OwnedFd, name: &OsStr, path: PathBuf, seen: u64) {
        match read_xattrs_at(handle, name) {
            Ok(set) if xattrs_hash(&set) == seen => {}
            Ok(_) => self.tell(path, Facet::Xattrs, Happened::Changed, ""),
            Err(errno) => self.unreadable(path, Facet::Xattrs, errno),
        }
    }

    fn lost(&mut self, errno: Errno) {
        let happened = match errno {
            Errno::NOENT => Happened::Removed,
            Errno::NOTDIR | Errno::LOOP => Happened::Replaced,
            errno => return self.unreadable(self.path.clone(), Facet::Binding, errno),
        };
        self.tell(self.path.clone(), Facet::Binding, happened, "");
    }

    fn unreadable(&mut self, path: PathBuf, facet: Facet, errno: Errno) {
        let detail = std::io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
        self.tell(path, facet, Happened::Unreadable, &detail);
    }

    fn tell(&mut self, path: PathBuf, facet: Facet, seen: Happened, detail: &str) {
        self.found.push(Conflict { path, facet, seen, detail: detail.into() });
    }
}

fn listed(handle: impl AsFd) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = openat(handle, Path::new("."), flags, Mode::empty())?;
    Ok(read_listing(open)?.entries.into_iter().map(|entry| entry.name).collect())
}
