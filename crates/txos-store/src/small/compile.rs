//! From a draft to a plan.

use std::{
    collections::{BTreeMap, HashSet},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, OFlags, fallocate, fstatvfs},
    io::Errno,
};
use txos_core::{FileKind, Stamp, TxId};
use txos_host::{Tree, attrs_of};

use super::{
    areas::Mount,
    draft::{At, Base, Draft, Object, Open, Origin, beneath},
};
use crate::{
    plan::{
        Area, BLOCK, Change, Ident, Link, Make, Meta, Move, PAGE, Patch, Plan, Put, Remove, Times,
        What,
    },
    sys::{self, Disk, disk, write_all},
};

/// What is open for the first application, in the order of the plan's lists.
#[derive(Default)]
pub(crate) struct Fresh {
    /// For `plan.patches`.
    pub patches: Vec<OwnedFd>,
    /// For `plan.puts`: files without a name.
    pub puts: Vec<Option<OwnedFd>>,
}

impl Fresh {
    /// Any file that is open on an area.
    fn of_area(&self, plan: &Plan, area: u32) -> Option<&OwnedFd> {
        let puts = plan.puts.iter().zip(&self.puts).filter(|(op, _)| op.area == area);
        let patches = plan.patches.iter().zip(&self.patches).filter(|(op, _)| op.area == area);
        let put = puts.filter_map(|(_, file)| file.as_ref()).next();
        put.or_else(|| patches.map(|(_, file)| file).next())
    }
}

/// Space that is left alone on each file system, for what recovery may need, in bytes.
const RESERVE: u64 = 256 * 1024;

/// Makes the plan, and gives new files their content.
///
/// # Errors
/// An errno, and the path at which it came up.
pub(super) fn compile(
    mut draft: Draft<'_>,
    root: &Tree,
    durable: bool,
    made: Stamp,
) -> Result<(Plan, Fresh), (PathBuf, Errno)> {
    let mut plan = Plan::new(TxId(0), durable, made);
    let mut fresh = Fresh::default();
    let mut compiler = Compiler { root, asides: Vec::new(), plan: &mut plan, fresh: &mut fresh };
    let names = Names::of(&draft);
    for number in 0..draft.objects.len() {
        let mut open = draft.objects[number].take_open();
        compiler.object(&draft, &mut open, &names, number)?;
    }
    compiler.touched(&mut draft)?;
    compiler.wait_aside();
    plan.dir_meta.sort_by(|one, other| (other.area, &other.path).cmp(&(one.area, &one.path)));
    space(&plan, &fresh, root)?;
    Ok((plan, fresh))
}

/// The names of each object: those that it keeps, those that it had, those that it gets.
#[derive(Default, Clone)]
struct Of {
    kept: Vec<At>,
    lost: Vec<At>,
    gained: Vec<At>,
}

struct Names(Vec<Of>);

impl Names {
    fn of(draft: &Draft<'_>) -> Names {
        let mut all = vec![Of::default(); draft.objects.len()];
        for (at, slot) in &draft.slots {
            if slot.before == slot.now {
                if let Some(object) = slot.now {
                    all[object].kept.push(at.clone());
                }
                continue;
            }
            if let Some(object) = slot.before {
                all[object].lost.push(at.clone());
            }
            if let Some(object) = slot.now {
                all[object].gained.push(at.clone());
            }
        }
        Names(all)
    }
}

struct Compiler<'p> {
    root: &'p Tree,
    /// As `plan.moves`.
    asides: Vec<Aside>,
    plan: &'p mut Plan,
    fresh: &'p mut Fresh,
}

/// Where an object may wait while it is moved.
struct Aside {
    /// Whether it must: the directory that it leaves or the one that it comes to is not where it was.
    astray: bool,
    /// A directory that stays, in which the commit changes names.
    dir: PathBuf,
}

type Failed = (PathBuf, Errno);

