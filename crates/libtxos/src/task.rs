//! Whether the process has other threads.
//!
//! A thread that has ended stays in the kernel's list for a moment, also when pthread_join(3) has returned
//! already: what it still does there does not concern the program any more. So the kernel's flags tell who
//! counts (proc_pid_stat(5)), and those that are about to leave are waited for.

use std::time::Duration;

use rustix::{fs::stat, io::Errno, process::Pid, thread::gettid};

use crate::sys;

/// `PF_EXITING` of a task's flags (linux/sched.h): it runs no code of the program any more.
const EXITING: u64 = 0x4;
/// How long to wait before looking again at one that is leaving.
const LOOK: Duration = Duration::from_micros(50);

/// What another thread of the process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Runs,
    /// It is about to leave.
    Leaves,
    /// It has left, and is in the list only because it was the first one.
    Left,
}

/// Whether this is the only thread of the process.
///
/// # Errors
/// If `/proc` is not mounted.
pub(crate) fn is_single_threaded() -> Result<bool, Errno> {
    loop {
        // A directory for each, besides "." and "..".
        if stat("/proc/self/task")?.st_nlink == 3 {
            return Ok(true);
        }
        let others = others()?;
        if others.contains(&Other::Runs) {
            return Ok(false);
        }
        if !others.contains(&Other::Leaves) {
            return Ok(true);
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether no other thread of the process has the calling thread's table of descriptors: it has left the one
/// that threads share (`unshare(CLONE_FILES)`), and whatever it does in its own nobody else sees. Only a thread
/// that it starts itself could come to share it.
///
/// # Errors
/// If `/proc` is not mounted.
pub(crate) fn has_own_table() -> Result<bool, Errno> {
    let me = gettid();
    let others = numbers()?.into_iter().filter(|task| *task != me);
    Ok(!others.into_iter().any(|task| sys::shares_table(me, task)))
}

/// The threads of the process.
fn numbers() -> Result<Vec<Pid>, Errno> {
    let entries = std::fs::read_dir("/proc/self/task")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let number = |name: std::ffi::OsString| name.to_str()?.parse().ok().and_then(Pid::from_raw);
    Ok(entries.flatten().filter_map(|entry| number(entry.file_name())).collect())
}

fn others() -> Result<Vec<Other>, Errno> {
    let me = gettid();
    let others = numbers()?.into_iter().filter(|task| *task != me);
    // One whose entry cannot be read has gone.
    let stat = |task: Pid| format!("/proc/self/task/{}/stat", task.as_raw_pid());
    let texts = others.filter_map(|task| std::fs::read_to_string(stat(task)).ok());
    Ok(texts.map(|text| other(&text)).collect())
}

/// From the text of `/proc/PID/task/TID/stat`.
fn other(stat: &str) -> Other {
    // The name may hold anything, also brackets and blanks.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    match state {
        Some("Z" | "X") => Other::Left,
        _ if flags & EXITING != 0 => Other::Leaves,
        _ => Other::Runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_who_leaves() {
        let of = |state: &str, flags: u64| other(&format!("7 (a) b) {state} 1 2 3 4 5 {flags} 0"));
        assert_eq!(of("S", 0x40_0040), Other::Runs);
        assert_eq!(of("R", 0x40_0044), Other::Leaves);
        assert_eq!(of("Z", 0x40_004c), Other::Left);
        assert_eq!(other(""), Other::Runs);
    }

    #[test]
    fn this_thread_runs() {
        let text = std::fs::read_to_string("/proc/thread-self/stat").expect("this thread");
        assert_eq!(other(&text), Other::Runs);
    }
}
