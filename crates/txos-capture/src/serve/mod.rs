//! One function for each kind of request.

mod listing;
mod object;
#[cfg(test)]
mod tests;
mod xattr;

pub use xattr::ORIGIN_MARK;

use rustix::io::Errno;
use txos_core::NodeId;

use self::{listing::Piece, xattr::is_overlays};
use crate::{
    mirror::{Answer, Mirror},
    proto::{OLDEST_MINOR, Opcode, Reply, Request, VERSION, init},
};

/// Pages in one READ or READDIR, 1 MiB on most machines.
const MAX_PAGES: u16 = 256;
/// The kernel takes the smaller of this and what the device's own setting says.
const READ_AHEAD: u32 = 1 << 20;

impl Mirror {
    /// Answers one request; `false` where the kernel expects no answer.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> bool {
        reply.clear();
        self.requests.count(request.opcode);
        let outcome = match request.opcode {
            Opcode::Forget | Opcode::BatchForget => return false,
            Opcode::Init => self.initialize(request, reply),
            Opcode::Destroy => Ok(()),
            Opcode::Open | Opcode::Opendir | Opcode::Other | Opcode::Flush | Opcode::Fsync => {
                Err(Errno::NOSYS)
            }
            Opcode::Ioctl => Err(Errno::NOTTY),
            Opcode::Change | Opcode::Setattr | Opcode::Write => Err(Errno::ROFS),
            _ => self.answer_about_node(request, reply),
        };
        if let Err(errno) = outcome {
            tracing::trace!(opcode = ?request.opcode, node = request.node, %errno);
        }
        reply.finish(request.unique, outcome);
        true
    }

    fn initialize(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let mut body = request.body;
        let (major, minor) = (body.u32().ok_or(Errno::PROTO)?, body.u32().ok_or(Errno::PROTO)?);
        if major != VERSION.0 || minor < OLDEST_MINOR {
            tracing::error!(
                major,
                minor,
                "this kernel's FUSE protocol is not known; use Linux 5.10 or later"
            );
            return Err(Errno::PROTO);
        }
        let (read_ahead, offered) =
            (body.u32().ok_or(Errno::PROTO)?, body.u32().ok_or(Errno::PROTO)?);
        // In a user namespace most ids that an ACL names have no meaning, and a file with one could
        // not be copied up.
        let acls = if self.mark_origins { 0 } else { init::POSIX_ACL };
        let wanted = acls
            | init::ASYNC_READ
            | init::EXPORT_SUPPORT
            | init::DO_READDIRPLUS
            | init::NO_OPEN_SUPPORT
            | init::PARALLEL_DIROPS
            | init::MAX_PAGES
            | init::CACHE_SYMLINKS
            | init::NO_OPENDIR_SUPPORT
            | init::EXPLICIT_INVAL_DATA;
        reply.u32(VERSION.0);
        reply.u32(VERSION.1.min(minor));
        reply.u32(read_ahead.max(READ_AHEAD));
        reply.u32(wanted & offered);
        reply.u16(64); // background requests
        reply.u16(48); // of these, before the device counts as congested
        reply.u32(4096); // bytes in one WRITE, of which there are none
        reply.u32(1); // times are exact to the nanosecond
        reply.u16(MAX_PAGES);
        reply.u16(0); // alignment of mappings, for DAX
        reply.room(32);
        Ok(())
    }

    fn answer_about_node(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let node = NodeId::of_wire(self.epoch(), request.node).ok_or(Errno::STALE)?;
        if !self.known().workset.knows(node) {
            return Err(Errno::STALE);
        }
        let mut body = request.body;
        match request.opcode {
            Opcode::Lookup => {
                self.ahead().looked_up(request.pid, node);
                self.lookup(node, body.name().ok_or(Errno::INVAL)?, reply)
            }
            Opcode::Getattr => self.getattr(node, reply),
            Opcode::Readlink => self.readlink(node, reply),
            Opcode::Read => {
                let (_handle, offset) = (body.u64(), body.u64().ok_or(Errno::INVAL)?);
                let size = body.u32().ok_or(Errno::INVAL)?;
                self.serve_content(node, offset, u64::from(size), reply)
            }
            Opcode::Readdir | Opcode::Readdirplus => {
                let (_handle, offset) = (body.u64(), body.u64().ok_or(Errno::INVAL)?);
                let size = body.u32().ok_or(Errno::INVAL)?;
                let piece = Piece { offset, size: size as usize, client: request.pid };
                match request.opcode {
                    Opcode::Readdirplus => self.readdirplus(node, piece, reply),
                    _ => self.readdir(node, piece, reply),
                }
            }
            Opcode::Getxattr => {
                let (size, _) = (body.u32().ok_or(Errno::INVAL)?, body.u32());
                let name = body.name().ok_or(Errno::INVAL)?;
                if is_overlays(name) {
                    self.confirm(request.pid, node);
                    return Err(Errno::NODATA);
                }
                self.getxattr(node, name, size as usize, reply, request.pid)
            }
            Opcode::Listxattr => {
                let size = body.u32().ok_or(Errno::INVAL)?;
                self.listxattr(node, size as usize, reply, request.pid)
            }
            Opcode::Lseek => {
                let (_handle, offset) = (body.u64(), body.u64().ok_or(Errno::INVAL)?);
                self.seek(node, offset, body.u32().ok_or(Errno::INVAL)?, reply)
            }
            Opcode::Statfs => self.statfs(node, reply),
            _ => Err(Errno::NOSYS),
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8], reply: &mut Reply) -> Result<(), Errno> {
        match name {
            b"." => return self.known_entry(dir, reply),
            b".." => {
                let above = self.known().workset.first_name(dir).map(|(above, _)| above);
                return self.known_entry(above.unwrap_or(NodeId::ROOT), reply);
            }
            _ => {}
        }
        match self.look_up(dir, name)? {
            Answer::Absent => reply.absent(),
            Answer::Present(node) => reply.entry(&node),
        }
        Ok(())
    }

    /// The entry of an object that the kernel has a handle of (`FUSE_EXPORT_SUPPORT`).
    fn known_entry(&self, node: NodeId, reply: &mut Reply) -> Result<(), Errno> {
        let known = self.known();
        reply.entry(&self.node_reply(&known.workset, node)?);
        Ok(())
    }
}
