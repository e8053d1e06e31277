//! Pid 1 of the view: starts the command, passes signals on, reaps, and tells when all have ended.
//!
//! It leads the session, as a shell does outside, and the command leads a group in it, which has the
//! terminal: so a key stops the command, and init learns of it. (The group of a session's own leader is
//! orphaned: the kernel stops it by no key.)

use std::{
    fs,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, read},
    process::{
        DumpableBehavior, Pid, Signal, WaitOptions, ioctl_tiocsctty, kill_process,
        kill_process_group, set_dumpable_behavior, setpgid, setsid, wait as wait_any,
    },
    termios::tcsetpgrp,
};

use crate::{
    AtEnd, BeforeExec, Channel, FromView, Result, ToView, ViewError, ViewSpec, command,
    handover::Handover, mounted::Mounts, mounts, numbers::Numbers, sys,
};

pub(crate) fn run(
    spec: &ViewSpec,
    channel: &Channel,
    before_exec: &mut BeforeExec<'_>,
    at_end: &mut AtEnd<'_>,
) -> Result<()> {
    let terminal = mounts::assemble(spec, channel)?;
    // From here on no process of the view can trace init or look into it (ptrace(2)).
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| ViewError::step("protect init of the view", errno))?;
    channel.send(&FromView::Ready, None)?;
    match channel.receive::<ToView>()? {
        Some((ToView::Go, _)) => {}
        Some((other, _)) => return Err(ViewError::Message(format!("{other:?} before Go"))),
        None => return Err(ViewError::Gone("manager")),
    }
    let children =
        sys::child_events().map_err(|errno| ViewError::step("watch child processes", errno))?;
    let handover = Handover::new()?;
    let numbers = Numbers::new();
    let mounts = Mounts::now();
    begin_session(terminal.as_ref())?;
    match sys::fork().map_err(|errno| ViewError::step("fork the command", errno))? {
        sys::Forked::Child => {
            command::execute(spec, channel, terminal, handover.giver(), before_exec)
        }
        sys::Forked::Parent(pid) => {
            let leader = Pid::from_raw(pid)
                .ok_or_else(|| ViewError::Message("fork gave no pid".to_owned()))?;
            to_foreground(leader, terminal.as_ref())?;
            handover.pass_on(leader, channel)?;
            supervise(leader, channel, &children, &numbers)?;
            // Not before: members that all close it for a moment would else hang it up, which nobody
            // outside would do to a command that runs on.
            drop(terminal);
            if let Some(left) = at_end(mounts.added()).map_err(ViewError::Message)? {
                channel.send(&FromView::Left, Some(left.as_fd()))?;
            }
            channel.send(&FromView::Ended, None)
        }
    }
}

fn begin_session(terminal: Option<&OwnedFd>) -> Result<()> {
    setsid().map_err(|errno| ViewError::step("begin a session", errno))?;
    match terminal {
        Some(terminal) => ioctl_tiocsctty(terminal)
            .map_err(|errno| ViewError::step("take the controlling terminal", errno)),
        None => Ok(()),
    }
}

/// Gives the command a group of its own, and that the terminal. The command waits in the meantime, for
/// its filter to be handed over.
fn to_foreground(leader: Pid, terminal: Option<&OwnedFd>) -> Result<()> {
    let failed = |errno| ViewError::step("begin the command's process group", errno);
    match setpgid(Some(leader), Some(leader)) {
        // It has failed already, and says why.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(failed(errno)),
    }
    match terminal.map(|terminal| tcsetpgrp(terminal, leader)) {
        None | Some(Ok(()) | Err(Errno::SRCH | Errno::PERM)) => Ok(()),
        Some(Err(errno)) => Err(failed(errno)),
    }
}

/// Reaps until no process is left, passing on what the manager says meanwhile.
fn supervise(leader: Pid, channel: &Channel, children: impl AsFd, numbers: &Numbers) -> Result<()> {
    let mut leader_lives = true;
    loop {
        loop {
            match wait_any(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if status.stopped() => {
                    if pid == leader {
                        channel.send(&FromView::Stopped, None)?;
                    }
                }
                Ok(Some((pid, status))) if pid == leader => {
                    leader_lives = false;
                    channel.send(&FromView::Exited { status: status.as_raw() }, None)?;
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(Errno::CHILD) => return Ok(()),
                Err(errno) => return Err(ViewError::step("wait for processes", errno)),
            }
        }
        if !leader_lives {
            let names = names_of_processes();
            if !names.is_empty() {
                channel.send(&FromView::Lingering { names }, None)?;
            }
        }
        wait(leader, channel, &children, numbers)?;
    }
}

/// Waits for a child to end or the manager to speak.
fn wait(leader: Pid, channel: &Channel, children: impl AsFd, numbers: &Numbers) -> Result<()> {
    let mut fds = [
        PollFd::new(channel, PollFlags::IN),
        PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN),
    ];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(ViewError::step("wait for events", errno)),
    }
    let told = !fds[0].revents().is_empty();
    if !fds[1].revents().is_empty() {
        let mut space = [0u8; 1024];
        let _ = read(children.as_fd(), &mut space);
    }
    if told {
        match channel.receive::<ToView>()? {
            Some((ToView::Signal { signal }, _)) => pass_on(leader, signal),
            Some((ToView::Numbers, _)) => {
                channel.send(&FromView::Numbers { used_up_to: numbers.used_up_to() }, None)?;
            }
            Some((ToView::Go, _)) => {}
            None => return Err(ViewError::Gone("manager")),
        }
    }
    Ok(())
}

fn pass_on(leader: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        // The group where the command leads one, else the command alone; it may be gone already.
        let _ = kill_process_group(leader, signal).or_else(|_| kill_process(leader, signal));
    }
}

fn names_of_processes() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u32| *pid != 1)
        .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}
