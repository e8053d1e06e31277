//! Staging on another mount than the state directory's: what is new is copied there.
//!
//! A rename works within one mount only, so for others a hidden stage directory is made on the
//! target's mount. Making it changes the directory in which it is made, which the transaction may
//! have read: so it is made after the last validation, just before the commit is decided.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use txos_core::Stamp;
use txos_host::Tree;

use super::copy::Copied;
use crate::{
    Result, StoreError, TxDir, TxMeta,
    plan::{Ident, Plan},
    state::{append_meta, meta_time},
    sys::{self, Object},
};

/// Makes stage directories where the plan needs them, and copies there what the plan puts in place.
///
/// # Errors
/// [`StoreError::NoSpace`] or what copying gives. The plan is as it was then, and nothing is left.
pub(crate) fn stage_foreign(tx: &mut TxDir, plan: &mut Plan, durable: bool) -> Result<()> {
    let before = plan.clone();
    let outcome = (0..plan.areas.len() as u32)
        .filter(|area| needs_stage(&before, *area))
        .try_for_each(|area| stage_area(tx, plan, area, durable));
    if outcome.is_err() {
        *plan = before;
        unstage(tx)?;
    }
    outcome
}

/// Removes all stage directories on other mounts.
pub(crate) fn unstage(tx: &mut TxDir) -> Result<()> {
    remove_stages(tx.path(), &mut tx.meta.clone())?;
    tx.meta.stages.clear();
    tx.meta.stage_times.clear();
    Ok(())
}

/// Removes the stage directories of the transaction whose directory is `dir`.
///
/// Removing one moves the time of the directory above it, which is set back. Who died in between has said
/// in `meta` what the time was.
pub(crate) fn remove_stages(dir: &Path, meta: &mut TxMeta) -> Result<()> {
    let died = meta.leaving.zip(meta_time(dir));
    for (number, path) in meta.stages.clone().iter().enumerate() {
        let time = meta.stage_times.get(number).copied().flatten();
        let removed = remove_stage(path, time, &mut |time| {
            meta.stage_times.resize(meta.stages.len(), None);
            meta.stage_times[number] = Some(time);
            meta.leaving = Some(number);
            // Without it all is removed the same: the time is at stake, and only if this process dies now.
            let _ = append_meta(dir, meta);
        })?;
        if let (false, Some((leaving, said)), Some(time)) = (removed, died, time)
            && leaving == number
        {
            settle(path, said, time)?;
        }
    }
    Ok(())
}

/// Sets the time of the directory above a stage directory back to `time`, if the removal has moved it, before
/// which its maker `said` so and after which he died.
fn settle(path: &Path, said: Stamp, time: Stamp) -> Result<()> {
    let Some(above) = path.parent() else { return Ok(()) };
    let above = match Tree::open(above) {
        // With it, its time is gone, or out of reach.
        Err(error)
            if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) =>
        {
            return Ok(());
        }
        opened => opened?,
    };
    match Object::open(&above, Path::new(""))? {
        Some(dir) if at_once(dir.attrs.mtime, said) => {
            set_back(&dir, time)?;
            make_lasting(&above)
        }
        _ => Ok(()),
    }
}

/// Removes a stage directory, and makes that lasting: nobody knows of it once the transaction's own
/// directory is gone, which another file system may remember first. One that is not there (any
/// more) is no error; gives whether it was.
///
/// Who died right after making it left the directory above with a time that nobody but he had moved: it
/// gets `time` back, which it had before. Just before the name goes, `note` is told the time that the
/// directory above has afterwards.
pub(crate) fn remove_stage(
    path: &Path,
    time: Option<Stamp>,
    note: &mut dyn FnMut(Stamp),
) -> Result<bool> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let ours = name.to_string_lossy().starts_with(".txos-");
    if !ours || std::fs::symlink_metadata(path).is_err() {
        return Ok(false);
    }
    let (above, name) = (Tree::open(above)?, Path::new(name));
    let moved = moved_by(&above, name)?;
    // All that takes long before the time is looked at.
    sys::remove_tree(&above, &name.join("stage"))?;
    let dir = Object::open(&above, Path::new(""))?;
    let time = dir.as_ref().map(|dir| time.filter(|_| moved).unwrap_or(dir.attrs.mtime));
    time.into_iter().for_each(note);
    sys::remove_tree(&above, name)?;
    if let (Some(dir), Some(time)) = (dir, time) {
        set_back(&dir, time)?;
    }
    make_lasting(&above)?;
    Ok(true)
}

fn make_lasting(above: &Tree) -> Result<()> {
    match sys::flush(sys::place(above, Path::new(""))) {
        Err(StoreError::Io { errno: Errno::ACCESS, .. }) => sys::flush_file_system(above),
        other => other,
    }
}

/// The mode of a stage directory once the directory above it has its time back.
const SETTLED: u32 = 0o1700;

/// Whether the directory called `name` was made and its maker died before he set the time of the one above
/// it back, which nobody has changed since.
fn moved_by(above: &Tree, name: &Path) -> Result<bool> {
    let (dir, made) = (sys::place(above, Path::new("")).attrs()?, sys::place(above, name).attrs()?);
    let settled = made.is_none_or(|made| made.perm == SETTLED);
    let times = dir.zip(made).map(|(dir, made)| (dir.mtime, made.id.birth));
    Ok(!settled && times.is_some_and(|(moved, born)| at_once(moved, born)))
}

