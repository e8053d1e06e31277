//! A software transactional memory and system transactions that commit together: the memory's commit holds
//! what it read and wrote while it asks `sys_xend`, and follows its answer (see `api_two_phase`).
//!
//! Called in an empty directory. Several threads move one unit at a time from a memory cell to a file.

use std::fs;
use std::sync::Barrier;
use std::thread;

use cxlock::{CommitError, Stm, TCell, Transaction};
use txos::{TX_NO_USER_ROLLBACK, TX_NONDURABLE, sys_xabort, sys_xbegin, sys_xend};

const THREADS: u32 = 4;
const ROUNDS: u32 = 10;

/// Why a try was lost.
#[derive(Debug, Default)]
struct Lost {
    by_memory: u32,
    by_files: u32,
}

fn main() {
    let cell = TCell::<u32, Stm>::new(THREADS * ROUNDS);
    fs::write("count", "0").expect("the file");
    let lost: Vec<Lost> = thread::scope(|scope| {
        let movers: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| move_units(&cell))).collect();
        movers.into_iter().map(|mover| mover.join().expect("a mover")).collect()
    });
    let files: u32 = lost.iter().map(|lost| lost.by_files).sum();
    let memory: u32 = lost.iter().map(|lost| lost.by_memory).sum();
    println!("lost by memory {memory}, by files {files}");
    assert_eq!(cell.peek(), 0);
    assert_eq!(count(), Some(THREADS * ROUNDS));
    refused_together();
}

fn count() -> Option<u32> {
    fs::read_to_string("count").ok()?.trim().parse().ok()
}

fn move_units(cell: &TCell<u32, Stm>) -> Lost {
    let mut lost = Lost::default();
    let mut moved = 0;
    txos::tx_set_max_retries(u32::MAX);
    while moved < ROUNDS {
        let begun = sys_xbegin(TX_NO_USER_ROLLBACK | TX_NONDURABLE);
        assert!(begun >= 0, "sys_xbegin: {begun}");
        let mut memory = Transaction::begin();
        let written = memory.read(cell).and_then(|left| memory.write(cell, left - 1));
        // In a doomed transaction a call on the file may fail; its end says so.
        if let Some(now) = count() {
            let _ = fs::write("count", (now + 1).to_string());
        }
        if written.is_err() {
            sys_xabort(0);
            lost.by_memory += 1;
            continue;
        }
        let mut asked = false;
        let outcome = memory.commit_with(|| {
            asked = true;
            match sys_xend() {
                0 => Ok(()),
                error => Err(error),
            }
        });
        match outcome {
            Ok(()) => moved += 1,
            Err(CommitError::Refused(_)) => lost.by_files += 1,
            Err(_) => {
                assert!(!asked, "asked although it has lost");
                sys_xabort(0);
                lost.by_memory += 1;
            }
        }
    }
    lost
}

/// What the files refuse does not happen in memory either, and the other way round.
fn refused_together() {
    let cell = TCell::<u32, Stm>::new(1);
    let (now, done) = (Barrier::new(2), Barrier::new(2));
    let (refused, seen) = thread::scope(|scope| {
        // Another thread, outside any transaction, changes what was read. It was there before: one that
        // is started inside belongs to the transaction.
        scope.spawn(|| {
            now.wait();
            fs::write("count", "1000").expect("the file");
            done.wait();
        });
        let begun = sys_xbegin(TX_NO_USER_ROLLBACK | TX_NONDURABLE);
        assert!(begun >= 0, "sys_xbegin: {begun}");
        let seen = count();
        let mut memory = Transaction::begin();
        memory.write(&cell, 2).expect("nobody else");
        now.wait();
        done.wait();
        let refused = memory.commit_with(|| match sys_xend() {
            0 => Ok(()),
            error => Err(error),
        });
        (refused, seen)
    });
    assert!(matches!(refused, Err(CommitError::Refused(code)) if code < 0), "{refused:?}");
    assert_eq!((cell.peek(), seen, count()), (1, Some(THREADS * ROUNDS), Some(1000)));
}
