//! Measures olf against locks and against lock-free lists that do not compose.
//!
//! `olf-bench table` and `olf-bench several` print results as lines; `olf-bench report
//! RESULTS DIRECTORY` turns the lines of all languages into `tables.md` and plots. `run.sh` does it all.

mod arena;
mod clock;
mod hm_epoch;
mod hm_hazard;
mod locked;
mod olf_set;
mod plot;
mod report;
mod rng;
mod set;
mod several;
mod skip;
mod table;

use clock::Pace;
use report::Report;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Numbers of threads: one to more than most machines' processors.
pub const THREADS: [usize; 5] = [1, 2, 4, 8, 16];

const USAGE: &str = "usage: olf-bench table|several [--quick] [--only IMPLEMENTATION] [--up-to THREADS], \
     or olf-bench report RESULTS DIRECTORY";

fn write_report(results: &str, directory: &str) -> std::io::Result<()> {
    let report = Report::parse(&std::fs::read_to_string(results)?);
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("tables.md"), report.markdown())?;
    for experiment in report.experiments() {
        let file = experiment.replace('%', "").replace(' ', "-") + ".svg";
        std::fs::write(directory.join(file), plot::svg(&report, &experiment))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let quick = args.contains(&"--quick");
    let pace = Pace {
        time: Duration::from_millis(if quick { 20 } else { 60 }),
        repeats: if quick { 1 } else { 5 },
    };
    let after = |option| args.iter().position(|a| *a == option).and_then(|i| args.get(i + 1));
    let mut report = Report {
        only: after("--only").map(|name| (*name).to_owned()),
        up_to: after("--up-to").and_then(|n| n.parse().ok()),
        ..Report::default()
    };
    match args[..] {
        ["table", ..] => table::run(&mut report, pace),
        ["several", ..] => several::run(&mut report, pace),
        ["report", results, directory] => {
            if let Err(e) = write_report(results, directory) {
                eprintln!("olf-bench: {results} to {directory}: {e}");
                return ExitCode::FAILURE;
            }
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
