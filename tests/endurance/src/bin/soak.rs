//! `soak`: commits, aborts, conflicts, waiting decisions and kills, several at once, for an hour; then
//! nothing may have leaked.

use std::{
    fs::OpenOptions,
    io::Write,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use endurance::{
    processes::{Inventory, kill, of_state, size_of},
    random::Random,
    setup::{Common, Setup},
    trial::{Bench, Trial, ended},
};

/// Runs everything at once for a long time, and looks for leaks.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long, in minutes
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Transactions that run at once
    #[arg(long, default_value_t = 3)]
    width: usize,
    #[command(flatten)]
    common: Common,
}

/// Longer than any transaction of this kind takes, also when it has to run several times.
const LIMIT: Duration = Duration::from_secs(180);

/// What happened, by kind.
#[derive(Debug, Default)]
struct Counts {
    commits: AtomicU64,
    aborts: AtomicU64,
    disturbed: AtomicU64,
    kept: AtomicU64,
    timeouts: AtomicU64,
    kills: AtomicU64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let (setup, mut trials) = Setup::new(&arguments.common, arguments.width)?;
    let (bench, begin) = (&setup.bench, setup.begin);
    let counts = Counts::default();
    let end = begin + Duration::from_secs(arguments.minutes * 60);
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for trial in &mut trials {
            let (random, counts, failure) = (&setup.random, &counts, &failure);
            scope.spawn(move || {
                while Instant::now() < end && failed(failure).is_none() {
                    if let Err(error) = step(bench, trial, random, counts) {
                        let error = error.context(format!("{}", trial.root().display()));
                        failed(failure).get_or_insert(error);
                    }
                }
            });
        }
        let mut told = begin;
        while Instant::now() < end && failed(&failure).is_none() {
            thread::sleep(Duration::from_millis(500));
            if told.elapsed() >= Duration::from_secs(60) {
                told = Instant::now();
                tell(begin, bench, &counts);
            }
        }
    });
    if let Some(error) = failed(&failure).take() {
        return Err(error);
    }
    tell(begin, bench, &counts);
    setup.settle()?;
    bench.recover()?;
    // What asks for recovery may start something that ends a little later.
    thread::sleep(Duration::from_secs(3));
    setup.end()
}

fn failed(
    failure: &Mutex<Option<anyhow::Error>>,
) -> std::sync::MutexGuard<'_, Option<anyhow::Error>> {
    failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// One transaction of a random kind, and whether what it left is right.
fn step(bench: &Bench, trial: &mut Trial, random: &Random, counts: &Counts) -> Result<()> {
    let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
    match random.below(20) {
        0..10 => {
            let status = ended(&mut trial.start(&["--retries", "100"], false)?, LIMIT)?;
            // Somebody's kill may have hit what all of them share.
            trial.check(status.success().then_some(true)).context("a commit")?;
            count(if status.success() { &counts.commits } else { &counts.kills });
        }
        10..13 => {
            let status = ended(&mut trial.start(&[], true)?, LIMIT)?;
            ensure!(!status.success(), "the command failed, and txos run says that all is well");
            trial.check(Some(false)).context("an abort")?;
            count(&counts.aborts);
        }
        13..15 => {
            let mut child = trial.start(&["--retries", "100"], false)?;
            disturb(trial, random);
            let status = ended(&mut child, LIMIT)?;
            trial.check(status.success().then_some(true)).context("a disturbed commit")?;
            count(&counts.disturbed);
        }
        15..17 => keep(bench, trial, random, counts)?,
        17 => {
            let status = ended(&mut trial.start(&["--timeout", "0.02"], false)?, LIMIT)?;
            trial.check(status.success().then_some(true)).context("a time limit")?;
            count(&counts.timeouts);
        }
        _ => {
            let mut child = trial.start(&[], false)?;
            thread::sleep(random.time(Duration::from_millis(200)));
            kill(child.id());
            let status = ended(&mut child, LIMIT)?;
            bench.recover()?;
            trial.check(status.success().then_some(true)).context("a kill")?;
            count(&counts.kills);
        }
    }
    Ok(())
}

/// Changes the times of a file that the transaction works on, from outside.
fn disturb(trial: &Trial, random: &Random) {
    for _ in 0..3 {
        thread::sleep(random.time(Duration::from_millis(60)));
        // Absent before the first generation.
        if let Ok(mut file) = OpenOptions::new().append(true).open(trial.root().join("other")) {
            let _ =
                file.write_all(b"").and_then(|()| file.set_modified(std::time::SystemTime::now()));
        }
    }
}

/// A transaction that waits for a decision, and then gets one.
fn keep(bench: &Bench, trial: &mut Trial, random: &Random, counts: &Counts) -> Result<()> {
    let mut report = trial.root().as_os_str().to_owned();
    report.push(".report");
    let report = PathBuf::from(report);
    let path = report.to_str().context("the work directory has a strange name")?;
    let mut child = trial.start_telling(&["--keep", "--json", path])?;
    let status = ended(&mut child, LIMIT)?;
    if !status.success() {
        let mut said = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut said)?;
        }
        bail!("txos run --keep: {status}: {said}");
    }
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    trial.check(Some(false)).context("kept, not committed")?;
    let id: Option<u64> = text.split("\"id\":").nth(1).and_then(|rest| {
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    });
    let id = id.with_context(|| format!("the report names no transaction: {text:?}"))?;
    let commit = random.below(2) == 0;
    let verb = if commit { "commit" } else { "abort" };
    let decided = bench.command(&[verb, &id.to_string()]).status()?;
    match (commit, decided.code()) {
        (true, Some(0)) => trial.check(Some(true)).context("a kept one committed")?,
        (true, Some(75)) => {
            let aborted = bench.command(&["abort", &id.to_string()]).status()?;
            ensure!(aborted.success(), "txos abort {id}: {aborted}");
            trial.check(Some(false)).context("a kept one with a conflict")?;
        }
        (false, Some(0)) => trial.check(Some(false)).context("a kept one aborted")?,
        (_, _) => bail!("txos {verb} {id}: {decided}"),
    }
    counts.kept.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn tell(begin: Instant, bench: &Bench, counts: &Counts) {
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let sizes = of_state(&bench.state).into_iter().filter_map(size_of);
    let (memory, descriptors) =
        sizes.fold((0, 0), |(memory, open), (more, others)| (memory + more, open + others));
    let inventory = Inventory::take(&bench.state).unwrap_or_default();
    println!(
        "{:.0} min: {} commits, {} aborts, {} disturbed, {} kept and decided, {} time limits, {} \
         kills; {} processes with {} MiB and {descriptors} descriptors, {} mounts",
        begin.elapsed().as_secs_f64() / 60.0,
        of(&counts.commits),
        of(&counts.aborts),
        of(&counts.disturbed),
        of(&counts.kept),
        of(&counts.timeouts),
        of(&counts.kills),
        inventory.processes,
        memory / 1024,
        inventory.mounts,
    );
}
