//! The workset: every object that a transaction has read, with the version it saw.
//!
//! # Invariants
//!
//! - *The first answer stands.* A binding, once recorded, is never recorded otherwise, and the
//!   attributes of an object do not change once a facet that rests on them was read. Who asks
//!   again is given the first answer; if the stable system shows another one by then, the
//!   transaction is doomed.
//! - *One object, one node.* The same object (device, inode, birth time) has the same [`NodeId`]
//!   by whatever name it was reached, for as long as the workset lives.
//! - *A node's first name leads to the root.* The directory of an object's first binding was
//!   recorded before the object, so that walking up by first bindings ends.
//! - *What rests on a value is compared by value.* Bindings, permissions, link targets and
//!   extended attributes are values; listings and contents have the change time as a short proof
//!   of "unchanged" where it can prove it, and a hash where it cannot.
//!
//! # Memory
//!
//! Records lie in vectors and refer to each other by index; names lie in one array of bytes, and
//! the two hash indexes hold indexes only. That makes some 150 bytes for a file with one name,
//! the name included. Only the few objects that need a listing hash, an attribute hash or content
//! hashes have an entry in a side table.

mod encode;
mod facets;
mod names;
mod record;
mod rules;

use std::{
    collections::HashMap,
    ffi::OsStr,
    mem::size_of,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use hashbrown::HashTable;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

pub use encode::DecodeError;
pub use facets::Facets;
pub use rules::{Finding, Judgement};

use crate::{Attrs, ObjectId, Origin, Origins, Stamp};
use names::Names;
use record::Record;

/// The number of an object within one workset, and its node id towards the kernel.
///
/// Given out from 1 (the root), never given again, never reused: also not after the kernel has
/// forgotten the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The root of the tree.
    pub const ROOT: NodeId = NodeId(1);

    /// The node that the kernel names by `raw`, if it can be one.
    pub fn from_raw(raw: u64) -> Option<Self> {
        u32::try_from(raw).ok().filter(|id| *id != 0).map(NodeId)
    }

    /// The number as the kernel wants it.
    pub fn raw(self) -> u64 {
        u64::from(self.0)
    }

    /// The number towards a kernel that may still know nodes of earlier worksets: the epoch, which
    /// counts the worksets of one connection, stands above it. The root has one number for ever.
    pub fn to_wire(self, epoch: u32) -> u64 {
        if self == Self::ROOT { 1 } else { u64::from(epoch) << 32 | self.raw() }
    }

    /// The way back; `None` for a node of another epoch.
    pub fn of_wire(epoch: u32, wire: u64) -> Option<Self> {
        let node = Self::from_raw(wire & u64::from(u32::MAX))?;
        (node.to_wire(epoch) == wire).then_some(node)
    }

    fn index(self) -> usize {
        self.0 as usize - 1
    }
}

/// What a name was bound to when the transaction looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Nothing had this name.
    Absent,
    /// This object had it.
    Object(NodeId),
}

/// The version of a directory's listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingVersion {
    /// Hash of the names and their inode numbers.
    pub hash: u64,
    /// Change and modification time of the directory just before it was listed, where an
    /// unchanged pair proves an unchanged listing.
    pub proof: Option<(Stamp, Stamp)>,
}

/// One recorded name, for those who walk the workset.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'w> {
    /// The directory.
    pub dir: NodeId,
    /// The name in it; bytes, without `/` and NUL.
    pub name: &'w [u8],
    /// What it was bound to.
    pub to: Bound,
}

/// How much a workset holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct WorksetStats {
    /// Objects known.
    pub objects: u64,
    /// Names recorded, absent ones included.
    pub names: u64,
    /// Names found absent.
    pub absent: u64,
    /// Objects whose attributes were read.
    pub attrs: u64,
    /// Directories listed.
    pub listings: u64,
    /// Files whose content was read.
    pub contents: u64,
    /// Of these, files whose content only its bytes can prove.
    pub hashed: u64,
    /// Symbolic links whose target was read.
    pub links: u64,
    /// Objects whose extended attributes were read.
    pub xattrs: u64,
    /// Objects that were read ahead and not asked for by anybody.
    pub speculative: u64,
    /// Objects that are not validated because the user relaxed them.
    pub relaxed: u64,
    /// Bytes of memory in use by all tables, indexes included.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    dir: u32,
    /// Object, or 0 for an absent name.
    child: u32,
    name: u32,
}

