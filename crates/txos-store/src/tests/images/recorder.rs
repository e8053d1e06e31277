//! Writes down what the store asks of the disk, and keeps every object alive that it drops.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, RenameFlags, linkat, renameat_with},
    io::{Errno, pread},
};
use txos_core::{Attrs, FileKind};
use txos_host::{attrs_at, attrs_of};

use super::model::{Event, History, Image, Look, Node};
use crate::sys::{
    Flush, Name,
    watch::{Call, Fate, Watcher},
};

type Id = (u64, u64);

/// What is known of an object besides the model.
pub(super) struct Known {
    pub kind: FileKind,
    pub device: u64,
}

/// A run being recorded.
pub(super) struct Recorder {
    pub nodes: Vec<Known>,
    by_id: HashMap<Id, Node>,
    /// The disk as it is now.
    pub now: Image,
    pub base: Image,
    pub events: Vec<Event>,
    /// By device, a directory for what the store drops.
    vaults: HashMap<u64, PathBuf>,
    /// Whether events count as having happened before the run.
    settled: bool,
}

impl Recorder {
    /// Takes in the trees at `roots`; each lies on a file system of its own with its vault. What
    /// lies below a path of `fresh` was made and never flushed.
    pub(super) fn new(roots: &[(PathBuf, PathBuf)], fresh: &[PathBuf]) -> Recorder {
        let mut recorder = Recorder {
            nodes: Vec::new(),
            by_id: HashMap::new(),
            now: Image::default(),
            base: Image::default(),
            events: Vec::new(),
            vaults: HashMap::new(),
            settled: true,
        };
        for (root, vault) in roots {
            let attrs = attrs_of(fs::File::open(root).unwrap()).unwrap();
            recorder.vaults.entry(attrs.id.dev).or_insert_with(|| vault.clone());
            let node = recorder.meet(&attrs);
            recorder.born(node, look_at(root));
            recorder.tree(root, node, fresh);
        }
        recorder
    }

    /// The run, to cut it.
    pub(super) fn history(&self) -> History {
        History {
            base: self.base.clone(),
            events: self.events.clone(),
            devices: self.nodes.iter().map(|known| known.device).collect(),
        }
    }

    pub(super) fn vault(&self, node: Node) -> PathBuf {
        self.vaults[&self.nodes[node].device].join(node.to_string())
    }

    /// The node of an open object, if it is one of the run's.
    pub(super) fn node_of(&self, fd: impl AsFd) -> Option<Node> {
        let attrs = attrs_of(fd).ok()?;
        self.by_id.get(&(attrs.id.dev, attrs.id.ino)).copied()
    }

    fn meet(&mut self, attrs: &Attrs) -> Node {
        let id = (attrs.id.dev, attrs.id.ino);
        let nodes = &mut self.nodes;
        *self.by_id.entry(id).or_insert_with(|| {
            nodes.push(Known { kind: attrs.kind, device: attrs.id.dev });
            nodes.len() - 1
        })
    }

    fn event(&mut self, event: Event) {
        self.now.take(&event);
        if self.settled { self.base.take(&event) } else { self.events.push(event) }
    }

