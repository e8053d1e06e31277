//! Holding single members of a domain while a transaction that lost to them several times runs once
//! more.
//!
//! A process cannot be frozen by itself, so it is moved into a group of its own below the one it is
//! in, `txos.held.PID.N`, which is frozen before the process enters it. The end of a hold thaws that
//! group, moves everything in it to the group above, which is where it came from, and removes it.
//! Nothing else has to be known for that, so the watchdog can do it, or whoever finds the group after
//! the death of all: PID is the txos that made it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    Group, Hierarchy, Priority, Result, Watchdog,
    group::{child_groups, processes_in},
    hierarchy::make_group,
    members,
    wire::What,
};

const PREFIX: &str = "txos.held.";
/// So long a process that is held has to come to a stop.
const STOP: Duration = Duration::from_millis(250);

/// Who shall be held.
#[derive(Debug)]
pub struct Hold {
    /// The groups of the domain; nobody outside them is held.
    pub groups: Vec<PathBuf>,
    /// Longest time.
    pub limit: Duration,
    /// The transaction's own priority: who has a higher one is not held.
    pub priority: Priority,
}

/// Members that are held, until this is dropped or the limit is over.
#[derive(Debug)]
pub struct Held {
    groups: Vec<PathBuf>,
    watch: Option<(u64, Arc<Watchdog>)>,
    /// Who is held.
    pub held: Vec<u32>,
    /// Who is not, since his priority is higher.
    pub higher: Vec<u32>,
}

impl Hold {
    /// Holds those of `offenders` that are members of the domain; all members, if nobody knows who it
    /// was, or if it was a process that has ended, whose parent will start another.
    ///
    /// # Errors
    /// If there is no watchdog, or no group can be made. Nobody is held then.
    pub fn begin(
        &self,
        hierarchy: &Hierarchy,
        offenders: &[u32],
        watchdog: &Arc<Watchdog>,
    ) -> Result<Held> {
        let mut everyone = Vec::new();
        for group in &self.groups {
            everyone.extend(Group::open(group)?.processes()?);
        }
        let all = offenders.is_empty() || offenders.iter().any(|pid| !members::alive(*pid));
        let mut held =
            Held { groups: Vec::new(), watch: None, held: Vec::new(), higher: Vec::new() };
        let mut moves = Vec::new();
        for pid in everyone {
            if !all && !offenders.contains(&pid) || members::obstacle(pid).is_some() {
                continue;
            }
            match (Priority::of(pid), hierarchy.group_of(pid)) {
                (Some(his), _) if his > self.priority => held.higher.push(pid),
                (Some(_), Some(group)) => moves.push((pid, group)),
                _ => {}
            }
        }
        let mut groups: Vec<PathBuf> = moves.iter().map(|(_, group)| group.clone()).collect();
        groups.sort();
        groups.dedup();
        let name = format!("{PREFIX}{}.0", std::process::id());
        held.groups = groups.iter().map(|group| group.join(&name)).collect();
        if held.groups.is_empty() {
            return Ok(held);
        }
        let id = watchdog.arm(self.limit, What::Hold(held.groups.clone()), &[])?;
        held.watch = Some((id, Arc::clone(watchdog)));
        for path in &held.groups {
            make_group(path)?;
            Group::open(path)?.ask_freeze(true)?;
        }
        for (pid, group) in moves {
            // One that ends meanwhile, or was moved away, needs no hold.
            match Group::open(&group.join(&name))?.add(pid) {
                Ok(()) => held.held.push(pid),
                Err(error) => tracing::debug!(%error, pid, "not held"),
            }
        }
        let deadline = Instant::now() + STOP;
        for path in &held.groups {
            Group::open(path)?.wait_frozen(deadline)?;
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.groups.iter().for_each(|group| release(group));
        if let Some((id, watchdog)) = &self.watch {
            watchdog.done(*id);
        }
    }
}

/// Ends a hold. Does nothing where it has ended already.
pub(crate) fn release(path: &Path) {
    let (Ok(group), Some(above)) = (Group::open(path), path.parent()) else { return };
    if group.ask_freeze(false).is_err() {
        return;
    }
    let Ok(above) = Group::open(above) else { return };
    // Whoever is moved may just be forking; each round moves the children of the one before.
    for _ in 0..100 {
        let pids = processes_in(path).unwrap_or_default();
        if pids.is_empty() && fs::remove_dir(path).is_ok() || !path.exists() {
            return;
        }
        for pid in pids {
            if let Err(error) = above.add(pid) {
                tracing::debug!(%error, pid, "not moved back");
            }
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Ends the holds below `top` whose txos has died.
pub(crate) fn sweep(top: &Path) {
    let mut todo = vec![top.to_owned()];
    while let Some(path) = todo.pop() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name.strip_prefix(PREFIX).and_then(|rest| rest.split('.').next()?.parse().ok()) {
            Some(pid) if !members::alive(pid) => release(&path),
            _ => todo.extend(child_groups(&path)),
        }
    }
}
