//! Serving the bytes of files.
//!
//! The change time proves a content where nobody can change bytes without moving it: the version
//! is read first, and the lease probe then finds nobody who has the file open for writing. A file
//! system moves the change time before the bytes of a write, so whoever opens the file after the
//! probe moves the time past the recorded one.
//!
//! Where that does not hold (someone has the file open or mapped for writing; the caller may not
//! ask for a lease; the clock is too coarse), the bytes prove themselves: each chunk is hashed as
//! it is first served, and compared whenever it is served again and at validation. So what was
//! hashed is what the program got, and of a large file only what it read is hashed.

use rustix::io::{Errno, pread};
use txos_core::{Facet, NodeId, Seen};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    mirror::{Mirror, OpenFile},
    proto::Reply,
};

/// Bytes of a file that are hashed together.
pub(crate) const CHUNK: u64 = 128 * 1024;

impl Mirror {
    /// Puts up to `size` bytes of a file from `offset` into the reply; fewer only at its end.
    pub(crate) fn serve_content(
        &self,
        node: NodeId,
        offset: u64,
        size: u64,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let open = self.file(node)?;
        let length = self.first_attrs(node)?.size;
        let size = size.min(length.saturating_sub(offset));
        if open.proven {
            let got = read_full(&open, reply.room(size as usize), offset)?;
            return if got as u64 == size { Ok(()) } else { Err(self.content_changed(node)) };
        }
        let mut at = offset;
        while at < offset + size {
            let number = at / CHUNK;
            let start = number * CHUNK;
            let mut chunk = vec![0; CHUNK.min(length - start) as usize];
            if read_full(&open, &mut chunk, start)? != chunk.len() {
                return Err(self.content_changed(node));
            }
            self.hash_chunk(node, number, &chunk)?;
            let until = (offset + size).min(start + CHUNK);
            reply.bytes(&chunk[(at - start) as usize..(until - start) as usize]);
            at = until;
        }
        Ok(())
    }

    fn hash_chunk(&self, node: NodeId, number: u64, bytes: &[u8]) -> Result<(), Errno> {
        let hash = xxh3_64(bytes);
        let number = u32::try_from(number).map_err(|_| Errno::FBIG)?;
        let first = {
            let mut known = self.known();
            known.workset.set_chunk(node, number, hash);
            known.workset.chunk(node, number)
        };
        if first == Some(hash) { Ok(()) } else { Err(self.content_changed(node)) }
    }

    fn content_changed(&self, node: NodeId) -> Errno {
        self.doom_node(node, Facet::Content, Seen::Changed);
        Errno::IO
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(open: &OpenFile, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match pread(&open.fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}
