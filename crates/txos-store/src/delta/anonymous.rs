//! Copies whose origin the overlay did not name.
//!
//! In a view of an ordinary user the overlay notes that an object was copied up, but not from
//! which. There it renames no directory, and notes nothing on a copy of a file with several names.
//! So such a copy is of a file with one name: the one whose name it covers, or one that is gone.
//! Which of the two is told by what a rename leaves as it was: size, owner, mode, and the time of
//! the last change to the nanosecond. Where that proves nothing, the covered file counts as
//! changed in place; where none is covered, the copy becomes a file of its own, and a note says so.

use std::{collections::HashMap, path::Path};

use rustix::fs::readlinkat;
use txos_core::{Attrs, FileKind, Origin};
use txos_host::Tree;

use super::{
    expand::Gone,
    walk::{Fate, Node, Reader, Walk},
};
use crate::{Privilege, Result, StoreError};

/// Gives each copy without a named origin the one that can be told.
pub(super) fn tell(reader: &Reader<'_>, walk: &mut Walk, gone: &mut Gone) -> Result<()> {
    if reader.options.privilege == Privilege::User {
        unmarkable(reader, walk, gone)?;
    }
    let mut known: HashMap<(u64, u64), Origin> = HashMap::new();
    // Files that may have been renamed: those that are gone, and those that copies cover.
    let mut candidates = gone.clone();
    candidates.extend(walk.nodes.iter().filter_map(|node| {
        let anonymous = node.fate == Fate::Copy && node.origin.is_none();
        let host = node.host.filter(|host| anonymous && !renamed(host, &node.attrs))?;
        Some((node.base.clone()?, host))
    }));
    // Names that cover a file first: a further name of the same copy follows them.
    for covering in [true, false] {
        for node in walk.nodes.iter_mut() {
            if node.fate != Fate::Copy || node.origin.is_some() || node.host.is_some() != covering {
                continue;
            }
            let object = (node.attrs.id.dev, node.attrs.id.ino);
            let origin = match known.get(&object) {
                Some(origin) => Some(origin.clone()),
                None => find(node, &candidates, &known),
            };
            let stays = origin.as_ref().is_some_and(|origin| covers(node, origin));
            if let (false, Some(base), Some(host)) = (stays, &node.base, node.host) {
                gone.insert(base.clone(), host);
                walk.hidden.push((base.clone(), host));
            }
            if let Some(origin) = &origin {
                known.insert(object, origin.clone());
            }
            node.origin = origin;
        }
    }
    Ok(())
}

/// Links, devices, FIFOs and sockets can bear no `user.*` attribute, so none of their copies is
/// marked. One that covers its like was changed in place, as far as anyone can tell; one that is
/// like one that is gone was renamed; a further name of a copy is a further name of its original.
fn unmarkable(reader: &Reader<'_>, walk: &mut Walk, gone: &mut Gone) -> Result<()> {
    let mut known: HashMap<(u64, u64), Origin> = HashMap::new();
    for covering in [true, false] {
        for node in walk.nodes.iter_mut() {
            let special = !matches!(node.attrs.kind, FileKind::File | FileKind::Dir);
            if node.fate != Fate::New || !special {
                continue;
            }
            let object = (node.attrs.id.dev, node.attrs.id.ino);
            let origin = match (known.get(&object), &node.base, node.host) {
                (Some(origin), ..) => Some(origin.clone()),
                (None, Some(base), Some(host)) if covering => {
                    let like = alike(reader, node, base, &host)?;
                    like.then(|| Origin { attrs: host, path: base.clone() })
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

fn removed_like(
    reader: &Reader<'_>,
    node: &Node,
    gone: &Gone,
    known: &HashMap<(u64, u64), Origin>,
) -> Result<Option<Origin>> {
    for (path, attrs) in gone {
        let taken = known.values().any(|origin| origin.attrs.id == attrs.id);
        if !taken && renamed(attrs, &node.attrs) && alike(reader, node, path, attrs)? {
            return Ok(Some(Origin { attrs: *attrs, path: path.clone() }));
        }
    }
    Ok(None)
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

fn find(node: &Node, candidates: &Gone, known: &HashMap<(u64, u64), Origin>) -> Option<Origin> {
    let taken = |attrs: &Attrs| known.values().any(|origin| origin.attrs.id == attrs.id);
    let own = (node.host)
        .filter(|host| host.kind == node.attrs.kind && host.nlink == 1 && !taken(host))
        .and_then(|host| Some(Origin { attrs: host, path: node.base.clone()? }));
    match own {
        Some(own) if renamed(&own.attrs, &node.attrs) => Some(own),
        own => candidates
            .iter()
            .find(|(_, attrs)| renamed(attrs, &node.attrs) && !taken(attrs))
            .map(|(path, attrs)| Origin { attrs: *attrs, path: path.clone() })
            .or(own),
    }
}

fn covers(node: &Node, origin: &Origin) -> bool {
    node.host.is_some_and(|host| host.id == origin.attrs.id)
}

/// Whether the stable file `then` may be what the copy `now` was before it was renamed.
fn renamed(then: &Attrs, now: &Attrs) -> bool {
    then.kind == now.kind
        && then.kind != FileKind::Dir
        && then.nlink == 1
        && then.size == now.size
        && then.mtime == now.mtime
        && then.perm == now.perm
        && (then.uid, then.gid) == (now.uid, now.gid)
}
