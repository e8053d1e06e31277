//! A snapshot of a file tree in every respect that a program could notice, and the comparison of
//! two of them.
//!
//! What is compared, and how:
//!
//! - names, types, permission bits, owners, sizes of what is no directory, contents, link targets,
//!   device numbers, all extended attributes (ACLs and capabilities are such);
//! - *hard links and identity*: each inode is named by the first path that it had before the run,
//!   or, if it did not exist then, by its first path now. So a file that was changed in place and
//!   one that was replaced differ, and so do two names of one file and two files. Birth times tell
//!   a reused inode number from the inode that had it before;
//! - *times*: every file starts with an old, fixed modification time. A time that is older than the
//!   run was set or left alone and has to be equal to the nanosecond; a newer one has to be newer on
//!   both sides;
//! - *blocks*: a sparse file may not take more room than its model (with some slack for the file
//!   system's own).
//!
//! Not compared: access times, change times, directory sizes, inode numbers as such.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags, statx};
use rustix::io::Errno;

use crate::op::escape;
use crate::perform::hash;
use crate::xattr;

/// Blocks of 512 bytes that a file may take more than its model before it counts as filled up.
const BLOCK_SLACK: u64 = 64;

/// Device, inode number, birth time: what tells one inode from all others that ever were.
type InodeId = (u64, u64, i64, u32);

/// One name of a tree and what it stands for.
#[derive(Clone, Debug)]
pub struct Entry {
    /// File type.
    pub kind: FileType,
    /// Permission bits, with set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Size in bytes; 0 for a directory.
    pub size: u64,
    /// Link count; 0 for a directory.
    pub links: u32,
    /// Blocks of 512 bytes; 0 for a directory.
    pub blocks: u64,
    /// Modification time, seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Device numbers of a device node.
    pub device: (u32, u32),
    /// Content's hash, or the symlink's target.
    pub content: String,
    /// Extended attributes, names and values escaped.
    pub xattrs: BTreeMap<String, String>,
    inode: InodeId,
}

/// A tree at one moment, by escaped path relative to its root (`.`).
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The entries.
    pub entries: BTreeMap<String, Entry>,
}

impl Tree {
    /// Takes the snapshot. Does not follow symlinks; does cross mount points.
    ///
    /// # Errors
    /// The path that could not be read, and why.
    pub fn of(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        tree.add(root, &[])?;
        Ok(tree)
    }

    /// Adds what `path` is, under the name `shown`. Below it goes by descriptor, since a tree may be
    /// deeper than a path may be long.
    fn add(&mut self, path: &Path, shown: &[u8]) -> Result<(), String> {
        let name = if shown.is_empty() { ".".to_owned() } else { escape(shown) };
        let at = |e: Errno| format!("{name}: {e}");
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let st = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, flags).map_err(at)?;
        let entry = Entry::read(path, &st).map_err(at)?;
        let below = entry.kind == FileType::Directory;
        self.entries.insert(name.clone(), entry);
        if below {
            for_each_child(path, |child, child_name| {
                let mut shown = shown.to_vec();
                if !shown.is_empty() {
                    shown.push(b'/');
                }
                shown.extend(child_name);
                self.add(child, &shown)
            })?;
        }
        Ok(())
    }

    /// What is different in a later snapshot of the same tree, to the last detail, a line each.
    pub fn changes(&self, later: &Tree) -> Vec<String> {
        let names: BTreeSet<&String> = self.entries.keys().chain(later.entries.keys()).collect();
        let show = |e: Option<&Entry>| e.map_or_else(|| "absent".to_owned(), |e| format!("{e:?}"));
        names
            .into_iter()
            .map(|n| (n, show(self.entries.get(n)), show(later.entries.get(n))))
            .filter(|(_, before, after)| before != after)
            .map(|(name, before, after)| format!("{name} was {before} is {after}"))
            .collect()
    }

    /// Which inode each path is, in names that two equal trees share (see the module's text).
    fn identities(&self, before: &Tree) -> HashMap<&str, String> {
        let mut names: HashMap<InodeId, String> = HashMap::new();
        for (path, e) in &before.entries {
            names.entry(e.inode).or_insert_with(|| format!("the inode that was {path}"));
        }
        let mut out = HashMap::new();
        for (path, e) in &self.entries {
            let id = names.entry(e.inode).or_insert_with(|| format!("a new inode, {path}"));
            out.insert(path.as_str(), id.clone());
        }
        out
    }
}

/// Calls `visit` for each name of a directory, with a path that is short however deep it lies. A
/// directory that the caller may not read counts as empty.
///
/// # Errors
/// The first of `visit`, or what kept the directory from being read.
pub fn for_each_child(
    dir: &Path,
    mut visit: impl FnMut(&Path, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let at = |e: std::io::Error| format!("{}: {e}", dir.display());
    let fd = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(Errno::ACCESS) => return Ok(()),
        fd => fd.map_err(|e| at(e.into()))?,
    };
    let short = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    for child in std::fs::read_dir(&short).map_err(at)? {
        let name = child.map_err(at)?.file_name();
        visit(&short.join(&name), name.as_bytes())?;
    }
    Ok(())
}

