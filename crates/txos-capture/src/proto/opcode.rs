/// The requests that a read-only mirror and a log meet (`enum fuse_opcode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Lookup,
    Forget,
    BatchForget,
    Getattr,
    Readlink,
    Setattr,
    Open,
    Opendir,
    Read,
    Write,
    Statfs,
    Fsync,
    Flush,
    Getxattr,
    Listxattr,
    Init,
    Readdir,
    Readdirplus,
    Destroy,
    Ioctl,
    Lseek,
    /// A further request that would change something.
    Change,
    /// A request that the kernel does without once it is answered with `ENOSYS`.
    Other,
}

impl Opcode {
    /// Whether an answer may be long.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, Opcode::Read | Opcode::Readdir | Opcode::Readdirplus)
    }

    pub(crate) fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Opcode::Lookup,
            2 => Opcode::Forget,
            3 => Opcode::Getattr,
            4 => Opcode::Setattr,
            5 => Opcode::Readlink,
            14 => Opcode::Open,
            15 => Opcode::Read,
            16 => Opcode::Write,
            17 => Opcode::Statfs,
            20 => Opcode::Fsync,
            22 => Opcode::Getxattr,
            23 => Opcode::Listxattr,
            25 => Opcode::Flush,
            26 => Opcode::Init,
            27 => Opcode::Opendir,
            28 => Opcode::Readdir,
            38 => Opcode::Destroy,
            39 => Opcode::Ioctl,
            42 => Opcode::BatchForget,
            44 => Opcode::Readdirplus,
            46 => Opcode::Lseek,
            // SYMLINK, MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, SETXATTR, REMOVEXATTR,
            // CREATE, FALLOCATE, RENAME2, COPY_FILE_RANGE, TMPFILE
            6 | 8..=13 | 21 | 24 | 35 | 43 | 45 | 47 | 51 => Opcode::Change,
            _ => Opcode::Other,
        }
    }
}