/// Everything that a transaction has read.
#[derive(Clone, Debug)]
pub struct Workset {
    devices: Vec<u64>,
    objects: Vec<Record>,
    by_identity: HashTable<u32>,
    bindings: Vec<Slot>,
    by_name: HashTable<u32>,
    names: Names,
    listings: HashMap<u32, ListingVersion>,
    xattrs: HashMap<u32, u64>,
    chunks: HashMap<(u32, u32), u64>,
    copied: HashMap<u32, Stamp>,
    filled: HashMap<u32, Stamp>,
}

impl Workset {
    /// A workset that knows only the root, and has read nothing of it.
    pub fn new(root: &Attrs) -> Self {
        let mut workset = Workset {
            devices: Vec::new(),
            objects: Vec::new(),
            by_identity: HashTable::new(),
            bindings: Vec::new(),
            by_name: HashTable::new(),
            names: Names::default(),
            listings: HashMap::new(),
            xattrs: HashMap::new(),
            chunks: HashMap::new(),
            copied: HashMap::new(),
            filled: HashMap::new(),
        };
        workset.learn(root);
        workset
    }

    /// The node of an object; a new one with these attributes if it is not known yet (`true`).
    pub fn learn(&mut self, attrs: &Attrs) -> (NodeId, bool) {
        if let Some(known) = self.find(&attrs.id) {
            return (known, false);
        }
        let device = self.device(attrs.id.dev);
        let index = self.objects.len() as u32;
        self.objects.push(Record::new(attrs, device));
        let objects = &self.objects;
        self.by_identity.insert_unique(hash_identity(device, attrs.id.ino), index, |other| {
            let record = &objects[*other as usize];
            hash_identity(record.device, record.ino)
        });
        (NodeId(index + 1), true)
    }

    /// The node of a known object.
    pub fn find(&self, id: &ObjectId) -> Option<NodeId> {
        let device = self.devices.iter().position(|dev| *dev == id.dev)? as u16;
        let same = |index: &u32| {
            let record = &self.objects[*index as usize];
            record.device == device && record.ino == id.ino && record.birth() == id.birth
        };
        let index = self.by_identity.find(hash_identity(device, id.ino), same)?;
        Some(NodeId(*index + 1))
    }

    /// The devices of all objects.
    pub fn devices(&self) -> &[u64] {
        &self.devices
    }

    /// The index of a device in the order in which devices were met; 0 is the root's.
    pub fn device_index(&self, dev: u64) -> Option<u16> {
        self.devices.iter().position(|known| *known == dev).map(|index| index as u16)
    }

    fn device(&mut self, dev: u64) -> u16 {
        self.device_index(dev).unwrap_or_else(|| {
            self.devices.push(dev);
            (self.devices.len() - 1) as u16
        })
    }

    /// How many objects are known. Never 0, since the root is one of them.
    #[expect(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Whether the workset knows this node.
    pub fn knows(&self, node: NodeId) -> bool {
        node.index() < self.objects.len()
    }

    /// The attributes of a known object as they were when it was met, or first read.
    pub fn attrs(&self, node: NodeId) -> Option<Attrs> {
        let record = self.objects.get(node.index())?;
        Some(record.attrs(self.devices[usize::from(record.device)]))
    }

    /// Replaces the attributes of an object. The caller makes sure that no facet rests on them.
    pub fn set_attrs(&mut self, node: NodeId, attrs: &Attrs) {
        if let Some(record) = self.objects.get_mut(node.index()) {
            record.set(attrs);
        }
    }

    /// The facets of an object that were read, with its marks.
    pub fn facets(&self, node: NodeId) -> Facets {
        self.objects.get(node.index()).map_or(Facets::empty(), |record| record.facets)
    }

    /// Adds facets and marks to an object.
    pub fn mark(&mut self, node: NodeId, facets: Facets) {
        if let Some(record) = self.objects.get_mut(node.index()) {
            record.facets |= facets;
        }
    }

    /// Takes marks from an object.
    pub fn unmark(&mut self, node: NodeId, facets: Facets) {
        if let Some(record) = self.objects.get_mut(node.index()) {
            record.facets -= facets;
        }
    }

