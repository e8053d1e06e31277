//! The attribute that a view keeps on shadow objects for itself ([`Policy::hidden_attribute`]).
//!
//! A program that copies a file with all of its attributes would copy it too, and the copy would
//! then say that it is another file than it is. So no list shows it, setting it does nothing, and
//! removing it finds nothing. Reading it by name is let through: that harms nothing, and
//! getxattr(2) is too frequent to be asked about.
//!
//! A list is only made here where the attribute is in it; every other call goes on, and the kernel
//! answers it. What cannot be looked at (a working directory that was removed, say) goes on, too.
//!
//! [`Policy::hidden_attribute`]: crate::Policy::hidden_attribute

use super::gateway::flags_of;
use super::target::Target;
use crate::sys::Answer;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, listxattr, openat, openat2, readlink};
use rustix::io::Errno;

/// Longest list of names: `XATTR_LIST_MAX` of `linux/limits.h`.
const LIST_MAX: usize = 65536;

/// The answer to a call about extended attributes.
pub(super) fn answer(call: &str, args: &[u64; 6], target: &Target<'_>, hidden: &str) -> Answer {
    let named = |address| names(target, address, hidden);
    match call {
        "setxattr" | "lsetxattr" | "fsetxattr" if named(args[1]) => Answer::Value(0),
        "setxattrat" if named(args[3]) => Answer::Value(0),
        "removexattr" | "lremovexattr" | "fremovexattr" if named(args[1]) => {
            Answer::Errno(libc::ENODATA)
        }
        "removexattrat" if named(args[3]) => Answer::Errno(libc::ENODATA),
        "listxattr" => {
            list(path(target, libc::AT_FDCWD, args[0], true), &args[1..], target, hidden)
        }
        "llistxattr" => {
            list(path(target, libc::AT_FDCWD, args[0], false), &args[1..], target, hidden)
        }
        // A descriptor that only names its object lists nothing: the kernel says so.
        "flistxattr" if flags_of(target.pid(), args[0] as i32) & libc::O_PATH != 0 => {
            Answer::Proceed
        }
        "flistxattr" => list(descriptor(target, args[0] as i32), &args[1..], target, hidden),
        "listxattrat" => {
            let follow = args[2] as i32 & libc::AT_SYMLINK_NOFOLLOW == 0;
            list(path(target, args[0] as i32, args[1], follow), &args[3..], target, hidden)
        }
        _ => Answer::Proceed,
    }
}

/// Whether the string at `address` is the name of the attribute.
fn names(target: &Target<'_>, address: u64, hidden: &str) -> bool {
    let mut bytes = vec![0; hidden.len() + 1];
    let read = target.read(address, &mut bytes);
    read.is_ok_and(|read| read == bytes.len())
        && bytes.strip_suffix(b"\0") == Some(hidden.as_bytes())
}

/// Makes the list in the caller's place, if the attribute is in it; `buffer` are the caller's
/// address and size for it.
fn list(
    object: Result<OwnedFd, Errno>,
    buffer: &[u64],
    target: &Target<'_>,
    hidden: &str,
) -> Answer {
    let (Ok(object), [address, size, ..]) = (object, buffer) else { return Answer::Proceed };
    let mut names = vec![0u8; LIST_MAX];
    // A descriptor that only names an object lists nothing itself: by way of its link in /proc.
    let Ok(length) = listxattr(own_link(&object), &mut names) else { return Answer::Proceed };
    let Some(shown) = without(&names[..length], hidden) else { return Answer::Proceed };
    let length = Answer::Value(shown.len() as i64);
    match usize::try_from(*size).unwrap_or(usize::MAX) {
        0 => length,
        size if size < shown.len() => Answer::Errno(libc::ERANGE),
        _ if target.write(*address, &shown).is_err() => Answer::Errno(libc::EFAULT),
        _ => length,
    }
}

/// The list without the attribute; `None` if it is not in it.
fn without(names: &[u8], hidden: &str) -> Option<Vec<u8>> {
    let all = || names.split_inclusive(|byte| *byte == 0);
    let is_hidden = |name: &&[u8]| name.strip_suffix(b"\0") == Some(hidden.as_bytes());
    all()
        .any(|name| is_hidden(&name))
        .then(|| all().filter(|name| !is_hidden(name)).flatten().copied().collect())
}

fn own_link(object: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(object))
}

/// The link in /proc to what the caller has open as `fd`.
fn link(target: &Target<'_>, fd: i32) -> String {
    match fd {
        libc::AT_FDCWD => format!("/proc/{}/cwd", target.pid()),
        fd => format!("/proc/{}/fd/{fd}", target.pid()),
    }
}

/// The object that the caller has open as `fd`.
fn descriptor(target: &Target<'_>, fd: i32) -> Result<OwnedFd, Errno> {
    let object = openat(CWD, link(target, fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if target.waits() { Ok(object) } else { Err(Errno::SRCH) }
}

/// The object at the path that stands at `address`, as the caller would reach it: from its root,
/// so that links that lead elsewhere stay within the view.
fn path(target: &Target<'_>, dir: i32, address: u64, follow: bool) -> Result<OwnedFd, Errno> {
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let read = target.read(address, &mut bytes).map_err(|_| Errno::FAULT)?;
    bytes.truncate(read);
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::NAMETOOLONG)?;
    bytes.truncate(end);
    if bytes.is_empty() {
        return descriptor(target, dir);
    }
    if bytes.first() != Some(&b'/') {
        // The kernel tells this path from the root of the name space that it lies in.
        let above = readlink(link(target, dir), Vec::new())?.into_bytes();
        bytes = [above, b"/".to_vec(), bytes].concat();
    }
    let root = format!("/proc/{}/root", target.pid());
    let root = openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    let object = loop {
        match openat2(&root, bytes.as_slice(), flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Something was renamed or mounted while the kernel went up a `..`, which it does not see
            // when it takes a path without bounds: openat2(2). A target that ended asks no more.
            Err(Errno::AGAIN) if target.waits() => {}
            other => break other?,
        }
    };
    if target.waits() { Ok(object) } else { Err(Errno::SRCH) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_hidden_name_is_left_out() {
        let hidden = "user.mark";
        assert_eq!(without(b"user.a\0user.marks\0", hidden), None);
        assert_eq!(without(b"", hidden), None);
        let list = b"user.a\0user.mark\0user.b\0";
        assert_eq!(without(list, hidden).as_deref(), Some(&b"user.a\0user.b\0"[..]));
        assert_eq!(without(b"user.mark\0", hidden).as_deref(), Some(&b""[..]));
    }
}
