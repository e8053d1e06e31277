//! What a transaction would write, facet by facet, and whether a workset meets it.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
};

use crate::{
    Attrs, Conflict, Detail, Facet, FileKind, ObjectId, Seen, Stamp, Workset, blind_to,
    workset::{Bound, Facets},
};

/// What a transaction would write: of each stable object the facets that change, and of each
/// directory the names.
///
/// Objects are named by their identity, names by the identity of their directory: what is renamed
/// on the way stays what it is. What is new has no identity that anybody else could know, and is
/// not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    objects: HashMap<ObjectId, Touch>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Touch {
    facets: Facets,
    names: BTreeSet<Box<[u8]>>,
}

/// A read that meets a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The object, as an absolute path.
    pub path: PathBuf,
    /// The facet of it that is both read and written.
    pub facet: Facet,
}

impl Meeting {
    /// The same, as the conflict of one that loses because of it.
    pub fn conflict(self, detail: Detail) -> Conflict {
        Conflict { path: self.path, facet: self.facet, seen: Seen::Changed, detail }
    }
}

/// An encoded [`Written`] is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what a transaction would write was passed on damaged")]
pub struct BadWritten;

impl Written {
    /// Adds a name in `dir` that will be bound otherwise.
    pub fn add_name(&mut self, dir: ObjectId, name: &[u8]) {
        self.objects.entry(dir).or_default().names.insert(name.into());
    }

