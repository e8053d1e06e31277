//! git over a tree of 10,000 files.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::context::Context;
use crate::inputs::{copy, done, repository};
use crate::measure::{pairs, run};
use crate::report::Figure;

const FILES: usize = 10_000;

fn git(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(args).current_dir(dir);
    command
}

/// `git status` in a clean work tree whose index is fresh.
pub fn status(context: &Context) -> Result<Vec<Figure>> {
    let dir = copy(context, &repository(context, FILES)?, "repository")?;
    done(&mut git(&dir, &["checkout", "-q", "full"]))?;
    let [pairs] = pairs(context, context.short_rounds, |inside| {
        // Without --no-optional-locks the first one would write the index for the later ones.
        let command = git(&dir, &["--no-optional-locks", "status", "--porcelain"]);
        let run = run(if inside { context.transaction(&[], &command) } else { command })?;
        anyhow::ensure!(run.stdout.is_empty(), "git status shows changes: {}", run.stdout);
        Ok([run.wall.as_secs_f64()])
    })?;
    Ok(vec![Figure::ratio("`git status` over 10,000 files", pairs, 1.5)])
}

/// `git checkout` from an empty branch to one with all the files.
pub fn checkout(context: &Context) -> Result<Vec<Figure>> {
    let dir = copy(context, &repository(context, FILES)?, "repository")?;
    let [pairs] = pairs(context, context.rounds + 2, |inside| {
        done(&mut git(&dir, &["checkout", "-q", "empty"]))?;
        rustix::fs::sync();
        let command = git(&dir, &["checkout", "-q", "full"]);
        let run = run(if inside { context.transaction(&[], &command) } else { command })?;
        Ok([run.wall.as_secs_f64()])
    })?;
    Ok(vec![Figure::ratio("`git checkout` of 10,000 files", pairs, 1.5).note("commit included")])
}
