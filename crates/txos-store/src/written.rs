//! What a plan writes, as other transactions would notice it.
//!
//! Each object and each directory is examined as it is now: the ready transaction holds what it
//! writes before it validates, so that whoever changes it from here on is found by that.

use std::{
    collections::{BTreeMap, HashMap},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{fs::OFlags, io::Errno};
use txos_core::{Attrs, FileKind, ObjectId, contention::Written, workset::Facets};
use txos_host::{Tree, attrs_at, attrs_of};

use crate::{Result, StoreError, apply::ACL, plan::Plan};

/// What `plan` writes.
///
/// # Errors
/// If an object cannot be examined for another reason than that it is gone.
pub(crate) fn written(plan: &Plan) -> Result<Written> {
    let mut written = Written::default();
    for (number, area) in plan.areas.iter().enumerate() {
        let number = number as u32;
        let moved = plan.moves.iter().filter(|op| op.area == number && op.dir);
        let mut stable = Stable {
            tree: Tree::open(&area.point)?,
            moved: moved.map(|op| (op.to.as_path(), op.from.as_path())).collect(),
            dirs: HashMap::new(),
            written: &mut written,
        };
        stable.area(plan, number)?;
    }
    Ok(written)
}

/// One area of the plan as it is now.
struct Stable<'a> {
    tree: Tree,
    /// Original paths of renamed directories, by final ones.
    moved: BTreeMap<&'a Path, &'a Path>,
    /// Directories that were examined, by original path; `None` where there is none (any more).
    dirs: HashMap<PathBuf, Option<(OwnedFd, ObjectId)>>,
    written: &'a mut Written,
}

impl Stable<'_> {
    fn area(&mut self, plan: &Plan, number: u32) -> Result<()> {
        let here = |area: u32| area == number;
        for op in plan.writes.iter().filter(|op| here(op.area)) {
            self.object(&op.path, Facets::ATTRS | Facets::CONTENT)?;
        }
        for op in plan.patches.iter().filter(|op| here(op.area)) {
            self.object(&op.path, Facets::ATTRS | Facets::CONTENT)?;
        }
        for op in plan.file_meta.iter().filter(|op| here(op.area)) {
            self.object(&op.path, Facets::ATTRS)?;
        }
        for op in plan.dir_meta.iter().filter(|op| here(op.area)) {
            // A list of who may walk through is an extended attribute, too.
            let list = op.xattrs.iter().any(|(name, _)| name.as_bytes() == ACL);
            let perms = op.owner.is_some() || op.perm.is_some() || list;
            let mut facets = if perms { Facets::PERMS } else { Facets::empty() };
            if !op.xattrs.is_empty() {
                facets |= Facets::XATTRS;
            }
            let path = self.original(&op.path);
            self.object(&path, facets)?;
        }
        // Whatever loses or gets a name shows another time and link count.
        for op in plan.removes.iter().filter(|op| here(op.area)) {
            self.name(&op.path)?;
        }
        for op in plan.moves.iter().filter(|op| here(op.area)) {
            self.name(&op.from)?;
            self.final_name(&op.to)?;
        }
        for op in plan.puts.iter().filter(|op| here(op.area)) {
            self.final_name(&op.to)?;
        }
        for op in plan.links.iter().filter(|op| here(op.area)) {
            let from = self.original(&op.from);
            self.object(&from, Facets::ATTRS)?;
            self.final_name(&op.to)?;
        }
        Ok(())
    }

    /// The path that a final path has now.
    fn original(&self, path: &Path) -> PathBuf {
        for above in path.ancestors() {
            if let Some(from) = self.moved.get(above) {
                let below = path.strip_prefix(above).unwrap_or(Path::new(""));
                return if below.as_os_str().is_empty() {
                    from.to_path_buf()
                } else {
                    from.join(below)
                };
            }
        }
        path.to_owned()
    }

    fn final_name(&mut self, path: &Path) -> Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        // The name itself may be that of a directory that is renamed to it: what it is now counts.
        let parent = self.original(path.parent().unwrap_or(Path::new("")));
        self.name(&parent.join(name))
    }

    /// A name, and the object that it is bound to now, which loses it.
    fn name(&mut self, path: &Path) -> Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let Some((dir, id)) = self.dir(parent)? else { return Ok(()) };
        let (id, found) = (*id, examine(dir, name, path)?);
        self.written.add_name(id, name.as_bytes());
        if let Some(found) = found.filter(|found| found.kind != FileKind::Dir) {
            self.written.add_object(found.id, Facets::ATTRS);
        }
        Ok(())
    }

    fn object(&mut self, path: &Path, facets: Facets) -> Result<()> {
        let found = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => match self.dir(parent)? {
                Some((dir, _)) => examine(dir, name, path)?,
                None => None,
            },
            _ => self
                .dir(Path::new(""))?
                .as_ref()
                .map(|(dir, _)| attrs_of(dir))
                .transpose()
                .map_err(|errno| StoreError::io("examine", path, errno))?,
        };
        if let Some(found) = found {
            self.written.add_object(found.id, facets);
        }
        Ok(())
    }

    fn dir(&mut self, path: &Path) -> Result<&Option<(OwnedFd, ObjectId)>> {
        if !self.dirs.contains_key(path) {
            let failed = |errno| StoreError::io("examine", path, errno);
            let found = match self.tree.open_at(path, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(dir) => {
                    let attrs = attrs_of(&dir).map_err(failed)?;
                    Some((dir, attrs.id))
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
                Err(errno) => return Err(failed(errno)),
            };
            // Few at a time: the plan's operations stand together by directory.
            if self.dirs.len() >= 64 {
                self.dirs.clear();
            }
            self.dirs.insert(path.to_owned(), found);
        }
        Ok(self.dirs.entry(path.to_owned()).or_default())
    }
}

fn examine(dir: &OwnedFd, name: &std::ffi::OsStr, path: &Path) -> Result<Option<Attrs>> {
    attrs_at(dir, name).map_err(|errno| StoreError::io("examine", path, errno))
}
