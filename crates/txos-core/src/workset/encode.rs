//! A workset as bytes, for a transaction that is kept prepared.
//!
//! ```text
//! file    = magic[8] length:u64 body[length] xxh3_64(body):u64
//! body    = devices objects bindings names listings xattrs chunks copied filled
//! section = count:u32 count × fields          (names: count bytes)
//! ```
//!
//! Integers are little-endian. The last byte of the magic is the version of the format. Any other
//! magic, length, checksum, or an index that leads nowhere, is an error: a workset is never
//! guessed at.

use std::collections::HashMap;

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Facets, ListingVersion, Slot, Workset, hash_identity, hash_name,
    names::Names,
    record::{OptionalIndex, Record},
};
use crate::{FileKind, Stamp};

const MAGIC: [u8; 8] = *b"txosws\0\x02";

/// Why bytes are not a workset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another kind of file, or another version of the format.
    #[error("not a workset of this version of txos; finish it with the version that wrote it")]
    Magic,
    /// Fewer or more bytes than the header says.
    #[error("the workset is cut short or has bytes after its end; abort the transaction")]
    Length,
    /// The checksum does not fit.
    #[error("the checksum of the workset does not fit; abort the transaction")]
    Checksum,
    /// A field has a value that cannot be.
    #[error("the workset contradicts itself; abort the transaction")]
    Content,
}

impl Workset {
    /// The workset as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.objects.len() * 140 + self.names.bytes());
        let out = &mut body;
        put_count(out, self.devices.len());
        self.devices.iter().for_each(|dev| out.extend(dev.to_le_bytes()));
        put_count(out, self.objects.len());
        self.objects.iter().for_each(|record| put_record(out, record));
        put_count(out, self.bindings.len());
        for slot in &self.bindings {
            [slot.dir, slot.child, slot.name]
                .iter()
                .for_each(|part| out.extend(part.to_le_bytes()));
        }
        put_count(out, self.names.bytes());
        out.extend_from_slice(self.names.as_slice());
        put_count(out, self.listings.len());
        for (dir, version) in sorted(&self.listings) {
            out.extend(dir.to_le_bytes());
            out.extend(version.hash.to_le_bytes());
            out.push(u8::from(version.proof.is_some()));
            let (ctime, mtime) = version.proof.unwrap_or_default();
            put_stamp(out, ctime);
            put_stamp(out, mtime);
        }
        put_count(out, self.xattrs.len());
        for (node, hash) in sorted(&self.xattrs) {
            out.extend(node.to_le_bytes());
            out.extend(hash.to_le_bytes());
        }
        put_count(out, self.chunks.len());
        for ((node, chunk), hash) in sorted(&self.chunks) {
            out.extend(node.to_le_bytes());
            out.extend(chunk.to_le_bytes());
            out.extend(hash.to_le_bytes());
        }
        for times in [&self.copied, &self.filled] {
            put_count(out, times.len());
            for (node, at) in sorted(times) {
                out.extend(node.to_le_bytes());
                put_stamp(out, at);
            }
        }
        let mut file = MAGIC.to_vec();
        file.extend((body.len() as u64).to_le_bytes());
        file.extend_from_slice(&body);
        file.extend(xxh3_64(&body).to_le_bytes());
        file
    }

    /// The workset that [`Workset::encode`] made into these bytes.
    ///
    /// # Errors
    /// If the bytes are anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader { rest: body_of(bytes)? };
        let workset = reader.workset().ok_or(DecodeError::Content)?;
        if reader.rest.is_empty() { Ok(workset) } else { Err(DecodeError::Content) }
    }

    fn index(&mut self) {
        let identity = |record: &Record| hash_identity(record.device, record.ino);
        let objects = &self.objects;
        self.by_identity = HashTable::with_capacity(objects.len());
        for (index, record) in objects.iter().enumerate() {
            self.by_identity.insert_unique(identity(record), index as u32, |other| {
                identity(&objects[*other as usize])
            });
        }
        let (bindings, names) = (&self.bindings, &self.names);
        let named = |slot: &Slot| hash_name(slot.dir, names.get(slot.name));
        self.by_name = HashTable::with_capacity(bindings.len());
        for (index, slot) in bindings.iter().enumerate() {
            self.by_name.insert_unique(named(slot), index as u32, |other| {
                named(&bindings[*other as usize])
            });
        }
    }
}

fn body_of(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or(DecodeError::Magic)?;
    if *magic != MAGIC {
        return Err(DecodeError::Magic);
    }
    let (length, rest) = rest.split_first_chunk::<8>().ok_or(DecodeError::Length)?;
    let (body, checksum) = rest.split_last_chunk::<8>().ok_or(DecodeError::Length)?;
    if u64::from_le_bytes(*length) != body.len() as u64 {
        return Err(DecodeError::Length);
    }
    if u64::from_le_bytes(*checksum) != xxh3_64(body) {
        return Err(DecodeError::Checksum);
    }
    Ok(body)
}