impl Compiler<'_> {
    fn area(&mut self, mount: &Mount) -> u32 {
        let known = self.plan.areas.iter().position(|area| area.point == mount.point);
        let number = known.unwrap_or_else(|| {
            self.plan.areas.push(Area {
                point: mount.point.clone(),
                fs: mount.fs.clone(),
                stage: mount.point.clone(),
            });
            self.plan.areas.len() - 1
        });
        number as u32
    }

    fn object(
        &mut self,
        draft: &Draft<'_>,
        open: &mut Open,
        all: &Names,
        number: usize,
    ) -> Result<(), Failed> {
        let (object, names) = (&draft.objects[number], &all.0[number]);
        let Origin::Stable { attrs, path } = &object.origin else {
            return match names.gained.split_first() {
                Some((first, more)) => self.put(draft, object, open, first, more),
                None => Ok(()), // made and removed again
            };
        };
        let id = Ident::from(attrs.id);
        let dir = attrs.kind == FileKind::Dir;
        let stays = !names.kept.is_empty() || !names.gained.is_empty();
        let gone = !stays && (dir || names.lost.len() as u32 >= attrs.nlink);
        if !gone {
            self.content(object, open, path, id)?;
            self.metadata(draft, number)?;
        }
        let mut lost = names.lost.iter();
        let mut gained = names.gained.iter();
        let area = self.area(&object.mount);
        let before = |at: &At| at.stable().map(|path| beneath(&path, &object.mount));
        if let Some((from, to)) = all.move_of(draft, number) {
            lost.next();
            gained.next();
            let replaces = all.displaced(draft, to);
            self.asides.push(aside(draft, &object.mount, from, to));
            let (from, to) = (before(from).unwrap_or_default(), draft.last(to, &object.mount));
            self.plan.moves.push(Move { area, from, to, id, dir, slot: None, replaces });
        }
        for to in gained {
            let from = names.kept.first().or(names.gained.first()).unwrap_or(to);
            self.link(draft, object, from, to, id);
        }
        for at in lost.filter(|at| !all.moves_to(draft, at)) {
            let path = before(at).unwrap_or_default();
            self.plan.removes.push(Remove { area, path, id, dir });
        }
        Ok(())
    }

    fn link(&mut self, draft: &Draft<'_>, object: &Object, from: &At, to: &At, id: Ident) {
        let area = self.area(&object.mount);
        let (from, to) = (draft.last(from, &object.mount), draft.last(to, &object.mount));
        self.plan.links.push(Link { area, from, to, id, slot: PathBuf::new(), replaces: None });
    }

    fn put(
        &mut self,
        draft: &Draft<'_>,
        object: &Object,
        open: &mut Open,
        first: &At,
        more: &[At],
    ) -> Result<(), Failed> {
        let Origin::New(make) = &object.origin else { return Ok(()) };
        let to = draft.last(first, &object.mount);
        let failed = |errno| (object.mount.point.join(&to), errno);
        let mut make = make.clone();
        make.perm = object.perm.unwrap_or(make.perm);
        make.owner = object.owner;
        make.atime = object.atime;
        make.mtime = object.mtime;
        let given = object.xattrs.iter();
        make.xattrs =
            given.filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
        let mut id = Ident { ino: 0, birth: Stamp::default() };
        let file = open.file.take();
        if let (Some(file), What::File(bytes)) = (&file, &make.what) {
            write_all(file, bytes, 0).map_err(failed)?;
            let attrs = attrs_of(file).map_err(failed)?;
            dress(file, &make, Some(attrs.perm)).map_err(failed)?;
            id = attrs.id.into();
        }
        let area = self.area(&object.mount);
        let (dir, make) = (make.what == What::Dir, Some(make));
        let staged = PathBuf::new();
        self.plan.puts.push(Put { area, staged, to, id, dir, replaces: None, make });
        self.fresh.puts.push(file);
        for to in more {
            self.link(draft, object, first, to, id);
        }
        Ok(())
    }

    fn content(
        &mut self,
        object: &Object,
        open: &mut Open,
        path: &Path,
        id: Ident,
    ) -> Result<(), Failed> {
        let (Some(content), Some(file)) = (&mut open.content, open.file.take()) else {
            return Ok(());
        };
        let failed = |errno| (path.to_owned(), errno);
        let (before_size, after_size, blocks) = content.finish(&file).map_err(failed)?;
        if before_size == after_size && blocks.is_empty() && !content.sized {
            return Ok(());
        }
        let (area, path) = (self.area(&object.mount), beneath(path, &object.mount));
        let block = BLOCK;
        self.plan.patches.push(Patch { area, path, id, before_size, after_size, block, blocks });
        self.fresh.patches.push(file);
        Ok(())
    }

    fn metadata(&mut self, draft: &Draft<'_>, number: usize) -> Result<(), Failed> {
        let object = &draft.objects[number];
        let Origin::Stable { attrs, path } = &object.origin else { return Ok(()) };
        let owner = object.owner.filter(|owner| *owner != (attrs.uid, attrs.gid));
        let perm = object.perm.filter(|perm| *perm != attrs.perm);
        let times = (object.atime.is_some() || object.mtime.is_some()).then(|| Times {
            atime: object.atime,
            mtime: object.mtime.map(|after| Change { before: attrs.mtime, after }),
            natural: false,
        });
        if owner.is_none() && perm.is_none() && object.xattrs.is_empty() && times.is_none() {
            return Ok(());
        }
        let failed = |errno| (path.to_owned(), errno);
        let mut xattrs = Vec::new();
        if !object.xattrs.is_empty() {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
                return Ok(());
            };
            let dir = self.root.open_at(above, OFlags::PATH | OFlags::DIRECTORY);
            let mut now = txos_host::read_xattrs_at(&dir.map_err(failed)?, name).map_err(failed)?;
            for (name, after) in &object.xattrs {
                let before = now.remove(name);
                xattrs.push((name.clone(), Change { before, after: after.clone() }));
            }
        }
        let meta = Meta {
            area: self.area(&object.mount),
            path: beneath(path, &object.mount),
            id: Ident::from(attrs.id),
            kind: attrs.kind,
            owner: owner.map(|after| Change { before: (attrs.uid, attrs.gid), after }),
            perm: perm.map(|after| Change { before: attrs.perm, after }),
            xattrs,
            times,
        };
        if attrs.kind == FileKind::Dir {
            let path = draft.last_of(number).unwrap_or_default();
            self.plan.dir_meta.push(Meta { path, ..meta });
        } else {
            self.plan.file_meta.push(meta);
        }
        Ok(())
    }

    /// Where names came and went and none is new or gone in the end, the directory's time moves all
    /// the same.
    fn touched(&mut self, draft: &mut Draft<'_>) -> Result<(), Failed> {
        for dir in std::mem::take(&mut draft.changed) {
            let Base::Stable(path) = &dir else { continue };
            let inside = draft.slots.iter().filter(|(at, _)| at.dir == dir);
            if inside.map(|(_, slot)| slot).any(|slot| slot.before != slot.now) {
                continue; // it moves by itself
            }
            let (mount, attrs) = draft.parent(path).map_err(|errno| (path.clone(), errno))?;
            let Some(path) = draft.last_dir(&dir, &mount) else { continue };
            let (area, id) = (self.area(&mount), Ident::from(attrs.id));
            let mtime = Some(Change { before: attrs.mtime, after: self.plan.made });
            let known = self.plan.dir_meta.iter_mut().find(|op| op.area == area && op.id == id);
            match known {
                Some(Meta { times: Some(Times { mtime: Some(_), .. }), .. }) => {} // set since
                Some(op) => {
                    let atime = op.times.and_then(|times| times.atime);
                    op.times = Some(Times { atime, mtime, natural: true });
                }
                None => self.plan.dir_meta.push(Meta {
                    area,
                    path,
                    id,
                    kind: attrs.kind,
                    owner: None,
                    perm: None,
                    xattrs: Vec::new(),
                    times: Some(Times { atime: None, mtime, natural: true }),
                }),
            }
        }
        Ok(())
    }

    /// A move waits aside in between if it goes astray, if the object at its target moves away
    /// itself, or if something else comes to the name that it leaves: one rename that displaces
    /// would be made too late.
    fn wait_aside(&mut self) {
        let plan = &*self.plan;
        let leaving: HashSet<(u32, PathBuf)> =
            plan.moves.iter().map(|op| (op.area, op.from.clone())).collect();
        let arriving: HashSet<(u32, PathBuf)> = (plan.moves.iter().map(|op| (op.area, &op.to)))
            .chain(plan.puts.iter().map(|op| (op.area, &op.to)))
            .chain(plan.links.iter().map(|op| (op.area, &op.to)))
            .map(|(area, path)| (area, path.clone()))
            .collect();
        let random = self.plan.made;
        for ((number, op), aside) in self.plan.moves.iter_mut().enumerate().zip(&self.asides) {
            let meets = leaving.contains(&(op.area, op.to.clone()))
                || arriving.contains(&(op.area, op.from.clone()));
            if meets || aside.astray {
                let name = format!(".txos-{:x}-{:x}-{number}", random.sec, random.nsec);
                op.slot = Some(aside.dir.join(name));
            }
        }
    }
}

