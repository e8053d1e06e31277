//! The workloads that are this program itself, so that they can be timed from inside.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use rustix::time::{ClockId, clock_gettime};

/// The workload.
#[derive(Args)]
pub struct Helper {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Reads every file below a directory twice; prints the seconds of each pass.
    Read {
        /// The directory.
        dir: PathBuf,
    },
    /// Runs a command twice; prints the seconds of each run.
    Twice {
        /// The command and its arguments.
        command: Vec<PathBuf>,
    },
    /// Runs a command; prints when it ended, as seconds on the monotonic clock.
    Stamp {
        /// The command and its arguments.
        command: Vec<PathBuf>,
    },
    /// Reads some files of a directory and writes as many new ones; prints when it ended.
    Touch {
        /// The directory with the files.
        dir: PathBuf,
        /// How many files.
        count: usize,
    },
    /// Begins and ends transactions itself; prints the medians that `session::Figures` has.
    Session {
        /// A directory to work in.
        dir: PathBuf,
        /// How many rounds.
        rounds: usize,
    },
}

impl Helper {
    /// Does it.
    pub fn run(self) -> Result<()> {
        let line = match self.what {
            What::Read { dir } => format!("{} {}", read_tree(&dir)?, read_tree(&dir)?),
            What::Twice { command } => format!("{} {}", time(&command)?, time(&command)?),
            What::Stamp { command } => {
                time(&command)?;
                now().as_secs_f64().to_string()
            }
            What::Touch { dir, count } => {
                touch(&dir, count)?;
                now().as_secs_f64().to_string()
            }
            What::Session { dir, rounds } => crate::session::measure(&dir, rounds)?.line(),
        };
        println!("{line}");
        Ok(())
    }
}

/// The monotonic clock, which all processes of a machine share.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The numbers on the last line that a workload printed.
pub fn figures<const N: usize>(stdout: &str) -> Result<[f64; N]> {
    let line = stdout.lines().last().unwrap_or_default();
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    match numbers.try_into() {
        Ok(numbers) => Ok(numbers),
        Err(_) => bail!("the workload printed '{line}', expected {N} numbers"),
    }
}

fn read_tree(dir: &Path) -> Result<f64> {
    let start = Instant::now();
    let mut buffer = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            } else {
                buffer.clear();
                fs::File::open(entry.path())?.read_to_end(&mut buffer)?;
            }
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

fn time(command: &[PathBuf]) -> Result<f64> {
    let Some((program, args)) = command.split_first() else { bail!("no command") };
    let start = Instant::now();
    let status = Command::new(program).args(args).stdout(Stdio::null()).status()?;
    let took = start.elapsed().as_secs_f64();
    // find(1) fails where something vanished while it looked: that is no fault of the measurement.
    if !status.success() && !program.ends_with("find") {
        bail!("{}: {status}", program.display());
    }
    Ok(took)
}

// Files are named by their number, evenly spread over the directories `00` to `99`.
fn touch(dir: &Path, count: usize) -> Result<()> {
    let mut buffer = Vec::new();
    for number in 0..count {
        let home = dir.join(format!("{:02}", number % 100));
        buffer.clear();
        let name = format!("file-{number:06}");
        fs::File::open(home.join(&name))?.read_to_end(&mut buffer)?;
        fs::File::create(home.join(format!("new-{name}")))?.write_all(&buffer)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_last_line() {
        assert_eq!(figures("noise\n0.5 0.25\n").ok(), Some([0.5, 0.25]));
        assert!(figures::<2>("0.5\n").is_err());
        assert!(figures::<1>("").is_err());
    }
}
