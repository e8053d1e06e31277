//! Runs in the guest: makes a generation, or says which one is there.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, Result, bail, ensure};
use endurance::generation::{apply, check};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["apply", generation, roots @ ..] => {
            let generation = generation.parse().context("the generation is no number")?;
            roots.iter().try_for_each(|root| {
                apply(Path::new(root), generation).with_context(|| format!("in {root}"))
            })
        }
        ["check", first, roots @ ..] => {
            let found = check(Path::new(first)).with_context(|| format!("in {first}"))?;
            for root in roots {
                let other = check(Path::new(root)).with_context(|| format!("in {root}"))?;
                ensure!(other == found, "{root} shows {other:?} and {first} {found:?}");
            }
            match found {
                Some(generation) => println!("generation {generation}"),
                None => println!("generation none"),
            }
            Ok(())
        }
        _ => bail!("usage: generation apply GENERATION DIR… | check DIR…"),
    }
}
