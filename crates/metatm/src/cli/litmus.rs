//! `metatm litmus`: the litmus tests, one line each.

use metatm::report::LitmusRun;

/// Arguments of `metatm litmus`.
#[derive(Debug, clap::Args)]
pub struct Litmus {}

impl Litmus {
    /// Runs all; false if one failed.
    ///
    /// # Errors
    /// The outcome cannot be printed.
    pub fn run(self) -> anyhow::Result<bool> {
        let run = LitmusRun::run();
        for (case, outcome) in &run.0 {
            super::say(&match outcome {
                Ok(()) => format!("ok    {:?}: {}: {}\n", case.table, case.name, case.claim),
                Err(e) => format!("FAIL  {:?}: {}: {e}\n", case.table, case.name),
            })?;
        }
        Ok(run.failures() == 0)
    }
}
