//! Validation: is everything that was read still as it was read?
//!
//! The work is grouped by directory. Each directory with something to check is opened once, by its
//! path beneath a pinned root and through no symbolic link, and must be the same object as before;
//! each name in it is one `statx(2)`. So the time grows with the number of names that were read,
//! and with nothing else. Contents and listings are read again only where times prove nothing.
//!
//! A directory that is no longer where it was read is a conflict of its own, whatever took its
//! place; it is not entered.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, pread},
};
use txos_core::{
    Attrs, Conflict, Detail, Facet, FileKind, NodeId, Seen, Touched, Workset, blind_to,
    workset::{Binding, Bound, Facets, Finding, Judgement},
};
use txos_host::{
    ChangeClock, Tree, WriterProbe, attrs_at, attrs_of, change_clock, open_content, open_dir_below,
    probe_writers, read_listing, read_xattrs_at, xattrs_hash,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{CaptureError, Result, content::CHUNK, touched};

/// Directories that a thread takes at once.
const BLOCK: usize = 16;
/// So many names are worth a second thread.
const NAMES_PER_THREAD: usize = 2000;
/// More threads than this wait for each other in the kernel's directory cache.
const THREADS: usize = 8;

/// How to validate.
#[derive(Clone, Debug, Default)]
pub struct ValidateOptions {
    /// The paths that the capture kept hidden (`CaptureSpec::hidden`).
    pub hidden: Vec<PathBuf>,
    /// How many threads may work; 0 for what the machine and the amount suggest.
    pub threads: usize,
    /// Stop after about so many conflicts; 0 for never.
    pub limit: usize,
}

/// Compares a workset with what is stable now beneath `tree`, which is pinned at the directory
/// that was mirrored. Gives what has changed, sorted by path; nothing, if the transaction may
/// commit. What was read below a relaxed path is not looked at.
///
/// # Errors
/// If a thread cannot be started. What cannot be examined is a conflict ([`Seen::Unreadable`]).
pub fn validate(
    workset: &Workset,
    tree: &Tree,
    options: &ValidateOptions,
) -> Result<Vec<Conflict>> {
    let check = Check::new(workset, tree, options);
    check.all()?;
    Ok(check.finish().0)
}

/// As [`validate`], and gives also what somebody has open for writing now: a later store through a
/// mapping is heard of by nobody, so [`validate_touched`] has to look there again.
///
/// # Errors
/// As [`validate`].
pub fn validate_probing(
    workset: &Workset,
    tree: &Tree,
    options: &ValidateOptions,
) -> Result<(Vec<Conflict>, Vec<NodeId>)> {
    let check = Check { probing: true, ..Check::new(workset, tree, options) };
    check.all()?;
    Ok(check.finish())
}

/// Compares what was touched since everything was compared, and what only its bytes can prove, with
/// what is stable now. Takes as long as that is much, however much was read.
pub fn validate_touched<'t>(
    workset: &Workset,
    tree: &Tree,
    options: &ValidateOptions,
    touched: impl Iterator<Item = &'t Touched>,
    suspects: &[NodeId],
) -> Vec<Conflict> {
    let check = Check { chunks: workset.chunks(), ..Check::empty(workset, tree, options) };
    let hashed = check.chunks.iter().map(|(node, _, _)| *node);
    let again = touched::Again::new(workset, touched, hashed.chain(suspects.iter().copied()));
    if again.root {
        check.root();
    }
    for (dir, bindings) in &again.directories {
        check.directory(*dir, bindings.iter().copied());
    }
    check.finish().0
}

