//! One directory whose generations transactions make, and what must hold of it whatever is killed.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::generation;

/// The programs under test, and their state directory.
#[derive(Clone, Debug)]
pub struct Bench {
    /// `txos`.
    pub txos: PathBuf,
    /// `generation`.
    pub worker: PathBuf,
    /// The state directory.
    pub state: PathBuf,
}

impl Bench {
    /// A `txos` with these words.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.txos);
        command
            .args(words)
            .env("TXOS_STATE", &self.state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Recovers, and says what that said.
    ///
    /// # Errors
    /// If it fails.
    pub fn recover(&self) -> Result<String> {
        let output = self.command(&["recover"]).stderr(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "txos recover: {}: {text}", output.status);
        Ok(text)
    }
}

/// A directory, and the generation that it must show.
#[derive(Debug)]
pub struct Trial {
    bench: Bench,
    root: PathBuf,
    /// What it shows; `None` before the first.
    pub generation: Option<u64>,
}

impl Trial {
    /// One at `root`, which is absent.
    pub fn new(bench: &Bench, root: PathBuf) -> Trial {
        Trial { bench: bench.clone(), root, generation: None }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The generation that the next commit makes.
    pub fn next(&self) -> u64 {
        self.generation.map_or(0, |generation| generation + 1)
    }

    /// Starts the transaction that makes the next generation, with `options` of `txos run`. If
    /// `fails`, its command fails after it has made all changes.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start(&self, options: &[&str], fails: bool) -> Result<Child> {
        self.spawn(self.command(options, fails))
    }

    /// As [`Trial::start`], with standard error in a pipe.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn start_telling(&self, options: &[&str]) -> Result<Child> {
        let mut command = self.command(options, false);
        command.stderr(Stdio::piped());
        self.spawn(command)
    }

    fn spawn(&self, mut command: Command) -> Result<Child> {
        command.spawn().with_context(|| format!("cannot start {}", self.bench.txos.display()))
    }

    fn command(&self, options: &[&str], fails: bool) -> Command {
        let mut words = vec!["run", "-q"];
        words.extend(options);
        words.extend(["--", "sh", "-c"]);
        let script =
            format!("\"$0\" apply {} \"$1\"{}", self.next(), if fails { "; exit 9" } else { "" });
        let mut command = self.bench.command(&words);
        command.arg(script).arg(&self.bench.worker).arg(&self.root);
        command
    }

    /// Holds what is there against what a transaction may have left: `committed` if it must have
    /// committed, or must not have; `None` if it may have.
    ///
    /// # Errors
    /// If something else is there.
    pub fn check(&mut self, committed: Option<bool>) -> Result<()> {
        let found = generation::check(&self.root)?;
        let (old, new) = (self.generation, Some(self.next()));
        match committed {
            Some(true) => ensure!(found == new, "{new:?} committed, and {found:?} is there"),
            Some(false) => ensure!(found == old, "{new:?} did not commit, and {found:?} is there"),
            None => ensure!(found == old || found == new, "{found:?}: not {old:?}, nor {new:?}"),
        }
        self.generation = found;
        Ok(())
    }
}

/// Waits for a child for so long.
///
/// # Errors
/// If it has not ended by then: a transaction hangs.
pub fn ended(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > until {
            let pid = child.id();
            bail!("process {pid} (txos run) has not ended after {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
