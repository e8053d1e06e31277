use std::num::NonZeroU32;

use super::Facets;
use crate::{Attrs, FileKind, ObjectId, Stamp};

/// An index that may be missing, in four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OptionalIndex(Option<NonZeroU32>);

impl OptionalIndex {
    pub(super) fn get(self) -> Option<u32> {
        self.0.map(|next| next.get() - 1)
    }

    pub(super) fn get_or_insert(&mut self, index: u32) {
        self.0 = self.0.or(NonZeroU32::new(index + 1));
    }

    /// Zero for none, else the index and one.
    pub(super) fn raw(self) -> u32 {
        self.0.map_or(0, NonZeroU32::get)
    }

    pub(super) fn from_raw(raw: u32) -> Self {
        OptionalIndex(NonZeroU32::new(raw))
    }
}

/// [`Attrs`] packed, with the object's device as an index into the workset's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) ino: u64,
    pub(super) size: u64,
    pub(super) blocks: u64,
    pub(super) rdev: u64,
    /// Birth, modification, change, access.
    pub(super) seconds: [i64; 4],
    pub(super) nanos: [u32; 4],
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    pub(super) first_binding: OptionalIndex,
    pub(super) device: u16,
    pub(super) facets: Facets,
}

impl Record {
    pub(super) fn new(attrs: &Attrs, device: u16) -> Self {
        let times = [attrs.id.birth, attrs.mtime, attrs.ctime, attrs.atime];
        Record {
            ino: attrs.id.ino,
            size: attrs.size,
            blocks: attrs.blocks,
            rdev: attrs.rdev,
            seconds: times.map(|time| time.sec),
            nanos: times.map(|time| time.nsec),
            mode: attrs.kind.mode_bits() | attrs.perm,
            uid: attrs.uid,
            gid: attrs.gid,
            nlink: attrs.nlink,
            first_binding: OptionalIndex::default(),
            device,
            facets: Facets::empty(),
        }
    }

    /// Takes over other attributes of the same object.
    pub(super) fn set(&mut self, attrs: &Attrs) {
        let (first_binding, facets) = (self.first_binding, self.facets);
        *self = Record { first_binding, facets, ..Record::new(attrs, self.device) };
    }

    fn time(&self, which: usize) -> Stamp {
        Stamp { sec: self.seconds[which], nsec: self.nanos[which] }
    }

    pub(super) fn birth(&self) -> Stamp {
        self.time(0)
    }

    pub(super) fn attrs(&self, dev: u64) -> Attrs {
        Attrs {
            id: ObjectId { dev, ino: self.ino, birth: self.birth() },
            // A record is only ever made from attributes with a known kind, and decoding checks it.
            kind: FileKind::from_mode(self.mode).unwrap_or(FileKind::File),
            perm: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            size: self.size,
            blocks: self.blocks,
            mtime: self.time(1),
            ctime: self.time(2),
            atime: self.time(3),
        }
    }
}
