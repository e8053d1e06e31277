//! A place of its own for each test: a directory and a state directory.

#![allow(dead_code)] // each test uses a part

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use txos_api::{Options, System};

pub struct Place {
    pub system: Arc<System>,
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place::with(Options { durable: false, ..Options::default() })
    }

    pub fn with(options: Options) -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("files")).expect("a directory for files");
        let state = Some(dir.path().join("state"));
        let system = System::open(Options { state, ..options }).expect("the system");
        Place { system, dir }
    }

    /// Another handle on the same state directory, as another process would have.
    pub fn another(&self) -> Arc<System> {
        let options = self.system.options().clone();
        System::open(options).expect("the system once more")
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().join("files")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    pub fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }
}

/// Times before this one were set, later ones are of a change within the test.
pub const LONG_AGO: i64 = 1_000_000_000;

/// A time as two trees can have it in common: to the nanosecond if it was set, else that it moved.
pub fn shown_time(sec: i64, nsec: i64) -> String {
    if sec < LONG_AGO { format!("{sec}.{nsec}") } else { "moved".to_owned() }
}

/// Gives all below `top`, and `top`, times of long ago, each its own.
pub fn age(top: &Path) {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let mut paths: Vec<PathBuf> = tree(top).into_keys().map(|name| top.join(name)).collect();
    paths.push(top.to_owned());
    for (number, path) in paths.iter().enumerate() {
        let stamp = Timespec { tv_sec: LONG_AGO / 2 + number as i64, tv_nsec: 5 };
        let times = Timestamps { last_access: stamp, last_modification: stamp };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("times are set");
    }
}

/// All that a tree shows, but inode numbers; hard links by the first name, times as
/// [`shown_time`] does.
pub fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let meta = fs::symlink_metadata(top).expect("attributes");
    all.insert(PathBuf::new(), shown_time(meta.mtime(), meta.mtime_nsec()));
    let mut links = BTreeMap::new();
    let mut pending = vec![top.to_owned()];
    while let Some(dir) = pending.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry"))
            .collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let name = path.strip_prefix(top).expect("below").to_owned();
            let meta = fs::symlink_metadata(&path).expect("attributes");
            let first = links.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
            let what = if meta.is_dir() {
                pending.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                format!("link to {:?}", fs::read_link(&path).expect("a link"))
            } else {
                let bytes = fs::read(&path).expect("a file");
                format!("file {:?}", String::from_utf8_lossy(&bytes))
            };
            let same = if first == name || meta.is_dir() {
                String::new()
            } else {
                format!(" same as {}", String::from_utf8_lossy(first.as_os_str().as_bytes()))
            };
            let mode = meta.permissions().mode() & 0o7777;
            let owner = (meta.uid(), meta.gid());
            let links = meta.nlink();
            let mtime = shown_time(meta.mtime(), meta.mtime_nsec());
            let what = format!("{what} {mode:o} {owner:?} links {links} mtime {mtime}{same}");
            all.insert(name, what);
        }
    }
    all
}
