//! How fast bytes go through the standard streams of a transaction, against a plain pipe.
//!
//! Prints GB/s: output of a command to a reader over a plain pipe, live, and held until commit; and
//! input of a command fed from a writer and recorded.

use std::io::{PipeReader, Read, pipe};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;
use txos_effects::Error;
use txos_effects::streams::{DEFAULT_LIMIT, Outcome, Outer, OutputMode, Streams, StreamsSpec};

const BYTES: u64 = 1 << 30;

fn drain(mut from: PipeReader) -> thread::JoinHandle<u64> {
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        let mut total = 0;
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            total += read as u64;
        }
        total
    })
}

fn source(script: &str, stdout: impl Into<Stdio>) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    command
}

fn through(output: OutputMode, stdin: Option<OwnedFd>, script: &str) -> Result<f64, Error> {
    let (read, write) = pipe().expect("a pipe");
    let reader = drain(read);
    let outer = Outer { stdin, stdout: Some(write.into()), stderr: None };
    let scratch = std::env::temp_dir();
    let spec = StreamsSpec { output, retries: true, scratch, spill_after: DEFAULT_LIMIT };
    let mut streams = Streams::new(spec, outer)?;
    let start = Instant::now();
    let fds = streams.attempt()?;
    let mut command = Command::new("sh");
    command.args(["-c", script]).stderr(Stdio::null());
    command.stdin(fds.stdin.map_or_else(Stdio::null, Stdio::from));
    command.stdout(fds.stdout.map_or_else(Stdio::null, Stdio::from));
    command.status().expect("a shell");
    drop(command);
    let report = streams.finish(Outcome::Commit);
    assert!(report.errors.is_empty(), "{report:?}");
    drop(streams);
    let total = reader.join().expect("a reader");
    let moved = if total > 0 { total } else { BYTES };
    Ok(moved as f64 / 1e9 / start.elapsed().as_secs_f64())
}

fn main() -> Result<(), Error> {
    let zeroes = format!("head -c {BYTES} /dev/zero");
    let (read, write) = pipe().expect("a pipe");
    let reader = drain(read);
    let start = Instant::now();
    source(&zeroes, write).status().expect("a shell");
    let total = reader.join().expect("a reader");
    println!("plain pipe   {:6.2}", total as f64 / 1e9 / start.elapsed().as_secs_f64());
    println!("live output  {:6.2}", through(OutputMode::Live, None, &zeroes)?);
    println!("held output  {:6.2}", through(OutputMode::Deferred, None, &zeroes)?);
    let (read, write) = pipe().expect("a pipe");
    let mut feeder = source(&zeroes, write).spawn().expect("a shell");
    let rate = through(OutputMode::Live, Some(read.into()), "cat >/dev/null");
    feeder.wait().expect("the feeder");
    println!("fed input    {:6.2}", rate?);
    Ok(())
}