    /// What `name` in `dir` was bound to, if the transaction looked.
    pub fn bound(&self, dir: NodeId, name: &[u8]) -> Option<Bound> {
        let same = |index: &u32| {
            let slot = &self.bindings[*index as usize];
            slot.dir == dir.0 && self.names.get(slot.name) == name
        };
        let index = self.by_name.find(hash_name(dir.0, name), same)?;
        Some(to_bound(self.bindings[*index as usize].child))
    }

    /// Records what `name` in `dir` is bound to. If the name is recorded already, its first
    /// binding stands and is returned as an error.
    ///
    /// # Errors
    /// The binding that stands.
    pub fn bind(&mut self, dir: NodeId, name: &[u8], to: Bound) -> Result<(), Bound> {
        if let Some(first) = self.bound(dir, name) {
            return if first == to { Ok(()) } else { Err(first) };
        }
        let index = self.bindings.len() as u32;
        let child = match to {
            Bound::Absent => 0,
            Bound::Object(node) => node.0,
        };
        let offset = self.names.push(name);
        self.bindings.push(Slot { dir: dir.0, child, name: offset });
        if let Bound::Object(node) = to
            // Whatever else: walking up by first bindings has to end.
            && dir < node
            && let Some(record) = self.objects.get_mut(node.index())
        {
            record.first_binding.get_or_insert(index);
        }
        let (bindings, names) = (&self.bindings, &self.names);
        self.by_name.insert_unique(hash_name(dir.0, name), index, |other| {
            let slot = &bindings[*other as usize];
            hash_name(slot.dir, names.get(slot.name))
        });
        Ok(())
    }

    /// The directory and name by which an object was first reached; `None` for the root.
    pub fn first_name(&self, node: NodeId) -> Option<(NodeId, &[u8])> {
        let record = self.objects.get(node.index())?;
        let slot = &self.bindings[record.first_binding.get()? as usize];
        Some((NodeId(slot.dir), self.names.get(slot.name)))
    }

    /// The absolute path by which an object was first reached.
    pub fn path(&self, node: NodeId) -> PathBuf {
        let mut names = Vec::new();
        let mut at = node;
        while let Some((dir, name)) = self.first_name(at) {
            names.push(name);
            at = dir;
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        PathBuf::from(std::ffi::OsString::from_vec(path))
    }

    /// The absolute path of `name` in `dir`.
    pub fn path_in(&self, dir: NodeId, name: &[u8]) -> PathBuf {
        self.path(dir).join(OsStr::from_bytes(name))
    }

    /// The version of a listing that was read.
    pub fn listing(&self, dir: NodeId) -> Option<ListingVersion> {
        self.listings.get(&dir.0).copied()
    }

    /// Records the version of a listing; the first one stands.
    pub fn set_listing(&mut self, dir: NodeId, version: ListingVersion) {
        self.listings.entry(dir.0).or_insert(version);
        self.mark(dir, Facets::LISTING);
    }

    /// The hash of the extended attributes that were read.
    pub fn xattrs(&self, node: NodeId) -> Option<u64> {
        self.xattrs.get(&node.0).copied()
    }

    /// Records the hash of an object's extended attributes; the first one stands.
    pub fn set_xattrs(&mut self, node: NodeId, hash: u64) {
        self.xattrs.entry(node.0).or_insert(hash);
        self.mark(node, Facets::XATTRS);
    }

    /// Takes note that an object was copied up at `at`; the last time stands.
    pub fn set_copied(&mut self, node: NodeId, at: Stamp) {
        self.copied.insert(node.0, at);
    }

    /// Takes note that a piece of a file's content was copied up at `at`; the last time stands,
    /// until the attributes are.
    pub fn set_filled(&mut self, node: NodeId, at: Option<Stamp>) {
        match at {
            Some(at) => self.filled.insert(node.0, at),
            None => self.filled.remove(&node.0),
        };
    }

    /// The hash of chunk number `chunk` of a file whose content only its bytes can prove.
    pub fn chunk(&self, node: NodeId, chunk: u32) -> Option<u64> {
        self.chunks.get(&(node.0, chunk)).copied()
    }

    /// Records the hash of one chunk of a file; the first one stands.
    pub fn set_chunk(&mut self, node: NodeId, chunk: u32, hash: u64) {
        self.chunks.entry((node.0, chunk)).or_insert(hash);
        self.mark(node, Facets::CONTENT | Facets::HASHED);
    }

    /// The chunks of all files whose content only its bytes can prove, sorted by file and place.
    pub fn chunks(&self) -> Vec<(NodeId, u32, u64)> {
        let mut chunks: Vec<_> = self
            .chunks
            .iter()
            .map(|((node, chunk), hash)| (NodeId(*node), *chunk, *hash))
            .collect();
        chunks.sort_unstable();
        chunks
    }

    /// All nodes, in the order in which they were met.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.objects.len() as u32).map(NodeId)
    }