fn aside(draft: &Draft<'_>, mount: &Mount, from: &At, to: &At) -> Aside {
    let dir = match &from.dir {
        Base::Stable(path) => beneath(draft.unmoved(path, mount), mount),
        Base::New(_) => PathBuf::new(), // nothing is there before the commit
    };
    Aside { astray: !draft.stays(&from.dir, mount) || !draft.stays(&to.dir, mount), dir }
}

impl Names {
    /// The move that an object makes, from and to: a name lost for one gained.
    fn move_of(&self, draft: &Draft<'_>, object: usize) -> Option<(&At, &At)> {
        let names = &self.0[object];
        let stable = matches!(draft.objects[object].origin, Origin::Stable { .. });
        let (from, to) = (names.lost.first()?, names.gained.first()?);
        (stable && names.kept.is_empty()).then_some((from, to))
    }

    /// What the move to `at` displaces.
    fn displaced(&self, draft: &Draft<'_>, at: &At) -> Option<Ident> {
        let before = draft.slots.get(at)?.before?;
        // One that moves on from there is not displaced.
        if self.move_of(draft, before).is_some_and(|(from, _)| from == at) {
            return None;
        }
        match &draft.objects[before].origin {
            Origin::Stable { attrs, .. } => Some(attrs.id.into()),
            Origin::New(_) => None,
        }
    }

