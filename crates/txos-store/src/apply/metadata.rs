//! Steps 1 and 5: owner, mode, extended attributes, times.

use std::path::Path;

use rustix::process::geteuid;
use txos_core::FileKind;

use super::{
    Applier, Pass,
    decide::{Setting, set},
    locate::Spot,
};
use crate::{
    Result,
    plan::{Meta, Times},
    sys::{self, Object},
};

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

    /// Directories whose new mode keeps their owner out, and that an earlier attempt has given it: what is
    /// beneath them is examined again, so he is let in until the modes are set, which is last.
    pub(super) fn open_closed(&self) -> Result<()> {
        if matches!(self.pass, Pass::First { .. }) || geteuid().is_root() {
            return Ok(());
        }
        // Parents stand after what is in them.
        for op in self.plan.dir_meta.iter().rev() {
            let Some(perm) = op.perm.filter(|perm| perm.after & OPEN != OPEN) else { continue };
            let found = Object::open(self.host(op.area), &op.path)?;
            let closed = |found: &Object| op.id.is(&found.attrs) && found.attrs.perm == perm.after;
            if let Some(found) = found.filter(closed) {
                found.chmod(perm.after | OPEN)?;
            }
        }
        self.open_made()
    }

    /// Whether the mode is that of a directory that [`Applier::open_closed`] has opened.
    fn opened(&self, op: &Meta, now: u32) -> bool {
        let again = matches!(self.pass, Pass::Again { .. });
        let opened = op.perm.is_some_and(|perm| now == perm.after | OPEN);
        again && op.kind == FileKind::Dir && opened && !geteuid().is_root()
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
