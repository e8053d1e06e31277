use std::{ffi::CStr, path::Path};

use txos_core::Stamp;

/// One change that a small commit makes, given from memory. Paths are absolute; symbolic links
/// among their parents are followed when the commit is prepared, a last one is not. Operations act
/// one after the other, each on what the ones before it made, as the system call of the same kind
/// would.
#[derive(Clone, Copy, Debug)]
pub enum SmallOp<'a> {
    /// Writes bytes at an offset of a regular file, which grows if it must (`pwrite(2)`).
    Write {
        /// The file.
        path: &'a Path,
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: &'a [u8],
    },
    /// Gives a regular file a new content; it stays the same object.
    Replace {
        /// The file.
        path: &'a Path,
        /// Its whole content.
        bytes: &'a [u8],
    },
    /// Writes bytes at the end of a regular file.
    Append {
        /// The file.
        path: &'a Path,
        /// What.
        bytes: &'a [u8],
    },
    /// Cuts or extends a regular file (`ftruncate(2)`: its time moves also if its size stays).
    Truncate {
        /// The file.
        path: &'a Path,
        /// Its size, in bytes.
        size: u64,
    },
    /// Makes a regular file (`open(2)` with `O_CREAT | O_EXCL`).
    Create {
        /// A free name.
        path: &'a Path,
        /// Its content.
        bytes: &'a [u8],
        /// Permission bits; the process's mask is not applied.
        mode: u32,
    },
    /// Makes a directory (`mkdir(2)`).
    CreateDir {
        /// A free name.
        path: &'a Path,
        /// Permission bits; the process's mask is not applied.
        mode: u32,
    },
    /// Makes a symbolic link (`symlink(2)`).
    Symlink {
        /// A free name.
        path: &'a Path,
        /// Where it leads.
        target: &'a Path,
    },
    /// Gives an object that is no directory a further name (`link(2)`).
    Link {
        /// A name that it has.
        from: &'a Path,
        /// A free name.
        to: &'a Path,
    },
    /// Renames an object (`rename(2)`).
    Rename {
        /// Its name.
        from: &'a Path,
        /// Its new name.
        to: &'a Path,
        /// Whether what has the new name is displaced; else the name must be free.
        replace: bool,
    },
    /// Removes a name of an object that is no directory (`unlink(2)`).
    Remove {
        /// The name.
        path: &'a Path,
    },
    /// Removes an empty directory (`rmdir(2)`).
    RemoveDir {
        /// The directory.
        path: &'a Path,
    },
    /// Sets the permission bits (`chmod(2)`).
    SetMode {
        /// The object, which is no symbolic link.
        path: &'a Path,
        /// The bits.
        mode: u32,
    },
    /// Sets owner and group (`lchown(2)`).
    SetOwner {
        /// The object.
        path: &'a Path,
        /// The owner, or as it is.
        uid: Option<u32>,
        /// The group, or as it is.
        gid: Option<u32>,
    },
    /// Sets or removes an extended attribute (`setxattr(2)`).
    SetXattr {
        /// The object, which is no symbolic link.
        path: &'a Path,
        /// Name, with its prefix.
        name: &'a CStr,
        /// Value; `None` removes it.
        value: Option<&'a [u8]>,
    },
    /// Sets times (`utimensat(2)`).
    SetTimes {
        /// The object.
        path: &'a Path,
        /// Access time, or as it is.
        atime: Option<Stamp>,
        /// Modification time, or as it is.
        mtime: Option<Stamp>,
    },
}

impl<'a> SmallOp<'a> {
    /// The path that messages name.
    pub fn path(&self) -> &'a Path {
        match self {
            SmallOp::Write { path, .. }
            | SmallOp::Replace { path, .. }
            | SmallOp::Append { path, .. }
            | SmallOp::Truncate { path, .. }
            | SmallOp::Create { path, .. }
            | SmallOp::CreateDir { path, .. }
            | SmallOp::Symlink { path, .. }
            | SmallOp::Link { from: path, .. }
            | SmallOp::Rename { from: path, .. }
            | SmallOp::Remove { path }
            | SmallOp::RemoveDir { path }
            | SmallOp::SetMode { path, .. }
            | SmallOp::SetOwner { path, .. }
            | SmallOp::SetXattr { path, .. }
            | SmallOp::SetTimes { path, .. } => path,
        }
    }
}