    /// Whether the name is bound by a move, which displaces what is there. Links, and what is made
    /// from the record, need it free.
    fn moves_to(&self, draft: &Draft<'_>, at: &At) -> bool {
        let now = draft.slots.get(at).and_then(|slot| slot.now);
        now.and_then(|now| self.move_of(draft, now)).is_some_and(|(_, to)| to == at)
    }
}

/// Takes the blocks behind the old ends of files that grow, so that writing them can't fail for want of
/// space. It moves their change times, so it comes after validation, and before the decision.
///
/// # Errors
/// An errno, and the path at which it came up.
pub(super) fn reserve(plan: &Plan, fresh: &Fresh) -> Result<(), Failed> {
    for (op, file) in plan.patches.iter().zip(&fresh.patches) {
        if op.after_size <= op.before_size.next_multiple_of(BLOCK) {
            continue;
        }
        // The file system's own blocks may be smaller than a page.
        let unit = fstatvfs(file).map_or(BLOCK, |stat| stat.f_frsize.clamp(BLOCK, PAGE));
        let start = op.before_size.next_multiple_of(unit);
        if op.after_size > start && op.blocks.iter().any(|block| block.number * BLOCK >= start) {
            match fallocate(file, FallocateFlags::KEEP_SIZE, start, op.after_size - start) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err((op.path.clone(), errno)),
            }
        }
    }
    Ok(())
}

/// Gives a file without a name what it shall have; `perm` are the permission bits that it has.
pub(crate) fn dress(file: &OwnedFd, make: &Make, perm: Option<u32>) -> Result<(), Errno> {
    use rustix::fd::AsFd;
    let fd = file.as_fd();
    if let Some((uid, gid)) = make.owner {
        disk().chown(fd, uid, gid)?;
    }
    if make.owner.is_some() || perm != Some(make.perm) {
        disk().chmod(fd, make.perm)?;
    }
    for (name, value) in &make.xattrs {
        disk().set_xattr(fd, name, Some(value))?;
    }
    match sys::timestamps(make.atime, make.mtime) {
        Some(times) => disk().set_times(fd, &times),
        None => Ok(()),
    }
}

/// What is added must fit, and leave room for a recovery.
fn space(plan: &Plan, fresh: &Fresh, root: &Tree) -> Result<(), Failed> {
    let mut needed: BTreeMap<u32, u64> = BTreeMap::new();
    for op in &plan.patches {
        *needed.entry(op.area).or_default() += op.pages_before(op.before_size) * PAGE;
    }
    for op in &plan.puts {
        *needed.entry(op.area).or_default() += PAGE;
    }
    for area in plan.links.iter().map(|op| op.area).chain(plan.moves.iter().map(|op| op.area)) {
        *needed.entry(area).or_default() += 0;
    }
    for (number, bytes) in needed {
        let point = &plan.areas[number as usize].point;
        let failed = |errno| (point.clone(), errno);
        let stat = match fresh.of_area(plan, number) {
            Some(file) => fstatvfs(file),
            None => root.open_at(point, OFlags::PATH | OFlags::DIRECTORY).and_then(fstatvfs),
        };
        let stat = stat.map_err(failed)?;
        if stat.f_bavail.saturating_mul(stat.f_frsize) < bytes + RESERVE {
            return Err(failed(Errno::NOSPC));
        }
    }
    Ok(())
}
