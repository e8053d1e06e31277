//! `system-pause`: transactions with `--domain system` in a virtual machine with services in groups of
//! their own. Readers of pairs of files are among them; they must never see half of a commit.

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use endurance::{
    image::{self, Guest},
    vm::Machine,
};

/// Commits towards the whole system of a virtual machine.
#[derive(Debug, Parser)]
struct Arguments {
    /// Directory for the machine's parts and disks
    #[arg(long, default_value = "target/endurance")]
    work: PathBuf,
    /// The txos to test
    #[arg(long, default_value = "target/release/txos")]
    txos: PathBuf,
    /// The services' program
    #[arg(long, default_value = "target/release/member")]
    member: PathBuf,
}

const BOOT: Duration = Duration::from_secs(300);
const WORK: Duration = Duration::from_secs(1200);

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("system-pause: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let work = arguments.work.join("system");
    fs::create_dir_all(&work)?;
    let work = fs::canonicalize(&work)?;
    let programs = [("txos", arguments.txos.as_path()), ("member", &arguments.member)];
    let guest = Guest { script: include_str!("../system.sh"), programs: &programs };
    let image = image::build(&work, &guest)?;
    let (ext, xfs) = (work.join("ext.img"), work.join("xfs.img"));
    image::empty_disk(&ext, "ext4")?;
    image::empty_disk(&xfs, "xfs")?;
    let begin = Instant::now();
    let mut machine = Machine::start(&image, &ext, &xfs)?;
    machine.wait_for("READY", BOOT, |_| {})?;
    let found = machine.wait_for("DONE", WORK, |line| println!("{line}"))?;
    let numbers: Vec<u64> = found.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [with, reads, without] = numbers[..] else {
        return Err(anyhow::anyhow!("the guest found {found:?}")).context("no figures");
    };
    ensure!(with == 0, "{with} pairs were seen half-way, although the system stood still");
    ensure!(reads > 0, "nobody read anything meanwhile");
    println!(
        "10 commits towards the whole system: no pair seen half-way of {reads} thousand; of 5 commits \
         without a pause {without} pairs were; {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}
