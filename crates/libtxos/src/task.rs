//! Whether the process has other threads.
//!
//! A thread that has ended stays in the kernel's list for a moment, also when pthread_join(3) has returned
//! already: what it still does there does not concern the program any more. So the kernel's flags tell who
//! counts (proc_pid_stat(5)), and those that are about to leave are waited for.

use std::{collections::HashMap, time::Duration};

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

/// The other threads of the process, as long as they have had no chance to go on: on a busy machine one
/// that could run may have to wait long.
#[derive(Debug)]
pub(crate) struct Others(HashMap<String, u64>);

/// Time of the processor, in nanoseconds, in which a thread could have done what it was about to.
const CHANCE: u64 = 5_000_000;

impl Others {
    /// All but the calling thread and `program`.
    ///
    /// # Errors
    /// If `/proc` is not mounted.
    pub(crate) fn look(program: Pid) -> Result<Others, Errno> {
        let not = [gettid(), program].map(|task| task.as_raw_pid().to_string());
        let entries = std::fs::read_dir("/proc/self/task")
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let others = names.filter(|name| !not.contains(name));
        Ok(Others(others.filter_map(|name| Some((name.clone(), has_run(&name)?))).collect()))
    }

    /// Strikes those off that have run for long enough, sleep, or have gone.
    pub(crate) fn strike(&mut self) {
        self.0.retain(|task, before| {
            let stat = std::fs::read_to_string(format!("/proc/self/task/{task}/stat"));
            let waits = stat.is_ok_and(|stat| matches!(state(&stat), Some("R" | "D")));
            waits && has_run(task).is_some_and(|now| now.saturating_sub(*before) < CHANCE)
        });
    }

    /// Whether nobody is left.
    pub(crate) fn had_their_chance(&self) -> bool {
        self.0.is_empty()
    }
}

/// How long a thread has run, in nanoseconds (proc_pid_schedstat(5)).
fn has_run(task: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{task}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The state in the text of `/proc/PID/task/TID/stat`.
fn state(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').next()
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
