//! What changed in an object that stays the same: content, owner, mode, attributes, times.

use std::{os::fd::OwnedFd, path::Path};

use rustix::{fs::OFlags, io::Errno};
use txos_core::{Attrs, FileKind, Origins, Stamp};
use txos_host::{Tree, XattrSet};

use super::{change::AttrChange, content::compare, marks::hidden_by_view, walk::Reader};
use crate::{
    Result, StoreError, names,
    plan::{Change, Meta, Times, WriteSpec},
    sys::Object,
};

const CAPABILITY: &[u8] = b"security.capability";

/// The shadow side of a comparison.
pub(super) struct ShadowView<'a> {
    pub attrs: &'a Attrs,
    pub xattrs: &'a XattrSet,
    /// What the transaction saw of the stable object; what is there now where that is not known.
    pub seen: &'a Attrs,
}

/// Compares the content of a file of the stable system with its shadow's.
pub(super) fn content(
    host: &Tree,
    path: &Path,
    host_attrs: &Attrs,
    shadow: (&Tree, &Path),
    shadow_attrs: &Attrs,
) -> Result<Option<WriteSpec>> {
    let before = open_quietly(host, path)
        .map_err(|errno| super::failed_outside("read", &host.at().join(path), errno))?;
    let failed = |errno| StoreError::io("read", shadow.0.at().join(shadow.1), errno);
    let after = open_quietly(shadow.0, shadow.1).map_err(failed)?;
    let spec = compare(&before, host_attrs.size, &after, shadow_attrs.size).map_err(failed)?;
    Ok((!spec.is_empty()).then_some(spec))
}

fn open_quietly(host: &Tree, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match host.open_at(path, flags | OFlags::NOATIME) {
        Err(Errno::PERM) => host.open_at(path, flags),
        other => other,
    }
}

/// Compares all but the content. `path` is where the object is now (original) and `at` the path
/// that the [`Meta`] shall name. `touched` says that the transaction made or removed names in it,
/// or wrote its content, so that applying moves its time.
pub(super) fn metadata(
    reader: &Reader<'_>,
    path: &Path,
    at: &Path,
    shadow: &ShadowView<'_>,
    touched: bool,
) -> Result<(Option<Meta>, Vec<AttrChange>)> {
    let Some(object) = Object::open(reader.host, path)? else {
        return Err(super::changed_outside(&reader.point.join(path), "it is gone"));
    };
    let (now, seen, after) = (&object.attrs, shadow.seen, shadow.attrs);
    let mut shown = Vec::new();
    let owner = ((after.uid, after.gid) != (seen.uid, seen.gid)).then(|| {
        let change = Change { before: (now.uid, now.gid), after: (after.uid, after.gid) };
        shown.push(AttrChange::Owner { before: change.before, after: change.after });
        change
    });
    // A write, or a change of the owner, takes set-id bits and capabilities away: they are set
    // again also where they are to stay.
    let lost = owner.is_some() || (touched && after.kind == FileKind::File);
    let moved = after.perm != seen.perm;
    if moved && after.kind != FileKind::Symlink {
        shown.push(AttrChange::Mode { before: now.perm, after: after.perm });
    }
    let perm = (after.kind != FileKind::Symlink && (moved || (lost && after.perm & 0o6000 != 0)))
        .then_some(Change { before: now.perm, after: after.perm });
    let privilege = reader.options.privilege;
    let mut xattrs = Vec::new();
    let old = object.xattrs()?;
    for (name, value) in shadow.xattrs {
        if old.get(name) != Some(value) || (lost && name.to_bytes() == CAPABILITY) {
            let change = Change { before: old.get(name).cloned(), after: Some(value.clone()) };
            xattrs.push((name.clone(), change));
        }
    }
    for (name, value) in &old {
        if !shadow.xattrs.contains_key(name) && !hidden_by_view(name, privilege) {
            xattrs.push((name.clone(), Change { before: Some(value.clone()), after: None }));
        }
    }
    let changed = xattrs.iter().filter(|(_, change)| change.before != change.after);
    shown.extend(changed.map(|(name, change)| AttrChange::Xattr {
        name: names::escape(name.to_bytes()),
        set: change.after.is_some(),
    }));
    // Times of a directory of someone else's only names that come and go can move.
    let me = rustix::process::geteuid();
    let settable = me.is_root() || now.uid == me.as_raw();
    let by_itself = !touched && filled_by_itself(reader.origins, seen, after);
    let times =
        times(now, seen, after, touched, reader.options.started).filter(|_| settable && !by_itself);
    if let Some(Times { mtime: Some(change), natural: false, .. }) = times
        && change.before != change.after
        && !touched
    {
        shown.push(AttrChange::Modified { before: change.before, after: change.after });
    }
    let meta = Meta {
        area: 0,
        path: at.to_owned(),
        id: now.id.into(),
        kind: now.kind,
        owner,
        perm,
        xattrs,
        times,
    };
    let empty = meta.owner.is_none()
        && meta.perm.is_none()
        && meta.xattrs.is_empty()
        && meta.times.is_none();
    Ok(((!empty).then_some(meta), shown))
}

/// Which times to set. A time before the transaction's begin was asked for (`utimensat(2)`); a
/// later one has come about by itself, or might as well have.
fn times(now: &Attrs, seen: &Attrs, after: &Attrs, touched: bool, started: Stamp) -> Option<Times> {
    let moved = after.mtime != seen.mtime;
    let mtime = (moved || touched).then_some(Change { before: now.mtime, after: after.mtime });
    let atime =
        (after.atime != seen.atime && after.atime != now.atime && (moved || after.atime < started))
            .then_some(after.atime);
    let natural = after.kind == FileKind::Dir && moved && after.mtime >= started;
    (mtime.is_some() || atime.is_some()).then_some(Times { atime, mtime, natural })
}

/// A tick of the coarsest kernel clock: by so much the time of a write may lie before the write.
const TICK: i128 = 10_000_000;
/// How long the overlay takes at most to copy a piece of a file's content (1 MiB), on a busy machine:
/// with 2 ms, a time moved in one of three runs of a debug build beside 30 runnable tasks.
const A_PIECE: i128 = 50_000_000;

/// Whether the modification time of a file with unchanged content is that of the copying.
///
/// Where only the attributes of a file were copied up at first (`metacopy`), the content follows when
/// the file is opened for writing, and the overlay leaves the time of that copying as the time of
/// the last change. Whoever sets the time (`touch(1)`) sets the access time with it. Not told from
/// it, for want of any trace: what moves the modification time alone right after such an open.
fn filled_by_itself(origins: &dyn Origins, seen: &Attrs, after: &Attrs) -> bool {
    let nanos = |stamp: Stamp| i128::from(stamp.sec) * 1_000_000_000 + i128::from(stamp.nsec);
    let late = |at: Stamp| nanos(after.mtime) - nanos(at);
    after.kind == FileKind::File
        && after.mtime != seen.mtime
        && after.atime == seen.atime
        && origins.filled(&seen.id).is_some_and(|at| (-TICK..=A_PIECE).contains(&late(at)))
}
