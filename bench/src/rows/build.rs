//! Building and configuring nano.

use std::process::Command;

use anyhow::Result;

use crate::context::Context;
use crate::inputs::{copy, nano, nano_configured};
use crate::measure::{pairs, run};
use crate::report::Figure;

/// A directory for the compiler's temporary files: it looks at the one that it is given, and in
/// `/tmp` everybody's files come and go.
fn own_temporary(context: &Context, command: &mut Command) -> Result<()> {
    let dir = context.work.join("tmp");
    std::fs::create_dir_all(&dir)?;
    command.env("TMPDIR", dir);
    Ok(())
}

/// `make -j2` in a configured tree.
pub fn make(context: &Context) -> Result<Vec<Figure>> {
    let source = nano_configured(context)?;
    let [pairs] = pairs(context, context.rounds, |inside| {
        let mut command = Command::new("make");
        command.arg("-j2").current_dir(copy(context, &source, "nano")?);
        own_temporary(context, &mut command)?;
        let run = run(if inside { context.transaction(&[], &command) } else { command })?;
        Ok([run.wall.as_secs_f64()])
    })?;
    Ok(vec![Figure::ratio("build of nano, `make -j2`", pairs, 1.05).note(version(context)?)])
}

/// The seconds of `make -j2` without a transaction.
pub fn natively(context: &Context) -> Result<f64> {
    let source = nano_configured(context)?;
    let mut command = Command::new("make");
    command.arg("-j2").current_dir(copy(context, &source, "nano")?);
    own_temporary(context, &mut command)?;
    Ok(run(command)?.wall.as_secs_f64())
}

/// `./configure` in a clean tree.
pub fn configure(context: &Context) -> Result<Vec<Figure>> {
    let source = nano(context)?;
    let [pairs] = pairs(context, context.rounds, |inside| {
        let mut command = Command::new("./configure");
        command.current_dir(copy(context, &source, "nano")?);
        own_temporary(context, &mut command)?;
        let run = run(if inside { context.transaction(&[], &command) } else { command })?;
        Ok([run.wall.as_secs_f64()])
    })?;
    Ok(vec![Figure::ratio("`configure` of nano", pairs, 1.2).note(version(context)?)])
}

/// The directory's name, as "nano-7.2".
fn version(context: &Context) -> Result<String> {
    let source = nano(context)?;
    Ok(source.file_name().unwrap_or_default().to_string_lossy().into_owned())
}
