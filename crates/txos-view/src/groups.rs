use std::{fs, path::Path};

use rustix::io::Errno;

use crate::{Result, ViewError, ViewSpec};

/// Joins the control groups of the view, before anything is forked: whoever came later to be moved
/// in from outside would miss the processes that there are by then.
///
/// Where the hierarchy has a file `tasks` (version 1), the calling thread writes itself there. That
/// is the one way of joining that does not stop all processes of the machine from forking first,
/// which takes an RCU grace period, some 10 ms (`cgroup_procs_write_start` in
/// `kernel/cgroup/cgroup.c`). The calling process has one thread.
pub(crate) fn join(spec: &ViewSpec) -> Result<()> {
    spec.groups.iter().try_for_each(|group| {
        let failed = |error: std::io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ViewError::step(format!("join the control group {}", group.display()), errno)
        };
        match join_in(group, "tasks") {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                join_in(group, "cgroup.procs").map_err(failed)
            }
            other => other.map_err(failed),
        }
    })
}

/// Writes 0, the writer itself, to a file that is there.
fn join_in(group: &Path, file: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(group.join(file))?;
    std::io::Write::write_all(&mut file, b"0")
}
