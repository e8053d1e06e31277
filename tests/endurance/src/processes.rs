//! The processes of one state directory, and what may leak on a machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
};

use anyhow::Result;

/// Ids of all processes that belong to the state directory at `state`: those that were started with
/// it in their environment (`TXOS_STATE`), and their descendants.
pub fn of_state(state: &Path) -> Vec<u32> {
    let mut wanted = b"TXOS_STATE=".to_vec();
    wanted.extend_from_slice(state.as_os_str().as_bytes());
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut pending = Vec::new();
    for (pid, parent) in all() {
        children.entry(parent).or_default().push(pid);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == wanted) {
            pending.push(pid);
        }
    }
    let mut found = BTreeSet::new();
    while let Some(pid) = pending.pop() {
        if pid != std::process::id() && found.insert(pid) {
            pending.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.into_iter().collect()
}

/// All processes, with their parents.
fn all() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after = stat.rsplit_once(')')?.1;
        Some((pid, after.split_whitespace().nth(1)?.parse().ok()?))
    })
    .collect()
}

/// Kills the process `pid`, which must be one that this program started, or a descendant.
pub fn kill(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// What is there of the things that may leak.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Mounts of this namespace.
    pub mounts: usize,
    /// Control groups that were made for a process of txos that has ended.
    pub groups: usize,
    /// Processes of the state directory.
    pub processes: usize,
    /// Transactions with a directory.
    pub transactions: usize,
    /// Names in the state directory that belong to no transaction.
    pub other: usize,
}

impl Inventory {
    /// Counts.
    ///
    /// # Errors
    /// If the mount table can't be read.
    pub fn take(state: &Path) -> Result<Inventory> {
        let names = |path: &Path| fs::read_dir(path).map_or(0, Iterator::count);
        Ok(Inventory {
            mounts: fs::read_to_string("/proc/self/mountinfo")?.lines().count(),
            groups: groups(Path::new("/sys/fs/cgroup"), 3),
            processes: of_state(state).len(),
            transactions: names(&state.join("tx")),
            other: names(&state.join("conflicts")),
        })
    }
}

fn groups(dir: &Path, depth: usize) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below
        .map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix("txos-"));
            let dead = pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
            usize::from(dead) + if depth > 0 { groups(&entry.path(), depth - 1) } else { 0 }
        })
        .sum()
}

/// Memory of a process in KiB, and how many descriptors it has open.
pub fn size_of(pid: u32) -> Option<(u64, usize)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let memory = line.split_whitespace().next()?.parse().ok()?;
    Some((memory, fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count()))
}
