//! What the kernel would refuse: asked before the commit, since nothing may fail after its record.

use std::{ffi::OsStr, os::fd::OwnedFd, path::Path};

use rustix::{
    fd::AsFd,
    fs::{Access, AtFlags, StatxAttributes, StatxFlags, accessat, statx},
    io::Errno,
};
use txos_host::attrs_of;

use super::{At, Base, Draft, Io, Object, Origin, walk::split};

const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

impl Draft<'_> {
    /// An object whose attributes change; its owner or root may.
    pub(super) fn changed(&mut self, path: &Path) -> Io<&mut Object> {
        let (_, now) = self.slot(path)?;
        let number = now.ok_or(Errno::NOENT)?;
        if let Origin::Stable { attrs, path } = &self.objects[number].origin {
            let me = rustix::process::geteuid();
            if !me.is_root() && attrs.uid != me.as_raw() {
                return Err(Errno::PERM);
            }
            let path = path.clone();
            let (above, name) = split(&path)?;
            protected(&*self.open_parent(above)?.dir, name)?;
        }
        Ok(&mut self.objects[number])
    }

    /// Whether the name `at`, to which `object` is bound, may be bound anew.
    pub(super) fn may_change(&mut self, at: &At, object: Option<usize>) -> Io<()> {
        let Base::Stable(path) = &at.dir else { return Ok(()) };
        let parent = self.open_parent(path)?;
        let dir = parent.dir.clone();
        parent.writable.get_or_insert_with(|| writable(&dir)).to_owned()?;
        if object.is_some_and(|number| !self.is_new(number)) {
            match protected(&*dir, &at.name) {
                // Bound by this commit: it is not there yet.
                Err(Errno::NOENT) => {}
                other => other?,
            }
            self.sticky(&dir, object)?;
        }
        Ok(())
    }

    /// The kernel wants to write the `..` of a directory that comes to hang elsewhere.
    pub(super) fn may_hang_elsewhere(&mut self, object: usize) -> Io<()> {
        let Base::Stable(path) = self.base(object) else { return Ok(()) };
        let parent = self.open_parent(&path)?;
        let dir = parent.dir.clone();
        parent.writable.get_or_insert_with(|| writable(&dir)).to_owned()
    }

    /// In a sticky directory a name is its object's owner's, or the directory's.
    fn sticky(&self, dir: &OwnedFd, object: Option<usize>) -> Io<()> {
        let me = rustix::process::geteuid();
        if me.is_root() {
            return Ok(());
        }
        let attrs = attrs_of(dir)?;
        let owner = object.and_then(|number| match &self.objects[number].origin {
            Origin::Stable { attrs, .. } => Some(attrs.uid),
            Origin::New(_) => None,
        });
        let owns = attrs.uid == me.as_raw() || owner.is_none_or(|uid| uid == me.as_raw());
        if attrs.perm & 0o1000 != 0 && !owns { Err(Errno::PERM) } else { Ok(()) }
    }
}

fn writable(dir: &OwnedFd) -> Io<()> {
    accessat(dir, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    let stat = statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    if stat.stx_attributes.intersects(FIXED) { Err(Errno::PERM) } else { Ok(()) }
}

/// An immutable or append-only object can be neither removed nor changed (`chattr(1)`).
fn protected(dir: impl AsFd, name: &OsStr) -> Io<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = statx(&dir, name, flags, StatxFlags::empty())?;
    // Something mounted there stands in the way as it would natively.
    if stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::BUSY);
    }
    if stat.stx_attributes.intersects(FIXED) { Err(Errno::PERM) } else { Ok(()) }
}
