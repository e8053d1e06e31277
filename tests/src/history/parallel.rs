//! Making a history: random transactions, truly in parallel, beside an outsider who writes.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use super::register::{Register, Writer};
use super::{DIRECTORY, Event, Record};
use crate::exec::LIMIT;
use crate::scratch::Scratch;
use crate::txos::{Txos, helper};

/// Transactions that run at a time.
const AT_ONCE: u64 = 4;
/// The numbers of outsiders' writes begin after this one.
pub const OUTSIDERS: u64 = 1_000_000_000;
/// So many names an outsider makes at the most.
const OUTSIDE_NAMES: u64 = 20 * DIRECTORY;

/// The path of a name in the tree.
pub fn name(number: u64) -> String {
    format!("d{}/n{number}", number / DIRECTORY)
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// So many transactions.
    pub transactions: u64,
    /// From which the operations of each follow.
    pub seed: u64,
    /// A txos with a fault (see `txos_core::blind_to`), and the facet whose conflicts it passes over
    /// and which is used often then. What fails does not count: it has not committed.
    pub blind: Option<(PathBuf, String)>,
}

/// Runs them in the tree of `scratch`; gives all that committed, and what the outsider did.
///
/// # Panics
/// If a transaction fails, where none should, or the tree can't be made.
pub fn perform(scratch: &Scratch, plan: &Plan) -> Vec<Record> {
    let tree = scratch.inside();
    for register in Register::all(Writer::Inside).chain(Register::all(Writer::Outside)) {
        register.make(&tree).expect("a register");
    }
    for first in [0, OUTSIDERS] {
        let names = plan.transactions.max(OUTSIDE_NAMES) + DIRECTORY;
        for number in (first..first + names).step_by(DIRECTORY as usize) {
            let path = tree.join(name(number));
            std::fs::create_dir(path.parent().expect("a directory")).expect("the tree");
        }
    }
    let start = Instant::now();
    let clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let (next, history) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    let committed = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        // However the workers end: who waits for the outsider would wait for ever.
        let _stop = Stop(&stop);
        let outside = threads.spawn(|| outsider(&tree, &clock, &committed, &stop));
        let work = || {
            let worker = Worker { scratch, plan, clock: &clock };
            loop {
                let id = next.fetch_add(1, Ordering::Relaxed);
                if id > plan.transactions || stop.load(Ordering::Relaxed) {
                    return;
                }
                let record = worker.transaction(id);
                committed.fetch_add(1, Ordering::Relaxed);
                history.lock().expect("no panic while it is held").extend(record);
            }
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| threads.spawn(work)).collect();
        let ended: Vec<_> = workers.into_iter().map(ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        let outside = outside.join();
        if let Some(panic) = ended.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
        history.lock().expect("no panic while it is held").extend(outside.expect("the outsider"));
    });
    history.into_inner().expect("no panic while it is held")
}

/// Tells the others to stop when it goes.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Worker<'a> {
    scratch: &'a Scratch,
    plan: &'a Plan,
    clock: &'a dyn Fn() -> u64,
}

impl Worker<'_> {
    fn transaction(&self, id: u64) -> Option<Record> {
        let mut txos = Txos::new(self.scratch);
        if let Some((binary, facet)) = &self.plan.blind {
            txos = txos.binary(binary.clone()).env("TXOS_BLIND", facet);
        }
        let options = ["run", "-q", "--nondurable", "--retries", "1000", "--output", "deferred"];
        let mut args: Vec<String> = options.map(str::to_owned).to_vec();
        args.extend(["--".to_owned(), helper("historian").display().to_string()]);
        args.extend([id, self.plan.seed].map(|number| number.to_string()));
        args.extend(self.plan.blind.iter().map(|(_, facet)| facet.clone()));
        let begin = (self.clock)();
        let out = txos.start(args).end(LIMIT);
        let time = (begin, (self.clock)());
        if self.plan.blind.is_some() && out.code() != 0 {
            return None;
        }
        let lines = out.expect(0).stdout.lines();
        let events = lines.map(|line| line.parse().expect("an event")).collect();
        Some(Record { id, time, events })
    }
}

/// Writes the registers of outsiders, each by one system call, and makes names, until told to stop.
fn outsider(
    tree: &Path,
    clock: &dyn Fn() -> u64,
    committed: &AtomicU64,
    stop: &AtomicBool,
) -> Vec<Record> {
    let registers: Vec<Register> = Register::all(Writer::Outside).collect();
    let mut held = vec![0; registers.len()];
    let mut records = Vec::new();
    let mut names = 0;
    let mut id = OUTSIDERS;
    while !stop.load(Ordering::Relaxed) {
        let turn = (id % (registers.len() as u64 + 1)) as usize;
        let begin;
        let event = match registers.get(turn) {
            Some(register) => {
                id += 1;
                begin = clock();
                register.write(tree, id).expect("the tree");
                let before = std::mem::replace(&mut held[turn], id);
                Event::Wrote(register.to_string(), before, id)
            }
            None if names == OUTSIDE_NAMES => {
                id += 1;
                continue;
            }
            None => {
                names += 1;
                id += 1;
                let number = OUTSIDERS + names;
                begin = clock();
                std::fs::write(tree.join(name(number)), "").expect("the tree");
                Event::Made(number)
            }
        };
        records.push(Record { id, time: (begin, clock()), events: vec![event] });
        // One change for each commit, however slow the machine is: against one who always changes what
        // is read nobody would ever commit.
        while committed.load(Ordering::Relaxed) < records.len() as u64
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(Duration::from_micros(200));
        }
        thread::sleep(Duration::from_micros(id * 7919 % 10_000));
    }
    records
}
