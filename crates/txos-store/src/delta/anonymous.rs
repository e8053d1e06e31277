//! Copies whose origin the overlay did not name: those in a view of an ordinary user.
//!
//! There the overlay notes that an object was copied up, but not from which, and the capture names
//! the originals of regular files in an attribute of the copy. A copy of a regular file without
//! that name cannot be told from another: whether the file that it covers was changed in place, or
//! replaced by one that was renamed and changed. The one keeps the inode and the ACL that are
//! there, the other must not; so the transaction is refused.
//!
//! Links, devices, FIFOs and sockets can bear no `user.*` attribute, so none of their copies is
//! marked. Which objects were copied up, and when, the capture has seen all the same. One whose time is
//! not that of its birth and that covers its like, if that was copied up after the other was made, is
//! the copy of it; one that covers none is the copy of a like one that is gone, if there is one such, or
//! one with the same size, owner, mode and time; a further name of a copy is a further name of its
//! original.

use std::{collections::HashMap, path::Path};

use rustix::fs::readlinkat;
use txos_core::{Attrs, FileKind, Origin, Stamp};
use txos_host::Tree;

use super::{
    expand::Gone,
    walk::{Fate, Node, Reader, Walk},
};
use crate::{Privilege, Result, StoreError};

/// Gives each copy without a named origin the one that can be told.
///
/// # Errors
/// [`StoreError::Refused`] for a copy of a regular file of which nothing tells the original.
pub(super) fn tell(reader: &Reader<'_>, walk: &mut Walk, gone: &mut Gone) -> Result<()> {
    if reader.options.privilege == Privilege::User {
        unmarkable(reader, walk, gone)?;
    }
    let untold = |node: &&Node| node.fate == Fate::Copy && node.origin.is_none();
    match walk.nodes.iter().find(untold) {
        None => Ok(()),
        Some(node) => {
            let reason = "which file it was before the transaction cannot be told";
            let remedy = "run the command again; report it if it is refused again";
            Err(StoreError::refused(reader.point.join(&node.rel), reason, remedy))
        }
    }
}

fn unmarkable(reader: &Reader<'_>, walk: &mut Walk, gone: &mut Gone) -> Result<()> {
    let mut known: HashMap<(u64, u64), Origin> = HashMap::new();
    // Names that cover an object first: a further name of the same copy follows them.
    for covering in [true, false] {
        for node in walk.nodes.iter_mut() {
            let special = !matches!(node.attrs.kind, FileKind::File | FileKind::Dir);
            if node.fate != Fate::New || !special || made_inside(node) {
                continue;
            }
            let object = (node.attrs.id.dev, node.attrs.id.ino);
            let origin = match (known.get(&object), &node.base, node.host) {
                (Some(origin), ..) => Some(origin.clone()),
                (None, Some(base), Some(host)) if covering => {
                    let copy = reader.may_be_copy(&node.attrs, &host.id)
                        && alike(reader, node, base, &host)?;
                    copy.then(|| Origin { attrs: host, path: base.clone() })
                }
                (None, ..) if !covering => removed_like(reader, node, gone, &known)?,
                _ => None,
            };
            let Some(origin) = origin else { continue };
            if let (Some(base), true) = (&node.base, covers(node, &origin)) {
                gone.remove(base);
                walk.hidden.retain(|(hidden, _)| hidden != base);
            }
            known.insert(object, origin.clone());
            node.fate = Fate::Copy;
            node.origin = Some(origin);
        }
    }
    Ok(())
}

/// Whether an object was surely made in the transaction: its time is still that of its birth, while a copy
/// gets the time of its original.
fn made_inside(node: &Node) -> bool {
    let born = node.attrs.id.birth;
    born != Stamp::default() && node.attrs.mtime == born
}

/// The object that is gone and that lives on in `node`, if it can be told.
fn removed_like(
    reader: &Reader<'_>,
    node: &Node,
    gone: &Gone,
    known: &HashMap<(u64, u64), Origin>,
) -> Result<Option<Origin>> {
    let mut like = Vec::new();
    for (path, attrs) in gone {
        let taken = known.values().any(|origin| origin.attrs.id == attrs.id);
        if !taken && reader.may_be_copy(&node.attrs, &attrs.id) && alike(reader, node, path, attrs)?
        {
            like.push((path, attrs));
        }
    }
    let same = like.iter().find(|(_, attrs)| unchanged(attrs, &node.attrs));
    let only = if like.len() == 1 { like.first() } else { None };
    Ok(same.or(only).map(|(path, attrs)| Origin { attrs: **attrs, path: (*path).clone() }))
}

/// Whether a shadow object and the stable one at `path` are of one type, device and target.
fn alike(reader: &Reader<'_>, node: &Node, path: &Path, stable: &Attrs) -> Result<bool> {
    Ok(node.attrs.kind == stable.kind
        && node.attrs.rdev == stable.rdev
        && (stable.kind != FileKind::Symlink || same_target(reader, &node.rel, path)?))
}

fn same_target(reader: &Reader<'_>, shadow: &Path, stable: &Path) -> Result<bool> {
    let target = |tree: &Tree, path: &Path| {
        let (dir, name) = tree.parent(path)?;
        readlinkat(&dir, name, Vec::new())
            .map_err(|errno| StoreError::io("read the link", tree.at().join(path), errno))
    };
    Ok(target(reader.upper, shadow)? == target(reader.host, stable)?)
}

fn covers(node: &Node, origin: &Origin) -> bool {
    node.host.is_some_and(|host| host.id == origin.attrs.id)
}

/// Whether the copy `now` shows what the stable object `then` shows.
fn unchanged(then: &Attrs, now: &Attrs) -> bool {
    then.size == now.size
        && then.mtime == now.mtime
        && then.perm == now.perm
        && (then.uid, then.gid) == (now.uid, now.gid)
}