    fn tree(&mut self, path: &Path, dir: Node, fresh: &[PathBuf]) {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            // Shared memory and locks are no part of the disk.
            if path.parent().is_some_and(|dir| dir.ends_with("journal"))
                && !["0", "1"].iter().any(|seg| *seg == name)
            {
                continue;
            }
            let settled = self.settled;
            self.settled &= !fresh.iter().any(|fresh| path.starts_with(fresh));
            let above = fs::File::open(path.parent().unwrap()).unwrap();
            let attrs = attrs_at(&above, &name).unwrap().unwrap();
            let node = self.meet(&attrs);
            let changes = vec![(dir, name, Some(node))];
            self.event(Event::Names { changes, nodes: vec![node] });
            self.born(node, look_at(&path));
            match attrs.kind {
                FileKind::File => {
                    let file = fs::File::open(&path).unwrap();
                    self.pages(node, file.as_fd(), 0, attrs.size);
                }
                FileKind::Dir => self.tree(&path, node, fresh),
                _ => {}
            }
            self.settled = settled;
        }
    }

    /// From here on events are of the run.
    pub(super) fn begin(&mut self) {
        self.settled = false;
    }

    /// What an object is made with is there whenever the object is.
    fn born(&mut self, node: Node, look: Look) {
        for image in [&mut self.now, &mut self.base] {
            image.looks.insert(node, look.clone());
        }
    }

    fn pages(&mut self, node: Node, file: BorrowedFd<'_>, from: u64, to: u64) {
        let size = attrs_of(file).unwrap().size;
        if self.now.sizes.get(&node).copied().unwrap_or(0) != size {
            self.event(Event::Size { node, size });
        }
        // The caller's descriptor may be for writing only.
        let file = fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        for page in from / 4096..to.min(size).div_ceil(4096) {
            let mut bytes = vec![0; 4096];
            let mut done = 0;
            while done < 4096 {
                match pread(&file, &mut bytes[done..], page * 4096 + done as u64).unwrap() {
                    0 => break,
                    count => done += count,
                }
            }
            if self.now.pages.get(&(node, page)) != Some(&bytes) {
                self.event(Event::Page { node, page, bytes });
            }
        }
    }

    fn bound(&self, at: &Name<'_>) -> Option<(Node, OsString, Option<Node>)> {
        let dir = self.node_of(at.dir)?;
        let key = (dir, at.name.to_owned());
        let node = self.now.names.get(&key).copied();
        Some((dir, key.1, node))
    }

    fn made(&mut self, at: &Name<'_>) {
        let Some((dir, name, _)) = self.bound(at) else { return };
        let Ok(Some(attrs)) = attrs_at(at.dir, at.name) else { return };
        let node = self.meet(&attrs);
        self.born(node, look_at(&full(at)));
        self.event(Event::Names { changes: vec![(dir, name, Some(node))], nodes: vec![node] });
    }

    fn names(&mut self, changes: Vec<(Node, OsString, Option<Node>)>, nodes: &[Option<Node>]) {
        let mut nodes: Vec<Node> = nodes.iter().flatten().copied().collect();
        nodes.dedup();
        if !nodes.is_empty() {
            self.event(Event::Names { changes, nodes });
        }
    }
}

pub(super) fn full(at: &Name<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", at.dir.as_raw_fd())).join(at.name)
}

pub(super) fn look_at(path: &Path) -> Look {
    let (above, name) = (path.parent().unwrap(), path.file_name().unwrap());
    let dir: OwnedFd = fs::File::open(above).unwrap().into();
    look_in(&dir, name)
}

fn look_in(dir: &OwnedFd, name: &OsStr) -> Look {
    let attrs = attrs_at(dir, name).unwrap().unwrap();
    let xattrs = txos_host::read_xattrs_at(dir, name).unwrap();
    Look { perm: attrs.perm, owner: (attrs.uid, attrs.gid), xattrs: xattrs.into_iter().collect() }
}

fn look_of(object: BorrowedFd<'_>) -> Look {
    let attrs = attrs_of(object).unwrap();
    let magic = format!("/proc/self/fd/{}", object.as_raw_fd());
    let xattrs = crate::sys::Object::from_fd(object.try_clone_to_owned().unwrap(), magic.into())
        .and_then(|object| object.xattrs())
        .unwrap_or_default();
    Look { perm: attrs.perm, owner: (attrs.uid, attrs.gid), xattrs: xattrs.into_iter().collect() }
}

/// Removes a name by moving what is there into the vault: the object lives on.
pub(super) fn set_aside(at: &Name<'_>, flags: AtFlags, vault: &Path) -> Result<(), Errno> {
    let attrs = attrs_at(at.dir, at.name)?.ok_or(Errno::NOENT)?;
    let dir = attrs.kind == FileKind::Dir;
    if dir != flags.contains(AtFlags::REMOVEDIR) {
        return Err(if dir { Errno::ISDIR } else { Errno::NOTDIR });
    }
    if dir {
        let mut inside = fs::read_dir(full(at)).map_err(|_| Errno::IO)?;
        if inside.next().is_some() {
            return Err(Errno::NOTEMPTY);
        }
    } else if attrs.nlink > 1 {
        return rustix::fs::unlinkat(at.dir, at.name, AtFlags::empty());
    }
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let to = vault.join(format!("aside-{number}"));
    renameat_with(at.dir, at.name, CWD, &to, RenameFlags::NOREPLACE)
}

impl Watcher for Recorder {
    fn before(&mut self, _call: &Call<'_>) -> Fate {
        Fate::Pass
    }

