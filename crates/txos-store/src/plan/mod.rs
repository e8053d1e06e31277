//! What a commit will do, in full: the content of a journal record.
//!
//! A plan is made before the commit is decided and never changes after it. Each operation carries
//! what is there before and after it, so that it can be told at any later time, and after any
//! crash, whether it is still to do, done, or overtaken by someone outside (see
//! [`crate::apply`]).
//!
//! # Coordinates
//!
//! All paths lie beneath the mount point of their [`Area`]. A path is either *original* (as the
//! stable system was when the plan was made) or *final* (as it will be). Content and metadata of
//! files, removals and the beginning of moves use original paths; all else uses final ones.
//!
//! # Order
//!
//! 1. [`Write`]s, [`Patch`]es and [`Meta`]s of files that stay the same object.
//! 2. [`Remove`]s and [`Move`]s away, deepest original path first: no original path is disturbed
//!    before it is used.
//! 3. [`Put`]s and the ends of [`Move`]s, shallowest final path first: each parent is there.
//! 4. [`Link`]s.
//! 5. [`Meta`]s of directories, deepest first: times last, when nothing moves them any more.

mod inline;
mod write;

use std::{ffi::CString, path::PathBuf};

use txos_core::{Attrs, FileKind, ObjectId, Stamp, TxId};

pub(crate) use inline::{Make, Patch, PatchBlock, Shape, What};
pub(crate) use write::{BLOCK, PAGE, Run, Write, WriteSpec, zero};

use crate::sys::FsIdentity;

/// An inode within its area, and which life of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ident {
    pub ino: u64,
    pub birth: Stamp,
}

impl From<ObjectId> for Ident {
    fn from(id: ObjectId) -> Self {
        Ident { ino: id.ino, birth: id.birth }
    }
}

impl Ident {
    /// Whether `attrs` are of this object.
    pub(crate) fn is(&self, attrs: &Attrs) -> bool {
        *self == Ident::from(attrs.id)
    }
}

/// One mount that the plan changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// Mount point, as an absolute path.
    pub point: PathBuf,
    /// Which file system it must be.
    pub fs: FsIdentity,
    /// Directory on the same mount, as an absolute path, that holds what is staged.
    pub stage: PathBuf,
}

/// The whole plan. Operations name their area by its place in `areas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub tx: TxId,
    /// Which boot it was made in.
    pub boot: [u8; 16],
    /// Whether it must survive a power cut.
    pub durable: bool,
    /// When it was made.
    pub made: Stamp,
    pub areas: Vec<Area>,
    pub writes: Vec<Write>,
    pub patches: Vec<Patch>,
    pub file_meta: Vec<Meta>,
    pub removes: Vec<Remove>,
    pub moves: Vec<Move>,
    pub puts: Vec<Put>,
    pub links: Vec<Link>,
    pub dir_meta: Vec<Meta>,
}

impl Plan {
    /// One that does nothing yet, made in this boot.
    pub(crate) fn new(tx: TxId, durable: bool, made: Stamp) -> Plan {
        Plan {
            tx,
            boot: crate::sys::boot_id(),
            durable,
            made,
            areas: Vec::new(),
            writes: Vec::new(),
            patches: Vec::new(),
            file_meta: Vec::new(),
            removes: Vec::new(),
            moves: Vec::new(),
            puts: Vec::new(),
            links: Vec::new(),
            dir_meta: Vec::new(),
        }
    }

    /// The plan without what it does in the areas that `lost` names.
    pub(crate) fn without(mut self, lost: impl Fn(&Area) -> bool) -> Plan {
        let mut numbers = Vec::new();
        let mut areas = Vec::new();
        for area in self.areas {
            let number = areas.len() as u32;
            let stays = !lost(&area);
            numbers.push(stays.then_some(number));
            if stays {
                areas.push(area);
            }
        }
        self.areas = areas;
        let renumber = |area: &mut u32| match numbers.get(*area as usize) {
            Some(Some(number)) => {
                *area = *number;
                true
            }
            _ => false,
        };
        self.writes.retain_mut(|op| renumber(&mut op.area));
        self.patches.retain_mut(|op| renumber(&mut op.area));
        self.file_meta.retain_mut(|op| renumber(&mut op.area));
        self.removes.retain_mut(|op| renumber(&mut op.area));
        self.moves.retain_mut(|op| renumber(&mut op.area));
        self.puts.retain_mut(|op| renumber(&mut op.area));
        self.links.retain_mut(|op| renumber(&mut op.area));
        self.dir_meta.retain_mut(|op| renumber(&mut op.area));
        self
    }

