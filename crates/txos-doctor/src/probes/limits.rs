//! Limits of the process, and Landlock.

use rustix::process::{Resource, getrlimit};

use crate::report::Probe;
use crate::sys;

const LANDLOCK: &str = "Landlock";
const OPEN_FILES: &str = "open files";

/// Fewer descriptors than this are too few for a run with many parallel commands.
const ENOUGH_FILES: u64 = 4096;

/// Which version of Landlock is there?
pub(super) fn landlock() -> Probe {
    match sys::landlock_version() {
        Ok(version) => Probe::ok(LANDLOCK, format!("version {version}")),
        Err(errno) => Probe::limited(
            LANDLOCK,
            format!("landlock_create_ruleset: {errno}; no transaction depends on it"),
            "start the kernel with landlock in its lsm= list",
        ),
    }
}

/// How many descriptors may a process have?
pub(super) fn open_files() -> Probe {
    let limit = getrlimit(Resource::Nofile);
    let text = |value: Option<u64>| value.map_or("unlimited".to_owned(), |value| value.to_string());
    let detail = format!("soft limit {}, hard limit {}", text(limit.current), text(limit.maximum));
    if limit.maximum.is_none_or(|maximum| maximum >= ENOUGH_FILES) {
        Probe::ok(OPEN_FILES, detail)
    } else {
        Probe::limited(OPEN_FILES, detail, format!("ulimit -Hn {ENOUGH_FILES} or more"))
    }
}
