//! fanotify: changes by outsiders are heard of while a transaction runs. Safety does not rest on
//! it (validation at commit is what it rests on), early doom does.

use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::child::{At, Failed};
use crate::report::Probe;
use crate::sys;

pub(super) const NAME: &str = "fanotify";

const GROUP: libc::c_uint = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;

/// A whole-file-system mark with directory entries and pidfds, or what is left of it.
pub(super) fn probe(scratch: &Path) -> Probe {
    let named = GROUP | libc::FAN_REPORT_DFID_NAME;
    let system = libc::FAN_MARK_FILESYSTEM;
    match attempt(scratch, "full", named | libc::FAN_REPORT_PIDFD, system) {
        Ok(()) => Probe::ok(NAME, "whole-file-system mark with directory entries and pidfd: heard"),
        Err(full) => match attempt(scratch, "named", named, system) {
            Ok(()) => Probe::limited(
                NAME,
                format!("no pidfd in events ({full}): who changed something is not known"),
                "Linux 5.15 or newer",
            ),
            Err(_) => match attempt(scratch, "inode", named, 0) {
                Ok(()) => Probe::limited(
                    NAME,
                    format!(
                        "no whole-file-system mark ({full}): an outside change is noticed at \
                         commit, not early"
                    ),
                    "run txos as root",
                ),
                Err(failed) => Probe::missing(
                    NAME,
                    format!("{failed}: an outside change is noticed at commit, not early"),
                    "run txos as root on Linux 5.9 or newer with CONFIG_FANOTIFY",
                ),
            },
        },
    }
}

/// Marks, makes a file, and waits for the event.
fn attempt(dir: &Path, file: &str, group: u32, mark: u32) -> Result<(), Failed> {
    let group = sys::fanotify_init(group).at("fanotify_init")?;
    let mask = libc::FAN_CREATE | libc::FAN_ONDIR | libc::FAN_EVENT_ON_CHILD;
    sys::fanotify_add(&group, mark, mask, dir).at("fanotify_mark")?;
    std::fs::write(dir.join(file), "")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .at("create")?;
    let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&group, PollFlags::IN)], Some(&patience)) {
        Ok(0) => Err(Errno::TIMEDOUT).at("event"),
        other => other.at("poll").map(drop),
    }
}
