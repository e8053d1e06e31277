//! `kill-rounds`: kills a random process of txos at a random moment, recovers, and checks; with
//! other transactions running beside it.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::Parser;
use endurance::{
    processes::{kill, of_state},
    setup::{Common, Setup},
    trial::ended,
};

/// Kills processes of txos at random moments under load, and checks what is left.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many rounds
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Transactions that run at once
    #[arg(long, default_value_t = 2)]
    width: usize,
    #[command(flatten)]
    common: Common,
}

/// Longer than any transaction of this kind takes.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kill-rounds: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let (setup, mut trials) = Setup::new(&arguments.common, arguments.width)?;
    let (bench, random) = (&setup.bench, &setup.random);
    let mut length = Duration::from_millis(100);
    let (mut hits, mut survivors, mut finished) = (0u32, 0u32, 0u32);
    for round in 1..=arguments.rounds {
        let start = Instant::now();
        let mut running = Vec::new();
        for trial in &trials {
            running.push(trial.start(&[], false)?);
        }
        std::thread::sleep(random.time(length.mul_f64(1.3)));
        let members = of_state(&bench.state);
        if !members.is_empty() {
            hits += 1;
            // Mostly one process; at times several, or all of them.
            let victims = match random.below(8) {
                0 => members.clone(),
                1 => members.iter().copied().filter(|_| random.below(2) == 0).collect(),
                _ => vec![members[random.below(members.len() as u64) as usize]],
            };
            victims.into_iter().for_each(kill);
        }
        let mut outcomes = Vec::new();
        for child in &mut running {
            let status = ended(child, LIMIT).with_context(|| format!("round {round}"))?;
            survivors += u32::from(status.success());
            outcomes.push(status.success());
        }
        if outcomes.iter().all(|well| *well) {
            length = (length * 3 + start.elapsed()) / 4;
        }
        finished += u32::from(bench.recover()?.contains("finished"));
        for (trial, well) in trials.iter_mut().zip(outcomes) {
            trial
                .check(well.then_some(true))
                .with_context(|| format!("round {round}, {}", trial.root().display()))?;
        }
        if round % 100 == 0 {
            println!("{round} rounds, {:.0} s", setup.begin.elapsed().as_secs_f64());
        }
    }
    setup.settle()?;
    println!(
        "{} rounds, {hits} hit running processes; {survivors} of {} transactions committed before or \
         in spite of it, {finished} were finished by recovery; nothing half, nothing left; {:.0} s",
        arguments.rounds,
        arguments.rounds as usize * trials.len(),
        setup.begin.elapsed().as_secs_f64()
    );
    setup.end()
}
