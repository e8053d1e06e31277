//! Installing packages: dpkg in a small system of its own, so that this machine keeps its packages.

use std::fs;
use std::process::Command;

use anyhow::Result;

use crate::context::Context;
use crate::inputs::{copy, system};
use crate::measure::{pairs, run};
use crate::report::Figure;

const MANUAL_PAGES: usize = 20_000;

/// `chroot SYSTEM dpkg -i /debs/*.deb`; inside, the chroot is in the transaction's view.
pub fn install(context: &Context) -> Result<Vec<Figure>> {
    let source = system(context, MANUAL_PAGES)?;
    let count = fs::read_dir(source.join("debs"))?.count();
    let [pairs] = pairs(context, context.rounds, |inside| {
        let root = copy(context, &source, "system")?;
        let mut command = Command::new("chroot");
        command.arg(&root).args(["sh", "-c", "dpkg -i /debs/*.deb"]);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let run = run(if inside { context.transaction(&[], &command) } else { command })?;
        Ok([run.wall.as_secs_f64()])
    })?;
    let what = format!("`dpkg -i` of openssh-server, {count} packages, with the man-db trigger");
    Ok(vec![Figure::ratio(what, pairs, 1.15).note("without making host keys")])
}
