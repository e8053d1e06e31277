//! The mount table of the calling process (`proc(5)`, `/proc/PID/mountinfo`).

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::{fs::makedev, io::Errno};

use crate::{HostError, Result};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its id, unique while it lives.
    pub id: u64,
    /// The id of the mount on which it lies.
    pub parent: u64,
    /// Device of its file system, as `stat(2)` shows it.
    pub dev: u64,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// Per-mount options, such as `ro`, `nosuid`.
    pub options: Vec<String>,
    /// Type of the file system.
    pub fs_type: String,
    /// Its source, a device or another name.
    pub source: OsString,
    /// Options of the file system.
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether a per-mount or file system option `name` is set.
    pub fn has_option(&self, name: &str) -> bool {
        self.options.iter().chain(&self.super_options).any(|option| option == name)
    }
}

/// The mounts that the calling process can reach, in the order in which they were made; a mount
/// that is covered by a later one at the same point is left out, with all that lies on it.
///
/// # Errors
/// If the table cannot be read or understood.
pub fn visible() -> Result<Vec<Mount>> {
    let path = "/proc/self/mountinfo";
    let table = fs::read(path).map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        HostError::object("read", path, errno)
    })?;
    let mounts = parse(&table)?;
    Ok(uncovered(mounts))
}

fn parse(table: &[u8]) -> Result<Vec<Mount>> {
    let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| {
            parse_line(line).ok_or_else(|| HostError::MountTable {
                line: String::from_utf8_lossy(line).into_owned(),
            })
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let options = |field: &[u8]| {
        String::from_utf8_lossy(field).split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let dev = makedev(major.parse().ok()?, minor.parse().ok()?);
    let root = PathBuf::from(unescape(fields.next()?));
    let point = PathBuf::from(unescape(fields.next()?));
    let mount_options = options(fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let super_options = options(fields.next()?);
    Some(Mount {
        id,
        parent,
        dev,
        root,
        point,
        options: mount_options,
        fs_type,
        source,
        super_options,
    })
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) if byte == b'\\' => {
                let value =
                    digits.iter().fold(0u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn uncovered(mounts: Vec<Mount>) -> Vec<Mount> {
    let covered_by_later = |index: usize| {
        let mount = &mounts[index];
        mounts[index + 1..].iter().any(|later| {
            let below = mount.point.starts_with(&later.point);
            below && !on_top_of(&mounts, mount.id, later.id)
        })
    };
    let keep: Vec<bool> = (0..mounts.len()).map(|index| !covered_by_later(index)).collect();
    mounts.into_iter().zip(keep).filter_map(|(mount, keep)| keep.then_some(mount)).collect()
}

/// Whether mount `id` lies on mount `base`, directly or not.
fn on_top_of(mounts: &[Mount], mut id: u64, base: u64) -> bool {
    for _ in 0..mounts.len() {
        let Some(mount) = mounts.iter().find(|mount| mount.id == id) else { return false };
        if mount.parent == base {
            return true;
        }
        if mount.parent == id {
            return false;
        }
        id = mount.parent;
    }
    false
}

/// The mount on which `path` lies: the one with the longest mount point above it.
pub fn containing<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"1 1 8:1 / / rw,relatime - ext4 /dev/sda rw\n\
        2 1 0:5 / /a\\040b rw,nosuid shared:1 - tmpfs none rw,size=4k\n\
        3 2 0:6 / /a\\040b/c ro - tmpfs none rw\n\
        4 1 0:7 / /a\\040b rw - tmpfs none rw\n";

    #[test]
    fn fields_and_escapes() {
        let mounts = parse(TABLE).unwrap();
        assert_eq!(mounts[1].point, Path::new("/a b"));
        assert_eq!(mounts[1].fs_type, "tmpfs");
        assert!(mounts[1].has_option("nosuid") && mounts[1].has_option("size=4k"));
        assert!(parse(b"1 2 x / / rw - t s o\n").is_err());
        assert!(parse(b"1 1 8:1 / / rw\n").is_err());
    }

    #[test]
    fn covered_mounts_are_left_out() {
        let ids: Vec<u64> = uncovered(parse(TABLE).unwrap()).iter().map(|m| m.id).collect();
        assert_eq!(ids, [1, 4]);
    }

    #[test]
    fn containing_takes_the_deepest() {
        let mounts = uncovered(parse(TABLE).unwrap());
        assert_eq!(containing(&mounts, Path::new("/a b/c")).unwrap().id, 4);
        assert_eq!(containing(&mounts, Path::new("/a bc")).unwrap().id, 1);
    }
}
