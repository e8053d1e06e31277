//! What the programs that torment a live txos have in common: their arguments, the trials, and how they
//! end.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{
    processes::{Inventory, of_state},
    random::Random,
    trial::{Bench, Trial},
};

/// The arguments.
#[derive(Debug, Args)]
pub struct Common {
    /// Random numbers begin here; default: the clock
    #[arg(long)]
    pub seed: Option<u64>,
    /// Directory for the trials and the state directory, which is made; default: a fresh one among
    /// the temporary files
    #[arg(long)]
    pub work: Option<PathBuf>,
    /// The txos to test
    #[arg(long, default_value = "target/release/txos")]
    pub txos: PathBuf,
    /// The trials' worker
    #[arg(long, default_value = "target/release/generation")]
    pub worker: PathBuf,
}

/// A place to work in, and what was there before.
#[derive(Debug)]
pub struct Setup {
    /// Where chance comes from.
    pub random: Random,
    /// The programs under test.
    pub bench: Bench,
    /// What may leak, as it was.
    pub before: Inventory,
    /// When it began.
    pub begin: Instant,
    work: PathBuf,
}

impl Setup {
    /// Makes the place, and trials in it.
    ///
    /// # Errors
    /// If it is there already, or one of the programs is not.
    pub fn new(common: &Common, trials: usize) -> Result<(Setup, Vec<Trial>)> {
        let random = Random::new(common.seed);
        let work = match &common.work {
            Some(work) => fs::create_dir(work).map(|()| work.clone()).with_context(|| {
                format!("cannot make {}: give a directory that is not there", work.display())
            })?,
            None => tempfile::Builder::new().prefix("txos-endurance.").tempdir()?.keep(),
        };
        let work = fs::canonicalize(work)?;
        let found = |program: &PathBuf| {
            fs::canonicalize(program).with_context(|| format!("no {}", program.display()))
        };
        let state = work.join("state");
        let bench = Bench { txos: found(&common.txos)?, worker: found(&common.worker)?, state };
        let before = Inventory::take(&bench.state)?;
        let trials = (0..trials.max(1))
            .map(|number| Trial::new(&bench, work.join(format!("trial.{number}"))))
            .collect();
        Ok((Setup { random, bench, before, begin: Instant::now(), work }, trials))
    }

    /// Waits until the processes that end by themselves have ended.
    ///
    /// # Errors
    /// If some have not, after a minute.
    pub fn settle(&self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(60);
        while !of_state(&self.bench.state).is_empty() {
            let left = of_state(&self.bench.state);
            ensure!(Instant::now() < until, "processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Looks for what is left over, and removes the place.
    ///
    /// # Errors
    /// If something is.
    pub fn end(self) -> Result<()> {
        let after = Inventory::take(&self.bench.state)?;
        println!("before: {:?}\nafter:  {after:?}", self.before);
        let left = Inventory { other: self.before.other, ..after };
        ensure!(left == self.before, "something is left over");
        Ok(fs::remove_dir_all(&self.work)?)
    }
}
