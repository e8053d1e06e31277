//! Where a measurement finds its inputs, does its work, and leaves its results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// The places of one invocation, and how many rounds it makes.
pub struct Context {
    /// The binary that is measured.
    pub txos: PathBuf,
    /// Results.
    pub out: PathBuf,
    /// Inputs that are kept between invocations.
    pub cache: PathBuf,
    /// Scratch, emptied after each row, on the file system of the cache.
    pub work: PathBuf,
    /// A state directory of this invocation's own.
    state: PathBuf,
    /// Pairs that a row of long commands makes.
    pub rounds: usize,
    /// Pairs that a row of short commands makes.
    pub short_rounds: usize,
    /// When a row stops making pairs, whatever its rounds.
    pub row_budget: Duration,
}

impl Context {
    /// Makes the directories below `out` and finds the binary.
    pub fn new(out: &Path, txos: Option<PathBuf>, quick: bool) -> Result<Self> {
        fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
        let out = out.canonicalize()?;
        let named = txos.or_else(|| std::env::var_os("TXOS_BIN").map(PathBuf::from));
        let txos = named.map_or_else(beside_this_program, Ok)?;
        let txos = txos.canonicalize().with_context(|| {
            format!("no binary at {}: run `make build`, or name one with --txos", txos.display())
        })?;
        let place = |name: &str| -> Result<PathBuf> {
            let path = out.join(name);
            fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
            Ok(path)
        };
        let context = Self {
            txos,
            cache: place("cache")?,
            work: place("work")?,
            // txos makes it itself, private to its owner.
            state: out.join("state"),
            rounds: if quick { 1 } else { 3 },
            short_rounds: if quick { 5 } else { 15 },
            row_budget: Duration::from_secs(if quick { 40 } else { 100 }),
            out,
        };
        context.clean_up();
        Ok(context)
    }

    /// `txos run OPTIONS -- COMMAND…`, with the state directory of this invocation. Without retries:
    /// a run that met a conflict is not the run that is measured (see `measure::pairs`).
    pub fn transaction(&self, options: &[&str], command: &Command) -> Command {
        let mut wrapped = Command::new(&self.txos);
        wrapped.env("TXOS_STATE", &self.state).args(["run", "--no-retry"]).args(options).arg("--");
        wrapped.arg(command.get_program()).args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// This program again, as one of the workloads in `helper`.
    pub fn helper(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("helper").args(args);
        Ok(command)
    }

    /// Sets up a command that begins transactions itself: it finds this binary and this invocation's state.
    pub fn session(&self, command: &mut Command) {
        command.env("TXOS_PROGRAM", &self.txos).env("TXOS_STATE", &self.state);
    }

    /// Empties the scratch directory and lets txos clean what a killed run left.
    pub fn clean_up(&self) {
        let _ = Command::new(&self.txos).arg("recover").env("TXOS_STATE", &self.state).output();
        for entry in fs::read_dir(&self.work).into_iter().flatten().flatten() {
            let path = entry.path();
            let gone =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            if let Err(error) = gone {
                eprintln!("could not remove {}: {error}", path.display());
            }
        }
    }
}

fn beside_this_program() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    match own.parent() {
        Some(dir) => Ok(dir.join("txos")),
        None => bail!("{} has no directory", own.display()),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.clean_up();
        let _ = fs::remove_dir(&self.work);
        let _ = fs::remove_dir_all(&self.state);
    }
}