    /// The recorded binding number `index`, below [`WorksetStats::names`].
    pub fn binding(&self, index: u32) -> Option<Binding<'_>> {
        let slot = self.bindings.get(index as usize)?;
        Some(Binding {
            dir: NodeId(slot.dir),
            name: self.names.get(slot.name),
            to: to_bound(slot.child),
        })
    }

    /// The numbers of all bindings grouped by directory: those of node `n` are
    /// `order[starts[n - 1]..starts[n]]`, in the order in which they were read.
    pub fn by_directory(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0u32; self.objects.len() + 1];
        for slot in &self.bindings {
            starts[slot.dir as usize] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut order = vec![0u32; self.bindings.len()];
        for (index, slot) in self.bindings.iter().enumerate() {
            let place = &mut next[slot.dir as usize - 1];
            order[*place as usize] = index as u32;
            *place += 1;
        }
        (order, starts)
    }

    /// How many relaxed objects lie at or below each of `prefixes`.
    pub fn relaxed_below(&self, prefixes: &[PathBuf]) -> Vec<(PathBuf, u64)> {
        let mut counts: Vec<_> = prefixes.iter().map(|prefix| (prefix.clone(), 0)).collect();
        for node in self.nodes().filter(|node| self.facets(*node).contains(Facets::RELAXED)) {
            let path = self.path(node);
            for (_, count) in counts.iter_mut().filter(|(prefix, _)| path.starts_with(prefix)) {
                *count += 1;
            }
        }
        counts
    }

    /// Counts what is held.
    pub fn stats(&self) -> WorksetStats {
        let count = |facet: Facets| {
            self.objects.iter().filter(|record| record.facets.contains(facet)).count() as u64
        };
        WorksetStats {
            objects: self.objects.len() as u64,
            names: self.bindings.len() as u64,
            absent: self.bindings.iter().filter(|slot| slot.child == 0).count() as u64,
            attrs: count(Facets::ATTRS),
            listings: count(Facets::LISTING),
            contents: count(Facets::CONTENT),
            hashed: count(Facets::HASHED),
            links: count(Facets::LINK),
            xattrs: count(Facets::XATTRS),
            speculative: count(Facets::SPECULATIVE),
            relaxed: count(Facets::RELAXED),
            bytes: self.bytes() as u64,
        }
    }

    /// Bytes of memory in use by all tables.
    fn bytes(&self) -> usize {
        let side = |entries: usize, size: usize| entries * (size + 1) * 8 / 7;
        self.objects.len() * size_of::<Record>()
            + self.bindings.len() * size_of::<Slot>()
            + self.names.bytes()
            + self.by_identity.allocation_size()
            + self.by_name.allocation_size()
            + side(self.listings.capacity(), size_of::<(u32, ListingVersion)>())
            + side(self.xattrs.capacity(), size_of::<(u32, u64)>())
            + side(self.chunks.capacity(), size_of::<((u32, u32), u64)>())
            + side(self.copied.capacity() + self.filled.capacity(), size_of::<(u32, Stamp)>())
    }
}

impl Origins for Workset {
    fn origin(&self, node_id: u64) -> Option<Origin> {
        let node = NodeId::from_raw(node_id).filter(|node| self.knows(*node))?;
        Some(Origin { attrs: self.attrs(node)?, path: self.path(node) })
    }

    fn copied(&self, id: &ObjectId) -> Option<Stamp> {
        self.copied.get(&self.find(id)?.0).copied()
    }

    fn filled(&self, id: &ObjectId) -> Option<Stamp> {
        self.filled.get(&self.find(id)?.0).copied()
    }
}

fn to_bound(child: u32) -> Bound {
    if child == 0 { Bound::Absent } else { Bound::Object(NodeId(child)) }
}

fn hash_identity(device: u16, ino: u64) -> u64 {
    xxh3_64(&(ino ^ u64::from(device) << 48).to_le_bytes())
}

fn hash_name(dir: u32, name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, u64::from(dir))
}

#[cfg(test)]
mod tests;
