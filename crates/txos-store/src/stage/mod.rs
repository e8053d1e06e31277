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

pub(crate) use copy::copy_tree;
pub(crate) use foreign::{remove_stage, remove_stages, stage_foreign, unstage};

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

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
    let plan = Plan::new(tx.meta.id, true, made);
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
    for closed in &draft.closed {
        closed.open(tx.tree(), &layout.now(&closed.rel))?;
    }
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
        plan.puts.push(placed(tx.tree(), path, put, number)?);
    }
    for write in &draft.writes {
        let source = match &write.rel {
            Some(rel) => layout.now(rel),
            None => layout::beneath(tx.path(), &write.source)?,
        };
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
        make: None,
    })
}

/// Modes and times of new directories that staging and placing disturb: of those that keep their
/// owner out and were opened up, and of those into which something is moved afterwards.
fn restored_directories(
    stage: &Tree,
    plan: &Plan,
    draft: &Draft,
    number: u32,
) -> Result<Vec<Meta>> {
    let filled: HashSet<&Path> = draft.evicted.iter().filter_map(|path| path.parent()).collect();
    let closed: HashSet<&Path> = draft.closed.iter().map(|closed| &*closed.rel).collect();
    let mut metas = Vec::new();
    for fresh in draft.fresh.iter().rev().filter(|fresh| fresh.attrs.kind == FileKind::Dir) {
        let rel = fresh.rel.as_path();
        let closed = closed.contains(rel);
        if !closed && !filled.contains(rel) {
            continue;
        }
        let Some((put, below)) = plan
            .puts
            .iter()
            .filter(|put| put.area == number)
            .find_map(|put| Some((put, rel.strip_prefix(&put.to).ok()?)))
        else {
            continue;
        };
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
