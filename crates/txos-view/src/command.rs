//! The command's own process, up to `execve(2)`.

use std::{
    os::fd::OwnedFd,
    process::{Command, exit},
};

use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, setpgid, setrlimit},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
};

use crate::{
    BeforeExec, Channel, FromView, Result, ViewError, ViewSpec, capabilities, handover::Giver, sys,
};

/// Prepares the process and executes the command; never returns.
pub(crate) fn execute(
    spec: &ViewSpec,
    channel: &Channel,
    terminal: Option<OwnedFd>,
    giver: Giver,
    before_exec: &mut BeforeExec<'_>,
) -> ! {
    let prepared = prepare(spec, terminal.as_ref())
        .map_err(|error| error.to_string())
        .and_then(|()| before_exec(channel))
        .and_then(|listener| match listener {
            Some(listener) => giver.give(&listener).map_err(|error| error.to_string()),
            None => Ok(()),
        })
        // Last, since installing the filter still needs a capability that goes here.
        .and_then(|()| capabilities::drop_dangerous(spec).map_err(|error| error.to_string()));
    if let Err(message) = prepared {
        let _ = channel.send(&FromView::Failed { message }, None);
        exit(125);
    }
    let Some((program, arguments)) = spec.command.split_first() else { exit(125) };
    // Std has emptied the mask and changed SIGPIPE by then: the state is set in its last step.
    let error = sys::execute(Command::new(program).args(arguments), spec.signals);
    let errno = error.raw_os_error().unwrap_or_else(|| Errno::INVAL.raw_os_error());
    let _ = channel.send(&FromView::ExecFailed { errno }, None);
    exit(if errno == Errno::NOENT.raw_os_error() { 127 } else { 126 })
}

fn prepare(spec: &ViewSpec, terminal: Option<&OwnedFd>) -> Result<()> {
    close_inherited(&spec.pass_fds)?;
    let streams = |errno| ViewError::step("set up the standard streams", errno);
    // Init does it too: whoever comes first.
    setpgid(None, None).map_err(|errno| ViewError::step("begin a process group", errno))?;
    if let Some(terminal) = terminal {
        let [input, output, errors] = spec.terminal;
        if input {
            dup2_stdin(terminal).map_err(streams)?;
        }
        if output {
            dup2_stdout(terminal).map_err(streams)?;
        }
        if errors {
            dup2_stderr(terminal).map_err(streams)?;
        }
    }
    // A core dump is written by the kernel, outside the view. A limit of 1 byte also stops dumps
    // into a pipe (core(5)), which a limit of 0 does not.
    let limit = Rlimit { current: Some(1), maximum: Some(1) };
    setrlimit(Resource::Core, limit)
        .map_err(|errno| ViewError::step("switch core dumps off", errno))?;
    rustix::process::chdir(&spec.directory).map_err(|errno| {
        let step = format!("change to the working directory {}", spec.directory.display());
        ViewError::step(step, errno).with_remedy(
            "start from another directory: the state directory and what /proc shows of processes \
             outside are not in a view",
        )
    })
}

/// Marks every descriptor but the standard streams and `keep` as closed on exec.
fn close_inherited(keep: &[i32]) -> Result<()> {
    let failed = |errno| ViewError::step("close inherited descriptors", errno);
    let entries = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let fds: Vec<i32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in fds {
        let flags = if keep.contains(&fd) { FdFlags::empty() } else { FdFlags::CLOEXEC };
        match fcntl_setfd(sys::borrow(fd), flags) {
            // The descriptor of the directory listing itself is closed again.
            Ok(()) | Err(Errno::BADF) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}
