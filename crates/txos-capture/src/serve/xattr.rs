//! Extended attributes, read and hashed as a whole set at each request.

use std::ffi::{CStr, OsStr};

use rustix::io::Errno;
use txos_core::{Facet, FileKind, NodeId, Seen, contention::Hold, workset::Facets};
use txos_host::{XattrSet, attrs_at, read_xattrs_at, xattrs_hash};

use crate::{
    mirror::{Mirror, now},
    proto::Reply,
};

/// Attribute by which a copy in a view of an ordinary user names its original: the node id, 8
/// bytes, little end first. The overlay's own mark is empty there (`ovl_set_origin_fh` in
/// `fs/overlayfs/copy_up.c`: without privilege it may not decode file handles), and missing on a
/// copy of a file with several names.
pub const ORIGIN_MARK: &CStr = c"user.txos.origin";

impl Mirror {
    pub(super) fn getxattr(
        &self,
        node: NodeId,
        name: &[u8],
        size: usize,
        reply: &mut Reply,
        caller: u32,
    ) -> Result<(), Errno> {
        if name == ORIGIN_MARK.to_bytes() && self.names_origin(node, caller)? {
            return give(&node.to_wire(self.epoch()).to_le_bytes(), size, reply);
        }
        let set = self.read_xattrs(node)?;
        let value = set.iter().find(|(key, _)| key.to_bytes() == name).ok_or(Errno::NODATA)?.1;
        give(value, size, reply)
    }

    pub(super) fn listxattr(
        &self,
        node: NodeId,
        size: usize,
        reply: &mut Reply,
        caller: u32,
    ) -> Result<(), Errno> {
        let set = self.read_xattrs(node)?;
        let names = set.keys().filter(|name| !is_overlays(name.to_bytes()));
        let mut list: Vec<u8> =
            names.flat_map(|name: &_| CStr::to_bytes_with_nul(name)).copied().collect();
        // A whole copy is made of the content first, and of the attributes then.
        self.known().workset.set_filled(node, None);
        if self.is_copied(node, caller)? {
            self.known().workset.set_copied(node, now());
            if self.first_attrs(node)?.kind == FileKind::File {
                list.extend(ORIGIN_MARK.to_bytes_with_nul());
            }
        }
        give(&list, size, reply)
    }

    /// Whether overlayfs is copying up a regular file in a view where it cannot note from which
    /// object: then it gets that as an attribute among the others, which it copies. Programs of the
    /// view are kept from it by the filter of its system calls; it never gets out of the view.
    fn names_origin(&self, node: NodeId, caller: u32) -> Result<bool, Errno> {
        Ok(self.first_attrs(node)?.kind == FileKind::File && self.is_copied(node, caller)?)
    }

    /// Whether overlayfs is copying an object up in a view where it cannot note that.
    fn is_copied(&self, node: NodeId, caller: u32) -> Result<bool, Errno> {
        let dir = self.first_attrs(node)?.kind == FileKind::Dir;
        Ok(self.mark_origins && !dir && !self.callers.reads_xattrs(caller))
    }

    /// The attributes of an object, the same as were read first.
    fn read_xattrs(&self, node: NodeId) -> Result<XattrSet, Errno> {
        loop {
            match self.xattrs_of(node)? {
                Ok(set) => return Ok(set),
                Err(hold) => self.holds.wait(hold)?,
            }
        }
    }

    /// Reads them, or gives the hold that has to be waited for first.
    fn xattrs_of(&self, node: NodeId) -> Result<Result<XattrSet, Hold>, Errno> {
        let set = if self.first_attrs(node)?.kind == FileKind::Dir {
            read_xattrs_at(self.dir(node)?, OsStr::new(""))?
        } else {
            let (dir, name) = self.place(node)?;
            let set = read_xattrs_at(&dir, &name)?;
            self.check_version(node, attrs_at(&dir, &name)?.as_ref(), Facet::Xattrs)?;
            set
        };
        let hash = xattrs_hash(&set);
        let first = self.known().workset.xattrs(node);
        match first {
            Some(first) if first != hash => {
                self.doom_node(node, Facet::Xattrs, Seen::Changed);
                Err(Errno::STALE)
            }
            Some(_) => Ok(Ok(set)),
            None => {
                if self.recording() {
                    let mut known = self.known();
                    let id = known.workset.attrs(node).ok_or(Errno::STALE)?.id;
                    let relaxed = known.workset.facets(node).contains(Facets::RELAXED);
                    if let Some(hold) = self.holds.met(|written| !relaxed && written.marks(&id))? {
                        return Ok(Err(hold));
                    }
                    known.workset.set_xattrs(node, hash);
                    known.workset.unmark(node, Facets::SPECULATIVE);
                }
                Ok(Ok(set))
            }
        }
    }
}

/// Whether overlayfs would read an attribute of this name of a lower object as its own mark.
pub(super) fn is_overlays(name: &[u8]) -> bool {
    name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
}

/// A value, or its length if there is no room asked for it.
fn give(value: &[u8], size: usize, reply: &mut Reply) -> Result<(), Errno> {
    if size == 0 {
        reply.u32(value.len() as u32);
        reply.u32(0);
    } else if value.len() > size {
        return Err(Errno::RANGE);
    } else {
        reply.bytes(value);
    }
    Ok(())
}
