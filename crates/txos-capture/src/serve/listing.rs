//! Listings: read whole at the first request, sorted by name, handed out in pieces.

use std::{os::unix::ffi::OsStrExt, sync::Arc};

use rustix::io::Errno;
use txos_core::{
    Facet, FileKind, NodeId, Seen,
    workset::{Facets, ListingVersion},
};
use txos_host::{Listing, attrs_of, read_listing};

use crate::{
    mirror::{Mirror, lock, now},
    proto::Reply,
    wire::unique_ino,
};

impl Mirror {
    pub(super) fn readdir(
        &self,
        dir: NodeId,
        offset: u64,
        size: usize,
        plus: bool,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let listing = self.listing(dir, offset == 0)?;
        let entry_size = if plus { 128 } else { 0 };
        let (own, above, device) = self.dots(dir)?;
        let total = listing.entries.len() as u64 + 2;
        for index in offset..total {
            let (name, ino, kind) = match index {
                0 => (b".".as_slice(), own, Some(FileKind::Dir)),
                1 => (b"..".as_slice(), above, Some(FileKind::Dir)),
                _ => {
                    let entry = &listing.entries[index as usize - 2];
                    (entry.name.as_bytes(), unique_ino(entry.ino, device), entry.kind)
                }
            };
            if reply.len() + entry_size + Reply::dirent_size(name.len()) > size {
                break;
            }
            if plus {
                reply.no_entry();
            }
            reply.dirent(ino, index + 1, kind.map_or(0, |kind| kind.mode_bits() >> 12), name);
        }
        Ok(())
    }

    /// Inode numbers of a directory and the one above it, and its device.
    fn dots(&self, dir: NodeId) -> Result<(u64, u64, u16), Errno> {
        let known = self.known();
        let workset = &known.workset;
        let number = |node| {
            let attrs = workset.attrs(node).ok_or(Errno::STALE)?;
            let device = workset.device_index(attrs.id.dev).unwrap_or_default();
            Ok((unique_ino(attrs.id.ino, device), device))
        };
        let (own, device) = number(dir)?;
        let above = workset.first_name(dir).map_or(NodeId::ROOT, |(above, _)| above);
        Ok((own, number(above)?.0, device))
    }

    /// The names of a directory: those that were read before, or what is stable now.
    ///
    /// # Errors
    /// `ESTALE` if the names are not at hand any more and have changed; the transaction is doomed
    /// then.
    fn listing(&self, dir: NodeId, anew: bool) -> Result<Arc<Listing>, Errno> {
        let kept = lock(&self.listings).get(dir);
        if let Some(listing) = kept
            && (!anew || self.recorded_listing(dir).is_some())
        {
            return Ok(listing);
        }
        let fd = self.readable_dir(dir)?;
        let before = attrs_of(&fd)?;
        let clock = self.clock(&before, &fd)?;
        let proven = clock.proves(before.ctime, now());
        let mut listing = read_listing(&fd)?;
        listing.entries.retain(|entry| !self.is_hidden(dir, entry.name.as_bytes()));
        let version = ListingVersion {
            hash: listing.hash(),
            proof: proven.then_some((before.ctime, before.mtime)),
        };
        if !self.record_listing(dir, version) {
            self.doom_node(dir, Facet::Listing, Seen::Changed);
            return Err(Errno::STALE);
        }
        let listing = Arc::new(listing);
        lock(&self.listings).insert(dir, Arc::clone(&listing));
        Ok(listing)
    }

    fn recorded_listing(&self, dir: NodeId) -> Option<ListingVersion> {
        self.known().workset.listing(dir)
    }

    /// `false` if another listing is recorded.
    fn record_listing(&self, dir: NodeId, version: ListingVersion) -> bool {
        let recording = self.recording();
        let mut known = self.known();
        match known.workset.listing(dir) {
            Some(first) => first.hash == version.hash,
            None => {
                if recording {
                    known.workset.set_listing(dir, version);
                    known.workset.unmark(dir, Facets::SPECULATIVE);
                }
                true
            }
        }
    }
}
