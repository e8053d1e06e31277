//! The transaction's private version of the names and objects it has touched.
//!
//! # Invariants
//!
//! - *The first answer stands.* What a name was bound to when it was first looked up stays its
//!   stable side ([`Binding::stable`]); later lookups are answered from here.
//! - *One object, one node.* An object that is reached by two names is one node, so that a write
//!   by one of them is seen by the other.
//! - A directory has at most one name now; every other object has those whose bindings lead to it.
//! - Nothing here touches the stable system but to read it.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CString, OsStr, OsString},
    os::fd::OwnedFd,
    path::PathBuf,
    sync::Arc,
};

use txos_core::{Attrs, FileKind, ObjectId, Stamp};

use crate::{edits::Edits, seen::Seen};

/// Number of a node in its [`Shadow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ix(usize);

impl Ix {
    /// The root of the tree.
    pub(crate) const ROOT: Ix = Ix(0);
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// What it is bound to in the stable system; of a new directory always nothing.
    pub stable: Option<Ix>,
    /// What it is bound to now.
    pub now: Option<Ix>,
}

/// An object of the stable system.
#[derive(Clone, Debug)]
pub(crate) struct Stable {
    /// Its attributes when it was first seen.
    pub attrs: Attrs,
    /// The binding by which it was first reached; the root has none.
    pub home: Option<(Ix, OsString)>,
    /// What of it was read.
    pub seen: Seen,
}

/// What is asked for in place of an object's own attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetaEdits {
    pub perm: Option<u32>,
    pub owner: Option<(u32, u32)>,
    pub mtime: Option<Stamp>,
    pub atime: Option<Stamp>,
    /// Values set, or removed.
    pub xattrs: BTreeMap<CString, Option<Vec<u8>>>,
}

/// What an object is made of.
#[derive(Debug)]
pub(crate) enum Body {
    /// A regular file.
    File(Edits),
    /// A directory.
    Dir(DirBody),
    /// A symbolic link; of a stable one the target once it was read.
    Symlink(Option<OsString>),
    /// A device, FIFO or socket.
    Other,
}

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct DirBody {
    /// The names looked up or made.
    pub names: HashMap<OsString, Binding>,
    /// Open for lookups (`O_PATH`), while it is stable and in use.
    pub handle: Option<Arc<OwnedFd>>,
    /// Whether all stable names are in `names`.
    pub complete: bool,
    /// Where it hangs now; of a directory without a name, where it last did. The root has none.
    pub parent: Option<(Ix, OsString)>,
}

/// An object.
#[derive(Debug)]
pub(crate) struct Node {
    pub kind: FileKind,
    pub stable: Option<Stable>,
    /// The device it is on.
    pub dev: u64,
    pub body: Body,
    pub meta: MetaEdits,
    /// Of a new object: mode and owner.
    pub perm: u32,
    pub owner: (u32, u32),
    /// When it was made or last written by the transaction.
    pub touched: Option<Stamp>,
    /// How many names more (or fewer) it has than in the stable system.
    pub links: i64,
}

/// All nodes.
#[derive(Debug)]
pub(crate) struct Shadow {
    nodes: Vec<Node>,
    objects: HashMap<ObjectId, Ix>,
}

impl Shadow {
    /// One whose root is a stable directory.
    pub(crate) fn new(root: Attrs, handle: Arc<OwnedFd>) -> Shadow {
        let mut shadow = Shadow { nodes: Vec::new(), objects: HashMap::new() };
        let root = shadow.stable(root, None);
        if let Body::Dir(body) = &mut shadow.node_mut(root).body {
            body.handle = Some(handle);
        }
        shadow
    }

    pub(crate) fn node(&self, ix: Ix) -> &Node {
        &self.nodes[ix.0]
    }

    pub(crate) fn node_mut(&mut self, ix: Ix) -> &mut Node {
        &mut self.nodes[ix.0]
    }

