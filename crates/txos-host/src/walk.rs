use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// Bytes of a path that are resolved in one call; below `PATH_MAX`, with room for a name.
const STEP: usize = 3000;

const WALK: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens the directory at a relative `path` below `at` (`O_PATH`), following no symbolic link and
/// leaving `at` nowhere. The path may be longer than `PATH_MAX`; an empty one is `at` itself.
///
/// # Errors
/// What `openat2(2)` gives: `ELOOP` where a component is a link, `ENOTDIR` where it is a file.
pub fn open_dir_below(at: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    if bytes.is_empty() {
        return open_step(at, b".");
    }
    let mut opened: Option<OwnedFd> = None;
    let mut rest = bytes;
    while !rest.is_empty() {
        let (step, after) = split(rest);
        let next = match &opened {
            Some(dir) => open_step(dir, step)?,
            None => open_step(&at, step)?,
        };
        opened = Some(next);
        rest = after;
    }
    opened.ok_or(Errno::NOENT)
}

/// The longest part of a path that fits into one step, and what follows it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= STEP {
        return (path, &[]);
    }
    let slash = |part: &[u8]| part.iter().rposition(|byte| *byte == b'/');
    match slash(&path[..STEP]) {
        Some(end) => (&path[..end], &path[end + 1..]),
        None => (path, &[]),
    }
}

fn open_step(at: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        match openat2(&at, OsStr::from_bytes(path), flags, Mode::empty(), WALK) {
            // A rename was under way somewhere above (openat2(2), RESOLVE_BENEATH).
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{Tree, attrs_of};

    #[test]
    fn long_paths_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let name = "n".repeat(250);
        let mut path = std::path::PathBuf::new();
        for depth in 0..20 {
            let parent = open_dir_below(tree.root(), &path).unwrap();
            rustix::fs::mkdirat(&parent, name.as_str(), Mode::RWXU).unwrap();
            path.push(&name);
            assert!(open_dir_below(tree.root(), &path).is_ok(), "depth {depth}");
        }
        symlink(&name, dir.path().join("link")).unwrap();
        let through = Path::new("link").join(&name);
        assert_eq!(open_dir_below(tree.root(), &through).unwrap_err(), Errno::LOOP);
        assert_eq!(open_dir_below(tree.root(), Path::new("..")).unwrap_err(), Errno::XDEV);
        fs::write(dir.path().join("file"), b"").unwrap();
        assert_eq!(open_dir_below(tree.root(), Path::new("file")).unwrap_err(), Errno::NOTDIR);
        let root = attrs_of(open_dir_below(tree.root(), Path::new("/")).unwrap()).unwrap();
        assert_eq!(root.id, attrs_of(tree.root()).unwrap().id);
    }
}
