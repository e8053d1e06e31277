//! What is known of the processes of a domain: who must not be frozen, and who does not freeze.

use std::{
    fs,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::{
    fs::{fstat, major, minor},
    termios::isatty,
};

use crate::Group;

/// Why a process must not be frozen while a commit applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It is txos itself.
    Txos,
    /// It serves a FUSE file system (holds `/dev/fuse` open): whoever reads there waits for it, cannot
    /// be frozen meanwhile, and would make a commit wait that writes there.
    FuseServer,
    /// It decides by fanotify about other processes' opens.
    PermissionListener,
    /// It shows the terminal that txos writes to.
    Terminal,
}

impl Obstacle {
    /// Why, for a person.
    pub fn reason(&self) -> &'static str {
        match self {
            Obstacle::Txos => "is txos itself",
            Obstacle::FuseServer => "serves a FUSE file system, for which a commit could wait",
            Obstacle::PermissionListener => {
                "decides by fanotify about opens, for which a commit could wait"
            }
            Obstacle::Terminal => "shows the terminal that txos writes to",
        }
    }
}

/// The first reason, if there is one, not to freeze `pid` while this process commits.
pub fn obstacle(pid: u32) -> Option<Obstacle> {
    obstacle_to(pid, &own_terminals())
}

/// Those of `pids` that must not be frozen, and why.
pub fn obstacles(pids: &[u32]) -> Vec<(u32, Obstacle)> {
    let terminals = own_terminals();
    pids.iter().filter_map(|pid| Some((*pid, obstacle_to(*pid, &terminals)?))).collect()
}

/// A process as people know it: `123 (bash)`.
pub fn shown(pid: u32) -> String {
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{pid} ({})", name.trim_end()),
        Err(_) => format!("{pid} (ended)"),
    }
}

fn obstacle_to(pid: u32, terminals: &[u32]) -> Option<Obstacle> {
    if pid == std::process::id() {
        return Some(Obstacle::Txos);
    }
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    for entry in fds.flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let number = entry.file_name();
        let info = || {
            let path = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(&number);
            fs::read_to_string(path).unwrap_or_default()
        };
        match target.to_str() {
            Some("/dev/fuse") => return Some(Obstacle::FuseServer),
            Some("anon_inode:[fanotify]") if asks_permission(&info()) => {
                return Some(Obstacle::PermissionListener);
            }
            Some("/dev/ptmx" | "/dev/pts/ptmx")
                if shows_terminal(&info()).is_some_and(|index| terminals.contains(&index)) =>
            {
                return Some(Obstacle::Terminal);
            }
            _ => {}
        }
    }
    None
}

/// Whether a fanotify group is of a class that decides (`FAN_CLASS_CONTENT`, 4, or
/// `FAN_CLASS_PRE_CONTENT`, 8): `fanotify flags:…` in `proc_pid_fdinfo(5)`.
fn asks_permission(info: &str) -> bool {
    let flags = info.lines().find_map(|line| {
        let flags = line.strip_prefix("fanotify flags:")?.split(' ').next()?;
        u32::from_str_radix(flags, 16).ok()
    });
    flags.is_some_and(|flags| flags & 0xc != 0)
}

/// The number of the terminal whose master side this is.
fn shows_terminal(info: &str) -> Option<u32> {
    info.lines().find_map(|line| line.strip_prefix("tty-index:")?.trim().parse().ok())
}

/// The numbers of the pseudo terminals that this process's standard streams are.
fn own_terminals() -> Vec<u32> {
    fn number(stream: impl AsFd) -> Option<u32> {
        if !isatty(&stream) {
            return None;
        }
        let device = fstat(stream).ok()?.st_rdev;
        // Unix 98 terminals: majors 136 to 143, 256 each... and since long one major with all minors.
        let major = major(device);
        (136..=143).contains(&major).then(|| (major - 136) * 256 + minor(device))
    }
    [number(std::io::stdin()), number(std::io::stdout()), number(std::io::stderr())]
        .into_iter()
        .flatten()
        .collect()
}

/// A member that does not stand still: it waits in the kernel, uninterruptibly (`D`).
pub(crate) fn stuck(group: &Group) -> Option<String> {
    let pids = group.processes().ok()?;
    let waits = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        threads.flatten().find_map(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
            let (_, after) = stat.rsplit_once(") ")?;
            after.starts_with('D').then(|| {
                let place = fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
                match place.as_str() {
                    "" | "0" => format!("process {} waits in the kernel", shown(*pid)),
                    place => format!("process {} waits in the kernel, in {place}", shown(*pid)),
                }
            })
        })
    };
    pids.iter().find_map(waits)
}

/// Whether two processes are in the same mount of `/proc` as seen from here, and alive.
pub(crate) fn alive(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.is_dir() && meta.ino() != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_decide_are_told_from_those_that_listen() {
        assert!(!asks_permission("pos:\t0\nfanotify flags:610 event-flags:0\n"));
        assert!(asks_permission("fanotify flags:4 event-flags:8000\n"));
        assert!(asks_permission("fanotify flags:18 event-flags:0\n"));
        assert!(!asks_permission("pos:\t0\n"));
    }

    #[test]
    fn the_number_of_a_terminal() {
        assert_eq!(shows_terminal("pos:\t0\ntty-index:\t7\n"), Some(7));
        assert_eq!(shows_terminal("pos:\t0\n"), None);
    }

    #[test]
    fn this_process_is_txos() {
        assert_eq!(obstacle(std::process::id()), Some(Obstacle::Txos));
        assert_eq!(obstacles(&[u32::MAX]), []);
    }
}