    fn instead(&mut self, call: &Call<'_>) -> Option<Result<(), Errno>> {
        if let Call::Flush { .. } | Call::FlushFs { .. } = call {
            return Some(Ok(()));
        }
        let Call::Unlink { at, flags } = call else { return None };
        let device = attrs_of(at.dir).ok()?.id.dev;
        Some(set_aside(at, *flags, self.vaults.get(&device)?))
    }

    fn after(&mut self, call: &Call<'_>, made: Option<BorrowedFd<'_>>, count: usize) {
        match call {
            Call::Write { file, offset, .. } => {
                if let Some(node) = self.node_of(file) {
                    self.pages(node, *file, *offset, offset + count as u64);
                }
            }
            Call::Punch { file, offset, length } => {
                if let Some(node) = self.node_of(file) {
                    self.pages(node, *file, *offset, offset + length);
                }
            }
            Call::Resize { file, .. } | Call::Reserve { file } => {
                if let Some(node) = self.node_of(file) {
                    self.pages(node, *file, 0, 0);
                }
            }
            Call::Flush { file, what } => {
                if let Some(node) = self.node_of(file) {
                    self.event(Event::Flush { node, all: *what == Flush::All });
                }
            }
            Call::FlushFs { dir } => {
                let device = attrs_of(dir).unwrap().id.dev;
                self.event(Event::FlushFs { device });
            }
            Call::Make { at } => self.made(at),
            Call::Unnamed => {
                if let Some(file) = made {
                    let attrs = attrs_of(file).unwrap();
                    let node = self.meet(&attrs);
                    self.born(node, look_of(file));
                }
            }
            Call::Bind { file, to } => {
                if let (Some(node), Some((dir, name, _))) = (self.node_of(file), self.bound(to)) {
                    self.names(vec![(dir, name, Some(node))], &[Some(node)]);
                }
            }
            Call::Link { from, to } => {
                if let (Some((_, _, node)), Some((dir, name, _))) =
                    (self.bound(from), self.bound(to))
                {
                    self.names(vec![(dir, name, node)], &[node]);
                }
            }
            Call::Rename { from, to, flags } => {
                let (Some(one), Some(other)) = (self.bound(from), self.bound(to)) else { return };
                let left = if flags.contains(RenameFlags::EXCHANGE) { other.2 } else { None };
                let changes = vec![(one.0, one.1, left), (other.0, other.1, one.2)];
                self.names(changes, &[one.2, other.2]);
            }
            Call::Unlink { at, .. } => {
                if let Some((dir, name, node)) = self.bound(at) {
                    self.names(vec![(dir, name, None)], &[node]);
                }
            }
            Call::Attributes { object } => {
                if let Some(node) = self.node_of(object) {
                    let look = look_of(*object);
                    if self.now.looks.get(&node) != Some(&look) {
                        self.event(Event::Look { node, look });
                    }
                }
            }
        }
    }
}

/// Gives every object of the run a name in its vault, from which images are put together. The trees
/// are taken apart for it.
pub(super) fn gather(recorder: &Recorder, roots: &[PathBuf]) {
    for root in roots {
        gather_in(recorder, root);
    }
    for vault in recorder.vaults.values() {
        for entry in fs::read_dir(vault).unwrap() {
            let path = entry.unwrap().path();
            let Some(node) = identify(recorder, &path) else { continue };
            let wanted = recorder.vault(node);
            if path != wanted && fs::symlink_metadata(&wanted).is_err() {
                fs::rename(&path, &wanted).unwrap();
            }
        }
    }
}

pub(super) fn identify(recorder: &Recorder, path: &Path) -> Option<Node> {
    let dir = fs::File::open(path.parent()?).ok()?;
    let attrs = attrs_at(&dir, path.file_name()?).ok()??;
    recorder.by_id.get(&(attrs.id.dev, attrs.id.ino)).copied()
}

/// Empties a directory: what is of the run goes to the vault, the rest goes.
pub(super) fn gather_in(recorder: &Recorder, dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        let is_dir = entry.file_type().unwrap().is_dir();
        if is_dir {
            gather_in(recorder, &path);
        }
        match identify(recorder, &path) {
            Some(node) => {
                let vault = recorder.vault(node);
                if fs::symlink_metadata(&vault).is_err() {
                    match is_dir {
                        true => fs::rename(&path, &vault).unwrap(),
                        false => linkat(CWD, &path, CWD, &vault, AtFlags::empty()).unwrap(),
                    }
                }
                if !is_dir {
                    fs::remove_file(&path).unwrap();
                }
            }
            None if is_dir => fs::remove_dir(&path).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
}
