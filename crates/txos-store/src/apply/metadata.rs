//! Steps 1 and 5: owner, mode, extended attributes, times.

use std::path::Path;

use rustix::{io::Errno, process::geteuid};
use txos_core::FileKind;
use txos_host::Tree;

use super::{
    Applier, Pass,
    decide::{Setting, set},
    locate::Spot,
};
use crate::{
    Result, StoreError,
    plan::{Change, Ident, Meta, Plan, Times, What},
    sys::{self, Object},
};

/// Lets the owner, who is not root, into the directories to which these plans give a mode that keeps him out, and
/// those that had one: what is beneath them is examined again, and a plan before the one that closed them may have
/// something to do there. Each has its mode again when the plan that sets it is applied, which it does last.
fn let_in(plans: &[Plan]) -> Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    let mut closed = Vec::new();
    for plan in plans {
        let set = plan.dir_meta.iter().filter_map(|op| {
            let perm = op.perm?;
            Some((op.area, &op.path, Some(op.id), [perm.before, perm.after]))
        });
        let made = plan.puts.iter().filter_map(|op| {
            let make = op.make.as_ref().filter(|make| make.what == What::Dir)?;
            Some((op.area, &op.to, None, [make.perm; 2]))
        });
        closed.extend(
            set.chain(made)
                .filter(|(.., modes)| modes.iter().any(|mode| mode & OPEN != OPEN))
                .map(|(area, path, id, modes)| (&plan.areas[area as usize].point, path, id, modes)),
        );
    }
    // What holds a directory is opened before it.
    closed.sort_by_key(|(point, path, ..)| point.components().count() + path.components().count());
    for (point, path, id, modes) in closed {
        match open_one(point, path, id, modes) {
            // Where he may not go at all, or what another owns, is not his to open.
            Err(StoreError::Io { errno: Errno::ACCESS | Errno::PERM, .. }) => {}
            opened => opened?,
        }
    }
    Ok(())
}

fn open_one(point: &Path, path: &Path, id: Option<Ident>, modes: [u32; 2]) -> Result<()> {
    // What is gone is told where the plan is applied.
    let Ok(tree) = Tree::open(point) else { return Ok(()) };
    let Some(found) = Object::open(&tree, path)? else { return Ok(()) };
    let now = &found.attrs;
    let is_it = now.kind == FileKind::Dir && id.is_none_or(|id| id.is(now));
    if is_it && modes.contains(&now.perm) && now.perm & OPEN != OPEN {
        found.chmod(now.perm | OPEN)?;
    }
    Ok(())
}

const SET_ID: u32 = 0o6000;
/// The mode bits that let an owner in who is not root.
pub(super) const OPEN: u32 = 0o700;
const CAPABILITY: &[u8] = b"security.capability";
/// Who may do what with an object, besides owner and group (acl(5)).
pub(crate) const ACL: &[u8] = b"system.posix_acl_access";

