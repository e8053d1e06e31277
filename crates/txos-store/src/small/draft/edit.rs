//! Contents changed: of files that are there in blocks as far as they are touched, of new ones in
//! memory.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
};
use txos_core::{FileKind, ObjectId};
use txos_host::attrs_of;

use super::{Draft, Io, Open, Origin, What, walk::split};
use crate::small::content::Content;

/// A change of a file's content.
pub(super) enum Edit<'b> {
    At(u64, &'b [u8]),
    End(&'b [u8]),
    All(&'b [u8]),
    Size(u64),
}

/// A file that is made here lies in memory and in the record: larger ones belong into a view.
const LARGEST: usize = 1 << 30;

impl Draft<'_> {
    /// Changes the content of a regular file.
    pub(super) fn edit(&mut self, path: &Path, edit: &Edit<'_>) -> Io<()> {
        let (_, now) = self.slot(path)?;
        let number = now.ok_or(Errno::NOENT)?;
        match self.objects[number].kind() {
            FileKind::File => {}
            FileKind::Dir => return Err(Errno::ISDIR),
            FileKind::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::INVAL),
        }
        // A time that was set before is not the time of this change.
        self.objects[number].mtime = None;
        let (path, id) = match &mut self.objects[number].origin {
            Origin::New(make) => match &mut make.what {
                What::File(bytes) => return edit.memory(bytes),
                _ => return Err(Errno::INVAL),
            },
            Origin::Stable { attrs, path } => (path.clone(), attrs.id),
        };
        if self.objects[number].open.content.is_none() {
            let file = self.open_stable(&path, id)?;
            let size = attrs_of(&file)?.size;
            let content = Some(Content::new(size));
            self.objects[number].open = Open { content, file: Some(file) };
        }
        match &mut self.objects[number].open {
            Open { content: Some(content), file: Some(file) } => edit.disk(content, file),
            _ => Err(Errno::IO),
        }
    }

    fn open_stable(&mut self, path: &Path, id: ObjectId) -> Io<OwnedFd> {
        let (above, name) = split(path)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&*self.open_parent(above)?.dir, name, flags, Mode::empty())?;
        if attrs_of(&file)?.id != id {
            return Err(Errno::STALE);
        }
        Ok(file)
    }
}

impl Edit<'_> {
    fn disk(&self, content: &mut Content, file: &OwnedFd) -> Io<()> {
        match self {
            Edit::At(offset, bytes) => content.write(file, *offset, bytes),
            Edit::End(bytes) => content.write(file, content.size, bytes),
            Edit::All(bytes) => {
                content.resize(file, bytes.len() as u64)?;
                content.write(file, 0, bytes)
            }
            Edit::Size(size) => content.resize(file, *size),
        }
    }

    fn memory(&self, content: &mut Vec<u8>) -> Io<()> {
        let fits = |size: u64| usize::try_from(size).ok().filter(|size| *size <= LARGEST);
        match self {
            Edit::At(_, []) => {}
            Edit::At(offset, bytes) => {
                let end = offset.checked_add(bytes.len() as u64).and_then(fits);
                let end = end.ok_or(Errno::FBIG)?;
                content.resize(content.len().max(end), 0);
                content[end - bytes.len()..end].copy_from_slice(bytes);
            }
            Edit::End(bytes) => content.extend_from_slice(bytes),
            Edit::All(bytes) => {
                content.clear();
                content.extend_from_slice(bytes);
            }
            Edit::Size(size) => content.resize(fits(*size).ok_or(Errno::FBIG)?, 0),
        }
        Ok(())
    }
}
