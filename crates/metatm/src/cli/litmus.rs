//! `metatm litmus`: the litmus tests, one line each.

use metatm::report::LitmusRun;

/// Arguments of `metatm litmus`.
#[derive(Debug, clap::Args)]
pub struct Litmus {}

impl Litmus {
    /// Runs all; false if one failed.
    pub fn run(self) -> bool {
        let run = LitmusRun::run();
        for (case, outcome) in &run.0 {
            match outcome {
                Ok(()) => println!("ok    {:?}: {}: {}", case.table, case.name, case.claim),
                Err(e) => println!("FAIL  {:?}: {}: {e}", case.table, case.name),
            }
        }
        run.failures() == 0
    }
}
