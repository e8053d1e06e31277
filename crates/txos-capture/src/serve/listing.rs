//! Listings: read whole at the first request, sorted by name, handed out in pieces.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::Arc,
};

use rustix::io::Errno;
use txos_core::{
    Attrs, Facet, FileKind, NodeId, Seen,
    contention::Hold,
    workset::{Facets, ListingVersion},
};
use txos_host::{Listing, attrs_of, read_listing};

use crate::{
    mirror::{Mirror, lock, now},
    proto::Reply,
    wire::unique_ino,
};

/// The part of a listing that is asked for, and by whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// How many entries come before it.
    pub(super) offset: u64,
    /// Bytes that it may take.
    pub(super) size: usize,
    /// The asking thread.
    pub(super) client: u32,
}

/// Size of the part of an entry that tells about its object.
const ENTRY: usize = 128;

impl Mirror {
    pub(super) fn readdir(
        &self,
        dir: NodeId,
        piece: Piece,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let listing = self.listing(dir, piece.offset == 0)?;
        if piece.offset == 0 {
            self.ahead().listed(piece.client, dir, listing.entries.len());
        }
        let dots = self.dots(dir)?;
        for (next, dirent) in dots.entries(&listing, piece.offset) {
            if reply.len() + Reply::dirent_size(dirent.name.len()) > piece.size {
                break;
            }
            reply.dirent(dirent.ino, next, dirent.kind, dirent.name);
        }
        Ok(())
    }

    /// The same with room for what is known of each object, which is filled in for a client that
    /// is going to ask for it anyway.
    pub(super) fn readdirplus(
        &self,
        dir: NodeId,
        piece: Piece,
        reply: &mut Reply,
    ) -> Result<(), Errno> {
        let listing = self.listing(dir, piece.offset == 0)?;
        let give = self.recording() && self.ahead().walks(piece.client);
        let (mut files, mut given) = (0, 0);
        let dots = self.dots(dir)?;
        for (next, dirent) in dots.entries(&listing, piece.offset) {
            if reply.len() + ENTRY + Reply::dirent_size(dirent.name.len()) > piece.size {
                break;
            }
            let node = if give && next > 2 { self.look_ahead(dir, dirent.name) } else { None };
            match node {
                Some(node) => {
                    given += 1;
                    files += usize::from(node.attr.mode & 0o170000 == 0o100000);
                    reply.entry(&node);
                }
                None => reply.no_entry(),
            }
            reply.dirent(dirent.ino, next, dirent.kind, dirent.name);
        }
        if given > 0 {
            self.ahead().given(piece.client, dir, files);
        } else if piece.offset == 0 {
            self.ahead().listed(piece.client, dir, listing.entries.len());
        }
        Ok(())
    }

    fn dots(&self, dir: NodeId) -> Result<Dots, Errno> {
        let known = self.known();
        let workset = &known.workset;
        let number = |node| {
            let attrs = workset.attrs(node).ok_or(Errno::STALE)?;
            let device = workset.device_index(attrs.id.dev).unwrap_or_default();
            Ok((unique_ino(attrs.id.ino, device), device))
        };
        let (own, device) = number(dir)?;
        let above = workset.first_name(dir).map_or(NodeId::ROOT, |(above, _)| above);
        Ok(Dots { own, above: number(above)?.0, device })
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
        loop {
            let before = attrs_of(&fd)?;
            match self.listing_of(dir, &fd, &before)? {
                Ok(listing) => return Ok(listing),
                Err(hold) => self.holds.wait(hold)?,
            }
        }
    }

    /// Reads the names of a directory, or gives the hold that has to be waited for first.
    fn listing_of(
        &self,
        dir: NodeId,
        fd: &OwnedFd,
        before: &Attrs,
    ) -> Result<Result<Arc<Listing>, Hold>, Errno> {
        let clock = self.clock(before, fd)?;
        let proven = clock.proves(before.ctime, now());
        let mut listing = read_listing(fd)?;
        listing.entries.retain(|entry| !self.is_hidden(dir, entry.name.as_bytes()));
        let version = ListingVersion {
            hash: listing.hash(),
            proof: proven.then_some((before.ctime, before.mtime)),
        };
        match self.record_listing(dir, version)? {
            Recorded::Same => {}
            Recorded::Other => {
                self.doom_node(dir, Facet::Listing, Seen::Changed);
                return Err(Errno::STALE);
            }
            Recorded::Held(hold) => return Ok(Err(hold)),
        }
        let listing = Arc::new(listing);
        lock(&self.listings).insert(dir, Arc::clone(&listing));
        Ok(Ok(listing))
    }

    fn recorded_listing(&self, dir: NodeId) -> Option<ListingVersion> {
        self.known().workset.listing(dir)
    }

    fn record_listing(&self, dir: NodeId, version: ListingVersion) -> Result<Recorded, Errno> {
        let recording = self.recording();
        let mut known = self.known();
        match known.workset.listing(dir) {
            Some(first) if first.hash == version.hash => Ok(Recorded::Same),
            Some(_) => Ok(Recorded::Other),
            None => {
                if recording {
                    let id = known.workset.attrs(dir).ok_or(Errno::STALE)?.id;
                    let relaxed = known.workset.facets(dir).contains(Facets::RELAXED);
                    if let Some(hold) = self.holds.met(|written| !relaxed && written.lists(&id))? {
                        return Ok(Recorded::Held(hold));
                    }
                    known.workset.set_listing(dir, version);
                    known.workset.unmark(dir, Facets::SPECULATIVE);
                }
                Ok(Recorded::Same)
            }
        }
    }
}

/// What recording a listing found.
enum Recorded {
    Same,
    /// Another one is recorded.
    Other,
    /// Someone is about to change it.
    Held(Hold),
}

/// What is told of one name.
struct Dirent<'l> {
    ino: u64,
    kind: u32,
    name: &'l [u8],
}

/// Inode numbers of a directory and the one above it, and its device.
struct Dots {
    own: u64,
    above: u64,
    device: u16,
}

impl Dots {
    /// The entries after the first `offset`, each with the offset after it; `.` and `..` come
    /// first.
    fn entries<'l>(
        &self,
        listing: &'l Listing,
        offset: u64,
    ) -> impl Iterator<Item = (u64, Dirent<'l>)> + use<'l> {
        let Dots { own, above, device } = *self;
        let kind = |kind: Option<FileKind>| kind.map_or(0, |kind| kind.mode_bits() >> 12);
        let total = listing.entries.len() as u64 + 2;
        (offset..total).map(move |index| {
            let dirent = match index {
                0 => Dirent { ino: own, kind: kind(Some(FileKind::Dir)), name: b"." },
                1 => Dirent { ino: above, kind: kind(Some(FileKind::Dir)), name: b".." },
                _ => {
                    let entry = &listing.entries[index as usize - 2];
                    Dirent {
                        ino: unique_ino(entry.ino, device),
                        kind: kind(entry.kind),
                        name: entry.name.as_bytes(),
                    }
                }
            };
            (index + 1, dirent)
        })
    }
}
