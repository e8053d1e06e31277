//! Calls that read and change attributes other than content and names.

use std::{
    ffi::{CString, OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use rustix::io::Errno;
use txos_core::Stamp;
use txos_host::{XattrSet, read_xattrs_at, xattrs_hash};

use crate::{
    Result,
    log::Deed,
    shadow::{Body, Ix},
    transaction::Transaction,
};

impl Transaction {
    /// Sets the permission bits of an object, following symbolic links.
    ///
    /// # Errors
    /// As `chmod(2)`.
    pub fn set_mode(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.call("change the mode of", path.as_ref(), |tx, path| {
            let place = tx.walk(path, true)?;
            let ix = place.object.ok_or(Errno::NOENT)?;
            tx.owned(ix)?;
            let mut mode = mode & 0o7777;
            let (uid, _) = tx.caller;
            if uid != 0 && !tx.in_group(tx.owner_of(ix).1)? {
                mode &= !0o2000;
            }
            tx.note(&place, Deed::SetMode { mode })?;
            tx.set_perm(ix, mode);
            Ok(())
        })
    }

    /// Sets owner and group of an object, itself if it is a symbolic link; `None` leaves one as it
    /// is.
    ///
    /// # Errors
    /// As `lchown(2)`.
    pub fn set_owner(
        &mut self,
        path: impl AsRef<Path>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<()> {
        self.call("change the owner of", path.as_ref(), |tx, path| {
            let place = tx.walk(path, false)?;
            let ix = place.object.ok_or(Errno::NOENT)?;
            let (caller, _) = tx.caller;
            let now = tx.owner_of(ix);
            let want = (uid.unwrap_or(now.0), gid.unwrap_or(now.1));
            if caller != 0 {
                let may = now.0 == caller && want.0 == now.0 && tx.in_group(want.1)?;
                if want != now && !may {
                    return Err(Errno::PERM);
                }
            }
            tx.note(&place, Deed::SetOwner { uid, gid })?;
            tx.shadow.node_mut(ix).meta.owner = Some(want);
            // The kernel takes these bits away from what changes hands.
            let perm = tx.perm_of(ix);
            if matches!(tx.shadow.node(ix).body, Body::File(_)) && perm & 0o6000 != 0 {
                let group = if perm & 0o010 != 0 { 0o2000 } else { 0 };
                tx.set_perm(ix, perm & !(0o4000 | group));
            }
            Ok(())
        })
    }

    /// Sets the time of the last access, of the last change of the content, or both; of a symbolic
    /// link itself.
    ///
    /// # Errors
    /// As `utimensat(2)`; `EINVAL` if a stamp has a second's worth of nanoseconds or more.
    pub fn set_times(
        &mut self,
        path: impl AsRef<Path>,
        atime: Option<Stamp>,
        mtime: Option<Stamp>,
    ) -> Result<()> {
        self.call("change the times of", path.as_ref(), |tx, path| {
            if [atime, mtime].into_iter().flatten().any(|stamp| stamp.nsec >= 1_000_000_000) {
                return Err(Errno::INVAL);
            }
            let place = tx.walk(path, false)?;
            let ix = place.object.ok_or(Errno::NOENT)?;
            tx.owned(ix)?;
            tx.note(&place, Deed::SetTimes { atime, mtime })?;
            let meta = &mut tx.shadow.node_mut(ix).meta;
            meta.atime = atime.or(meta.atime);
            meta.mtime = mtime.or(meta.mtime);
            Ok(())
        })
    }

    /// The value of an extended attribute of an object, of a symbolic link itself; `None` if it has
    /// none of this name.
    ///
    /// # Errors
    /// As `lgetxattr(2)`, but for `ENODATA`.
    pub fn xattr(
        &mut self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Option<Vec<u8>>> {
        self.call("read an attribute of", path.as_ref(), |tx, path| {
            let name = key(name.as_ref())?;
            let ix = tx.object(path, false)?;
            Ok(tx.xattrs(ix)?.remove(&name))
        })
    }

    /// The names of all extended attributes of an object, of a symbolic link itself, sorted.
    ///
    /// # Errors
    /// As `llistxattr(2)`.
    pub fn list_xattrs(&mut self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.call("read the attributes of", path.as_ref(), |tx, path| {
            let ix = tx.object(path, false)?;
            let names = tx.xattrs(ix)?.into_keys();
            Ok(names.map(|name| OsString::from_vec(name.into_bytes())).collect())
        })
    }

    /// Sets an extended attribute of an object, of a symbolic link itself; `None` removes it.
    ///
    /// # Errors
    /// As `lsetxattr(2)` and `lremovexattr(2)`: `ENODATA` if it is to be removed and is not there,
    /// `EPERM` or `EOPNOTSUPP` for a name that the caller may not set.
    pub fn set_xattr(
        &mut self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.call("change an attribute of", path.as_ref(), |tx, path| {
            let name = key(name.as_ref())?;
            let place = tx.walk(path, false)?;
            let ix = place.object.ok_or(Errno::NOENT)?;
            tx.may_set(ix, name.to_bytes())?;
            if value.is_none() && !tx.xattrs(ix)?.contains_key(&name) {
                return Err(Errno::NODATA);
            }
            if value.is_some_and(|value| value.len() > 65536) {
                return Err(Errno::RANGE);
            }
            let value = value.map(<[u8]>::to_vec);
            let deed = Deed::SetXattr { name: name.clone(), value: value.clone() };
            tx.note(&place, deed)?;
            tx.shadow.node_mut(ix).meta.xattrs.insert(name, value);
            Ok(())
        })
    }

    /// All extended attributes as the transaction sees them.
    fn xattrs(&mut self, ix: Ix) -> Result<XattrSet, Errno> {
        let home = self.shadow.node(ix).stable.as_ref().map(|stable| stable.home.clone());
        let mut set = match home {
            None => XattrSet::new(),
            Some(home) => {
                let (dir, name) = match home {
                    Some(home) => home,
                    None => (ix, OsString::new()),
                };
                let handle = self.handle(dir)?;
                let set = read_xattrs_at(&*handle, &name)?;
                let hash = xattrs_hash(&set);
                if let Some(stable) = &mut self.shadow.node_mut(ix).stable
                    && stable.seen.xattrs.replace(hash).is_some_and(|seen| seen != hash)
                {
                    self.doom(ix);
                    return Err(Errno::STALE);
                }
                set
            }
        };
        for (name, value) in &self.shadow.node(ix).meta.xattrs {
            match value {
                Some(value) => set.insert(name.clone(), value.clone()),
                None => set.remove(name),
            };
        }
        Ok(set)
    }

    fn may_set(&mut self, ix: Ix, name: &[u8]) -> Result<(), Errno> {
        let (uid, _) = self.caller;
        let file = matches!(self.shadow.node(ix).body, Body::File(_) | Body::Dir(_));
        match name {
            _ if name.starts_with(b"user.") => {
                if !file {
                    return Err(Errno::PERM);
                }
                self.may_write(ix)
            }
            _ if name.starts_with(b"trusted.") || name.starts_with(b"security.") => {
                if uid == 0 {
                    Ok(())
                } else {
                    Err(Errno::PERM)
                }
            }
            b"system.posix_acl_access" | b"system.posix_acl_default" => self.owned(ix),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Whether the caller owns an object, or is root.
    fn owned(&self, ix: Ix) -> Result<(), Errno> {
        let (uid, _) = self.caller;
        if uid == 0 || self.owner_of(ix).0 == uid { Ok(()) } else { Err(Errno::PERM) }
    }

    fn in_group(&self, gid: u32) -> Result<bool, Errno> {
        let (_, own) = self.caller;
        let groups = rustix::process::getgroups()?;
        Ok(gid == own || groups.iter().any(|group| group.as_raw() == gid))
    }

    pub(crate) fn owner_of(&self, ix: Ix) -> (u32, u32) {
        let node = self.shadow.node(ix);
        node.meta.owner.unwrap_or(node.owner)
    }

    fn set_perm(&mut self, ix: Ix, perm: u32) {
        let node = self.shadow.node_mut(ix);
        if node.stable.is_some() {
            node.meta.perm = Some(perm);
        } else {
            node.perm = perm;
        }
    }
}

fn key(name: &OsStr) -> Result<CString, Errno> {
    match name.as_bytes().len() {
        0 | 256.. => Err(Errno::RANGE),
        _ => CString::new(name.as_bytes()).map_err(|_| Errno::INVAL),
    }
}
