//! `power-cut`: see the crate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use endurance::{
    disk::{self, Cut},
    image::{self, Guest, Image},
    random::Random,
    vm::{Machine, Said, log_of},
};

/// Cuts the power of a virtual machine in the middle of transactions, and checks what is left.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many cuts
    #[arg(long, default_value_t = 100)]
    cuts: u32,
    /// Of each hundred cuts, so many hit the machine while it starts and recovers
    #[arg(long, default_value_t = 25)]
    early: u64,
    /// Random numbers begin here; default: the clock
    #[arg(long)]
    seed: Option<u64>,
    /// Directory for the machine's parts and disks
    #[arg(long, default_value = "target/endurance")]
    work: PathBuf,
    /// The txos to test
    #[arg(long, default_value = "target/release/txos")]
    txos: PathBuf,
    /// The guest's worker
    #[arg(long, default_value = "target/release/generation")]
    worker: PathBuf,
}

const BOOT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("power-cut: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is known of the guest from what it said.
#[derive(Debug, Default)]
struct Known {
    /// The last generation whose transaction had returned.
    committed: Option<u64>,
    /// The last one that was begun.
    begun: Option<u64>,
}

impl Known {
    fn hear(&mut self, line: &str) {
        if let Some(generation) = line.strip_prefix("COMMITTED ") {
            self.committed = generation.trim().parse().ok();
        }
        if let Some(generation) = line.strip_prefix("BEGIN ") {
            self.begun = generation.trim().parse().ok();
        }
    }

    /// Holds what is found after a cut against it.
    fn check(&mut self, found: &str) -> Result<()> {
        let found = match found.trim_start_matches("generation ").trim() {
            "none" => None,
            number => Some(number.parse::<u64>().with_context(|| format!("found {number:?}"))?),
        };
        ensure!(
            found >= self.committed,
            "lost: generation {:?} had committed, and {found:?} is there",
            self.committed
        );
        ensure!(found <= self.begun, "{found:?} is there, and only {:?} was begun", self.begun);
        self.committed = found;
        self.begun = found;
        Ok(())
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let random = Random::new(arguments.seed);
    fs::create_dir_all(&arguments.work)?;
    let work = fs::canonicalize(&arguments.work)?;
    let programs = [("txos", arguments.txos.as_path()), ("generation", &arguments.worker)];
    let guest = Guest { script: include_str!("../guest.sh"), programs: &programs };
    let image = image::build(&work, &guest)?;
    let (ext, xfs) = (work.join("ext.img"), work.join("xfs.img"));
    image::empty_disk(&ext, "ext4")?;
    image::empty_disk(&xfs, "xfs")?;
    let mut known = Known::default();
    let mut transaction = Duration::from_secs(4);
    let (mut all, mut boots) = (Cut::default(), 0u32);
    let begin = Instant::now();
    for number in 1..=arguments.cuts {
        let start = (keep(&ext)?, keep(&xfs)?);
        let early = number > 1 && random.below(100) < arguments.early;
        let share = random.below(1000) as f64 / 1000.0;
        let came = one(&image, (&ext, &xfs), &mut known, early, share, &mut transaction);
        let (when, checked) =
            came.with_context(|| format!("cut {number}; the disks before it are {start:?}"))?;
        boots += u32::from(checked);
        for (disk, start) in [(&ext, &start.0), (&xfs, &start.1)] {
            fs::rename(start, disk)?;
            let cut = disk::cut(disk, &log_of(disk), &mut || random.next())?;
            all.safe += cut.safe;
            all.kept += cut.kept;
            all.lost += cut.lost;
        }
        println!("cut {number}: {when}; generation {:?} committed", known.committed);
    }
    // What the last cut left.
    let mut machine = Machine::start(&image, &ext, &xfs)?;
    let found = machine.wait_for("FOUND", BOOT, |_| {})?;
    known.check(&found)?;
    println!(
        "{} cuts, {} of them checked by themselves, the others together with the next: nothing \
         lost, nothing half; {} writes were safe, {} more stayed, {} were lost; {:.0} s",
        arguments.cuts,
        boots + 1,
        all.safe,
        all.kept,
        all.lost,
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The disk as it is before the machine starts.
fn keep(disk: &Path) -> Result<PathBuf> {
    let kept = disk.with_extension("before");
    let status = std::process::Command::new("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .args([disk, &kept])
        .status()?;
    ensure!(status.success(), "cannot copy {}", disk.display());
    Ok(kept)
}

/// Starts the machine, lets it work, and cuts its power at `share` of the time that it is given.
/// Says when that was, and whether what the cut before had left was looked at.
fn one(
    image: &Image,
    (ext, xfs): (&Path, &Path),
    known: &mut Known,
    early: bool,
    share: f64,
    transaction: &mut Duration,
) -> Result<(String, bool)> {
    let mut machine = Machine::start(image, ext, xfs)?;
    machine.wait_for("BOOTED", BOOT, |_| {})?;
    if early {
        let until = Instant::now() + Duration::from_secs(4).mul_f64(share);
        let mut checked = false;
        let mut phase = "while it mounted".to_owned();
        while let Said::Line(line) = machine.next(until)? {
            if let Some(found) = line.strip_prefix("FOUND ") {
                known.check(found)?;
                checked = true;
            }
            known.hear(&line);
            phase = format!("after {line}");
        }
        for line in machine.cut() {
            known.hear(&line);
        }
        return Ok((phase, checked));
    }
    let found = machine.wait_for("FOUND", BOOT, |_| {})?;
    known.check(&found)?;
    machine.wait_for("READY", BOOT, |_| {})?;
    let ready = Instant::now();
    // Some transactions at the most, so that each boot sees few of them and each of their moments
    // may be hit.
    let until = ready + transaction.mul_f64(3.0 * share);
    let mut commits = 0;
    while let Said::Line(line) = machine.next(until)? {
        known.hear(&line);
        if line.starts_with("COMMITTED") {
            commits += 1;
            *transaction = (*transaction + ready.elapsed() / commits) / 2;
        }
    }
    for line in machine.cut() {
        known.hear(&line);
    }
    Ok((format!("{:.2} s after READY, {commits} commits", ready.elapsed().as_secs_f64()), true))
}
