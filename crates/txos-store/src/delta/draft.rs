use std::{
    ffi::CString,
    path::{Path, PathBuf},
};

use txos_core::{Attrs, FileKind};
use txos_host::XattrSet;

use super::closed::Closed;
use crate::{
    plan::{Ident, Link, Meta, Move, Remove, WriteSpec},
    verify::Expectation,
};

/// The operations of one layer, before anything is staged. Areas are not numbered yet: all are 0.
#[derive(Debug)]
pub(crate) struct Draft {
    /// Mount point, as an absolute path of the stable system.
    pub point: PathBuf,
    /// Mount point, as a path that can be opened.
    pub at: PathBuf,
    /// Upper directory.
    pub upper: PathBuf,
    pub writes: Vec<DraftWrite>,
    pub file_meta: Vec<Meta>,
    pub removes: Vec<Remove>,
    pub moves: Vec<Move>,
    pub puts: Vec<DraftPut>,
    pub links: Vec<Link>,
    pub dir_meta: Vec<Meta>,
    /// All shadow objects that are new, sorted by path: they go into the stable system as they
    /// are, but for the overlay's marks.
    pub fresh: Vec<Shadow>,
    /// Shadow objects in new directories that must not go with them: copies of stable objects,
    /// which come from elsewhere; sorted by path.
    pub evicted: Vec<PathBuf>,
    /// Shadow objects in new directories that are left out.
    pub dropped: Vec<PathBuf>,
    /// Shadow objects that keep their owner out, outermost first.
    pub closed: Vec<Closed>,
    /// What the stable system must still be like.
    pub expectation: Expectation,
}

/// A new shadow object.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    /// Path in the upper layer, and final path.
    pub rel: PathBuf,
    pub attrs: Attrs,
    /// The overlay's own attributes on it.
    pub own: Vec<CString>,
    /// Attributes that it shall have but that the overlay keeps under other names.
    pub unescaped: XattrSet,
    /// A real character device 0:0, kept in the layer under a substitute number.
    pub null_device: bool,
    /// Flags of `chattr(1)` that it shall have.
    pub protected: Vec<u8>,
}

/// Content to write in place.
#[derive(Debug)]
pub(crate) struct DraftWrite {
    /// Original path.
    pub path: PathBuf,
    pub id: Ident,
    /// The shadow object, as an absolute path.
    pub source: PathBuf,
    /// Its path in the upper layer, if it has one.
    pub rel: Option<PathBuf>,
    pub spec: WriteSpec,
    /// The stable object when its content was compared.
    pub attrs: Attrs,
}

/// A new object to put in place.
#[derive(Debug)]
pub(crate) struct DraftPut {
    /// Path in the upper layer, and final path.
    pub rel: PathBuf,
    pub kind: FileKind,
    /// What it displaces.
    pub replaces: Option<Ident>,
}

impl Draft {
    pub(crate) fn new(point: &Path, at: &Path, upper: &Path) -> Self {
        Draft {
            point: point.to_owned(),
            at: at.to_owned(),
            upper: upper.to_owned(),
            writes: Vec::new(),
            file_meta: Vec::new(),
            removes: Vec::new(),
            moves: Vec::new(),
            puts: Vec::new(),
            links: Vec::new(),
            dir_meta: Vec::new(),
            fresh: Vec::new(),
            evicted: Vec::new(),
            dropped: Vec::new(),
            closed: Vec::new(),
            expectation: Expectation {
                at: at.to_owned(),
                point: point.to_owned(),
                ..Expectation::default()
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.file_meta.is_empty()
            && self.removes.is_empty()
            && self.moves.is_empty()
            && self.puts.is_empty()
            && self.links.is_empty()
            && self.dir_meta.is_empty()
    }
}
