//! Transactions inside a program, timed from inside: the library is called as any program would.
//!
//! One process makes all rounds, one kind of work after the other, each natively and inside in turns, and
//! prints the medians, in seconds. It has one thread, so that it can be rolled back.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::fs::{Access, access};
use txos::{
    TX_NO_USER_ROLLBACK, TX_NONDURABLE,
    phases::{self, Phase},
    sys_xabort, sys_xbegin, sys_xend, tx_set_max_retries,
};

use crate::measure::median;

/// Dirty pages of the figures that have some.
pub const PAGES: usize = 1000;
const PAGE: usize = 4096;
/// Between transactions that use up their views.
const PAUSE: Duration = Duration::from_millis(5);
const PLAIN: i32 = TX_NO_USER_ROLLBACK | TX_NONDURABLE;

/// A transaction, its beginning, its end, and the [phases](txos::phases) of both.
pub type Whole = [f64; 3 + PHASES];
/// How many phases there are.
pub const PHASES: usize = Phase::ALL.len();

/// The medians, in seconds.
#[derive(Debug, Default)]
pub struct Figures {
    /// An empty transaction, without rollback.
    pub plain: Whole,
    /// With rollback.
    pub rollback: Whole,
    /// With rollback, and [`PAGES`] pages written; natively, in a child's copy-on-write memory, and inside.
    pub dirty: [f64; 2],
    /// The same, given up, up to the second return of the beginning.
    pub aborted: f64,
    /// `access`, `open`, 1 KB of `write`, `close`: outside, and inside without beginning and end; and all
    /// of the transaction.
    pub calls: [f64; 3],
}

impl Figures {
    /// In the order in which [`Figures::parse`] takes them.
    pub fn line(&self) -> String {
        let all = [&self.plain[..], &self.rollback, &self.dirty, &[self.aborted], &self.calls];
        let words: Vec<_> = all.iter().flat_map(|part| part.iter().map(f64::to_string)).collect();
        words.join(" ")
    }

    /// From such a line.
    pub fn parse(line: &str) -> Result<Self> {
        const WHOLE: usize = 3 + PHASES;
        let numbers: [f64; 2 * WHOLE + 6] = crate::helper::figures(line)?;
        let from = |first: usize| std::array::from_fn(|at| numbers[first + at]);
        let [d0, d1, aborted, c0, c1, c2] = std::array::from_fn(|at| numbers[2 * WHOLE + at]);
        let (plain, rollback) = (from(0), from(WHOLE));
        Ok(Self { plain, rollback, dirty: [d0, d1], aborted, calls: [c0, c1, c2] })
    }
}

/// Measures everything, with so many rounds, on a file in `dir`.
pub fn measure(dir: &Path, rounds: usize) -> Result<Figures> {
    let file = dir.join("file");
    File::create(&file)?.write_all(&[b'x'; 1024])?;
    let mut pages = vec![1u8; PAGES * PAGE];
    tx_set_max_retries(u32::MAX);
    phases::measure();
    // Made before any checkpoint, so that it is the same after it.
    LOG.with(|log| rustix::io::pwrite(log, b"0", 0))?;
    // The session starts, and its views are ready.
    (0..20).try_for_each(|_| transaction(PLAIN, || Ok(())).map(drop))?;
    let plain = medians(rounds, || phases(PLAIN, || Ok(())))?;
    let rollback = medians(rounds, || phases(TX_NONDURABLE, || Ok(())))?;
    let [aborted] = medians(rounds, || Ok([give_up(&mut pages)?]))?;
    let dirty = medians(rounds, || {
        let native = seconds(|| touch(&mut pages))?;
        Ok([native, transaction(TX_NONDURABLE, || touch(&mut pages))?])
    })?;
    // What writes uses its view up: in between the session makes another one.
    let calls = medians(rounds, || {
        std::thread::sleep(PAUSE);
        let outside = seconds(|| calls(&file))?;
        let mut inside = 0.0;
        let whole = transaction(PLAIN, || {
            inside = seconds(|| calls(&file))?;
            Ok(())
        })?;
        Ok([outside, inside, whole])
    })?;
    Ok(Figures { plain, rollback, dirty, aborted, calls })
}

/// The medians of so many rounds.
fn medians<const N: usize>(
    rounds: usize,
    mut one: impl FnMut() -> Result<[f64; N]>,
) -> Result<[f64; N]> {
    let all = (0..rounds).map(|_| one()).collect::<Result<Vec<_>>>()?;
    Ok(std::array::from_fn(|at| median(&all.iter().map(|one| one[at]).collect::<Vec<_>>())))
}

fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// A whole transaction, which commits.
fn transaction(flags: i32, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let [whole, ..] = phases(flags, work)?;
    Ok(whole)
}

fn phases(flags: i32, work: impl FnOnce() -> Result<()>) -> Result<Whole> {
    phases::take();
    let start = Instant::now();
    let begun = sys_xbegin(flags);
    ensure!(begun >= 0, "sys_xbegin: {begun}");
    let inside = Instant::now();
    work()?;
    let ending = Instant::now();
    let ended = sys_xend();
    let over = Instant::now();
    // Somebody else on the machine changed what was read: the figure is one of a loser all the same.
    ensure!(ended == 0 || ended == -11, "sys_xend: {ended}");
    let between = |a: Instant, b: Instant| (b - a).as_secs_f64();
    let three = [between(start, over), between(start, inside), between(ending, over)];
    let phases = phases::take().map(|phase| phase.as_secs_f64());
    Ok(std::array::from_fn(|at| if at < 3 { three[at] } else { phases[at - 3] }))
}

/// Writes the pages and gives the transaction up; the time from there to the second beginning.
fn give_up(pages: &mut [u8]) -> Result<f64> {
    match sys_xbegin(TX_NONDURABLE) {
        0 => {
            touch(pages)?;
            // Memory comes back, so the time goes through a file that does not.
            let now = crate::helper::now().as_nanos().to_string();
            LOG.with(|log| rustix::io::pwrite(log, now.as_bytes(), 0))?;
            sys_xabort(0);
            bail!("sys_xabort did not roll the program back")
        }
        begun => {
            let now = crate::helper::now();
            ensure!(begun == 1, "sys_xbegin after an abort: {begun}");
            let mut text = [0; 32];
            let length = LOG.with(|log| rustix::io::pread(log, &mut text[..], 0))?;
            let before: u64 = std::str::from_utf8(&text[..length])?.parse()?;
            ensure!(sys_xend() == 0, "the second try did not commit");
            Ok((now.as_nanos() as u64).saturating_sub(before) as f64 / 1e9)
        }
    }
}

thread_local! {
    /// A file without a name, which no transaction carries.
    static LOG: std::os::fd::OwnedFd =
        rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC)
            .expect("a file in memory");
}

/// Writes to each page.
fn touch(pages: &mut [u8]) -> Result<()> {
    for page in pages.chunks_mut(PAGE) {
        page[7] = page[7].wrapping_add(1);
    }
    Ok(())
}

fn calls(file: &Path) -> Result<()> {
    access(file, Access::WRITE_OK)?;
    let mut opened = OpenOptions::new().write(true).open(file)?;
    opened.write_all(&[b'y'; 1024])?;
    Ok(())
}
