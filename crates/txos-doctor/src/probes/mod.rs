//! One file for each family of mechanisms; here only their order.

mod cgroup;
mod fanotify;
mod files;
mod fuse;
mod limits;
mod namespaces;
mod overlay;
mod seccomp;
mod state_dir;
mod times;

use std::path::Path;

use crate::report::Probe;
use crate::scratch::Scratch;

/// Runs all of them. Without a scratch directory those that need one say so.
pub(crate) fn all(state_dir: &Path, scratch: Option<&Scratch>) -> Vec<Probe> {
    let place = |name: &'static str, probe: &dyn Fn(&Path) -> Probe| match scratch {
        Some(scratch) => probe(scratch.path()),
        None => Probe::missing(
            name,
            format!("not tried: no directory can be made at {}", state_dir.display()),
            "set TXOS_STATE to a directory that you can write",
        ),
    };
    let mut probes = vec![
        state_dir::probe(state_dir, scratch.is_some()),
        namespaces::user(),
        namespaces::user_unprivileged(),
        namespaces::mount(),
        namespaces::pid(),
        place(overlay::ROOT, &overlay::as_root),
        place(overlay::USER, &overlay::in_user_namespace),
        fuse::device(),
        place(fuse::ROOT, &fuse::as_root),
        place(fuse::USER, &fuse::in_user_namespace),
        fuse::over_uring(),
        place(fanotify::NAME, &fanotify::probe),
        cgroup::freezer(),
        seccomp::notification(),
        seccomp::sync_wake_up(),
        place(files::OPENAT2, &files::openat2),
        place(files::TMPFILE, &files::tmpfile),
        place(files::LEASE, &files::lease),
        place(files::BIRTH_TIME, &files::birth_time),
        limits::landlock(),
        limits::open_files(),
    ];
    probes.extend(times::granularity(state_dir, scratch));
    probes
}