impl Entry {
    fn read(path: &Path, st: &Statx) -> Result<Entry, Errno> {
        let mode = u32::from(st.stx_mode);
        let kind = FileType::from_raw_mode(mode);
        let directory = kind == FileType::Directory;
        let content = match kind {
            FileType::RegularFile => match content_hash(path) {
                // Whoever runs the suite may be kept out like anybody else.
                Err(Errno::ACCESS) => "unreadable".to_owned(),
                content => content?,
            },
            FileType::Symlink => escape(rustix::fs::readlink(path, Vec::new())?.as_bytes()),
            _ => String::new(),
        };
        let xattrs = xattr::read_all(path)?;
        Ok(Entry {
            kind,
            mode: mode & 0o7777,
            owner: (st.stx_uid, st.stx_gid),
            size: if directory { 0 } else { st.stx_size },
            links: if directory { 0 } else { st.stx_nlink },
            blocks: if directory { 0 } else { st.stx_blocks },
            mtime: (st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec),
            device: (st.stx_rdev_major, st.stx_rdev_minor),
            content,
            xattrs: xattrs.iter().map(|(n, v)| (escape(n), escape(v))).collect(),
            inode: (
                rustix::fs::makedev(st.stx_dev_major, st.stx_dev_minor),
                st.stx_ino,
                st.stx_btime.tv_sec,
                st.stx_btime.tv_nsec,
            ),
        })
    }

    /// Whether the entry was modified at or after `start` (and not given an old time later).
    fn fresh(&self, start: SystemTime) -> bool {
        let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        // The kernel stamps with its last tick, which may lie some milliseconds back.
        let floor = since.as_nanos().saturating_sub(20_000_000);
        let mtime = self.mtime.0.max(0).unsigned_abs() as u128 * 1_000_000_000;
        mtime + u128::from(self.mtime.1) >= floor
    }
}

/// A hash of the file's bytes that a hole and written zeros share, and that skips holes.
fn content_hash(path: &Path) -> Result<String, Errno> {
    const BLOCK: usize = 64 << 10;
    let file =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()))?;
    let mut block = vec![0; BLOCK];
    let (mut sum, mut at) = (0u64, 0u64);
    loop {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data - data % BLOCK as u64,
            Err(Errno::NXIO) => return Ok(format!("{sum:016x}")),
            Err(e) => return Err(e),
        };
        let mut n = 0;
        while n < BLOCK {
            match rustix::io::pread(&file, &mut block[n..], at + n as u64)? {
                0 => break,
                more => n += more,
            }
        }
        let used = block[..n].iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        if used > 0 {
            sum = sum.rotate_left(5)
                ^ hash(&block[..used]).wrapping_add(at.wrapping_mul(0x9e37_79b9));
        }
        at += BLOCK as u64;
    }
}

/// A tree before and after something ran in it.
pub struct Run {
    /// The tree as it was.
    pub before: Tree,
    /// The tree as it is.
    pub after: Tree,
    /// A moment before the run and after the snapshot `before`.
    pub start: SystemTime,
}

impl Run {
    /// Looks at `root`, does `work`, and looks again.
    ///
    /// # Errors
    /// As [`Tree::of`]'s.
    pub fn around<T>(root: &Path, work: impl FnOnce() -> T) -> Result<(Run, T), String> {
        let before = Tree::of(root)?;
        let start = SystemTime::now();
        let done = work();
        Ok((Run { before, after: Tree::of(root)?, start }, done))
    }
}

/// Every difference between what should have come out (`model`) and what did (`real`), a line each.
pub fn differences(model: &Run, real: &Run) -> Vec<String> {
    let mut out = Vec::new();
    let (model_ids, real_ids) =
        (model.after.identities(&model.before), real.after.identities(&real.before));
    for (path, m) in &model.after.entries {
        let Some(r) = real.after.entries.get(path) else {
            out.push(format!("{path}: missing, should be {:?} {:o}", m.kind, m.mode));
            continue;
        };
        let mut tell = |what: &str, model: String, real: String| {
            if model != real {
                out.push(format!("{path}: {what} is {real}, should be {model}"));
            }
        };
        tell("type", format!("{:?}", m.kind), format!("{:?}", r.kind));
        tell("mode", format!("{:o}", m.mode), format!("{:o}", r.mode));
        tell("owner", format!("{:?}", m.owner), format!("{:?}", r.owner));
        tell("size", m.size.to_string(), r.size.to_string());
        tell("link count", m.links.to_string(), r.links.to_string());
        tell("device", format!("{:?}", m.device), format!("{:?}", r.device));
        tell("content", m.content.clone(), r.content.clone());
        tell("xattrs", format!("{:?}", m.xattrs), format!("{:?}", r.xattrs));
        tell("identity", model_ids[path.as_str()].clone(), real_ids[path.as_str()].clone());
        tell("time", time(m, model), time(r, real));
        if r.blocks > m.blocks + BLOCK_SLACK + m.blocks / 8 {
            tell("blocks", m.blocks.to_string(), r.blocks.to_string());
        }
    }
    for (path, r) in &real.after.entries {
        if !model.after.entries.contains_key(path) {
            out.push(format!("{path}: should not be there, is {:?} {:o}", r.kind, r.mode));
        }
    }
    out
}

