//! Copying to the target's mount, where the layer is on another one.

use std::{
    collections::HashMap,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, OFlags, SeekFrom, readlinkat, seek},
    io::{Errno, pread},
};
use txos_core::{Attrs, FileKind};
use txos_host::{Tree, read_listing};

use crate::{
    Result, StoreError,
    plan::Ident,
    sys::{Disk, Name, Object, disk, write_all},
};

/// What was copied already: hard links among new files stay hard links.
#[derive(Default)]
pub(super) struct Copied {
    objects: HashMap<(u64, u64), PathBuf>,
    directories: HashMap<Ident, Ident>,
    count: usize,
}

impl Copied {
    /// Copies `from` with all below it, and says where the copy is beneath `stage`.
    pub(super) fn tree(&mut self, tx: &Tree, from: &Path, stage: &Tree) -> Result<PathBuf> {
        let top = Path::new("stage").join(format!("p{}", self.count));
        self.count += 1;
        self.tree_to(tx, from, stage, &top)?;
        Ok(top)
    }

    /// The copies of directories, by their originals.
    pub(super) fn directories(&self) -> &HashMap<Ident, Ident> {
        &self.directories
    }

    fn tree_to(&mut self, tx: &Tree, from: &Path, stage: &Tree, top: &Path) -> Result<()> {
        let mut pending = vec![(from.to_owned(), top.to_owned())];
        let mut directories = Vec::new();
        while let Some((from, to)) = pending.pop() {
            let Some(object) = Object::open(tx, &from)? else { continue };
            self.object(tx, &from, &object, stage, &to)?;
            if object.attrs.kind == FileKind::Dir {
                let failed = |errno| StoreError::io("read", tx.at().join(&from), errno);
                let dir = tx.open_at(&from, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
                for entry in read_listing(&dir).map_err(failed)?.entries {
                    pending.push((from.join(&entry.name), to.join(&entry.name)));
                }
                directories.push((to, object));
            }
        }
        // Modes and times of directories last: filling them needs the one and moves the other.
        for (to, like) in directories.iter().rev() {
            if let Some(new) = Object::open(stage, to)? {
                dress(&new, like)?;
                self.directories.insert(like.attrs.id.into(), new.attrs.id.into());
            }
        }
        Ok(())
    }

    fn object(
        &mut self,
        tx: &Tree,
        from: &Path,
        like: &Object,
        stage: &Tree,
        to: &Path,
    ) -> Result<()> {
        let shown = stage.at().join(to);
        let failed = |errno| StoreError::io("copy to", &shown, errno);
        let (dir, name) = stage.parent(to)?;
        let attrs = &like.attrs;
        let key = (attrs.id.dev, attrs.id.ino);
        if attrs.nlink > 1 && attrs.kind != FileKind::Dir {
            if let Some(first) = self.objects.get(&key) {
                let (first_dir, first_name) = stage.parent(first)?;
                let first = Name { dir: first_dir.as_fd(), name: first_name };
                let to = Name { dir: dir.as_fd(), name };
                return disk().link(first, to).map_err(failed);
            }
            self.objects.insert(key, to.to_owned());
        }
        let node = |kind| disk().mknod(dir.as_fd(), name, kind, attrs.rdev);
        match attrs.kind {
            FileKind::Dir => disk().mkdir(dir.as_fd(), name, 0o700).map_err(failed)?,
            FileKind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
                let source = tx
                    .open_at(from, flags)
                    .map_err(|errno| StoreError::io("read", tx.at().join(from), errno))?;
                let target = disk().create(dir.as_fd(), name, 0o600).map_err(failed)?;
                copy_content(&source, &target, attrs).map_err(failed)?;
            }
            FileKind::Symlink => {
                let (from_dir, from_name) = tx.parent(from)?;
                let link = readlinkat(&from_dir, from_name, Vec::new()).map_err(failed)?;
                disk().symlink(&link, dir.as_fd(), name).map_err(failed)?;
            }
            FileKind::Fifo => node(FileType::Fifo).map_err(failed)?,
            FileKind::Socket => node(FileType::Socket).map_err(failed)?,
            FileKind::CharDevice => node(FileType::CharacterDevice).map_err(failed)?,
            FileKind::BlockDevice => node(FileType::BlockDevice).map_err(failed)?,
        }
        if attrs.kind == FileKind::Dir {
            return Ok(());
        }
        match Object::open(stage, to)? {
            Some(new) => dress(&new, like),
            None => Err(failed(Errno::NOENT)),
        }
    }
}

/// Copies what is at `from`, with all below it, to the free name `to` elsewhere.
pub(crate) fn copy_tree(tree: &Tree, from: &Path, target: &Tree, to: &Path) -> Result<()> {
    Copied::default().tree_to(tree, from, target, to)
}

/// Gives a copy owner, mode, attributes and times of its original: the owner first, since a change
/// of it takes set-user-id bits and capabilities away; the times last.
fn dress(new: &Object, like: &Object) -> Result<()> {
    if (new.attrs.uid, new.attrs.gid) != (like.attrs.uid, like.attrs.gid) {
        new.chown(like.attrs.uid, like.attrs.gid)?;
    }
    new.chmod(like.attrs.perm)?;
    for (name, value) in like.xattrs()? {
        new.set_xattr(&name, Some(&value))?;
    }
    new.set_times(Some(like.attrs.atime), Some(like.attrs.mtime))
}

/// Copies the data of a file and leaves its holes out.
fn copy_content(source: impl AsFd, target: impl AsFd, attrs: &Attrs) -> Result<(), Errno> {
    disk().resize(target.as_fd(), attrs.size)?;
    if attrs.blocks.saturating_mul(512) >= attrs.size && attrs.size > 0 {
        // Not sparse: the space is there before the first byte is copied. Not all file systems can.
        match disk().reserve(target.as_fd(), attrs.size) {
            Err(Errno::NOTSUP) | Ok(()) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < attrs.size {
        let start = match seek(&source, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL) => at,
            Err(errno) => return Err(errno),
        };
        let end = seek(&source, SeekFrom::Hole(start)).unwrap_or(attrs.size).min(attrs.size);
        at = start;
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            let read = match pread(&source, &mut buffer[..wanted], at) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            };
            write_all(&target, &buffer[..read], at)?;
            at += read as u64;
        }
    }
    Ok(())
}
