//! Many threads for a while: money is neither made nor lost, lists stay sorted, in mixed modes and
//! with I/O inside.
#![cfg(not(loom))]

use cxlock::machine::Mode;
use cxlock::{
    CxLock, CxMutex, Engine, Plain, Policy, Restart, Rtm, Section, Stm, TCell, atomically,
};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

const THREADS: u64 = 4;
const ROUNDS: u64 = if cfg!(miri) { 15 } else { 60_000 };

/// Small noise, the same in each run.
struct Noise(u64);

impl Noise {
    fn of(thread: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ ((thread + 1) << 17))
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn on_threads(work: impl Fn(Noise) + Sync) {
    thread::scope(|t| {
        for thread in 0..THREADS {
            let work = &work;
            t.spawn(move || work(Noise::of(thread)));
        }
    });
}

struct Bank<E: Engine> {
    lock: CxLock<E>,
    accounts: Vec<TCell<i64, E>>,
    /// What must be done once for each transfer that asks for it, by one thread at a time.
    printer: Mutex<u64>,
    printing: AtomicU32,
}

const ACCOUNTS: u64 = 8;

impl<E: Engine> Bank<E> {
    fn new(policy: Policy) -> Self {
        let accounts = (0..ACCOUNTS).map(|_| TCell::new(100)).collect();
        let lock = CxLock::with_policy(policy).with_stats();
        Self { lock, accounts, printer: Mutex::new(0), printing: AtomicU32::new(0) }
    }

    fn transfer(&self, from: usize, to: usize, print: bool) {
        self.lock.optimistic(|s| {
            let (a, b) = (&self.accounts[from], &self.accounts[to]);
            let have = s.read(a)?;
            s.write(a, have - 1)?;
            if print {
                s.io()?;
                self.print(s.mode());
            }
            let have = s.read(b)?;
            s.write(b, have + 1)
        });
    }

    fn print(&self, mode: Mode) {
        assert_eq!(mode, Mode::Exclusive);
        assert_eq!(self.printing.fetch_add(1, Ordering::SeqCst), 0, "two threads do I/O at once");
        *self.printer.lock().expect("no panic under it") += 1;
        self.printing.fetch_sub(1, Ordering::SeqCst);
    }

    fn transfer_exclusively(&self, from: usize, to: usize) {
        let guard = self.lock.exclusive();
        self.print(Mode::Exclusive);
        guard.write(&self.accounts[from], guard.read(&self.accounts[from]) - 1);
        thread::yield_now();
        guard.write(&self.accounts[to], guard.read(&self.accounts[to]) + 1);
    }
}

fn bank<E: Engine>(policy: Policy) {
    let bank = Bank::<E>::new(policy);
    let printed = AtomicU32::new(0);
    on_threads(|mut noise| {
        for _ in 0..ROUNDS {
            let (from, to) = (noise.next(ACCOUNTS) as usize, noise.next(ACCOUNTS) as usize);
            match noise.next(16) {
                0 => {
                    printed.fetch_add(1, Ordering::Relaxed);
                    bank.transfer_exclusively(from, to);
                }
                1 => {
                    printed.fetch_add(1, Ordering::Relaxed);
                    bank.transfer(from, to, true);
                }
                2..10 => bank.transfer(from, to, false),
                _ => bank.lock.optimistic(|s| {
                    let mut sum = 0;
                    for account in &bank.accounts {
                        sum += s.read(account)?;
                    }
                    assert_eq!(sum, 100 * ACCOUNTS as i64, "not one state, in {:?}", s.mode());
                    Ok(())
                }),
            }
        }
    });
    let sum: i64 = bank.accounts.iter().map(TCell::peek).sum();
    assert_eq!(sum, 100 * ACCOUNTS as i64);
    let printed = u64::from(printed.into_inner());
    assert_eq!(*bank.printer.lock().expect("no panic under it"), printed);
    let stats = bank.lock.stats().expect("made with counters");
    assert_eq!(stats.commits + stats.exclusive, THREADS * ROUNDS, "{stats}");
    if E::available() {
        assert!(stats.commits > 0, "{stats}");
    }
}

#[test]
fn bank_on_software() {
    bank::<Stm>(Policy::ExclusiveFirst);
}

#[test]
fn bank_on_software_with_transactions_first() {
    bank::<Stm>(Policy::TransactionsFirst { patience: 20 });
}

#[test]
fn bank_on_hardware_or_what_stands_in_for_it() {
    bank::<Rtm>(Policy::ExclusiveFirst);
}

#[test]
fn bank_on_plain_locks() {
    bank::<Plain>(Policy::ExclusiveFirst);
}

/// A sorted list in an arena of cells: long read sets, writes in the middle, pointers that a doomed
/// attempt could follow anywhere.
struct List {
    lock: CxLock<Stm>,
    /// Key of each node; node 0 is the head.
    keys: Vec<TCell<u32, Stm>>,
    nexts: Vec<TCell<Option<u32>, Stm>>,
    free: TCell<Option<u32>, Stm>,
}

const KEYS: u64 = 32;

impl List {
    fn new() -> Self {
        let nodes = KEYS as u32 + 1;
        // All nodes but the head are free, each linked to the next one.
        let nexts =
            (0..nodes).map(|i| TCell::new((i > 0 && i + 1 < nodes).then_some(i + 1))).collect();
        let keys = (0..nodes).map(|_| TCell::new(0)).collect();
        Self { lock: CxLock::new(), keys, nexts, free: TCell::new(Some(1)) }
    }

