//! Serializability, checked exactly: every section also counts up one cell, so the order in which
//! the sections took effect is known, and a replay in that order must read what each of them read.
#![cfg(not(loom))]

use cxlock::{CxLock, Engine, Plain, Policy, Restart, Rtm, Section, Stm, TCell, atomically};
use std::sync::Mutex;
use std::thread;

const THREADS: u64 = 4;
const ROUNDS: u64 = if cfg!(miri) { 10 } else { 10_000 };
const CELLS: usize = 6;

/// What one section saw and did.
#[derive(Debug, Clone, Default)]
struct Record {
    /// Value of the counter before; for sections that wrote, their place in the order.
    at: u64,
    reads: Vec<(usize, u64)>,
    writes: Vec<(usize, u64)>,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Optimistic,
    Nested,
    WithIo,
    NestedExclusive,
    Exclusive,
    ReadOnly,
}

const WAYS: [Way; 6] = [
    Way::Optimistic,
    Way::Nested,
    Way::WithIo,
    Way::NestedExclusive,
    Way::Exclusive,
    Way::ReadOnly,
];

struct System<E: Engine> {
    outer: CxLock<E>,
    inner: CxLock<E>,
    counter: TCell<u64, E>,
    cells: [TCell<u64, E>; CELLS],
}

/// What a section will do: cells to read, cells to write, and the values.
#[derive(Debug, Clone, Copy)]
struct Plan {
    way: Way,
    reads: [usize; 3],
    writes: [usize; 2],
    value: u64,
}

impl Plan {
    fn new(noise: &mut u64) -> Self {
        let mut next = |below: usize| {
            *noise ^= *noise << 13;
            *noise ^= *noise >> 7;
            *noise ^= *noise << 17;
            (*noise % below as u64) as usize
        };
        let (reads, writes) = ([0; 3].map(|_| next(CELLS)), [0; 2].map(|_| next(CELLS)));
        Self { way: WAYS[next(WAYS.len())], reads, writes, value: next(1 << 30) as u64 }
    }
}

impl<E: Engine> System<E> {
    fn new(policy: Policy) -> Self {
        let cells = [(); CELLS].map(|()| TCell::new(0));
        let (outer, inner) = (CxLock::with_policy(policy), CxLock::with_policy(policy));
        Self { outer, inner, counter: TCell::new(0), cells }
    }

    fn first_half<'c>(&'c self, s: &mut Section<'c, E>, plan: Plan) -> Result<Record, Restart> {
        let mut record = Record { at: s.read(&self.counter)?, ..Record::default() };
        for cell in plan.reads {
            record.reads.push((cell, s.read(&self.cells[cell])?));
        }
        Ok(record)
    }

    fn second_half<'c>(
        &'c self,
        s: &mut Section<'c, E>,
        plan: Plan,
        mut record: Record,
    ) -> Result<Record, Restart> {
        s.write(&self.counter, record.at + 1)?;
        for cell in plan.writes {
            s.write(&self.cells[cell], plan.value)?;
            record.writes.push((cell, plan.value));
        }
        Ok(record)
    }

    fn run(&self, plan: Plan) -> Record {
        match plan.way {
            Way::Optimistic => self.outer.optimistic(|s| {
                let record = self.first_half(s, plan)?;
                self.second_half(s, plan, record)
            }),
            Way::Nested => self.outer.optimistic(|s| {
                let record = self.first_half(s, plan)?;
                s.optimistic(&self.inner, |s| self.second_half(s, plan, record.clone()))
            }),
            Way::WithIo => self.outer.optimistic(|s| {
                let record = self.first_half(s, plan)?;
                s.io()?;
                self.second_half(s, plan, record)
            }),
            Way::NestedExclusive => self.outer.optimistic(|s| {
                let record = self.first_half(s, plan)?;
                let inner = s.exclusive(&self.inner)?;
                thread::yield_now();
                let record = self.second_half(s, plan, record)?;
                drop(inner);
                Ok(record)
            }),
            Way::Exclusive => {
                let guard = self.outer.exclusive();
                let mut record = Record { at: guard.read(&self.counter), ..Record::default() };
                for cell in plan.reads {
                    record.reads.push((cell, guard.read(&self.cells[cell])));
                }
                guard.write(&self.counter, record.at + 1);
                for cell in plan.writes {
                    guard.write(&self.cells[cell], plan.value);
                    record.writes.push((cell, plan.value));
                }
                record
            }
            Way::ReadOnly => self.outer.optimistic(|s| self.first_half(s, plan)),
        }
    }
}

fn replay(mut history: Vec<Record>) {
    // Readers come after the section that made the count they saw, before the next one.
    history.sort_by_key(|r| (r.at, !r.writes.is_empty()));
    let mut state = [0; CELLS];
    let mut count = 0;
    for record in &history {
        assert_eq!(record.at, count, "two sections at the same place: {record:?}");
        for &(cell, value) in &record.reads {
            assert_eq!(state[cell], value, "cell {cell} as of {count}: {record:?}");
        }
        for &(cell, value) in &record.writes {
            state[cell] = value;
        }
        count += u64::from(!record.writes.is_empty());
    }
}

fn collect(run: impl Fn(Plan) -> Record + Sync) {
    let history = Mutex::new(Vec::new());
    thread::scope(|t| {
        for thread in 0..THREADS {
            let (run, history) = (&run, &history);
            t.spawn(move || {
                let mut noise = 0x2545_f491_4f6c_dd1d ^ ((thread + 1) << 21);
                let records: Vec<_> = (0..ROUNDS).map(|_| run(Plan::new(&mut noise))).collect();
                history.lock().expect("no panic under it").extend(records);
            });
        }
    });
    let history = history.into_inner().expect("no panic under it");
    assert_eq!(history.len() as u64, THREADS * ROUNDS);
    replay(history);
}

fn sections<E: Engine>(policy: Policy) {
    let system = System::<E>::new(policy);
    collect(|plan| system.run(plan));
}

#[test]
fn software_is_serializable() {
    sections::<Stm>(Policy::ExclusiveFirst);
}

#[test]
fn software_with_transactions_first_is_serializable() {
    sections::<Stm>(Policy::TransactionsFirst { patience: 10 });
}

#[test]
fn hardware_or_what_stands_in_for_it_is_serializable() {
    sections::<Rtm>(Policy::ExclusiveFirst);
}

#[test]
fn plain_locks_are_serializable() {
    sections::<Plain>(Policy::ExclusiveFirst);
}

#[test]
fn transactions_without_a_lock_are_serializable() {
    let system = System::<Stm>::new(Policy::ExclusiveFirst);
    collect(|plan| {
        atomically(|tx| {
            let mut record = Record { at: tx.read(&system.counter)?, ..Record::default() };
            for cell in plan.reads {
                record.reads.push((cell, tx.read(&system.cells[cell])?));
            }
            if !matches!(plan.way, Way::ReadOnly) {
                tx.write(&system.counter, record.at + 1)?;
                for cell in plan.writes {
                    tx.write(&system.cells[cell], plan.value)?;
                    record.writes.push((cell, plan.value));
                }
            }
            Ok(record)
        })
    });
}

/// The checker must see a history that has no order.
#[test]
#[should_panic(expected = "cell 0 as of 1")]
fn the_checker_finds_a_lost_update() {
    let record = |at| Record { at, reads: vec![(0, 0)], writes: vec![(0, 7)] };
    replay(vec![record(0), record(1)]);
}
