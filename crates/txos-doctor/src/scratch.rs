//! A private directory on the file system that the state directory is, or would be, on.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed with everything in it when dropped.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one in `state_dir`, or in the nearest parent of it that exists.
    pub fn below(state_dir: &Path) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let home = nearest_existing(state_dir);
        let name = format!(
            ".txos-doctor-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = home.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    /// Its absolute path, as far as `state_dir` was absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        open_up(&self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The path itself, or the nearest parent that exists.
pub(crate) fn nearest_existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|parent| parent.is_dir())
        .unwrap_or_else(|| if path.is_absolute() { Path::new("/") } else { Path::new(".") })
}

// Overlay leaves a directory of mode 0 in its work directory, which only root can list and remove.
fn open_up(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_vanishes_with_all_it_holds() {
        let home = tempfile::tempdir().unwrap();
        let scratch = Scratch::below(&home.path().join("not/there/yet")).unwrap();
        assert_eq!(scratch.path().parent(), Some(home.path()));
        let closed = scratch.path().join("work/work");
        fs::create_dir_all(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
        drop(scratch);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