    /// All that it changes, as absolute paths.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let metas = self.file_meta.iter().chain(&self.dir_meta).map(|op| (op.area, &op.path));
        let moves = self.moves.iter().flat_map(|op| [(op.area, &op.from), (op.area, &op.to)]);
        let all = (self.writes.iter().map(|op| (op.area, &op.path)))
            .chain(self.patches.iter().map(|op| (op.area, &op.path)))
            .chain(self.removes.iter().map(|op| (op.area, &op.path)))
            .chain(self.puts.iter().map(|op| (op.area, &op.to)))
            .chain(self.links.iter().map(|op| (op.area, &op.to)))
            .chain(moves)
            .chain(metas);
        all.map(|(area, path)| self.areas[area as usize].point.join(path)).collect()
    }

    /// How many operations it has in the area of this number.
    pub(crate) fn operations_in(&self, area: u32) -> usize {
        let metas = self.file_meta.iter().chain(&self.dir_meta).map(|op| op.area);
        (self.writes.iter().map(|op| op.area))
            .chain(self.patches.iter().map(|op| op.area))
            .chain(self.removes.iter().map(|op| op.area))
            .chain(self.moves.iter().map(|op| op.area))
            .chain(self.puts.iter().map(|op| op.area))
            .chain(self.links.iter().map(|op| op.area))
            .chain(metas)
            .filter(|number| *number == area)
            .count()
    }

    /// How many operations it has.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
            + self.patches.len()
            + self.file_meta.len()
            + self.removes.len()
            + self.moves.len()
            + self.puts.len()
            + self.links.len()
            + self.dir_meta.len()
    }
}

/// Removes a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remove {
    pub area: u32,
    /// Original path.
    pub path: PathBuf,
    /// What is bound there.
    pub id: Ident,
    /// Whether that is a directory.
    pub dir: bool,
}

/// Gives an object of the stable system another name in place of the old one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub area: u32,
    /// Original path.
    pub from: PathBuf,
    /// Final path.
    pub to: PathBuf,
    pub id: Ident,
    pub dir: bool,
    /// Name in the stage directory where it waits between steps 2 and 3; `None` if one rename
    /// does both.
    pub slot: Option<PathBuf>,
    /// What is bound at `to` and displaced.
    pub replaces: Option<Ident>,
}

/// Puts a new object, with all below it, in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub area: u32,
    /// Where it is staged, beneath the stage directory; empty for what is made from the record.
    pub staged: PathBuf,
    /// Final path.
    pub to: PathBuf,
    /// Which object; zero where `make` makes one that has no identity before.
    pub id: Ident,
    pub dir: bool,
    /// What is bound at `to` and displaced.
    pub replaces: Option<Ident>,
    /// How to make it, where it is not staged.
    pub make: Option<Make>,
}

/// Gives an object a further name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub area: u32,
    /// Final path of a name that it has.
    pub from: PathBuf,
    /// Final path of the further name.
    pub to: PathBuf,
    pub id: Ident,
    /// Name in the stage directory for the moment before it displaces something.
    pub slot: PathBuf,
    /// What is bound at `to` and displaced.
    pub replaces: Option<Ident>,
}

/// Changes owner, mode, extended attributes or times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub area: u32,
    /// Original path for files, final path for directories.
    pub path: PathBuf,
    pub id: Ident,
    pub kind: FileKind,
    pub owner: Option<Change<(u32, u32)>>,
    pub perm: Option<Change<u32>>,
    pub xattrs: Vec<(CString, Change<Option<Vec<u8>>>)>,
    pub times: Option<Times>,
}

/// A value before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change<T> {
    pub before: T,
    pub after: T,
}

/// Times to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub atime: Option<Stamp>,
    pub mtime: Option<Change<Stamp>>,
    /// The time came about by itself (a name made or removed), was not asked for: it never moves
    /// the object's time backwards.
    pub natural: bool,
}
