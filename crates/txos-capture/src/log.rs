//! A log that can only be appended to: a FUSE file system of one file, mounted in a view at the log's
//! place (`--exempt-log`).
//!
//! Invariants:
//! * Whatever offset a write names, its bytes go to the end of the file: it is open for appending.
//! * Nothing that is in the file can be changed or removed: truncating, and changing mode or owner, is
//!   `EPERM`, as on a file with the append-only attribute (chattr(1)); it cannot be mapped for
//!   writing, because it is read and written without the page cache.
//! * A write returns when the bytes are in the file outside, and `fsync(2)` when they are on the disk;
//!   so neither an abort nor the death of the manager takes them back.
//!
//! Source: `linux/fuse.h`.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
    thread,
};

use rustix::io::Errno;

use crate::{
    device::{BUFFER, Device, Received},
    proto::{OLDEST_MINOR, Opcode, Reply, Request, VERSION, WireAttr, init},
};

/// Bytes in one WRITE; longer ones come in several.
const LONGEST_WRITE: u32 = 32 * 1024;
/// Bytes in one READ.
const LONGEST_READ: u32 = 128 * 1024;
/// `FOPEN_DIRECT_IO`.
const DIRECT: u32 = 1;
/// Mode, owner, group and size among the fields of SETATTR; the rest are times.
const KEPT: u32 = 0b1111;

/// Serves the log at `path` on a FUSE device, until what is mounted of it is gone. Returns at once.
///
/// # Errors
///
/// If the file cannot be opened for appending, or no thread be had.
pub fn serve_log(device: OwnedFd, path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true);
    let file = options.clone().read(true).open(path).or_else(|_| options.open(path))?;
    let serve = move || Log { file }.serve(&Device::new(device));
    thread::Builder::new().name("exempt-log".to_owned()).spawn(serve).map(drop)
}

struct Log {
    file: File,
}

impl Log {
    fn serve(&self, device: &Device) {
        let mut buffer = vec![0; BUFFER];
        let mut reply = Reply::default();
        loop {
            let count = match device.receive(&mut buffer) {
                Received::Request(count) => count,
                Received::Interrupted => continue,
                // It is mounted before it is handed over.
                Received::NotMounted | Received::Ended => return,
            };
            let Some(request) = Request::parse(&buffer[..count]) else { continue };
            if matches!(request.opcode, Opcode::Forget | Opcode::BatchForget) {
                continue;
            }
            reply.clear();
            let outcome = self.answer(&request, &mut reply);
            reply.finish(request.unique, outcome);
            device.send(reply.as_bytes());
        }
    }

    fn answer(&self, request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let mut body = request.body;
        match request.opcode {
            Opcode::Init => initialize(request, reply),
            Opcode::Getattr => self.attributes(reply),
            Opcode::Setattr if body.u32().ok_or(Errno::INVAL)? & KEPT != 0 => Err(Errno::PERM),
            Opcode::Setattr => self.attributes(reply),
            Opcode::Open => {
                reply.u64(0); // handle
                reply.u32(DIRECT);
                reply.u32(0);
                Ok(())
            }
            Opcode::Read => {
                let (_handle, offset) = (body.u64(), body.u64().ok_or(Errno::INVAL)?);
                let size = body.u32().ok_or(Errno::INVAL)?.min(LONGEST_READ);
                let mut bytes = vec![0; size as usize];
                let read = self.file.read_at(&mut bytes, offset).map_err(errno)?;
                reply.bytes(&bytes[..read]);
                Ok(())
            }
            Opcode::Write => {
                let (_handle, _offset) = (body.u64(), body.u64());
                let size = body.u32().ok_or(Errno::INVAL)?;
                let (_flags, _owner, _open_flags) = (body.u32(), body.u64(), body.u64());
                let bytes = body.bytes(size as usize).ok_or(Errno::INVAL)?;
                (&self.file).write_all(bytes).map_err(errno)?;
                reply.u32(size);
                reply.u32(0);
                Ok(())
            }
            Opcode::Flush | Opcode::Destroy => Ok(()),
            Opcode::Fsync => self.file.sync_data().map_err(errno),
            Opcode::Ioctl => Err(Errno::NOTTY),
            Opcode::Change => Err(Errno::PERM),
            _ => Err(Errno::NOSYS),
        }
    }

    /// `struct fuse_attr_out` of the file as it is now: the kernel asks each time.
    fn attributes(&self, reply: &mut Reply) -> Result<(), Errno> {
        let status = self.file.metadata().map_err(errno)?;
        reply.passing_attr(&WireAttr {
            ino: status.ino(),
            size: status.size(),
            blocks: status.blocks(),
            seconds: [status.atime(), status.mtime(), status.ctime()],
            nanos: [status.atime_nsec(), status.mtime_nsec(), status.ctime_nsec()]
                .map(|nanos| nanos as u32),
            mode: status.mode(),
            nlink: 1,
            uid: status.uid(),
            gid: status.gid(),
            rdev: 0,
        });
        Ok(())
    }
}

fn initialize(request: &Request<'_>, reply: &mut Reply) -> Result<(), Errno> {
    let mut body = request.body;
    let (major, minor) = (body.u32().ok_or(Errno::PROTO)?, body.u32().ok_or(Errno::PROTO)?);
    if major != VERSION.0 || minor < OLDEST_MINOR {
        return Err(Errno::PROTO);
    }
    let (read_ahead, offered) = (body.u32().ok_or(Errno::PROTO)?, body.u32().ok_or(Errno::PROTO)?);
    reply.u32(VERSION.0);
    reply.u32(VERSION.1.min(minor));
    reply.u32(read_ahead);
    reply.u32(init::MAX_PAGES & offered);
    reply.u16(16); // background requests
    reply.u16(12); // of these, before the device counts as congested
    reply.u32(LONGEST_WRITE);
    reply.u32(1); // times are exact to the nanosecond
    reply.u16((LONGEST_READ / 4096) as u16);
    reply.u16(0); // alignment of mappings, for DAX
    reply.room(32);
    Ok(())
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
