//! One control group, pinned: whoever removes it and makes another of the same name is noticed.

use std::{
    fs,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, Mode, OFlags, fstat, openat},
    io::{Errno, pread, pwrite},
};

use crate::{DomainError, Result};

/// So long a freeze is waited for without giving the processor away: idle processes need 12 to
/// 90 µs, and a poll on `cgroup.events` is answered no more often than every 10 ms.
const SPIN: Duration = Duration::from_micros(300);
/// Then members may need this processor to reach the point where they freeze.
const NAP: Duration = Duration::from_micros(50);

/// An open control group of the version 2 hierarchy; never the root group.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    dir: OwnedFd,
    freeze: OwnedFd,
    events: OwnedFd,
    id: u64,
}

impl Group {
    /// Opens the group at `path`.
    ///
    /// # Errors
    /// [`DomainError::Io`] if it is gone, or may not be written, or is the root group (which has no
    /// `cgroup.freeze`).
    pub fn open(path: &Path) -> Result<Group> {
        let open = |dir: BorrowedFd<'_>, name: &str, flags: OFlags| {
            openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| DomainError::io("open", path.join(name), errno))
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| DomainError::io("open the group", path, errno))?;
        let freeze = open(dir.as_fd(), "cgroup.freeze", OFlags::RDWR)?;
        let events = open(dir.as_fd(), "cgroup.events", OFlags::RDONLY)?;
        let id = fstat(&dir).map_err(|errno| DomainError::io("examine", path, errno))?.st_ino;
        Ok(Group { path: path.to_owned(), dir, freeze, events, id })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel's number of this group, never used again while the system runs.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The descriptor by which it is frozen and thawed; for a watchdog.
    pub(crate) fn freeze_fd(&self) -> BorrowedFd<'_> {
        self.freeze.as_fd()
    }

    /// Whether somebody has asked that this group be frozen, and not taken it back.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn freeze_asked(&self) -> Result<bool> {
        asked(&self.freeze).map_err(|errno| DomainError::io("read", self.file("freeze"), errno))
    }

    /// Asks for it to be frozen (returns at once), or thaws it.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn ask_freeze(&self, on: bool) -> Result<()> {
        ask(&self.freeze, on).map_err(|errno| DomainError::io("write", self.file("freeze"), errno))
    }

    /// Whether all of its processes, and those of groups below, stand still.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn is_frozen(&self) -> Result<bool> {
        let mut text = [0; 128];
        let count = pread(&self.events, &mut text, 0)
            .map_err(|errno| DomainError::io("read", self.file("events"), errno))?;
        Ok(text[..count].split(|byte| *byte == b'\n').any(|line| line == b"frozen 1"))
    }

    /// Waits until it is frozen, `deadline` at the latest; `false` if it is not frozen by then.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn wait_frozen(&self, deadline: Instant) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.is_frozen()? {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            match now.duration_since(start) < SPIN {
                true => std::hint::spin_loop(),
                false => thread::sleep(NAP),
            }
        }
    }

    /// The processes of this group and those below it.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let mut all = Vec::new();
        for group in self.subtree()? {
            // A group below may end while this is read.
            all.extend(processes_in(&group).unwrap_or_default());
        }
        Ok(all)
    }

    /// The paths of this group and of those below it, from the top.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn subtree(&self) -> Result<Vec<PathBuf>> {
        let still = fs::metadata(&self.path)
            .map(|now| std::os::unix::fs::MetadataExt::ino(&now) == self.id)
            .unwrap_or(false);
        if !still {
            return Err(DomainError::io("find the group", &self.path, Errno::NOENT));
        }
        let mut found = vec![self.path.clone()];
        let mut next = 0;
        while next < found.len() {
            let below = child_groups(&found[next]);
            found.extend(below);
            next += 1;
        }
        Ok(found)
    }

    /// Moves a process with all its threads into this group.
    ///
    /// # Errors
    /// [`DomainError::Move`] with what the kernel says.
    pub fn add(&self, pid: u32) -> Result<()> {
        let failed = |errno| DomainError::Move { pid, group: self.path.clone(), errno };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let procs = openat(&self.dir, "cgroup.procs", flags, Mode::empty()).map_err(failed)?;
        pwrite(&procs, pid.to_string().as_bytes(), 0).map(drop).map_err(failed)
    }

    fn file(&self, what: &str) -> PathBuf {
        self.path.join(format!("cgroup.{what}"))
    }
}

/// Asks for a freeze, or thaws, by the descriptor of a `cgroup.freeze`.
pub(crate) fn ask(freeze: impl AsFd, on: bool) -> Result<(), Errno> {
    pwrite(freeze, if on { b"1" } else { b"0" }, 0).map(drop)
}

/// What a `cgroup.freeze` holds.
pub(crate) fn asked(freeze: impl AsFd) -> Result<bool, Errno> {
    let mut text = [0; 8];
    let count = pread(freeze, &mut text, 0)?;
    Ok(text[..count].first() == Some(&b'1'))
}

/// The processes in just this group.
///
/// # Errors
/// If it is gone, or its processes are not told (a group of threads).
pub(crate) fn processes_in(path: &Path) -> std::io::Result<Vec<u32>> {
    let text = fs::read_to_string(path.join("cgroup.procs"))?;
    // A process that this pid namespace does not show is a 0.
    Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != 0).collect())
}

/// The groups directly below; none if it is gone.
pub(crate) fn child_groups(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}
