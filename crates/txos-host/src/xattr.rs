use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, AsRawFd},
        unix::ffi::OsStrExt,
    },
    path::PathBuf,
};

use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};
use xxhash_rust::xxh3::Xxh3;

/// The extended attributes of an object, by name.
pub type XattrSet = BTreeMap<CString, Vec<u8>>;

/// A hash of names and values: equal sets have equal hashes.
pub fn xattrs_hash(set: &XattrSet) -> u64 {
    let mut hasher = Xxh3::new();
    for (name, value) in set {
        hasher.update(name.to_bytes_with_nul());
        hasher.update(&(value.len() as u64).to_le_bytes());
        hasher.update(value);
    }
    hasher.digest()
}

/// Reads all extended attributes of `name` in `dir` that the caller may see; an empty set where
/// the file system has none. A last symbolic link is not followed.
/// An empty `name` is `dir` itself.
///
/// # Errors
/// What `llistxattr(2)` and `lgetxattr(2)` give.
pub fn read_xattrs_at(dir: impl AsFd, name: &OsStr) -> Result<XattrSet, Errno> {
    let path = beside(dir.as_fd().as_raw_fd(), name);
    let list = match sized(|buffer| llistxattr(&path, buffer)) {
        Ok(list) => list,
        Err(Errno::NOTSUP) => return Ok(XattrSet::new()),
        Err(errno) => return Err(errno),
    };
    let mut set = XattrSet::new();
    for key in list.split_inclusive(|byte| *byte == 0) {
        let Ok(key) = CStr::from_bytes_with_nul(key) else { continue };
        match sized(|buffer| lgetxattr(&path, key, buffer)) {
            Ok(value) => {
                set.insert(key.to_owned(), value);
            }
            // Removed in between, or listed but not readable by this caller.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(set)
}

/// A path to `name` beneath an open directory for calls that have no `…at` form on all kernels.
fn beside(dir: i32, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{dir}"));
    // Without a name after it, the link in /proc itself would be examined.
    path.push(if name.as_bytes().is_empty() { OsStr::new(".") } else { name });
    path
}

/// What `read` gives: it is called with a buffer that grows until the value fits, 1 MiB at the most.
///
/// # Errors
/// What `read` failed with; ERANGE if nothing is large enough.
pub fn sized(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < 1 << 20 => {
                let length = buffer.len() * 8;
                buffer.resize(length, 0);
            }
            Err(errno) => return Err(errno),
        }
    }
}
