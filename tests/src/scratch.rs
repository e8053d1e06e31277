//! The place in which one test works, and what has to be gone from it when the test ends.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::who::{Who, am_root};
use crate::{tree, xattr};

/// The variable by which a test recognises what it started, through any number of forks.
pub const MARK: &str = "TXOS_TEST_MARK";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory of its own for one test, on the root file system. Everything in it, and every process
/// that carries its mark, goes when the guard goes.
pub struct Scratch {
    base: PathBuf,
    mark: String,
}

impl Scratch {
    /// Makes the directory with its parts: `native`, `inside`, `state`, `live`.
    ///
    /// `TXOS_TEST_DIR` says where (default `/var/tmp`).
    ///
    /// # Panics
    /// If it can't be made: no test can run then.
    pub fn new() -> Scratch {
        let top =
            std::env::var_os("TXOS_TEST_DIR").map_or_else(|| "/var/tmp".into(), PathBuf::from);
        let dir = tempfile::Builder::new()
            .prefix("txos-test-")
            .tempdir_in(&top)
            .unwrap_or_else(|e| panic!("no scratch directory in {}: {e}", top.display()));
        let base = dir.keep();
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let scratch = Scratch { base, mark };
        fs::set_permissions(&scratch.base, fs::Permissions::from_mode(0o755)).expect("chmod");
        for part in ["native", "inside", "live"] {
            fs::create_dir(scratch.base.join(part)).expect("mkdir");
        }
        fs::set_permissions(scratch.live(), fs::Permissions::from_mode(0o777)).expect("chmod");
        scratch
    }

    /// The directory itself.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// The tree of the native run.
    pub fn native(&self) -> PathBuf {
        self.base.join("native")
    }

    /// The tree of the run inside a transaction.
    pub fn inside(&self) -> PathBuf {
        self.base.join("inside")
    }

    /// The state directory for `TXOS_STATE`. The test does not make it: `txos` does.
    pub fn state(&self) -> PathBuf {
        self.base.join("state")
    }

    /// A directory meant for `--live`: what tests and transactions tell one another goes through it.
    pub fn live(&self) -> PathBuf {
        self.base.join("live")
    }

    /// Gives the scratch directory and its trees to the scenario's user, who makes his state
    /// directory in it.
    ///
    /// # Panics
    /// If it can't be given.
    pub fn give_to(&self, who: Who) {
        if am_root() && who == Who::User {
            for path in [self.base.clone(), self.native(), self.inside(), self.live()] {
                let id = Some(who.uid());
                std::os::unix::fs::chown(&path, id, id).expect("chown");
            }
        }
    }

    /// Gives everything in the tree `inside` to the scenario's user.
    ///
    /// # Panics
    /// If it can't be given.
    pub fn give_tree_to(&self, who: Who) {
        if am_root() && who == Who::User {
            crate::scenario::give_away(&self.inside(), who.uid()).expect("chown");
        }
    }

    /// The value of [`MARK`] for what this test starts.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Processes that carry the mark, and the contention manager of its state directory, which keeps
    /// nothing of anybody's environment; with their command lines. A zombie is none.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let needle = format!("{MARK}={}", self.mark);
        let manager = format!(" __manager {}/", self.base.display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else {
                continue;
            };
            let Ok(environ) = fs::read(entry.path().join("environ")) else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let ours = environ.split(|&b| b == 0).any(|v| v == needle.as_bytes());
            if ours || line.contains(&manager) {
                found.extend(Pid::from_raw(pid).map(|pid| (pid, line)));
            }
        }
        found
    }

    /// Mounts of this mount namespace that mention the scratch directory.
    pub fn mounts(&self) -> Vec<String> {
        let base = self.base.to_string_lossy().into_owned();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        table.lines().filter(|l| l.contains(&base)).map(str::to_owned).collect()
    }

    /// What `txos` left behind although nothing runs any more, a line each. Waits for
    /// processes that are just ending.
    pub fn leftovers(&self) -> Vec<String> {
        let patience = Instant::now() + crate::exec::LIMIT;
        while !self.processes().is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut out: Vec<String> = Vec::new();
        out.extend(self.processes().iter().map(|(p, l)| format!("process {p:?} {l}")));
        out.extend(self.mounts().iter().map(|m| format!("mount {m}")));
        for tree in [self.inside(), self.live()] {
            overlay_traces(&tree, &mut out);
        }
        out
    }

    /// Bytes that the files of the state directory take.
    pub fn state_size(&self) -> u64 {
        fn size(path: &Path) -> u64 {
            let Ok(meta) = fs::symlink_metadata(path) else { return 0 };
            let below = if meta.is_dir() {
                fs::read_dir(path).into_iter().flatten().flatten().map(|e| size(&e.path())).sum()
            } else {
                0
            };
            meta.blocks() * 512 + below
        }
        size(&self.state())
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Whiteouts and overlay attributes below `path`.
fn overlay_traces(path: &Path, out: &mut Vec<String>) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    for name in xattr::read_all(path).unwrap_or_default().keys() {
        if xattr::is_overlay(name) {
            out.push(format!("attribute {} of {}", String::from_utf8_lossy(name), show(path)));
        }
    }
    if rustix::fs::FileType::from_raw_mode(meta.mode()).is_char_device() && meta.rdev() == 0 {
        out.push(format!("whiteout {}", show(path)));
    }
    if meta.is_dir() {
        let _ = tree::for_each_child(path, |child, _| {
            overlay_traces(child, out);
            Ok(())
        });
    }
}

/// The path that a path by descriptor means.
fn show(path: &Path) -> String {
    let whole = path.parent().and_then(|dir| fs::read_link(dir).ok());
    let name = path.file_name().unwrap_or_default();
    whole.map_or_else(|| path.to_owned(), |dir| dir.join(name)).display().to_string()
}

/// Removes a tree however unreadable its directories are.
fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_ok() {
        return;
    }
    if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            remove(&entry.path());
        }
        let _ = fs::remove_dir(path);
    } else {
        let _ = fs::remove_file(path);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_secs(5);
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > patience {
                break;
            }
            for (pid, _) in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if std::env::var_os("TXOS_TEST_KEEP").is_some() {
            eprintln!("kept {}", self.base.display());
        } else if self.mounts().is_empty() {
            remove(&self.base);
        } else {
            eprintln!("left {}: something is mounted there", self.base.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_with_the_guard() {
        let scratch = Scratch::new();
        let base = scratch.base().to_owned();
        fs::create_dir(base.join("shut")).unwrap();
        fs::write(base.join("shut/f"), b"x").unwrap();
        fs::set_permissions(base.join("shut"), fs::Permissions::from_mode(0o000)).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .env(MARK, scratch.mark())
            .spawn()
            .unwrap();
        while scratch.processes().is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(scratch);
        assert!(!child.wait().unwrap().success());
        assert!(!base.exists());
    }

    #[test]
    fn overlay_traces_are_seen() {
        let scratch = Scratch::new();
        let file = scratch.inside().join("f");
        fs::write(&file, b"").unwrap();
        assert!(scratch.leftovers().is_empty());
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(&file, "user.overlay.origin", b"", flags).unwrap();
        assert_eq!(scratch.leftovers().len(), 1);
    }
}
