use std::path::{Path, PathBuf};

use txos_core::{Attrs, FileKind};
use txos_host::Tree;

use crate::{Result, sys::Object};

/// A shadow object whose mode keeps its owner, this ordinary user, out. It is opened up while it is
/// read and while it is staged; nobody else can see it there.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    /// Path in the layer.
    pub rel: PathBuf,
    pub kind: FileKind,
    /// The mode that it is to have.
    pub perm: u32,
}

impl Closed {
    /// The object at `rel`, if it is one.
    pub(super) fn find(rel: &Path, attrs: &Attrs) -> Option<Closed> {
        let wanted = wanted(attrs.kind)?;
        let me = rustix::process::geteuid();
        let closed = !me.is_root() && attrs.uid == me.as_raw() && attrs.perm & wanted != wanted;
        closed.then(|| Closed { rel: rel.to_owned(), kind: attrs.kind, perm: attrs.perm })
    }

    /// Opens it up, where it is now at `at` of `tree`. What holds it must be open already.
    pub(crate) fn open(&self, tree: &Tree, at: &Path) -> Result<()> {
        self.set(tree, at, self.perm | wanted(self.kind).unwrap_or(0))
    }

    /// Gives it its mode back.
    pub(crate) fn close(&self, tree: &Tree, at: &Path) -> Result<()> {
        self.set(tree, at, self.perm)
    }

    fn set(&self, tree: &Tree, at: &Path, perm: u32) -> Result<()> {
        match Object::open(tree, at)? {
            Some(object) => object.chmod(perm),
            None => Ok(()),
        }
    }
}

fn wanted(kind: FileKind) -> Option<u32> {
    match kind {
        FileKind::Dir => Some(0o700),
        FileKind::File => Some(0o600),
        _ => None,
    }
}
