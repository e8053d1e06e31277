//! Names of error numbers, as errno(3) spells them.

use rustix::io::Errno;

/// The error of a call that cannot be part of a transaction.
pub const ENOTXSUPPORT: i32 = 134;

/// `EPERM` and its kind; `E<number>` for what is not in the list.
pub fn name(e: Errno) -> String {
    let known = match e {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::FAULT => "EFAULT",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::XDEV => "EXDEV",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::NOTTY => "ENOTTY",
        Errno::TXTBSY => "ETXTBSY",
        Errno::FBIG => "EFBIG",
        Errno::NOSPC => "ENOSPC",
        Errno::ROFS => "EROFS",
        Errno::MLINK => "EMLINK",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTEMPTY => "ENOTEMPTY",
        Errno::LOOP => "ELOOP",
        Errno::NODATA => "ENODATA",
        Errno::OVERFLOW => "EOVERFLOW",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::STALE => "ESTALE",
        Errno::DQUOT => "EDQUOT",
        Errno::TIMEDOUT => "ETIMEDOUT",
        Errno::CONNREFUSED => "ECONNREFUSED",
        other if other.raw_os_error() == ENOTXSUPPORT => "ENOTXSUPPORT",
        other => return format!("E{}", other.raw_os_error()),
    };
    known.to_owned()
}