    /// All nodes, in the order in which they were met or made.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ix, &Node)> {
        self.nodes.iter().enumerate().map(|(number, node)| (Ix(number), node))
    }

    /// The directory `ix`; `None` if it is something else.
    pub(crate) fn dir(&self, ix: Ix) -> Option<&DirBody> {
        match &self.node(ix).body {
            Body::Dir(body) => Some(body),
            _ => None,
        }
    }

    pub(crate) fn dir_mut(&mut self, ix: Ix) -> Option<&mut DirBody> {
        match &mut self.node_mut(ix).body {
            Body::Dir(body) => Some(body),
            _ => None,
        }
    }

    /// The node of a stable object, made if it is met for the first time.
    pub(crate) fn stable(&mut self, attrs: Attrs, home: Option<(Ix, OsString)>) -> Ix {
        if let Some(ix) = self.objects.get(&attrs.id) {
            return *ix;
        }
        let body = match attrs.kind {
            FileKind::File => Body::File(Edits::default()),
            FileKind::Dir => Body::Dir(DirBody { parent: home.clone(), ..DirBody::default() }),
            FileKind::Symlink => Body::Symlink(None),
            _ => Body::Other,
        };
        let ix = Ix(self.nodes.len());
        self.objects.insert(attrs.id, ix);
        self.nodes.push(Node {
            kind: attrs.kind,
            perm: attrs.perm,
            owner: (attrs.uid, attrs.gid),
            dev: attrs.id.dev,
            stable: Some(Stable { attrs, home, seen: Seen::default() }),
            body,
            meta: MetaEdits::default(),
            touched: None,
            links: 0,
        });
        ix
    }

    /// A new object without a name.
    pub(crate) fn fresh(
        &mut self,
        body: Body,
        dev: u64,
        perm: u32,
        owner: (u32, u32),
        now: Stamp,
    ) -> Ix {
        let kind = match &body {
            Body::File(_) => FileKind::File,
            Body::Dir(_) => FileKind::Dir,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Other => FileKind::Fifo,
        };
        let ix = Ix(self.nodes.len());
        self.nodes.push(Node {
            kind,
            stable: None,
            dev,
            body,
            meta: MetaEdits::default(),
            perm,
            owner,
            touched: Some(now),
            links: 0,
        });
        ix
    }

    /// Binds `name` in `dir`, which was looked up before, to `to`; gives what it was bound to.
    pub(crate) fn bind(&mut self, dir: Ix, name: &OsStr, to: Option<Ix>) -> Option<Ix> {
        let body = self.dir_mut(dir)?;
        let binding =
            body.names.entry(name.to_owned()).or_insert(Binding { stable: None, now: None });
        let old = std::mem::replace(&mut binding.now, to);
        if let Some(old) = old {
            self.node_mut(old).links -= 1;
        }
        if let Some(to) = to {
            self.node_mut(to).links += 1;
            if let Some(body) = self.dir_mut(to) {
                body.parent = Some((dir, name.to_owned()));
            }
        }
        old
    }

    /// Closes all directories but the root, which cannot be opened again.
    pub(crate) fn close_handles(&mut self) {
        for node in self.nodes.iter_mut().skip(1) {
            if let Body::Dir(body) = &mut node.body {
                body.handle = None;
            }
        }
    }

    /// The path by which a stable object was first reached; of an object without one, nothing.
    pub(crate) fn original(&self, ix: Ix) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = ix;
        while at != Ix::ROOT {
            let (dir, name) = self.node(at).stable.as_ref()?.home.as_ref()?;
            names.push(name);
            at = *dir;
        }
        Some(PathBuf::from("/").join(names.into_iter().rev().collect::<PathBuf>()))
    }

    /// The path of a directory as the transaction sees it now.
    pub(crate) fn current(&self, dir: Ix) -> Option<PathBuf> {
        let mut names = Vec::new();
        let mut at = dir;
        while at != Ix::ROOT {
            let (parent, name) = self.dir(at)?.parent.as_ref()?;
            names.push(name);
            at = *parent;
        }
        Some(PathBuf::from("/").join(names.into_iter().rev().collect::<PathBuf>()))
    }

    /// Whether `dir` is `above` or lies below it, as the transaction sees it.
    pub(crate) fn is_below(&self, mut dir: Ix, above: Ix) -> bool {
        loop {
            if dir == above {
                return true;
            }
            match self.dir(dir).and_then(|body| body.parent.as_ref()) {
                Some((parent, _)) => dir = *parent,
                None => return false,
            }
        }
    }
}
