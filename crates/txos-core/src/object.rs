use serde::{Deserialize, Serialize};

/// A point in time as the kernel reports it, to the nanosecond.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Stamp {
    /// Seconds since 1970, negative before.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// The identity of a stable object: which inode, and which life of it.
///
/// An inode number is used again after its file is gone; the birth time tells the lives apart
/// where the file system keeps one (`statx(2)`, `STATX_BTIME`; zero where it does not).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// Device of the file system, in the kernel's `dev_t` encoding of `stat(2)`.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Birth time, or zero.
    pub birth: Stamp,
}

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket in the name space.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The kind that the `S_IFMT` bits of `mode` name, or `None` for a type unknown to Linux.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o100000 => FileKind::File,
            0o040000 => FileKind::Dir,
            0o120000 => FileKind::Symlink,
            0o010000 => FileKind::Fifo,
            0o140000 => FileKind::Socket,
            0o020000 => FileKind::CharDevice,
            0o060000 => FileKind::BlockDevice,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits of this kind.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::File => 0o100000,
            FileKind::Dir => 0o040000,
            FileKind::Symlink => 0o120000,
            FileKind::Fifo => 0o010000,
            FileKind::Socket => 0o140000,
            FileKind::CharDevice => 0o020000,
            FileKind::BlockDevice => 0o060000,
        }
    }
}

/// What `statx(2)` shows of an object, except the access time, which is never part of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attrs {
    /// Which object.
    pub id: ObjectId,
    /// Its type.
    pub kind: FileKind,
    /// Permission bits with set-user-id, set-group-id and sticky: `mode & 0o7777`.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Device that a device node stands for, in the `dev_t` encoding of `stat(2)`; else 0.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last change of the content.
    pub mtime: Stamp,
    /// Last change of content or attributes: the time that no program can set.
    pub ctime: Stamp,
    /// Last access. Not compared by [`Attrs::same_version`].
    pub atime: Stamp,
}

impl Attrs {
    /// Whether both show the same version of the same object: neither its content nor any
    /// attribute has changed in between, as far as the change time can prove it.
    ///
    /// The link count of a directory counts its sub-directories and changes with its listing; it
    /// is compared all the same, since the change time moves with it.
    pub fn same_version(&self, other: &Attrs) -> bool {
        self.id == other.id
            && self.kind == other.kind
            && self.ctime == other.ctime
            && self.mtime == other.mtime
            && self.size == other.size
            && self.perm == other.perm
            && (self.uid, self.gid) == (other.uid, other.gid)
            && self.rdev == other.rdev
    }

    /// Whether a program that was shown one of both learned nothing that the other contradicts.
    ///
    /// The times, size and link count of a *directory* are left out: they move with each name that
    /// anybody makes in it, nearly every program is shown them without asking (a shell examines
    /// its working directory, a compiler `/tmp`), and who wants to know what changed in a
    /// directory lists it. Its identity, mode and owner count.
    pub fn same_shown(&self, other: &Attrs) -> bool {
        match self.kind {
            FileKind::Dir => {
                self.id == other.id && self.kind == other.kind && self.same_perms(other)
            }
            _ => self.same_version(other),
        }
    }

    /// Whether walking through both is governed by the same mode and owners.
    pub fn same_perms(&self, other: &Attrs) -> bool {
        self.perm == other.perm && (self.uid, self.gid) == (other.uid, other.gid)
    }
}