    /// Adds facets of an object that will change: of a directory [`Facets::PERMS`] and
    /// [`Facets::XATTRS`], of anything else [`Facets::ATTRS`], with [`Facets::CONTENT`] where that
    /// changes.
    pub fn add_object(&mut self, id: ObjectId, facets: Facets) {
        if !facets.is_empty() {
            self.objects.entry(id).or_default().facets |= facets;
        }
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// How many objects and names are written.
    pub fn len(&self) -> usize {
        self.objects.values().map(|touch| touch.names.len() + 1).sum()
    }

    /// Whether `name` in `dir` will be bound otherwise.
    pub fn binds(&self, dir: &ObjectId, name: &[u8]) -> bool {
        !blind_to(Facet::Binding) && self.names(dir, name)
    }

    fn names(&self, dir: &ObjectId, name: &[u8]) -> bool {
        self.objects.get(dir).is_some_and(|touch| touch.names.contains(name))
    }

    /// Whether the listing of `dir` will change.
    pub fn lists(&self, dir: &ObjectId) -> bool {
        !blind_to(Facet::Listing)
            && self.objects.get(dir).is_some_and(|touch| !touch.names.is_empty())
    }

    /// Whether someone who looks an object up, and thereby reads what `stat(2)` shows of it, meets
    /// the write.
    pub fn shows(&self, attrs: &Attrs) -> bool {
        let Some(touch) = self.objects.get(&attrs.id) else { return false };
        let (read, facet) = match attrs.kind {
            FileKind::Dir => (Facets::PERMS, Facet::Perms),
            FileKind::Symlink => (Facets::ATTRS, Facet::Link),
            _ if touch.facets.contains(Facets::CONTENT) => (Facets::ATTRS, Facet::Content),
            _ => (Facets::ATTRS, Facet::Attrs),
        };
        touch.facets.intersects(read) && !blind_to(facet)
    }

    /// Whether a lookup of `name` in `dir` that finds `now` meets the write.
    pub fn meets_lookup(&self, dir: &ObjectId, name: &[u8], now: Option<&Attrs>) -> bool {
        let facet = match now {
            Some(Attrs { kind: FileKind::Symlink, .. }) => Facet::Link,
            _ => Facet::Binding,
        };
        self.names(dir, name) && !blind_to(facet) || now.is_some_and(|attrs| self.shows(attrs))
    }

    /// Whether the extended attributes of an object will change.
    pub fn marks(&self, id: &ObjectId) -> bool {
        let facets = Facets::XATTRS;
        !blind_to(Facet::Xattrs)
            && self.objects.get(id).is_some_and(|touch| touch.facets.intersects(facets))
    }

    /// The first read of `workset` that meets a write. What was relaxed meets nothing.
    pub fn meets(&self, workset: &Workset) -> Option<Meeting> {
        self.objects.iter().find_map(|(id, touch)| {
            let node = workset.find(id)?;
            let read = workset.facets(node);
            if read.contains(Facets::RELAXED) {
                return None;
            }
            let bound = touch.names.iter().find_map(|name| {
                let facet = match workset.bound(node, name)? {
                    Bound::Object(object) => workset.bound_facet(object),
                    Bound::Absent => Facet::Binding,
                };
                (!blind_to(facet)).then(|| Meeting { path: workset.path_in(node, name), facet })
            });
            if bound.is_some() {
                return bound;
            }
            let facet = meeting_facet(touch, read, workset.attrs(node)?.kind)?;
            Some(Meeting { path: workset.path(node), facet })
        })
    }

    /// As bytes, to be passed on.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, touch) in &self.objects {
            let numbers = [id.dev, id.ino, id.birth.sec as u64];
            numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            let counts = [id.birth.nsec, u32::from(touch.facets.bits()), touch.names.len() as u32];
            counts.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
            for name in &touch.names {
                bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
                bytes.extend_from_slice(name);
            }
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// If [`Written::encode`] did not make them.
    pub fn decode(mut bytes: &[u8]) -> Result<Written, BadWritten> {
        let from = &mut bytes;
        let mut written = Written::default();
        while !from.is_empty() {
            let (dev, ino, sec) = (u64::from_le_bytes(take(from)?), take(from)?, take(from)?);
            let birth = Stamp { sec: i64::from_le_bytes(sec), nsec: number(from)? };
            let id = ObjectId { dev, ino: u64::from_le_bytes(ino), birth };
            let facets = u16::try_from(number(from)?).map_err(|_| BadWritten)?;
            let facets = Facets::from_bits(facets).ok_or(BadWritten)?;
            let mut names = BTreeSet::new();
            for _ in 0..number(from)? {
                let length = number(from)? as usize;
                let (name, rest) = from.split_at_checked(length).ok_or(BadWritten)?;
                *from = rest;
                names.insert(name.into());
            }
            written.objects.insert(id, Touch { facets, names });
        }
        Ok(written)
    }
}

fn meeting_facet(touch: &Touch, read: Facets, kind: FileKind) -> Option<Facet> {
    let both = |facet| read.contains(facet) && touch.facets.contains(facet);
    let facet = if read.contains(Facets::LISTING) && !touch.names.is_empty() {
        Some(Facet::Listing)
    } else if kind == FileKind::Dir
        && read.intersects(Facets::PERMS | Facets::ATTRS)
        && touch.facets.contains(Facets::PERMS)
    {
        Some(Facet::Perms)
    } else if both(Facets::CONTENT) {
        Some(Facet::Content)
    } else if kind == FileKind::Symlink && read.contains(Facets::LINK) && both(Facets::ATTRS) {
        // A link whose last name is bound otherwise.
        Some(Facet::Link)
    } else if kind != FileKind::Dir && both(Facets::ATTRS) {
        Some(Facet::Attrs)
    } else if both(Facets::XATTRS) {
        Some(Facet::Xattrs)
    } else {
        None
    };
    facet.filter(|facet| !blind_to(*facet))
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], BadWritten> {
    let (bytes, rest) = from.split_first_chunk::<N>().ok_or(BadWritten)?;
    *from = rest;
    Ok(*bytes)
}

fn number(from: &mut &[u8]) -> Result<u32, BadWritten> {
    take(from).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeId, workset::ListingVersion};

    fn attrs(ino: u64, kind: FileKind) -> Attrs {
        let time = Stamp { sec: 9, nsec: 1 };
        let id = ObjectId { dev: 1, ino, birth: time };
        Attrs {
            id,
            kind,
            perm: 0o755,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 1,
            blocks: 1,
            mtime: time,
            ctime: time,
            atime: time,
        }
    }

    const ROOT: u64 = 2;
    const DIR: u64 = 3;
    const FILE: u64 = 4;

    fn id(ino: u64) -> ObjectId {
        attrs(ino, FileKind::File).id
    }

