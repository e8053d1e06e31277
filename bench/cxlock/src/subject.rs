//! The locks that are compared, behind one interface: sections over an array of counters.
//!
//! A section reads a few counters and may add to one of them; that is all that the workloads need,
//! and every lock can do it as its users would: data inside of a mutex where it owns its data,
//! transactional cells where it has those.

use cxlock::{CxLock, CxMutex, Engine, Plain, Rtm, Section, Stm, TCell, atomically};
use std::hint::black_box;

/// What one section touches.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// First counter that is read.
    pub from: usize,
    /// How many are read.
    pub reads: usize,
    /// Whether the first of them is incremented.
    pub write: bool,
    /// Rounds of arithmetic between the reads and the write: how long the section takes.
    pub work: u32,
}

/// A lock and the counters that it protects.
pub trait Subject: Sync {
    fn run(&self, access: Access) -> u64;
    fn total(&self) -> u64;
}

/// Arithmetic that the compiler can't shorten.
fn work(rounds: u32, seed: u64) -> u64 {
    (0..rounds).fold(seed, |x, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005) | 1))
}

fn plain_section(counters: &[u64], access: Access) -> u64 {
    let sum = counters[access.from..access.from + access.reads].iter().sum();
    black_box(work(access.work, sum));
    sum
}

macro_rules! mutexes {
    ($($name:ident: $mutex:ty, |$lock:ident| $guard:expr;)*) => {$(
        pub struct $name($mutex);

        impl $name {
            pub fn new(counters: usize) -> Self {
                Self(<$mutex>::new(vec![0; counters]))
            }
        }

        impl Subject for $name {
            fn run(&self, access: Access) -> u64 {
                let $lock = &self.0;
                let mut counters = $guard;
                let sum = plain_section(&counters, access);
                counters[access.from] += u64::from(access.write);
                sum
            }

            fn total(&self) -> u64 {
                let $lock = &self.0;
                let counters = $guard;
                counters.iter().sum()
            }
        }
    )*};
}

mutexes! {
    StdMutex: std::sync::Mutex<Vec<u64>>, |lock| lock.lock().unwrap_or_else(|e| e.into_inner());
    ParkingMutex: parking_lot::Mutex<Vec<u64>>, |lock| lock.lock();
    SpinMutex: spin::Mutex<Vec<u64>>, |lock| lock.lock();
    Elided: CxMutex<Vec<u64>>, |lock| lock.lock();
}

macro_rules! reader_writer_locks {
    ($($name:ident: $lock:ty, |$l:ident| $read:expr, $write:expr;)*) => {$(
        pub struct $name($lock);

        impl $name {
            pub fn new(counters: usize) -> Self {
                Self(<$lock>::new(vec![0; counters]))
            }
        }

        impl Subject for $name {
            fn run(&self, access: Access) -> u64 {
                let $l = &self.0;
                if access.write {
                    let mut counters = $write;
                    let sum = plain_section(&counters, access);
                    counters[access.from] += 1;
                    sum
                } else {
                    plain_section(&$read, access)
                }
            }

            fn total(&self) -> u64 {
                let $l = &self.0;
                $read.iter().sum()
            }
        }
    )*};
}

reader_writer_locks! {
    StdRwLock: std::sync::RwLock<Vec<u64>>,
        |lock| lock.read().unwrap_or_else(|e| e.into_inner()),
        lock.write().unwrap_or_else(|e| e.into_inner());
    ParkingRwLock: parking_lot::RwLock<Vec<u64>>, |lock| lock.read(), lock.write();
    SpinRwLock: spin::RwLock<Vec<u64>>, |lock| lock.read(), lock.write();
}

/// `CxLock` on an engine, optimistic or always exclusive.
pub struct Cooperative<E: Engine> {
    lock: CxLock<E>,
    cells: Vec<TCell<u64, E>>,
    exclusive: bool,
}

impl<E: Engine> Cooperative<E> {
    pub fn new(counters: usize, exclusive: bool) -> Self {
        let cells = (0..counters).map(|_| TCell::new(0)).collect();
        Self { lock: CxLock::new(), cells, exclusive }
    }
}

impl<E: Engine> Subject for Cooperative<E> {
    fn run(&self, access: Access) -> u64 {
        if self.exclusive {
            let guard = self.lock.exclusive();
            let cells = &self.cells[access.from..access.from + access.reads];
            let sum = cells.iter().map(|cell| guard.read(cell)).sum();
            black_box(work(access.work, sum));
            if access.write {
                guard.write(&cells[0], guard.read(&cells[0]) + 1);
            }
            return sum;
        }
        self.lock.optimistic(|s: &mut Section<'_, E>| {
            let cells = &self.cells[access.from..access.from + access.reads];
            let mut sum = 0;
            for cell in cells {
                sum += s.read(cell)?;
            }
            black_box(work(access.work, sum));
            if access.write {
                let n = s.read(&cells[0])?;
                s.write(&cells[0], n + 1)?;
            }
            Ok(sum)
        })
    }

    fn total(&self) -> u64 {
        self.cells.iter().map(TCell::peek).sum()
    }
}

/// Software transactions without a lock.
pub struct Atomically(Vec<TCell<u64, Stm>>);

impl Subject for Atomically {
    fn run(&self, access: Access) -> u64 {
        let cells = &self.0[access.from..access.from + access.reads];
        atomically(|tx| {
            let mut sum = 0;
            for cell in cells {
                sum += tx.read(cell)?;
            }
            black_box(work(access.work, sum));
            if access.write {
                let n = tx.read(&cells[0])?;
                tx.write(&cells[0], n + 1)?;
            }
            Ok(sum)
        })
    }

    fn total(&self) -> u64 {
        self.0.iter().map(TCell::peek).sum()
    }
}

/// All subjects, by the name in the table.
pub fn all(counters: usize) -> Vec<(&'static str, Box<dyn Subject>)> {
    vec![
        ("std Mutex", Box::new(StdMutex::new(counters))),
        ("std RwLock", Box::new(StdRwLock::new(counters))),
        ("parking_lot Mutex", Box::new(ParkingMutex::new(counters))),
        ("parking_lot RwLock", Box::new(ParkingRwLock::new(counters))),
        ("spin Mutex", Box::new(SpinMutex::new(counters))),
        ("spin RwLock", Box::new(SpinRwLock::new(counters))),
        ("CxMutex", Box::new(Elided::new(counters))),
        ("CxLock, rtm", Box::new(Cooperative::<Rtm>::new(counters, false))),
        ("CxLock, lock", Box::new(Cooperative::<Plain>::new(counters, false))),
        ("CxLock, stm, optimistic", Box::new(Cooperative::<Stm>::new(counters, false))),
        ("CxLock, stm, exclusive", Box::new(Cooperative::<Stm>::new(counters, true))),
        (
            "stm without a lock",
            Box::new(Atomically((0..counters).map(|_| TCell::new(0)).collect())),
        ),
    ]
}
