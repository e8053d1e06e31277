//! Steps 2 to 4: names.

use std::{cmp::Reverse, path::Path};

use rustix::{fs::RenameFlags, io::Errno};
use txos_core::Attrs;

use super::{
    Applier, Pass,
    decide::{Removal, Target, Verdict, bind, remove},
    locate::Spot,
};
use crate::{
    Result, StoreError,
    plan::{Ident, Link, Move, Put, Remove},
    sys::{self, Place, place},
};

/// How the object that is to be bound is called while it waits.
#[derive(Clone, Copy)]
struct Binding<'p> {
    waiting: Place<'p>,
    id: Ident,
    replaces: Option<Ident>,
}

impl Applier<'_> {
    /// Step 2: takes away what goes, deepest first.
    pub(super) fn detach(&mut self) -> Result<()> {
        enum Op<'p> {
            Remove(&'p Remove),
            Move(&'p Move),
        }
        let mut ops: Vec<(u32, &Path, Op<'_>)> = Vec::new();
        ops.extend(self.plan.removes.iter().map(|op| (op.area, &*op.path, Op::Remove(op))));
        ops.extend(self.plan.moves.iter().map(|op| (op.area, &*op.from, Op::Move(op))));
        ops.sort_by_key(|(area, path, _)| Reverse((*area, *path)));
        for (_, _, op) in ops {
            match op {
                Op::Remove(op) => self.remove(op)?,
                Op::Move(op) => self.move_away(op)?,
            }
        }
        Ok(())
    }

    fn remove(&mut self, op: &Remove) -> Result<()> {
        let expected = self.ours.get(&(op.area, op.path.clone())).copied();
        for spot in self.locator.spots(op.area, &op.path) {
            let at = match &spot {
                Spot::Host(path) => place(self.host(op.area), path),
                Spot::Stage(path) => place(self.stage(op.area), path),
            };
            let named = matches!(&spot, Spot::Host(path) if *path == op.path);
            if named && self.below_ours(op.area, &op.path)? {
                continue;
            }
            let found = at.attrs()?;
            match remove(target(found.as_ref(), Some(op.id), expected)) {
                Removal::Done => continue,
                Removal::KeepTheirs => {
                    // Under a renamed directory's old name anything may be by now.
                    if named && !self.made_there(op.area, &op.path)? {
                        self.keep(op.area, &op.path, "removed here, but replaced by another", None);
                    }
                    continue;
                }
                Removal::Remove => {}
            }
            self.secure_what_left(op)?;
            let act = || if op.dir { sys::rmdir(at) } else { sys::unlink(at) };
            match act() {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    let reason = "removed here, but others have put something into it";
                    self.keep(op.area, &op.path, reason, None);
                }
                Err(Errno::ACCESS) => in_closed(&[at], act)?,
                Err(errno) => return Err(StoreError::io("remove", at.shown(), errno)),
            }
            return Ok(());
        }
        self.skipped += 1;
        Ok(())
    }

    /// Makes lasting that objects were taken out of a directory that is about to be removed, on a file system
    /// that keeps no order: a power cut could keep the removal and lose where they went, and they with it.
    fn secure_what_left(&self, op: &Remove) -> Result<()> {
        let host = self.host(op.area);
        let mut moves = self.plan.moves.iter();
        let left = moves.any(|left| left.area == op.area && left.from.parent() == Some(&op.path));
        if op.dir && self.plan.durable && left && !sys::flush_takes_names(host)? {
            return sys::flush_file_system(host);
        }
        Ok(())
    }

    /// Whether a directory above an original path has been put there by an earlier attempt: then all that goes is
    /// gone, and the path leads to what has come along with the directory. That may be the same object, under
    /// another of its names.
    fn below_ours(&self, area: u32, original: &Path) -> Result<bool> {
        if matches!(self.pass, Pass::First { .. }) {
            return Ok(false);
        }
        for above in original.ancestors().skip(1) {
            let Some(id) = self.ours.get(&(area, above.to_owned())) else { continue };
            let found = place(self.host(area), above).attrs()?;
            let Some(found) = found.filter(|attrs| !self.leaves(area, above, attrs)) else {
                continue;
            };
            if id.is(&found) || self.made_there(area, above)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether this plan removes or moves away what is bound to an original path: what comes may be like it.
    fn leaves(&self, area: u32, original: &Path, bound: &Attrs) -> bool {
        let removes = self.plan.removes.iter().map(|op| (op.area, &op.path, op.id));
        let moves = self.plan.moves.iter().map(|op| (op.area, &op.from, op.id));
        removes
            .chain(moves)
            .any(|(number, path, id)| number == area && path == original && id.is(bound))
    }

    fn move_away(&mut self, op: &Move) -> Result<()> {
        let from = place(self.host(op.area), &op.from);
        let here = from.attrs()?.is_some_and(|attrs| op.id.is(&attrs));
        if !here || self.below_ours(op.area, &op.from)? {
            return Ok(()); // gone on already, or overtaken: step 3 tells
        }
        let to = match &op.slot {
            Some(slot) => place(self.stage(op.area), slot),
            None => place(self.host(op.area), &op.to),
        };
        let act = || sys::rename(from, to, RenameFlags::NOREPLACE);
        match act() {
            Ok(()) => Ok(()),
            // Someone took the name, or its directory, first: step 3 reports it.
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR) if op.slot.is_none() => Ok(()),
            Err(Errno::ACCESS) => in_closed(&[from, to], act),
            Err(errno) => Err(StoreError::io("rename", from.shown(), errno)),
        }
    }

    /// Step 3: puts new and renamed objects in their places, shallowest first.
    pub(super) fn place(&mut self) -> Result<()> {
        enum Op<'p> {
            Put(usize, &'p Put),
            Move(&'p Move),
        }
        let mut ops: Vec<(u32, &Path, Op<'_>)> = Vec::new();
        let puts = self.plan.puts.iter().enumerate();
        ops.extend(puts.map(|(number, op)| (op.area, &*op.to, Op::Put(number, op))));
        ops.extend(self.plan.moves.iter().map(|op| (op.area, &*op.to, Op::Move(op))));
        ops.sort_by_key(|(area, path, _)| (*area, *path));
        for (_, _, op) in ops {
            match op {
                Op::Put(number, op) => match &op.make {
                    Some(make) => self.make(number, op, make)?,
                    None => self.put(op)?,
                },
                Op::Move(op) => self.move_in(op)?,
            }
        }
        Ok(())
    }

    fn put(&mut self, op: &Put) -> Result<()> {
        if op.replaces.is_none() {
            // The common case takes one call: the kernel looks itself.
            let from = place(self.stage(op.area), &op.staged);
            let to = place(self.host(op.area), &op.to);
            if sys::rename(from, to, RenameFlags::NOREPLACE).is_ok() {
                return Ok(());
            }
        }
        self.bind(op.area, Spot::Stage(op.staged.clone()), &op.to, op.id, op.replaces)
    }

    fn move_in(&mut self, op: &Move) -> Result<()> {
        let waiting = match &op.slot {
            Some(slot) => Spot::Stage(slot.clone()),
            None => Spot::Host(op.from.clone()),
        };
        let waiting = self.strayed(op, waiting)?;
        self.bind(op.area, waiting, &op.to, op.id, op.replaces)
    }

    /// Where a renamed object waits: there, or where it has gone with a directory that it had been taken out of.
    fn strayed(&self, op: &Move, waiting: Spot) -> Result<Spot> {
        if matches!(self.pass, Pass::First { .. }) || self.is_at(op, &waiting)? {
            return Ok(waiting);
        }
        for spot in self.locator.spots(op.area, &op.from) {
            let is_target = matches!(&spot, Spot::Host(path) if *path == op.to);
            if !is_target && self.is_at(op, &spot)? {
                return Ok(spot);
            }
        }
        Ok(waiting)
    }

    fn is_at(&self, op: &Move, spot: &Spot) -> Result<bool> {
        let at = match spot {
            Spot::Host(path) => place(self.host(op.area), path),
            Spot::Stage(path) => place(self.stage(op.area), path),
        };
        Ok(at.attrs()?.is_some_and(|attrs| op.id.is(&attrs)))
    }

    /// Step 4: further names.
    pub(super) fn link(&mut self) -> Result<()> {
        for op in &self.plan.links {
            self.link_one(op)?;
        }
        Ok(())
    }

    fn link_one(&mut self, op: &Link) -> Result<()> {
        let from = place(self.host(op.area), &op.from);
        let to = place(self.host(op.area), &op.to);
        let found = to.attrs()?;
        let first = from.attrs()?;
        // What is made from the record may have another identity by now, or had none before.
        let id = match &first {
            Some(first) if op.id.ino == 0 || self.made_again(op)? => Ident::from(first.id),
            _ => op.id,
        };
        let waiting = first.is_some_and(|attrs| id.is(&attrs));
        let failed = |errno| StoreError::io("link", to.shown(), errno);
        match bind(target(found.as_ref(), op.replaces, Some(id)), waiting, op.replaces.is_some()) {
            Verdict::Done => {
                self.skipped += 1;
                Ok(())
            }
            Verdict::Bind => match sys::link(from, to) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => {
                    self.keep(op.area, &op.to, "someone else has made it", None);
                    Ok(())
                }
                Err(Errno::ACCESS) => in_closed(&[to], || sys::link(from, to)),
                Err(errno) => Err(failed(errno)),
            },
            Verdict::Exchange => {
                let slot = place(self.stage(op.area), &op.slot);
                match sys::link(from, slot) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                self.bind(op.area, Spot::Stage(op.slot.clone()), &op.to, id, op.replaces)
            }
            Verdict::KeepTheirs => {
                self.keep(op.area, &op.to, "to be a link, but others have changed it", None);
                Ok(())
            }
            Verdict::Overtaken => {
                self.keep(op.area, &op.to, "to be a link to what is gone since", None);
                Ok(())
            }
        }
    }

    /// Whether the object of a link is one that the record holds whole, and that a crash may have
    /// left without any name: then it was made anew.
    fn made_again(&self, op: &Link) -> Result<bool> {
        match self.pass {
            Pass::First { .. } => Ok(false),
            Pass::Again { .. } => self.made_there(op.area, &op.from),
        }
    }

    fn bind(
        &mut self,
        area: u32,
        spot: Spot,
        to: &Path,
        id: Ident,
        replaces: Option<Ident>,
    ) -> Result<()> {
        let opened = &self.areas[area as usize];
        let waiting = match &spot {
            Spot::Host(path) => place(&opened.host, path),
            Spot::Stage(path) => place(opened.stage(), path),
        };
        let binding = Binding { waiting, id, replaces };
        let verdict = attempt(place(&opened.host, to), &binding)?;
        if matches!(verdict, Verdict::Done | Verdict::Exchange) && self.clears(area) {
            clear(&binding)?;
        }
        match verdict {
            Verdict::Done => self.skipped += 1,
            Verdict::Bind | Verdict::Exchange => {}
            Verdict::Overtaken => {
                self.keep(area, to, "others have changed it since", None);
            }
            Verdict::KeepTheirs => {
                let name = to.to_owned();
                let saved = self.rescue_waiting(area, &spot)?;
                self.keep(area, &name, "others have changed it meanwhile", saved);
            }
        }
        Ok(())
    }
}

/// Removes what was displaced from where it came out.
fn clear(binding: &Binding<'_>) -> Result<()> {
    let at = binding.waiting;
    let Some(found) = at.attrs()? else { return Ok(()) };
    if !binding.replaces.is_some_and(|id| id.is(&found)) {
        return Ok(());
    }
    let dir = found.kind == txos_core::FileKind::Dir;
    match if dir { sys::rmdir(at) } else { sys::unlink(at) } {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(StoreError::io("remove", at.shown(), errno)),
    }
}

/// Binds, or says why not.
fn attempt(to: Place<'_>, binding: &Binding<'_>) -> Result<Verdict> {
    let found = to.attrs()?;
    let waiting = binding.waiting.attrs()?.is_some_and(|attrs| binding.id.is(&attrs));
    let state = target(found.as_ref(), binding.replaces, Some(binding.id));
    let verdict = bind(state, waiting, binding.replaces.is_some());
    let failed = |errno| StoreError::io("put in place", to.shown(), errno);
    match verdict {
        Verdict::Bind => {
            let act = || sys::rename(binding.waiting, to, RenameFlags::NOREPLACE);
            match act() {
                Ok(()) => Ok(Verdict::Bind),
                Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    Ok(Verdict::KeepTheirs)
                }
                Err(Errno::ACCESS) => {
                    in_closed(&[binding.waiting, to], act)?;
                    Ok(Verdict::Bind)
                }
                Err(errno) => Err(failed(errno)),
            }
        }
        Verdict::Exchange => {
            let exchange = || sys::rename(binding.waiting, to, RenameFlags::EXCHANGE);
            match exchange() {
                Ok(()) => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Verdict::KeepTheirs),
                Err(Errno::ACCESS) => in_closed(&[binding.waiting, to], exchange)?,
                // A file system without exchange: what is displaced is looked at before only.
                Err(Errno::INVAL) => {
                    sys::rename(binding.waiting, to, RenameFlags::empty()).map_err(failed)?;
                    return Ok(Verdict::Exchange);
                }
                Err(errno) => return Err(failed(errno)),
            }
            let out = binding.waiting.attrs()?;
            if out.is_some_and(|out| binding.replaces.is_some_and(|id| id.is(&out))) {
                return Ok(Verdict::Exchange);
            }
            // What came out is a stranger's: it goes back where it was.
            exchange().map_err(failed)?;
            Ok(Verdict::KeepTheirs)
        }
        other => Ok(other),
    }
}

