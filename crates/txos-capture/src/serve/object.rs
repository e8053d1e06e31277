//! Attributes, link targets, holes and file system statistics.

use rustix::{
    fs::{SeekFrom, fstatvfs, readlinkat, seek},
    io::Errno,
};
use txos_core::{Facet, FileKind, NodeId, workset::Facets};
use txos_host::{attrs_at, attrs_of};

use crate::{
    mirror::{Mirror, now},
    proto::{Reply, WireStatfs},
};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Mirror {
    /// The kernel keeps attributes; it asks again when it had to forget the object, or when a
    /// program insists (`AT_STATX_FORCE_SYNC`).
    pub(super) fn getattr(&self, node: NodeId, reply: &mut Reply) -> Result<(), Errno> {
        let first = self.first_attrs(node)?;
        let now = match first.kind {
            FileKind::Dir => Some(attrs_of(self.dir(node)?)?),
            _ => {
                let (dir, name) = self.place(node)?;
                attrs_at(dir, &name)?
            }
        };
        // Doomed or not, the first answer stands.
        let _ = self.check_version(node, now.as_ref(), Facet::Attrs);
        let known = self.known();
        reply.attr(&self.node_reply(&known.workset, node)?);
        Ok(())
    }

    pub(super) fn readlink(&self, node: NodeId, reply: &mut Reply) -> Result<(), Errno> {
        let (dir, name) = self.place(node)?;
        let target = readlinkat(&dir, &name, Vec::new());
        // The target of a link never changes; what may change is which link has the name.
        self.check_version(node, attrs_at(&dir, &name)?.as_ref(), Facet::Link)?;
        reply.bytes(target?.as_bytes());
        self.read(node, Facets::LINK);
        Ok(())
    }

    /// Before it copies a piece of a file's content up, overlayfs asks whether there is any data in
    /// it (`ovl_copy_up_file` in `fs/overlayfs/copy_up.c`); a program may ask, too.
    pub(super) fn seek(
        &self,
        node: NodeId,
        offset: u64,
        whence: u32,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let open = self.file(node)?;
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        reply.u64(seek(&open.fd, to)?);
        if self.recording() {
            self.known().workset.set_filled(node, Some(now()));
        }
        Ok(())
    }

    pub(super) fn statfs(&self, node: NodeId, reply: &mut Reply) -> Result<(), Errno> {
        let dir = match self.first_attrs(node)?.kind {
            FileKind::Dir => self.dir(node)?,
            _ => self.place(node)?.0,
        };
        let stat = fstatvfs(dir)?;
        reply.statfs(&WireStatfs {
            blocks: stat.f_blocks,
            free: stat.f_bfree,
            available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            block_size: stat.f_bsize as u32,
            fragment_size: stat.f_frsize as u32,
            name_max: stat.f_namemax as u32,
        });
        Ok(())
    }
}
