//! Measures cxlock against parking_lot, std and spin locks.
//!
//! `cargo run --release -p cxlock-bench` prints a Markdown table. Rounds are interleaved: in each
//! one every lock runs once, so that what else the machine does hits all of them alike; the figures
//! are medians over the rounds, and the best round, which others on the machine disturbed least. After each round the counters are added up: a lock that loses an
//! increment is reported, not measured.

mod subject;
mod workload;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use cxlock::{Engine, Rtm};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use subject::Subject;
use workload::{COUNTERS, Sample, WORKLOADS, Workload};

#[derive(Parser)]
#[command(about = "Measures cxlock against parking_lot, std and spin locks.")]
struct Arguments {
    /// Rounds of each workload
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Only the workload of this name, or all whose name contains it
    #[arg(long, default_value = "")]
    only: String,
    /// Append every round's figures to this file, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let exact = WORKLOADS.iter().filter(|w| w.name == arguments.only);
    let similar = WORKLOADS.iter().filter(|w| w.name.contains(&arguments.only));
    let chosen: Vec<_> =
        if exact.clone().count() > 0 { exact.collect() } else { similar.collect() };
    ensure!(
        !chosen.is_empty(),
        "no workload is named like {:?}; there are: {}",
        arguments.only,
        WORKLOADS.map(|w| w.name).join("; ")
    );
    println!("Hardware transactions here: {:?} (engine {})\n", Rtm::support(), Rtm::NAME);
    println!("ns a section, all threads together; {} rounds\n", arguments.rounds);
    for workload in chosen {
        measure(workload, arguments.rounds, arguments.csv.as_deref())?;
    }
    Ok(())
}

fn measure(workload: &Workload, rounds: u32, csv: Option<&Path>) -> Result<()> {
    let subjects = subject::all(COUNTERS);
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); subjects.len()];
    for round in 0..=rounds {
        for ((name, subject), samples) in subjects.iter().zip(&mut samples) {
            let sample = workload.round(subject.as_ref());
            check(name, subject.as_ref(), workload.writes() * u64::from(round + 1))?;
            // The first round only warms up.
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    if let Some(path) = csv {
        let rounds = samples.iter().zip(&subjects).flat_map(|(samples, (name, _))| {
            samples.iter().enumerate().map(move |(round, sample)| (name, round, sample))
        });
        let lines: String = rounds
            .map(|(name, round, s)| {
                let workload = workload.name;
                format!(
                    "\"{workload}\",\"{name}\",{},{:.2},{:.2}\n",
                    round + 1,
                    s.wall,
                    s.processor
                )
            })
            .collect();
        append(path, &lines).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!(
        "**{}**: {}\n\n| lock | wall, best | wall | processor |\n|---|--:|--:|--:|",
        workload.name, workload.what
    );
    for ((name, _), samples) in subjects.iter().zip(&samples) {
        let wall = median(samples.iter().map(|s| s.wall));
        let processor = median(samples.iter().map(|s| s.processor));
        let best = samples.iter().map(|s| s.wall).fold(f64::INFINITY, f64::min);
        println!("| {name} | {best:.1} | {wall:.1} | {processor:.1} |");
    }
    println!();
    Ok(())
}

/// Appends `lines` to the CSV file at `path`, which begins with a line of column names.
fn append(path: &Path, lines: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    if file.metadata()?.len() == 0 {
        writeln!(file, "workload,lock,round,wall_ns,processor_ns")?;
    }
    file.write_all(lines.as_bytes())
}

fn check(name: &str, subject: &dyn Subject, expected: u64) -> Result<()> {
    let total = subject.total();
    ensure!(total == expected, "{name} counted {total} instead of {expected}");
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
