//! Staging: all that a commit needs is made ready where one rename puts it in place.
//!
//! New objects stay where the overlay made them, if that is on the same mount as their target: then
//! no content is copied, and a new directory goes in place with all that it holds by one rename.
//! Otherwise they are copied to a hidden directory on the target's mount.
//!
//! # Invariants
//!
//! - Nothing that is staged is visible to anyone else: stage directories have mode 0700.
//! - Every stage directory outside the transaction's own is named in `meta.json` before it is made,
//!   so that recovery can remove it.
//! - After staging nothing of the overlay is left on a new object: no mark, no whiteout, no copy
//!   of a stable object.
//! - Whatever could refuse an operation is tried or examined before the commit is decided.

mod check;
mod copy;
mod foreign;
mod layout;
mod strip;

pub(crate) use copy::{copy_tree, write_all};
pub(crate) use foreign::{remove_stage, stage_foreign, unstage};

use std::path::{Path, PathBuf};

use txos_core::{FileKind, Stamp};
use txos_host::Tree;

use self::layout::Layout;
use crate::{
    Delta, Result, StoreError, TxDir,
    apply::Held,
    delta::{Draft, DraftPut},
    plan::{Area, Change, Ident, Meta, Plan, Put, Times, Write},
    sys::{self, Object},
};

/// What staging makes of a delta.
pub(crate) struct Staged {
    pub plan: Plan,
    /// The targets that are written in place, open, as `plan.writes`; `None` where opening must
    /// wait for the apply.
    pub held: Vec<Held>,
    /// How many objects of the state directory's file system must be flushed before the commit is
    /// decided.
    pub fresh: usize,
}

/// Stages `delta` in the directory of its transaction; what goes to another mount is copied there
/// later, by [`stage_foreign`].
pub(crate) fn stage(tx: &mut TxDir, delta: &Delta, made: Stamp) -> Result<Staged> {
    let plan = Plan {
        tx: tx.meta.id,
        boot: sys::boot_id(),
        made,
        areas: Vec::new(),
        writes: Vec::new(),
        file_meta: Vec::new(),
        removes: Vec::new(),
        moves: Vec::new(),
        puts: Vec::new(),
        links: Vec::new(),
        dir_meta: Vec::new(),
    };
    let mut staged = Staged { plan, held: Vec::new(), fresh: 0 };
    for draft in delta.drafts.iter().filter(|draft| !draft.is_empty()) {
        stage_draft(tx, draft, &mut staged)?;
    }
    Ok(staged)
}

fn stage_draft(tx: &mut TxDir, draft: &Draft, staged: &mut Staged) -> Result<()> {
    let host = Tree::open(&draft.at)?;
    staged.held.extend(check::check(&host, draft)?);
    let number = staged.plan.areas.len() as u32;
    let failed = |errno| StoreError::io("examine the file system of", &draft.at, errno);
    let mut layout = Layout::new(tx.path(), &draft.upper)?;
    layout.evict(tx.tree(), draft)?;
    strip::strip(tx.tree(), &layout, draft)?;
    let waits = draft.moves.iter().any(|op| op.slot.is_some())
        || draft.links.iter().any(|op| op.replaces.is_some());
    if waits {
        sys::make_dirs(tx.tree(), Path::new("stage"))?;
    }
    staged.fresh += draft.fresh.len() + draft.writes.len();
    let plan = &mut staged.plan;
    plan.areas.push(Area {
        point: draft.at.clone(),
        fs: sys::identity_of(host.root()).map_err(failed)?,
        stage: tx.path().to_owned(),
    });
    for put in &draft.puts {
        let path = layout.now(&put.rel);
        open_for_rename(tx.tree(), &path)?;
        plan.puts.push(placed(tx.tree(), path, put, number)?);
    }
    for write in &draft.writes {
        let source = match &write.rel {
            Some(rel) => layout.now(rel),
            None => layout::beneath(tx.path(), &write.source)?,
        };
        open_for_reading(tx.tree(), &source)?;
        plan.writes.push(Write {
            area: number,
            path: write.path.clone(),
            id: write.id,
            source,
            spec: write.spec.clone(),
        });
    }
    let numbered = |meta: &Meta| Meta { area: number, ..meta.clone() };
    plan.file_meta.extend(draft.file_meta.iter().map(numbered));
    plan.removes.extend(draft.removes.iter().map(|op| {
        let mut op = op.clone();
        op.area = number;
        op
    }));
    plan.moves.extend(draft.moves.iter().map(|op| {
        let mut op = op.clone();
        op.area = number;
        op
    }));
    plan.links.extend(draft.links.iter().map(|op| {
        let mut op = op.clone();
        op.area = number;
        op
    }));
    for meta in restored_directories(tx.tree(), plan, draft, number)? {
        plan.dir_meta.push(meta);
    }
    plan.dir_meta.extend(draft.dir_meta.iter().map(numbered));
    Ok(())
}

