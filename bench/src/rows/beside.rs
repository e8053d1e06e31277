//! Transactions beside one another, and everybody else beside a transaction.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::context::Context;
use crate::measure::{Pairs, run, undisturbed};
use crate::report::Figure;
use crate::rows::build;

/// Transactions of independent work.
const TRANSACTIONS: usize = 8;
/// Files that each of them reads, and writes a sum of.
const FILES: usize = 60;
/// The goal is 1.6 times the throughput.
const TIME: f64 = 1.0 / 1.6;

/// Eight transactions of independent work, one after the other and two at a time.
pub fn together(context: &Context) -> Result<Vec<Figure>> {
    let script = format!(
        "for n in $(seq {FILES}); do head -c 20000 /dev/zero | sha256sum >$n; cat $n >>all; done"
    );
    let lanes = |count: usize| -> Result<f64> {
        let dirs = directories(context)?;
        let start = Instant::now();
        thread::scope(|threads| -> Result<()> {
            let lane = |lane: usize| {
                let (dirs, script) = (&dirs, &script);
                move || -> Result<()> {
                    for dir in dirs.iter().skip(lane).step_by(count) {
                        let mut command = Command::new("sh");
                        command.args(["-c", script]).current_dir(dir);
                        run(context.transaction(&["-q"], &command))?;
                    }
                    Ok(())
                }
            };
            let lanes: Vec<_> = (0..count).map(|number| threads.spawn(lane(number))).collect();
            lanes.into_iter().try_for_each(|lane| lane.join().expect("no panic"))
        })?;
        Ok(start.elapsed().as_secs_f64())
    };
    let mut pairs = Pairs::default();
    for _ in 0..context.rounds {
        pairs.push(undisturbed(|| lanes(1))?, undisturbed(|| lanes(2))?);
    }
    let what = "8 independent transactions, two at a time against one after the other";
    Ok(vec![Figure::ratio(what, pairs, TIME).note("1.6 times the throughput")])
}

fn directories(context: &Context) -> Result<Vec<PathBuf>> {
    let dir = |number: usize| {
        let dir = context.work.join(format!("lane{number}"));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir(&dir)?;
        Ok(dir)
    };
    (0..TRANSACTIONS).map(dir).collect()
}

/// The build of nano by itself, and beside a transaction that runs and listens.
pub fn outsiders(context: &Context) -> Result<Vec<Figure>> {
    let mut pairs = Pairs::default();
    for _ in 0..context.rounds {
        let alone = build::natively(context)?;
        let transaction = Running::start(context)?;
        let beside = build::natively(context)?;
        transaction.end()?;
        pairs.push(alone, beside);
    }
    let what = "build of nano by an outsider, beside a transaction against by itself";
    Ok(vec![Figure::ratio(what, pairs, 1.02)])
}

/// A transaction that does nothing but listen.
struct Running(Child);

impl Running {
    fn start(context: &Context) -> Result<Running> {
        let mut command = Command::new("sleep");
        command.arg("600").current_dir(&context.work);
        let child = context
            .transaction(&["-q"], &command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting a transaction")?;
        let running = Running(child);
        let start = Instant::now();
        while !running.listens() {
            ensure!(start.elapsed() < Duration::from_secs(10), "it does not listen (fanotify)");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(running)
    }

    /// Whether it has a file system marked (fanotify(7), `proc_pid_fdinfo(5)`).
    fn listens(&self) -> bool {
        let dir = format!("/proc/{}/fdinfo", self.0.id());
        fs::read_dir(Path::new(&dir)).into_iter().flatten().flatten().any(|fd| {
            fs::read_to_string(fd.path()).is_ok_and(|info| info.contains("fanotify sdev:"))
        })
    }

    fn end(mut self) -> Result<()> {
        ensure!(self.0.try_wait()?.is_none(), "the transaction ended before the build did");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.0.wait();
    }
}