/// Whether two things may have been done one right after the other.
fn at_once(one: Stamp, other: Stamp) -> bool {
    /// A tick of the coarsest kernel clock, by which two times of one call may differ.
    const TICK: i128 = 10_000_000;
    let nanos = |stamp: Stamp| i128::from(stamp.sec) * 1_000_000_000 + i128::from(stamp.nsec);
    nanos(one).abs_diff(nanos(other)) <= TICK.unsigned_abs()
}

fn needs_stage(plan: &Plan, area: u32) -> bool {
    plan.puts.iter().any(|op| op.area == area)
        || plan.moves.iter().any(|op| op.area == area && op.slot.is_some())
        || plan.links.iter().any(|op| op.area == area && op.replaces.is_some())
}

fn stage_area(tx: &mut TxDir, plan: &mut Plan, area: u32, durable: bool) -> Result<()> {
    let host = Tree::open(&plan.areas[area as usize].point)?;
    let near = sys::same_mount(host.root(), tx.tree().root())
        .map_err(|errno| StoreError::io("examine the file system of", host.at(), errno))?;
    if near {
        return Ok(());
    }
    let path = stage_directory(tx, &host, plan, area, durable)?;
    let stage = Tree::open(&path)?;
    plan.areas[area as usize].stage = path;
    let mut copied = Copied::default();
    for put in plan.puts.iter_mut().filter(|put| put.area == area) {
        put.staged = copied.tree(tx.tree(), &put.staged, &stage)?;
        let Some(copy) = Object::open(&stage, &put.staged)? else {
            return Err(StoreError::io("stage", stage.at().join(&put.staged), Errno::NOENT));
        };
        put.id = copy.attrs.id.into();
    }
    // New directories whose times are set later are other objects now.
    let copies: &HashMap<Ident, Ident> = copied.directories();
    for meta in plan.dir_meta.iter_mut().filter(|meta| meta.area == area) {
        if let Some(copy) = copies.get(&meta.id) {
            meta.id = *copy;
        }
    }
    if durable { sys::flush_file_system(&stage) } else { Ok(()) }
}

/// Makes a stage directory on the mount of `host`, and says in the transaction's directory where
/// it is before it is there.
fn stage_directory(
    tx: &mut TxDir,
    host: &Tree,
    plan: &Plan,
    area: u32,
    durable: bool,
) -> Result<PathBuf> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| StoreError::io("get random bytes for", host.at(), errno))?;
    let name = format!(".txos-{}-{:016x}", tx.meta.id, u64::from_le_bytes(random));
    for dir in candidates(plan, area) {
        let at = dir.join(&name);
        let path = host.at().join(&at);
        let above = sys::place(host, &dir).attrs()?.map(|attrs| attrs.mtime);
        tx.meta.stages.push(path.clone());
        tx.meta.stage_times.push(above);
        // A power cut must not leave a directory that nobody knows of.
        if durable {
            tx.save_flushed()?
        } else {
            tx.save()?
        }
        match unnoticed(host, &dir, || sys::make_dirs(host, &at)) {
            Ok(()) => {
                if let Some(made) = Object::open(host, &at)? {
                    made.chmod(SETTLED)?;
                }
                sys::make_dirs(host, &at.join("stage"))?;
                return Ok(path);
            }
            Err(StoreError::Io { errno: Errno::ACCESS | Errno::PERM | Errno::NOENT, .. }) => {
                tx.meta.stages.pop();
                tx.meta.stage_times.pop();
            }
            Err(error) => return Err(error),
        }
    }
    let reason = "no directory of the file system can be written to stage the changes in";
    Err(StoreError::refused(host.at(), reason, "put the state directory on this file system"))
}

/// The mount point, and below it the directories that hold a target, outermost first.
fn candidates(plan: &Plan, area: u32) -> Vec<PathBuf> {
    let targets = (plan.puts.iter().filter(|op| op.area == area).map(|op| &op.to))
        .chain(plan.moves.iter().filter(|op| op.area == area).map(|op| &op.from))
        .chain(plan.links.iter().filter(|op| op.area == area).map(|op| &op.to));
    let above = targets.take(1).flat_map(|target| target.ancestors().skip(1));
    let mut dirs: Vec<PathBuf> = above.map(Path::to_owned).collect();
    dirs.push(PathBuf::new());
    dirs.reverse();
    dirs.dedup();
    dirs
}

/// Acts in the directory `dir` and gives it its time back, where this user may.
fn unnoticed(tree: &Tree, dir: &Path, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let object = Object::open(tree, dir)?;
    act()?;
    if let Some(object) = object {
        set_back(&object, object.attrs.mtime)?;
    }
    Ok(())
}

/// Sets the time of the last change, where this user may.
fn set_back(object: &Object, time: Stamp) -> Result<()> {
    match object.set_times(None, Some(time)) {
        Ok(()) | Err(StoreError::Io { errno: Errno::PERM | Errno::ACCESS, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