fn sorted<K: Ord + Copy, V: Copy>(map: &HashMap<K, V>) -> Vec<(K, V)> {
    let mut entries: Vec<(K, V)> = map.iter().map(|(key, value)| (*key, *value)).collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    entries
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend((count as u32).to_le_bytes());
}

fn put_stamp(out: &mut Vec<u8>, stamp: Stamp) {
    out.extend(stamp.sec.to_le_bytes());
    out.extend(stamp.nsec.to_le_bytes());
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    for part in [record.ino, record.size, record.blocks, record.rdev] {
        out.extend(part.to_le_bytes());
    }
    record.seconds.iter().for_each(|part| out.extend(part.to_le_bytes()));
    record.nanos.iter().for_each(|part| out.extend(part.to_le_bytes()));
    let first_binding = record.first_binding.raw();
    for part in [record.mode, record.uid, record.gid, record.nlink, first_binding] {
        out.extend(part.to_le_bytes());
    }
    out.extend(record.device.to_le_bytes());
    out.extend(record.facets.bits().to_le_bytes());
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn stamp(&mut self) -> Option<Stamp> {
        Some(Stamp { sec: self.take().map(i64::from_le_bytes)?, nsec: self.u32()? })
    }

    /// A section: a count, and that many items of at least `size` bytes each.
    fn section<T>(
        &mut self,
        size: usize,
        mut item: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.u32()? as usize;
        if self.rest.len() / size < count {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }

    fn record(&mut self) -> Option<Record> {
        Some(Record {
            ino: self.u64()?,
            size: self.u64()?,
            blocks: self.u64()?,
            rdev: self.u64()?,
            seconds: [self.u64()?, self.u64()?, self.u64()?, self.u64()?].map(|part| part as i64),
            nanos: [self.u32()?, self.u32()?, self.u32()?, self.u32()?],
            mode: self.u32().filter(|mode| FileKind::from_mode(*mode).is_some())?,
            uid: self.u32()?,
            gid: self.u32()?,
            nlink: self.u32()?,
            first_binding: OptionalIndex::from_raw(self.u32()?),
            device: self.u16()?,
            facets: Facets::from_bits(self.u16()?)?,
        })
    }

    fn workset(&mut self) -> Option<Workset> {
        let devices = self.section(8, Self::u64)?;
        let objects = self.section(104, Self::record)?;
        let bindings = self.section(12, |reader| {
            Some(Slot { dir: reader.u32()?, child: reader.u32()?, name: reader.u32()? })
        })?;
        let names = self.section(1, |reader| reader.take::<1>().map(|[byte]| byte))?;
        let names = Names::from_bytes(names, bindings.iter().map(|slot| slot.name))?;
        check(&devices, &objects, &bindings)?;
        let known = |node: u32| (1..=objects.len() as u32).contains(&node).then_some(node);
        let listings = self.section(37, |reader| {
            let (dir, hash) = (known(reader.u32()?)?, reader.u64()?);
            let [proven] = reader.take::<1>()?;
            let times = (reader.stamp()?, reader.stamp()?);
            Some((dir, ListingVersion { hash, proof: (proven != 0).then_some(times) }))
        })?;
        let xattrs = self.section(12, |reader| Some((known(reader.u32()?)?, reader.u64()?)))?;
        let chunks = self
            .section(16, |reader| Some(((known(reader.u32()?)?, reader.u32()?), reader.u64()?)))?;
        let times = |reader: &mut Self| Some((known(reader.u32()?)?, reader.stamp()?));
        let (copied, filled) = (self.section(16, times)?, self.section(16, times)?);
        let mut workset = Workset {
            devices,
            objects,
            by_identity: HashTable::new(),
            bindings,
            by_name: HashTable::new(),
            names,
            listings: listings.into_iter().collect(),
            xattrs: xattrs.into_iter().collect(),
            chunks: chunks.into_iter().collect(),
            copied: copied.into_iter().collect(),
            filled: filled.into_iter().collect(),
        };
        workset.index();
        Some(workset)
    }
}

/// Checks that every index leads somewhere, and every object but the root up to the root.
fn check(devices: &[u64], objects: &[Record], bindings: &[Slot]) -> Option<()> {
    let count = objects.len() as u32;
    let slots_ok =
        bindings.iter().all(|slot| (1..=count).contains(&slot.dir) && slot.child <= count);
    let object_ok = |(index, record): (usize, &Record)| {
        let node = index as u32 + 1;
        let named = match record.first_binding.get() {
            None => true,
            Some(binding) => bindings
                .get(binding as usize)
                .is_some_and(|slot| slot.child == node && slot.dir < node),
        };
        named && usize::from(record.device) < devices.len()
    };
    let root_ok = objects.first().is_some_and(|root| root.first_binding.get().is_none());
    (slots_ok && root_ok && objects.iter().enumerate().all(object_ok)).then_some(())
}
