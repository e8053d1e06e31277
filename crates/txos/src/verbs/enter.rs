//! The hidden verb that a fresh process runs to make the view (see `txos_view::enter`).

use std::{
    fs::File,
    io::{Read, Seek},
    os::fd::{AsFd, OwnedFd, RawFd},
};

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use txos_effects::{Policy, filter::Filter, ipc, streams::ChildPlan};
use txos_view::{Channel, FromView, ViewSpec};

use crate::{exit::Exit, inherited};

/// Options of the hidden verb.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Descriptor of the specification
    spec: RawFd,
    /// Descriptor of the connection to the manager
    control: RawFd,
}

/// What the manager passes to the fresh process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Enter {
    /// The view.
    pub view: ViewSpec,
    /// What the system call filter lets through.
    pub policy: Policy,
    /// What is to be done with the standard streams.
    pub streams: ChildPlan,
}

/// Makes the view and runs the command in it.
pub fn run(args: Args) -> Result<Exit> {
    let mut text = String::new();
    File::from(inherited::descriptor(args.spec))
        .read_to_string(&mut text)
        .context("read the specification")?;
    let enter: Enter = serde_json::from_str(&text).context("understand the specification")?;
    // Before anything is opened that could take their numbers.
    let control = enter.streams.out_of_the_way(inherited::descriptor(args.control))?;
    enter.streams.reserve()?;
    let channel = Channel::from_fd(control);
    let mut prepare = |channel: &Channel| prepare(&enter, channel).map_err(|e| format!("{e:#}"));
    let mut at_end = |mounted| left(mounted).map_err(|e| format!("{e:#}"));
    let status = txos_view::enter(&enter.view, &channel, &mut prepare, &mut at_end);
    Ok(Exit::Command(status))
}

/// The last steps in the command's process: its session, its input, its filter.
fn prepare(enter: &Enter, channel: &Channel) -> Result<Option<OwnedFd>> {
    enter.streams.settle()?;
    if let Some(stdin) = enter.streams.open_stdin()? {
        channel.send(&FromView::Stdin, Some(stdin.as_fd()))?;
    }
    for (number, file) in enter.streams.open_others()? {
        channel.send(&FromView::File { number }, Some(file.as_fd()))?;
    }
    Ok(Some(Filter::new(&enter.policy).install()?))
}

/// What the last processes left in the view's IPC namespace and in file systems that they mounted, as a
/// file; `None` for nothing.
fn left(mounted: Vec<String>) -> Result<Option<OwnedFd>> {
    let mut left = ipc::collect().context("look what is left of communication")?;
    left.gone.extend(mounted);
    if left == ipc::Left::default() {
        return Ok(None);
    }
    let fd = memfd_create("txos-left", MemfdFlags::CLOEXEC).context("make a memory file")?;
    let mut file = File::from(fd);
    serde_json::to_writer(&mut file, &left).context("write what is left")?;
    file.rewind().context("write what is left")?;
    Ok(Some(file.into()))
}