fn placed(stage: &Tree, path: PathBuf, put: &DraftPut, area: u32) -> Result<Put> {
    let Some(object) = Object::open(stage, &path)? else {
        let remedy = "abort the transaction";
        return Err(StoreError::damaged(stage.at().join(path), "it vanished", remedy));
    };
    Ok(Put {
        area,
        staged: path,
        to: put.rel.clone(),
        id: object.attrs.id.into(),
        dir: put.kind == FileKind::Dir,
        replaces: put.replaces,
    })
}

/// What is only a source of content must be readable to its owner, whatever mode it is to have.
fn open_for_reading(tx: &Tree, path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match Object::open(tx, path)? {
        Some(object) if object.attrs.perm & 0o400 == 0 => object.chmod(object.attrs.perm | 0o400),
        _ => Ok(()),
    }
}

/// A directory that its owner may not write cannot be renamed by it into another directory; it
/// gets its mode back once it is in place.
fn open_for_rename(stage: &Tree, path: &Path) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match Object::open(stage, path)? {
        Some(object) if object.attrs.kind == FileKind::Dir && object.attrs.perm & 0o200 == 0 => {
            object.chmod(object.attrs.perm | 0o200)
        }
        _ => Ok(()),
    }
}

/// Modes and times of new directories that placing disturbs: the mode that [`open_for_rename`]
/// opened up, and the times of those into which something is moved afterwards.
fn restored_directories(
    stage: &Tree,
    plan: &Plan,
    draft: &Draft,
    number: u32,
) -> Result<Vec<Meta>> {
    let mut metas = Vec::new();
    for fresh in draft.fresh.iter().rev().filter(|fresh| fresh.attrs.kind == FileKind::Dir) {
        let disturbed = draft.evicted.iter().any(|path| path.parent() == Some(&fresh.rel));
        let Some((put, below)) = plan
            .puts
            .iter()
            .filter(|put| put.area == number)
            .find_map(|put| Some((put, fresh.rel.strip_prefix(&put.to).ok()?)))
        else {
            continue;
        };
        let closed = below.as_os_str().is_empty()
            && fresh.attrs.perm & 0o200 == 0
            && !rustix::process::geteuid().is_root();
        if !disturbed && !closed {
            continue;
        }
        let path =
            if below.as_os_str().is_empty() { put.staged.clone() } else { put.staged.join(below) };
        let Some(object) = Object::open(stage, &path)? else { continue };
        let (now, want) = (&object.attrs, &fresh.attrs);
        metas.push(Meta {
            area: number,
            path: fresh.rel.clone(),
            id: Ident::from(now.id),
            kind: FileKind::Dir,
            owner: None,
            perm: closed.then_some(Change { before: now.perm, after: want.perm }),
            xattrs: Vec::new(),
            times: Some(Times {
                atime: None,
                mtime: Some(Change { before: now.mtime, after: want.mtime }),
                natural: false,
            }),
        });
    }
    Ok(metas)
}