impl Applier<'_> {
    pub(super) fn file_metadata(&mut self) -> Result<()> {
        let plan = self.plan;
        let written: std::collections::HashSet<_> =
            (plan.writes.iter().map(|op| (op.area, &op.path)))
                .chain(plan.patches.iter().map(|op| (op.area, &op.path)))
                .collect();
        for op in &plan.file_meta {
            let mut object = None;
            for spot in self.locator.spots(op.area, &op.path) {
                let found = match &spot {
                    Spot::Host(path) => Object::open(self.host(op.area), path)?,
                    Spot::Stage(path) => Object::open(self.stage(op.area), path)?,
                };
                if let Some(found) = found.filter(|found| op.id.is(&found.attrs)) {
                    object = Some(found);
                    break;
                }
            }
            if object.is_none() && self.vanished(op.area, &op.path) {
                self.skipped += 1;
                continue;
            }
            self.metadata(op, object, written.contains(&(op.area, &op.path)))?;
            if self.vanishing.contains(&(op.area, op.path.clone())) {
                sys::flush_file_system(self.host(op.area))?;
            }
        }
        Ok(())
    }

    /// Before the first plan of a recovery lets the owner in everywhere, and before each other one where that
    /// plan has a mode to set, since one before it may have closed the directory.
    pub(super) fn open_closed(&self) -> Result<()> {
        match self.pass {
            Pass::First { .. } => Ok(()),
            Pass::Again { ahead, number: 0, .. } => let_in(ahead.plans()),
            Pass::Again { .. } => let_in(std::slice::from_ref(self.plan)),
        }
    }

    /// Whether the mode is that of a directory that was [opened](let_in): by whom doesn't count, for root may go
    /// on where a user's recovery ended.
    fn opened(&self, op: &Meta, now: u32) -> bool {
        let again = matches!(self.pass, Pass::Again { .. });
        let opened = |perm: Change<u32>| [perm.before | OPEN, perm.after | OPEN].contains(&now);
        again && op.kind == FileKind::Dir && op.perm.is_some_and(opened)
    }

    pub(super) fn directory_metadata(&mut self) -> Result<()> {
        let plan = self.plan;
        for op in &plan.dir_meta {
            let object =
                Object::open(self.host(op.area), &op.path)?.filter(|found| op.id.is(&found.attrs));
            let later = match (op.times, &object) {
                (Some(Times { natural: true, mtime: Some(want), .. }), Some(found)) => {
                    found.attrs.mtime > want.after && !self.renames_in(op.area, &op.path)
                }
                _ => false,
            };
            if later {
                // Nothing of this commit moved its time: it is a stranger's, and stays.
                let times = op.times.map(|times| Times { mtime: None, ..times });
                self.metadata(&Meta { times, ..op.clone() }, object, true)?;
            } else {
                // Names came and went in it: its times are ours to set.
                self.metadata(op, object, true)?;
            }
        }
        self.finish_directories()
    }

    /// Whether the plan changes names in the directory.
    fn renames_in(&self, area: u32, dir: &Path) -> bool {
        let plan = self.plan;
        let moves = plan.moves.iter().flat_map(|op| [(op.area, &op.from), (op.area, &op.to)]);
        (plan.removes.iter().map(|op| (op.area, &op.path)))
            .chain(plan.puts.iter().map(|op| (op.area, &op.to)))
            .chain(plan.links.iter().map(|op| (op.area, &op.to)))
            .chain(moves)
            .any(|(number, path)| number == area && path.parent() == Some(dir))
    }

    /// The owner first, since a change of it takes set-user-id bits and capabilities away; then
    /// the mode; then attributes, of which ACLs agree with the mode; times last.
    fn metadata(&mut self, op: &Meta, object: Option<Object>, disturbed: bool) -> Result<()> {
        let Some(object) = object else {
            self.keep(op.area, &op.path, "others have replaced or removed it", None);
            return Ok(());
        };
        let mut theirs = Vec::new();
        let disturbed = disturbed || op.owner.is_some();
        let mut owner_set = false;
        if let Some(owner) = op.owner {
            let now = (object.attrs.uid, object.attrs.gid);
            match set(now == owner.before, now == owner.after, false) {
                Setting::Done => {}
                Setting::Set => {
                    object.chown(owner.after.0, owner.after.1)?;
                    owner_set = true;
                }
                Setting::KeepTheirs => theirs.push("owner"),
            }
        }
        self.mode(op, &object, owner_set, &mut theirs)?;
        self.attributes(op, &object, disturbed, &mut theirs)?;
        if let Some(times) = op.times {
            self.times(&times, &object, disturbed, &mut theirs)?;
        }
        if !theirs.is_empty() {
            let reason = format!("others have changed its {}", theirs.join(", "));
            self.keep(op.area, &op.path, &reason, None);
        }
        Ok(())
    }

    fn mode(
        &self,
        op: &Meta,
        object: &Object,
        owner_set: bool,
        theirs: &mut Vec<&'static str>,
    ) -> Result<()> {
        // A write or a change of the owner takes set-id bits away.
        let now = object.attrs.perm;
        let same = |value: u32| now == value || now == value & !SET_ID;
        match op.perm {
            Some(perm) => match set(
                same(perm.before),
                now == perm.after && !owner_set,
                owner_set || now == perm.after & !SET_ID || self.opened(op, now),
            ) {
                Setting::Done => Ok(()),
                Setting::Set => object.chmod(perm.after),
                Setting::KeepTheirs => {
                    theirs.push("mode");
                    Ok(())
                }
            },
            // Not to be changed, but the change of the owner has just changed it.
            None if owner_set && now & SET_ID != 0 => object.chmod(now),
            None => Ok(()),
        }
    }

    fn attributes(
        &self,
        op: &Meta,
        object: &Object,
        disturbed: bool,
        theirs: &mut Vec<&'static str>,
    ) -> Result<()> {
        if op.xattrs.is_empty() {
            return Ok(());
        }
        let now = object.xattrs()?;
        for (name, value) in &op.xattrs {
            let found = now.get(name);
            let moved = match name.to_bytes() {
                CAPABILITY => disturbed && found.is_none(),
                ACL => op.perm.is_some(),
                _ => false,
            };
            let before = found == value.before.as_ref();
            match set(before, found == value.after.as_ref(), moved) {
                Setting::Done => {}
                Setting::Set => {
                    object.set_xattr(name, value.after.as_deref())?;
                }
                Setting::KeepTheirs => theirs.push("extended attributes"),
            }
        }
        Ok(())
    }

    fn times(
        &self,
        times: &Times,
        object: &Object,
        disturbed: bool,
        theirs: &mut Vec<&'static str>,
    ) -> Result<()> {
        let mut mtime = None;
        if let Some(change) = times.mtime {
            // A time that came about by itself never goes back behind a stranger's later change.
            let want = if times.natural { change.before.max(change.after) } else { change.after };
            let now = object.attrs.mtime;
            match set(now == change.before, now == want, disturbed) {
                Setting::Done => {}
                Setting::Set => mtime = Some(want),
                Setting::KeepTheirs => theirs.push("times"),
            }
        }
        if mtime.is_none() && times.atime.is_none() {
            return Ok(());
        }
        object.set_times(times.atime, mtime)
    }
}