    /// `/d` was walked through, `/d/f` looked up, `/d/none` found absent.
    fn reader() -> (Workset, NodeId, NodeId) {
        let mut workset = Workset::new(&attrs(ROOT, FileKind::Dir));
        let (dir, _) = workset.learn(&attrs(DIR, FileKind::Dir));
        workset.bind(NodeId::ROOT, b"d", Bound::Object(dir)).unwrap();
        workset.mark(dir, Facets::PERMS | Facets::ATTRS);
        let (file, _) = workset.learn(&attrs(FILE, FileKind::File));
        workset.bind(dir, b"f", Bound::Object(file)).unwrap();
        workset.mark(file, Facets::ATTRS);
        workset.bind(dir, b"none", Bound::Absent).unwrap();
        (workset, dir, file)
    }

    fn met(workset: &Workset, write: impl Fn(&mut Written)) -> Option<(String, Facet)> {
        let mut written = Written::default();
        write(&mut written);
        let written = Written::decode(&written.encode()).unwrap();
        let meeting = written.meets(workset)?;
        Some((meeting.path.display().to_string(), meeting.facet))
    }

    #[test]
    fn the_table_of_conflicts() {
        let (mut workset, dir, file) = reader();
        let at = |path: &str, facet| Some((path.to_owned(), facet));
        let name = |name: &'static [u8]| move |w: &mut Written| w.add_name(id(DIR), name);
        assert_eq!(met(&workset, name(b"f")), at("/d/f", Facet::Binding));
        assert_eq!(met(&workset, name(b"none")), at("/d/none", Facet::Binding));
        assert_eq!(met(&workset, name(b"other")), None, "another name in the same directory");
        workset.set_listing(dir, ListingVersion { hash: 1, proof: None });
        assert_eq!(met(&workset, name(b"other")), at("/d", Facet::Listing));
        let object = |ino, facets| move |w: &mut Written| w.add_object(id(ino), facets);
        assert_eq!(met(&workset, object(FILE, Facets::ATTRS)), at("/d/f", Facet::Attrs));
        workset.mark(file, Facets::CONTENT);
        let content = Facets::ATTRS | Facets::CONTENT;
        assert_eq!(met(&workset, object(FILE, content)), at("/d/f", Facet::Content));
        assert_eq!(met(&workset, object(DIR, Facets::PERMS)), at("/d", Facet::Perms));
        assert_eq!(met(&workset, object(DIR, Facets::XATTRS)), None, "nobody read them");
        workset.mark(dir, Facets::XATTRS);
        assert_eq!(met(&workset, object(DIR, Facets::XATTRS)), at("/d", Facet::Xattrs));
        assert_eq!(met(&workset, object(77, content)), None, "another object");
        workset.mark(dir, Facets::RELAXED);
        assert_eq!(met(&workset, name(b"f")), None);
    }

    #[test]
    fn touches_meet_what_is_held() {
        let mut written = Written::default();
        written.add_name(id(DIR), b"new");
        written.add_object(id(FILE), Facets::ATTRS);
        written.add_object(id(ROOT), Facets::XATTRS);
        let file = attrs(FILE, FileKind::File);
        assert!(written.meets_lookup(&id(DIR), b"new", None));
        assert!(!written.meets_lookup(&id(DIR), b"old", None));
        assert!(written.meets_lookup(&id(ROOT), b"link-to-it", Some(&file)));
        assert!(written.lists(&id(DIR)) && !written.lists(&id(ROOT)));
        assert!(written.marks(&id(ROOT)) && !written.marks(&id(DIR)));
        assert!(!written.shows(&attrs(ROOT, FileKind::Dir)), "its names and times are no matter");
        assert_eq!((written.len(), written.is_empty()), (4, false));
    }

    #[test]
    fn damage_is_told() {
        let mut written = Written::default();
        written.add_name(id(DIR), b"name");
        let bytes = written.encode();
        for length in 1..bytes.len() {
            assert_eq!(Written::decode(&bytes[..length]), Err(BadWritten), "{length}");
        }
        assert_eq!(Written::decode(&[]), Ok(Written::default()));
    }
}
