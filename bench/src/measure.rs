//! Running commands in pairs and taking medians.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::context::Context;

/// No single command may take longer.
const PATIENCE: Duration = Duration::from_secs(150);
/// `txos run`: something outside changed what the command had read.
const CONFLICT: i32 = 75;
/// So many conflicts with the rest of the machine are one too many.
const CONFLICTS: usize = 4;

/// A run that ended because of what others did on the machine meanwhile.
#[derive(Debug)]
struct Conflict(String);

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the machine is too busy to measure: {}", self.0)
    }
}

impl std::error::Error for Conflict {}

/// What one run of a command gave.
pub struct Run {
    /// From before its start to after its end.
    pub wall: Duration,
    /// What it printed on standard output.
    pub stdout: String,
    /// When it had ended, on the clock of `helper::now`.
    pub ended: Duration,
}

/// Runs it with no input and its output kept, and fails unless it exits with 0.
pub fn run(mut command: Command) -> Result<Run> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("starting {shown}"))?;
    let guard = Watchdog::over(child.id());
    let output = child.wait_with_output()?;
    let (wall, ended) = (start.elapsed(), crate::helper::now());
    if guard.has_bitten() {
        bail!("took longer than {} s: {shown}", PATIENCE.as_secs());
    }
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last: Vec<_> = stderr.lines().rev().take(3).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        if output.status.code() == Some(CONFLICT) {
            return Err(Conflict(last.join(" / ")).into());
        }
        bail!("{}: {} ({shown})", output.status, last.join(" / "));
    }
    Ok(Run { wall, ended, stdout: String::from_utf8_lossy(&output.stdout).into_owned() })
}

/// Kills a child that outlasts [`PATIENCE`], unless dropped before.
struct Watchdog {
    stop: mpsc::Sender<()>,
    thread: Option<std::thread::JoinHandle<bool>>,
}

impl Watchdog {
    fn over(child: u32) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(PATIENCE) != Err(mpsc::RecvTimeoutError::Timeout) {
                return false;
            }
            // The child is not waited for before this thread is told to stop, so that its number
            // still is its own.
            let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
        });
        Self { stop, thread: Some(thread) }
    }

    fn has_bitten(mut self) -> bool {
        let _ = self.stop.send(());
        self.thread.take().is_some_and(|thread| thread.join().unwrap_or(false))
    }
}

/// The figures of one quantity, native and inside a transaction.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Pairs {
    /// Seconds of each native run.
    pub native: Vec<f64>,
    /// Seconds of each run inside a transaction.
    pub txos: Vec<f64>,
}

impl Pairs {
    /// Adds one pair.
    pub fn push(&mut self, native: f64, txos: f64) {
        self.native.push(native);
        self.txos.push(txos);
    }
}

/// Makes up to `rounds` pairs by calling `one(inside)` in turns, the native one first, and stops
/// early when the row's budget is spent. `one` returns as many figures (in seconds) as there are
/// quantities.
pub fn pairs<const N: usize>(
    context: &Context,
    rounds: usize,
    mut one: impl FnMut(bool) -> Result<[f64; N]>,
) -> Result<[Pairs; N]> {
    let start = Instant::now();
    let mut all: [Pairs; N] = std::array::from_fn(|_| Pairs::default());
    for round in 0..rounds {
        if round > 0 && start.elapsed() > context.row_budget {
            eprintln!("  {round} of {rounds} rounds, the time for this row is up");
            break;
        }
        let native = one(false).context("natively")?;
        let txos = undisturbed(|| one(true)).context("inside a transaction")?;
        for ((pairs, native), txos) in all.iter_mut().zip(native).zip(txos) {
            pairs.push(native, txos);
        }
    }
    Ok(all)
}

/// Runs it again when somebody else's change got in its way.
pub fn undisturbed<T>(mut one: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..CONFLICTS {
        match one() {
            Err(error) if error.is::<Conflict>() => eprintln!("  again: {error}"),
            other => return other,
        }
    }
    one()
}

/// The middle of the figures; of an even number of them the mean of the two in the middle. NaN for
/// none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(half)) {
        (1, Some(&middle)) => middle,
        (_, Some(&upper)) => (sorted[half - 1] + upper) / 2.0,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_failing_command_is_named_with_its_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo the reason >&2; exit 3"]);
        let error = run(command).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("the reason") && error.contains('3'), "{error}");
    }
}