impl Check<'_> {
    fn all(&self) -> Result<()> {
        self.root();
        let names = self.order.len();
        let wanted = match (self.options.threads, 1 + names / NAMES_PER_THREAD) {
            // To ask how many processors there are reads files: not for what one thread does anyway.
            (0, 1) => 1,
            (0, worth) => {
                thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(worth)
            }
            (wanted, _) => wanted,
        };
        if wanted == 1 {
            self.work();
            return Ok(());
        }
        thread::scope(|scope| {
            for _ in 1..wanted {
                let builder = thread::Builder::new().name("validate".to_owned());
                builder.spawn_scoped(scope, || self.work()).map_err(CaptureError::Thread)?;
            }
            self.work();
            Ok(())
        })
    }

    fn finish(self) -> (Vec<Conflict>, Vec<NodeId>) {
        let mut conflicts = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        conflicts.sort_by(|a, b| (&a.path, a.facet).cmp(&(&b.path, b.facet)));
        conflicts.dedup_by(|a, b| a.path == b.path && a.facet == b.facet);
        (conflicts, self.suspects.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Check<'w> {
    workset: &'w Workset,
    tree: &'w Tree,
    options: &'w ValidateOptions,
    /// Bindings by directory, as [`Workset::by_directory`] gives them.
    order: Vec<u32>,
    starts: Vec<u32>,
    chunks: Vec<(NodeId, u32, u64)>,
    /// The next directory that no thread has taken, as an index.
    next: AtomicUsize,
    enough: AtomicBool,
    found: Mutex<Vec<Conflict>>,
    /// Whether to look who has files open for writing.
    probing: bool,
    suspects: Mutex<Vec<NodeId>>,
}

impl<'w> Check<'w> {
    fn new(workset: &'w Workset, tree: &'w Tree, options: &'w ValidateOptions) -> Self {
        let (order, starts) = workset.by_directory();
        let chunks = workset.chunks();
        Check { order, starts, chunks, ..Check::empty(workset, tree, options) }
    }

    fn empty(workset: &'w Workset, tree: &'w Tree, options: &'w ValidateOptions) -> Self {
        Check {
            workset,
            tree,
            options,
            order: Vec::new(),
            starts: Vec::new(),
            chunks: Vec::new(),
            next: AtomicUsize::new(0),
            enough: AtomicBool::new(false),
            found: Mutex::new(Vec::new()),
            probing: false,
            suspects: Mutex::new(Vec::new()),
        }
    }

    /// The root has no name by which it would be judged.
    fn root(&self) {
        match attrs_of(self.tree.root()) {
            Ok(now) => self.judged(NodeId::ROOT, self.workset.judge_object(NodeId::ROOT, &now)),
            Err(errno) => self.unreadable(self.workset.path(NodeId::ROOT), Facet::Attrs, errno),
        }
    }

    fn work(&self) {
        let directories = self.starts.len() - 1;
        loop {
            let first = self.next.fetch_add(BLOCK, Ordering::Relaxed);
            if first >= directories || self.enough.load(Ordering::Relaxed) {
                return;
            }
            for index in first..directories.min(first + BLOCK) {
                if let Some(dir) = NodeId::from_raw(index as u64 + 1) {
                    let bindings =
                        &self.order[self.starts[index] as usize..self.starts[index + 1] as usize];
                    let bindings = bindings.iter().filter_map(|i| self.workset.binding(*i));
                    self.directory(dir, bindings);
                }
            }
        }
    }

    fn directory<'b>(&self, dir: NodeId, bindings: impl Iterator<Item = Binding<'b>>) {
        let mut bindings = bindings.peekable();
        let facets = self.workset.facets(dir);
        let own = facets.intersects(Facets::LISTING | Facets::XATTRS)
            && self.workset.attrs(dir).is_some_and(|attrs| attrs.kind == FileKind::Dir);
        if facets.contains(Facets::RELAXED) || bindings.peek().is_none() && !own {
            return;
        }
        let path = self.workset.path(dir);
        let opened = open_dir_below(self.tree.root(), &path)
            .and_then(|fd| attrs_of(&fd).map(|attrs| (fd, attrs)));
        let (fd, now) = match opened {
            Ok(opened) => opened,
            Err(errno) => return self.gone(path, errno),
        };
        if self.workset.attrs(dir).is_none_or(|then| then.id != now.id) {
            return self.found(
                path,
                Finding { facet: Facet::Binding, seen: Seen::Replaced },
                Detail::None,
            );
        }
        if facets.contains(Facets::LISTING) {
            self.listing(dir, &path, &fd, &now);
        }
        if facets.contains(Facets::XATTRS) {
            self.xattrs(dir, &fd, OsStr::new(""));
        }
        let mut unmoved = None;
        for binding in bindings {
            if binding.to == Bound::Absent
                && *unmoved.get_or_insert_with(|| self.unmoved(dir, &fd, &now))
            {
                continue;
            }
            self.binding(&fd, &binding);
        }
    }

    /// Whether no name of a directory has changed since it was first seen, by its times: an absent
    /// name is absent then. What is present has to be looked at all the same, since its content
    /// changes without its directory.
    fn unmoved(&self, dir: NodeId, fd: &OwnedFd, now: &Attrs) -> bool {
        self.workset.attrs(dir).is_some_and(|then| then.same_version(now)) && times_prove(fd, now)
    }

    fn binding(&self, dir: &OwnedFd, binding: &Binding<'_>) {
        let name = OsStr::from_bytes(binding.name);
        let now = match attrs_at(dir, name) {
            Ok(now) => now,
            Err(errno) => {
                let path = self.workset.path_in(binding.dir, binding.name);
                return self.unreadable(path, Facet::Binding, errno);
            }
        };
        if let Judgement::Broken(finding) = self.workset.judge_binding(binding, now.as_ref()) {
            let path = self.workset.path_in(binding.dir, binding.name);
            let ahead = match binding.to {
                Bound::Object(node) => self.workset.facets(node).contains(Facets::SPECULATIVE),
                Bound::Absent => false,
            };
            return self.found(path, finding, if ahead { Detail::ReadAhead } else { Detail::None });
        }
        let (Bound::Object(node), Some(now)) = (binding.to, now) else { return };
        let facets = self.workset.facets(node);
        let first = self.workset.first_name(node) == Some((binding.dir, binding.name));
        if now.kind == FileKind::Dir || facets.contains(Facets::RELAXED) || !first {
            return;
        }
        if facets.contains(Facets::HASHED) {
            self.content(node, dir, name, &now);
        } else if self.probing && facets.contains(Facets::CONTENT) {
            self.probe(node, dir, name);
        }
        if facets.contains(Facets::XATTRS) && !times_prove(dir, &now) {
            self.xattrs(node, dir, name);
        }
    }

    fn listing(&self, dir: NodeId, path: &Path, fd: &OwnedFd, now: &Attrs) {
        if self.workset.listing_unmoved(dir, now) {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let reopen = |flags| openat(fd, c".", flags, Mode::empty());
        let listing = match reopen(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => reopen(flags),
            other => other,
        }
        .and_then(read_listing);
        match listing {
            Ok(mut listing) => {
                let hidden = &self.options.hidden;
                listing.entries.retain(|entry| {
                    hidden.iter().all(|hidden| {
                        hidden.parent() != Some(path) || hidden.file_name() != Some(&entry.name)
                    })
                });
                let then = self.workset.listing(dir).map(|version| version.hash);
                if then != Some(listing.hash()) {
                    let finding = Finding { facet: Facet::Listing, seen: Seen::Changed };
                    self.found(path.to_owned(), finding, Detail::None);
                }
            }
            Err(errno) => self.unreadable(path.to_owned(), Facet::Listing, errno),
        }
    }

    fn xattrs(&self, node: NodeId, dir: &OwnedFd, name: &OsStr) {
        match read_xattrs_at(dir, name) {
            Ok(set) if self.workset.xattrs(node) == Some(xattrs_hash(&set)) => {}
            Ok(_) => self.judged(
                node,
                Judgement::Broken(Finding { facet: Facet::Xattrs, seen: Seen::Changed }),
            ),
            Err(errno) => self.unreadable(self.workset.path(node), Facet::Xattrs, errno),
        }
    }

    /// Compares the chunks of a file that were served, and then the version once more: what the
    /// bytes are compared with must be the file that was judged.
    fn content(&self, node: NodeId, dir: &OwnedFd, name: &OsStr, now: &Attrs) {
        let first = self.chunks.partition_point(|(other, _, _)| *other < node);
        let chunks = self.chunks[first..].iter().take_while(|(other, _, _)| *other == node);
        let outcome = open_content(dir, name).and_then(|file| {
            let same = attrs_of(&file)?.same_version(now);
            Ok(same && same_chunks(&file, chunks, now.size)?)
        });
        match outcome {
            Ok(true) => {}
            Ok(false) => self.judged(
                node,
                Judgement::Broken(Finding { facet: Facet::Content, seen: Seen::Changed }),
            ),
            Err(errno) => self.unreadable(self.workset.path(node), Facet::Content, errno),
        }
    }

    fn probe(&self, node: NodeId, dir: &OwnedFd, name: &OsStr) {
        // What cannot be opened cannot be probed either: it is looked at again.
        let quiet = open_content(dir, name).map(probe_writers) == Ok(WriterProbe::Quiet);
        if !quiet {
            self.suspects.lock().unwrap_or_else(PoisonError::into_inner).push(node);
        }
    }

    fn judged(&self, node: NodeId, judgement: Judgement) {
        if let Judgement::Broken(finding) = judgement {
            self.found(self.workset.path(node), finding, Detail::None);
        }
    }

    fn gone(&self, path: PathBuf, errno: Errno) {
        let seen = match errno {
            Errno::NOENT => Seen::Removed,
            Errno::NOTDIR | Errno::LOOP => Seen::Replaced,
            _ => return self.unreadable(path, Facet::Binding, errno),
        };
        self.found(path, Finding { facet: Facet::Binding, seen }, Detail::None);
    }

    fn unreadable(&self, path: PathBuf, facet: Facet, errno: Errno) {
        self.found(path, Finding { facet, seen: Seen::Unreadable }, errno.to_string().into());
    }

    fn found(&self, path: PathBuf, finding: Finding, detail: Detail) {
        let Finding { facet, seen } = finding;
        if blind_to(facet) {
            return;
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.push(Conflict { path, facet, seen, detail });
        if self.options.limit != 0 && found.len() >= self.options.limit {
            self.enough.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether a conflict that [`validate`] found is about an object that nobody but the capture itself
/// is known to have read: a retry with [`CaptureSpec::prefetch`] off may well not meet it.
///
/// [`CaptureSpec::prefetch`]: crate::CaptureSpec::prefetch
pub fn read_ahead_only(conflict: &Conflict) -> bool {
    conflict.detail == Detail::ReadAhead
}

/// Whether unchanged times prove unchanged attributes of an object in the file system of a directory.
/// A time without nanoseconds may be one of whole seconds.
fn times_prove(dir: &OwnedFd, object: &Attrs) -> bool {
    match change_clock(dir) {
        Ok(ChangeClock::Fine) => object.ctime.nsec != 0,
        Ok(ChangeClock::Frozen) => true,
        _ => false,
    }
}

fn same_chunks<'c>(
    file: impl AsFd,
    chunks: impl Iterator<Item = &'c (NodeId, u32, u64)>,
    size: u64,
) -> std::result::Result<bool, Errno> {
    let mut buffer = vec![0; CHUNK as usize];
    for (_, number, hash) in chunks {
        let start = u64::from(*number) * CHUNK;
        let length = CHUNK.min(size.saturating_sub(start)) as usize;
        let mut done = 0;
        while done < length {
            match pread(&file, &mut buffer[done..length], start + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if xxh3_64(&buffer[..done]) != *hash {
            return Ok(false);
        }
    }
    Ok(true)
}
