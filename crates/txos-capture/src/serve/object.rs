//! Attributes, link targets, holes and file system statistics.

use rustix::{
    fs::{SeekFrom, fstatvfs, readlinkat, seek},
    io::Errno,
};
use txos_core::{
    Facet, FileKind, NodeId, Seen,
    workset::{Facets, Judgement},
};
use txos_host::attrs_at;

use crate::{
    mirror::Mirror,
    proto::{Reply, WireStatfs},
};

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Mirror {
    pub(super) fn getattr(&self, node: NodeId, pid: u32, reply: &mut Reply) -> Result<(), Errno> {
        let dir = self.first_attrs(node)?.kind == FileKind::Dir;
        let asked = self.known().workset.facets(node).contains(Facets::ATTRS);
        if self.recording() && (!dir || asked || self.callers.reads_attrs(pid)) {
            self.read_attrs(node)?;
        }
        let known = self.known();
        reply.attr(&self.node_reply(&known.workset, node)?);
        Ok(())
    }

    /// Records the attributes of an object as they are now, or holds them against those that were
    /// read before. The reply is made of the recorded ones.
    fn read_attrs(&self, node: NodeId) -> Result<(), Errno> {
        let now = self.fresh_attrs(node)?;
        let Some(now) = now else {
            self.doom_node(node, Facet::Binding, Seen::Removed);
            return Ok(());
        };
        let mut known = self.known();
        let judgement = known.workset.judge_object(node, &now);
        if !known.workset.facets(node).contains(Facets::ATTRS) && judgement == Judgement::Holds {
            known.workset.set_attrs(node, &now);
            known.workset.mark(node, Facets::ATTRS);
        }
        drop(known);
        if let Judgement::Broken(finding) = judgement {
            self.doom_node(node, finding.facet, finding.seen);
        }
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