    /// The last node with a smaller key, and the node behind it.
    fn find<'c>(
        &'c self,
        s: &mut Section<'c, Stm>,
        key: u32,
    ) -> Result<(usize, Option<u32>), Restart> {
        let mut at = 0;
        let mut last = 0;
        loop {
            let next = s.read(&self.nexts[at])?;
            let Some(node) = next else { return Ok((at, None)) };
            let found = s.read(&self.keys[node as usize])?;
            assert!(found > last, "a list that is not sorted: {last} before {found}");
            if found >= key {
                return Ok((at, next));
            }
            (at, last) = (node as usize, found);
        }
    }

    /// Inserts if absent, removes if present; whether it was inserted.
    fn toggle(&self, key: u32) -> bool {
        self.lock.optimistic(|s| {
            let (before, at) = self.find(s, key)?;
            match at {
                Some(node) if s.read(&self.keys[node as usize])? == key => {
                    let behind = s.read(&self.nexts[node as usize])?;
                    s.write(&self.nexts[before], behind)?;
                    let free = s.read(&self.free)?;
                    s.write(&self.nexts[node as usize], free)?;
                    s.write(&self.free, Some(node))?;
                    Ok(false)
                }
                at => {
                    let node = s.read(&self.free)?.expect("as many nodes as keys");
                    let free = s.read(&self.nexts[node as usize])?;
                    s.write(&self.free, free)?;
                    s.write(&self.keys[node as usize], key)?;
                    s.write(&self.nexts[node as usize], at)?;
                    s.write(&self.nexts[before], Some(node))?;
                    Ok(true)
                }
            }
        })
    }
}

#[test]
fn a_list_stays_sorted() {
    let list = List::new();
    let balance: Vec<AtomicU32> = (0..=KEYS).map(|_| AtomicU32::new(0)).collect();
    on_threads(|mut noise| {
        for _ in 0..ROUNDS / 2 {
            let key = noise.next(KEYS) as u32 + 1;
            list.toggle(key);
            balance[key as usize].fetch_add(1, Ordering::Relaxed);
        }
    });
    // A key that was toggled an odd number of times is in.
    let present = list.lock.optimistic(|s| {
        let mut present = Vec::new();
        let mut at = s.read(&list.nexts[0])?;
        while let Some(node) = at {
            present.push(s.read(&list.keys[node as usize])?);
            at = s.read(&list.nexts[node as usize])?;
        }
        Ok(present)
    });
    let odd = (1..=KEYS as u32)
        .filter(|&key| balance[key as usize].load(Ordering::Relaxed) % 2 == 1)
        .collect::<Vec<_>>();
    assert_eq!(present, odd);
}

/// Real output inside of sections: each line is written once, whole, and in the order of the counter
/// that the same section counts up.
#[test]
#[cfg_attr(miri, ignore = "writes a file")]
fn lines_in_a_file_are_in_the_order_of_their_sections() {
    let path = std::env::temp_dir().join(format!("cxlock-stress-{}", std::process::id()));
    let mut options = File::options();
    let mut file =
        options.create_new(true).read(true).write(true).open(&path).expect("a fresh file");
    std::fs::remove_file(&path).expect("it is there");
    let (lock, counter) = (CxLock::<Stm>::new(), TCell::<u64, Stm>::new(0));
    let rounds = ROUNDS / 10;
    on_threads(|mut noise| {
        for _ in 0..rounds {
            let log = noise.next(2) == 0;
            lock.optimistic(|s| {
                let n = s.read(&counter)?;
                s.write(&counter, n + 1)?;
                if log {
                    s.io()?;
                    writeln!(&file, "{n}").expect("room for a line");
                }
                Ok(())
            });
        }
    });
    assert_eq!(counter.peek(), THREADS * rounds);
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).expect("a regular file");
    file.read_to_string(&mut text).expect("text");
    let numbers: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "out of order or twice");
    assert!(numbers.len() as u64 > rounds && (numbers.len() as u64) < THREADS * rounds);
}

#[test]
fn transactions_without_a_lock() {
    let cells: Vec<TCell<u64, Stm>> = (0..64).map(|_| TCell::new(0)).collect();
    on_threads(|mut noise| {
        for _ in 0..ROUNDS / 4 {
            let width = noise.next(40) as usize + 2;
            let start = noise.next(64 - width as u64 + 1) as usize;
            atomically(|tx| {
                for cell in &cells[start..start + width] {
                    let n = tx.read(cell)?;
                    tx.write(cell, n + 1)?;
                }
                // What is read after so many writes, beyond the index, is one's own.
                for pair in cells[start..start + width].windows(2) {
                    let _ = (tx.read(&pair[0])?, tx.read(&pair[1])?);
                }
                Ok(())
            });
        }
    });
    let mut expected = vec![0_u64; 64];
    for thread in 0..THREADS {
        let mut noise = Noise::of(thread);
        for _ in 0..ROUNDS / 4 {
            let width = noise.next(40) as usize + 2;
            let start = noise.next(64 - width as u64 + 1) as usize;
            expected[start..start + width].iter_mut().for_each(|n| *n += 1);
        }
    }
    assert!(cells.iter().map(TCell::peek).eq(expected));
}

#[test]
fn a_mutex_counts() {
    let mutex = CxMutex::new(0_u64);
    on_threads(|mut noise| {
        for _ in 0..ROUNDS {
            match noise.next(4) {
                0 => *mutex.lock_exclusive() += 1,
                1 => loop {
                    if let Some(mut guard) = mutex.try_lock() {
                        *guard += 1;
                        break;
                    }
                    thread::yield_now();
                },
                _ => *mutex.lock() += 1,
            }
        }
    });
    assert_eq!(mutex.into_inner(), THREADS * ROUNDS);
}
