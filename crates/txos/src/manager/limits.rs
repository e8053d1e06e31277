//! How much a transaction may use, and how much it does use while it runs.
//!
//! A look takes time, so the time between two looks grows with what a look costs: a limit is kept to
//! within what can be used in that time. What is written is counted again, exactly, at the end.
//! Every limit has one end: the transaction is aborted, and the reason names the option.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use txos_view::Layer;

use super::{cap::Caps, services::Plants};

/// Shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(50);

/// Looks may take this part of the time at the most.
const SHARE: u32 = 50;

/// The limits of a transaction; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes written (`--max-bytes`).
    pub bytes: Option<u64>,
    /// Objects changed (`--max-objects`).
    pub objects: Option<u64>,
    /// Processes at a time (`--max-processes`).
    pub processes: Option<u64>,
    /// Bytes of memory that no other process shares (`--max-memory`).
    pub memory: Option<u64>,
}

impl Limits {
    /// Why so much may not have been written, if so.
    pub fn of_written(&self, bytes: u64, objects: u64) -> Option<String> {
        let bytes = over(self.bytes, bytes, "bytes were written (--max-bytes)");
        bytes.or_else(|| over(self.objects, objects, "objects were changed (--max-objects)"))
    }

    fn counts_what_is_written(&self) -> bool {
        self.bytes.is_some() || self.objects.is_some()
    }

    /// Why a cap that was hit ends the transaction, if one was.
    fn of_caps(&self, hit: [bool; 2]) -> Option<String> {
        let [processes, memory] = hit.map(|hit| if hit { u64::MAX } else { 0 });
        self.of_processes(Usage { processes, memory })
    }

    fn of_processes(&self, usage: Usage) -> Option<String> {
        let count = over(self.processes, usage.processes, "processes ran (--max-processes)");
        count.or_else(|| over(self.memory, usage.memory, "bytes of memory (--max-memory)"))
    }
}

fn over(limit: Option<u64>, used: u64, what: &str) -> Option<String> {
    limit.filter(|limit| used > *limit).map(|limit| format!("more than {limit} {what}"))
}

/// Watches the upper layers of a view, and its processes.
#[derive(Debug)]
pub struct Watch {
    uppers: Vec<PathBuf>,
    limits: Limits,
    enter: u32,
    caps: Rc<Caps>,
    next: Instant,
}

impl Watch {
    /// Watches `layers` and the view below the process `enter`, which is in `caps`; with no limits
    /// there is nothing to look at.
    pub fn new(layers: &[Layer], limits: Limits, enter: u32, caps: Rc<Caps>) -> Watch {
        let uppers = layers.iter().filter_map(|layer| layer.upper.clone()).collect();
        Watch { uppers, limits, enter, caps, next: Instant::now() + SHORTEST }
    }

    /// When the next look is due.
    pub fn next_look(&self) -> Option<Instant> {
        (self.limits != Limits::default()).then_some(self.next)
    }

    /// Looks; gives the reason if more was used than allowed. `plants` are in the layers, and not of
    /// the transaction; `None` while the view is made, and nothing in the layers is.
    pub fn exceeded(&mut self, plants: Option<&Plants>) -> Option<String> {
        let begin = Instant::now();
        let mut reason = None;
        if self.limits.processes.is_some() || self.limits.memory.is_some() {
            reason = self.limits.of_processes(usage_below(self.enter));
            reason = reason.or_else(|| self.limits.of_caps(self.caps.hit()));
        }
        if let Some(plants) = plants.filter(|_| self.limits.counts_what_is_written()) {
            let planted = plants.in_place();
            let written = self.uppers.iter().map(|upper| written_below(upper, &planted));
            let (bytes, objects) = written.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            reason = reason.or_else(|| self.limits.of_written(bytes, objects));
        }
        self.next = Instant::now() + SHORTEST.max(begin.elapsed() * SHARE);
        reason
    }
}

/// The space that regular files below `dir` take in bytes, and how many objects there are, `planted` (by
/// device and inode) left out. Directories are not counted: many are only there to hold a change. What
/// vanishes meanwhile counts nothing.
fn written_below(dir: &Path, planted: &BTreeSet<(u64, u64)>) -> (u64, u64) {
    let Ok(entries) = fs::read_dir(dir) else { return (0, 0) };
    let of_entry = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => written_below(&entry.path(), planted),
        Ok(meta) if planted.contains(&(meta.dev(), meta.ino())) => (0, 0),
        Ok(meta) if meta.is_file() => (meta.blocks() * 512, 1),
        Ok(_) => (0, 1),
        Err(_) => (0, 0),
    };
    entries.flatten().map(of_entry).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    processes: u64,
    memory: u64,
}

/// What the processes of the view use: all that descends from `enter`, but not itself and init. Source:
/// proc_pid_stat(5), proc_pid_status(5).
fn usage_below(enter: u32) -> Usage {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) = parent_of(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut seen = BTreeSet::from([enter]);
    let mut open = children.get(&enter).cloned().unwrap_or_default();
    let inits: BTreeSet<u32> = open.iter().copied().collect();
    let mut usage = Usage::default();
    while let Some(pid) = open.pop() {
        if !seen.insert(pid) {
            continue;
        }
        open.extend(children.get(&pid).into_iter().flatten());
        if !inits.contains(&pid) {
            usage.processes += 1;
            usage.memory += own_memory(pid);
        }
    }
    usage
}

fn parent_of(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses can hold anything, parentheses too.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Memory of a process that is no file's, in bytes, also where it is swapped out.
fn own_memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes = |name: &str| {
        let field = text.lines().find_map(|line| line.strip_prefix(name));
        field.and_then(|field| field.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    (kilobytes("RssAnon:") + kilobytes("VmSwap:")) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(bytes: Option<u64>) -> Limits {
        Limits { bytes, ..Limits::default() }
    }

    #[test]
    fn counts_what_files_take() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), vec![1; 10_000]).unwrap();
        let layer = Layer {
            point: "/".into(),
            upper: Some(dir.path().into()),
            work: None,
            no_suid: false,
            no_exec: false,
            no_dev: false,
        };
        let layers = std::slice::from_ref(&layer);
        let watch = |limits| Watch::new(layers, limits, 0, Rc::default());
        let reason = watch(limits(Some(4096))).exceeded(Some(&Plants::default())).unwrap();
        assert!(reason.contains("4096") && reason.contains("--max-bytes"), "{reason}");
        assert_eq!(watch(limits(Some(1 << 20))).exceeded(Some(&Plants::default())), None);
        assert!(watch(limits(None)).next_look().is_none());
        let objects = Limits { objects: Some(0), ..Limits::default() };
        assert!(
            watch(objects).exceeded(Some(&Plants::default())).unwrap().contains("--max-objects")
        );
    }

    #[test]
    fn processes_are_found_below_their_ancestor() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sh -c 'sleep 30 & sleep 30; true'; true"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        // The shell is as `__enter`, its child as init.
        while usage_below(shell.id()).processes != 2 && begin.elapsed().as_secs() < 60 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let usage = usage_below(shell.id());
        let all = children_of(shell.id());
        for pid in all {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        shell.wait().unwrap();
        assert_eq!(usage.processes, 2);
        assert!(usage.memory > 0);
    }

    /// The descendants, the deepest first.
    fn children_of(pid: u32) -> Vec<rustix::process::Pid> {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let text = fs::read_to_string(path).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|word| word.parse::<i32>().ok());
        pids.flat_map(|pid| {
            let mut all = children_of(pid.unsigned_abs());
            all.extend(rustix::process::Pid::from_raw(pid));
            all
        })
        .collect()
    }
}