/// What is bound to a name, in the terms of the decision table.
fn target(found: Option<&Attrs>, replaced: Option<Ident>, ours: Option<Ident>) -> Target {
    match found {
        None => Target::Absent,
        Some(attrs) if ours.is_some_and(|id| id.is(attrs)) => Target::Ours,
        Some(attrs) if replaced.is_some_and(|id| id.is(attrs)) => Target::Replaced,
        Some(_) => Target::Other,
    }
}

/// Acts in directories whose mode keeps their owner, this user, out: a command may close a
/// directory after it has filled it. Each gets its mode back afterwards.
fn in_closed(places: &[Place<'_>], act: impl Fn() -> Result<(), Errno>) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    let mut opened = Vec::new();
    for at in places {
        let parent = at.path.parent().unwrap_or(Path::new(""));
        for path in [Some(parent), Some(at.path)].into_iter().flatten() {
            if let Some(dir) = sys::Object::open(at.tree, path)?
                && dir.attrs.kind == txos_core::FileKind::Dir
                && dir.attrs.uid == me
                && dir.attrs.perm & 0o300 != 0o300
            {
                dir.chmod(dir.attrs.perm | 0o300)?;
                opened.push(dir);
            }
        }
    }
    let done = act();
    for dir in &opened {
        dir.chmod(dir.attrs.perm)?;
    }
    let shown = places.first().map(Place::shown).unwrap_or_default();
    done.map_err(|errno| StoreError::io("change the names in the directory of", shown, errno))
}