fn time(e: &Entry, run: &Run) -> String {
    if e.fresh(run.start) {
        "of the run".to_owned()
    } else {
        format!("{}.{:09}", e.mtime.0, e.mtime.1)
    }
}

/// No time that a scenario sets is later than this, and no clock is earlier (November 2023).
const LONG_AGO: i64 = 1_700_000_000;

/// Gives every name below `root` that was just made an old modification time of its own, with odd
/// nanoseconds. Times that are old already stay.
///
/// # Errors
/// The path whose time could not be set, and why.
pub fn make_old(root: &Path) -> Result<(), String> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    paths.sort();
    for (i, path) in paths.iter().enumerate() {
        let at = |e: std::io::Error| format!("{}: {e}", path.display());
        if std::fs::symlink_metadata(path).map_err(at)?.mtime() < LONG_AGO {
            continue;
        }
        let t = rustix::fs::Timespec {
            tv_sec: 1_000_000_000 + i as i64 * 60,
            tv_nsec: 123_456_789 + i as i64,
        };
        let both = rustix::fs::Timestamps { last_access: t, last_modification: t };
        match rustix::fs::utimensat(CWD, path, &both, AtFlags::SYMLINK_NOFOLLOW) {
            // Whoever mounts something read-only has to set its times before.
            Ok(()) | Err(Errno::ROFS) => {}
            Err(e) => return Err(at(e.into())),
        }
    }
    Ok(())
}

fn collect(path: &Path, out: &mut Vec<PathBuf>) -> Result<(), String> {
    let at = |e: std::io::Error| format!("{}: {e}", path.display());
    if std::fs::symlink_metadata(path).map_err(at)?.is_dir() {
        for child in std::fs::read_dir(path).map_err(at)? {
            collect(&child.map_err(at)?.path(), out)?;
        }
    }
    out.push(path.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn pair() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::Builder::new().prefix("txos-test-").tempdir_in("/var/tmp").unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("d")).unwrap();
            fs::write(root.join("d/f"), b"one").unwrap();
            fs::hard_link(root.join("d/f"), root.join("g")).unwrap();
            make_old(root).unwrap();
        }
        (dir, a, b)
    }

    fn compare(model: impl Fn(&Path), real: impl Fn(&Path)) -> Vec<String> {
        let (_dir, a, b) = pair();
        let (m, ()) = Run::around(&a, || model(&a)).unwrap();
        let (r, ()) = Run::around(&b, || real(&b)).unwrap();
        differences(&m, &r)
    }

    #[test]
    fn equal_work_shows_no_difference() {
        let work = |root: &Path| {
            fs::write(root.join("d/f"), b"two").unwrap();
            fs::write(root.join("new"), b"").unwrap();
        };
        assert_eq!(compare(work, work), Vec::<String>::new());
    }

    #[test]
    fn a_replaced_file_is_not_one_changed_in_place() {
        let found = compare(
            |root| fs::write(root.join("d/f"), b"two").unwrap(),
            |root| {
                fs::remove_file(root.join("d/f")).unwrap();
                fs::write(root.join("d/f"), b"two").unwrap();
            },
        );
        assert!(found.iter().any(|l| l.starts_with("d/f: identity")), "{found:?}");
        assert!(found.iter().any(|l| l.starts_with("g: content")), "{found:?}");
        assert!(found.iter().any(|l| l.starts_with("d: time")), "{found:?}");
    }

    #[test]
    fn a_lost_nanosecond_is_seen() {
        let set = |root: &Path, nsec| {
            let t = rustix::fs::Timespec { tv_sec: 5, tv_nsec: nsec };
            let both = rustix::fs::Timestamps { last_access: t, last_modification: t };
            rustix::fs::utimensat(CWD, root.join("g"), &both, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        };
        let found = compare(|root| set(root, 7), |root| set(root, 0));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_filled_up_hole_is_seen() {
        let found = compare(
            |root| fs::File::create(root.join("s")).unwrap().set_len(1 << 20).unwrap(),
            |root| fs::write(root.join("s"), vec![0; 1 << 20]).unwrap(),
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("s: blocks"));
    }

    #[test]
    fn missing_and_additional_names_are_seen() {
        let found = compare(|_| (), |root| fs::rename(root.join("g"), root.join("h")).unwrap());
        assert!(found.iter().any(|l| l.starts_with("g: missing")), "{found:?}");
        assert!(found.iter().any(|l| l.starts_with("h: should not")), "{found:?}");
    }
}
