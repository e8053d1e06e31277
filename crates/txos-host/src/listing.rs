use std::{
    ffi::{OsStr, OsString},
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use rustix::{
    fs::{Dir, FileType},
    io::Errno,
};
use txos_core::FileKind;
use xxhash_rust::xxh3::Xxh3;

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name; any bytes but `/` and NUL.
    pub name: OsString,
    /// Inode number as `readdir(3)` gives it (below a mount point: that of the covered directory).
    pub ino: u64,
    /// Type, where the file system tells.
    pub kind: Option<FileKind>,
}

/// All names of a directory but `.` and `..`, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, sorted by name.
    pub entries: Vec<Entry>,
}

impl Listing {
    /// A hash of the names and inode numbers: equal listings have equal hashes.
    pub fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for entry in &self.entries {
            hasher.update(entry.name.as_bytes());
            hasher.update(&[0]);
            hasher.update(&entry.ino.to_le_bytes());
        }
        hasher.digest()
    }

    /// Whether `name` is listed.
    pub fn contains(&self, name: &OsStr) -> bool {
        self.entries.binary_search_by(|entry| entry.name.as_os_str().cmp(name)).is_ok()
    }
}

/// Reads all names of `dir`, which must be open for reading; its offset is not used.
///
/// # Errors
/// What `getdents64(2)` gives.
pub fn read_listing(dir: impl AsFd) -> Result<Listing, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        entries.push(Entry {
            name: name.to_owned(),
            ino: entry.ino(),
            kind: kind(entry.file_type()),
        });
    }
    entries.sort_unstable();
    Ok(Listing { entries })
}

fn kind(file_type: FileType) -> Option<FileKind> {
    Some(match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Dir,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}
