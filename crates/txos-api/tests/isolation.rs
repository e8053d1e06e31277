//! Transactions that meet each other, and those who know nothing of transactions.

mod support;

use std::{
    fs,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use support::Place;
use txos_api::{Error, Facet, Options, System, Transaction};

/// Lets `first` read and write, then someone else act, then the first commit; gives what that gave.
fn meeting(
    place: &Place,
    first: impl FnOnce(&mut Transaction),
    meanwhile: impl FnOnce(),
) -> Result<(), Facet> {
    let mut tx = place.system.begin().expect("a transaction");
    first(&mut tx);
    meanwhile();
    match tx.commit() {
        Ok(()) => Ok(()),
        Err(Error::Conflict(conflicts)) => Err(conflicts[0].facet),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_was_read_must_not_have_changed() {
    let place = Place::new();
    place.put("f", "old");
    let f = place.path("f");
    let lost = meeting(
        &place,
        |tx| {
            let text = tx.read(&f).unwrap();
            tx.write(place.path("copy"), text).unwrap();
        },
        || place.put("f", "new"),
    );
    assert_eq!(lost, Err(Facet::Content));
    assert!(!place.path("copy").exists());
}

#[test]
fn a_name_that_was_absent_must_be_so_still() {
    let place = Place::new();
    let lock = place.path("lock");
    let lost = meeting(
        &place,
        |tx| {
            assert!(!tx.exists(&lock).unwrap());
            tx.write(place.path("held"), "").unwrap();
        },
        || place.put("lock", ""),
    );
    assert_eq!(lost, Err(Facet::Binding));
}

#[test]
fn a_listing_meets_every_new_name_and_two_new_names_do_not_meet() {
    let place = Place::new();
    let seen = meeting(
        &place,
        |tx| {
            let count = tx.list(place.dir()).unwrap().len();
            tx.write(place.path("count"), count.to_string()).unwrap();
        },
        || place.put("phantom", ""),
    );
    assert_eq!(seen, Err(Facet::Listing));
    let side_by_side =
        meeting(&place, |tx| tx.write(place.path("a"), "a").unwrap(), || place.put("b", "b"));
    assert_eq!(side_by_side, Ok(()));
    assert_eq!((place.get("a"), place.get("b")), ("a".into(), "b".into()));
}

#[test]
fn two_writers_of_different_parts_of_one_file_both_commit() {
    let place = Place::new();
    place.put("f", "0000000000");
    let f = place.path("f");
    let other = place.another();
    let both = meeting(
        &place,
        |tx| {
            assert_eq!(tx.read_range(&f, 0, 2).unwrap(), b"00");
            tx.write_range(&f, 0, "11").unwrap();
        },
        || {
            let transfer = |tx: &mut Transaction| {
                assert_eq!(tx.read_range(&f, 8, 2)?, b"00");
                tx.write_range(&f, 8, "22")
            };
            other.transaction(transfer).unwrap();
        },
    );
    assert_eq!(both, Ok(()));
    assert_eq!(place.get("f"), "1100000022");
    let overlapping = meeting(
        &place,
        |tx| {
            tx.read_range(&f, 0, 4).unwrap();
            tx.write_range(&f, 0, "3").unwrap();
        },
        || other.transaction(|tx| tx.write_range(&f, 3, "4")).unwrap(),
    );
    assert_eq!(overlapping, Err(Facet::Content));
}

#[test]
fn a_walk_meets_a_change_of_permissions_and_nothing_else_of_the_directory() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    place.put("d/f", "x");
    let walk = |tx: &mut Transaction| {
        tx.read(place.path("d/f")).unwrap();
        tx.write(place.path("out"), "").unwrap();
    };
    assert_eq!(meeting(&place, walk, || place.put("d/other", "")), Ok(()));
    let chmod = || {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(place.path("d"), fs::Permissions::from_mode(0o700)).unwrap();
    };
    assert_eq!(meeting(&place, walk, chmod), Err(Facet::Perms));
}

#[test]
fn a_directory_swapped_for_a_link_is_never_followed() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::create_dir(place.path("trap")).unwrap();
    let lost = meeting(
        &place,
        |tx| tx.write(place.path("d/f"), "secret").unwrap(),
        || {
            fs::rename(place.path("d"), place.path("away")).unwrap();
            std::os::unix::fs::symlink("trap", place.path("d")).unwrap();
        },
    );
    assert!(lost.is_err());
    assert!(!place.path("trap/f").exists());
    assert!(!place.path("away/f").exists());
}

#[test]
fn a_commit_is_no_conflict_with_itself() {
    let place = Place::new();
    place.put("empty", "");
    let grow = |tx: &mut Transaction| {
        tx.write(place.path("empty"), "x")?;
        tx.stat(place.path("empty")).map(drop)
    };
    let mut tx = place.system.begin().unwrap();
    grow(&mut tx).unwrap();
    tx.commit().unwrap();
    assert_eq!(place.get("empty"), "x");
}

#[test]
fn reads_repeat_or_the_transaction_ends() {
    let place = Place::new();
    place.put("f", "one");
    let mut tx = place.system.begin().unwrap();
    assert_eq!(tx.read(place.path("f")).unwrap(), b"one");
    place.put("f", "two");
    assert!(matches!(tx.read(place.path("f")), Err(Error::Conflict(_))));
}

#[test]
fn a_transaction_sees_no_half_of_another() {
    let place = Place::new();
    place.put("a", "0");
    place.put("b", "0");
    let end = AtomicBool::new(false);
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        let writer = place.another();
        let (end, seen, place) = (&end, &seen, &place);
        scope.spawn(move || {
            for number in 1..20_000 {
                if number > 200 && seen.load(Ordering::Relaxed) > 20 {
                    break;
                }
                let text = number.to_string();
                let both = |tx: &mut Transaction| {
                    tx.write(place.path("a"), &text)?;
                    tx.write(place.path("b"), &text)
                };
                writer.transaction(both).unwrap();
            }
            end.store(true, Ordering::Release);
        });
        let reader = place.another();
        while !end.load(Ordering::Acquire) {
            let mut tx = reader.begin().unwrap();
            // Also one that will lose never goes on with a mixture.
            let pair = tx.read(place.path("a")).and_then(|a| Ok((a, tx.read(place.path("b"))?)));
            match pair {
                Ok((a, b)) => {
                    assert_eq!(a, b);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(seen.into_inner() > 0);
}

#[test]
fn no_update_is_lost_between_threads_and_handles() {
    const THREADS: u64 = 4;
    const EACH: u64 = 15;
    let place = Place::with(Options { durable: false, retries: 100_000, ..Options::default() });
    place.put("counter", "0");
    place.put("log", "");
    let start = Arc::new(Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for number in 0..THREADS {
            // Half of them share a handle, half have one of their own.
            let system = if number % 2 == 0 { Arc::clone(&place.system) } else { place.another() };
            let (start, place) = (Arc::clone(&start), &place);
            scope.spawn(move || {
                start.wait();
                for _ in 0..EACH {
                    count(&system, place);
                }
            });
        }
    });
    assert_eq!(place.get("counter"), (THREADS * EACH).to_string());
    assert_eq!(place.get("log").len() as u64, THREADS * EACH);
}

fn count(system: &Arc<System>, place: &Place) {
    let counted = system.transaction(|tx| {
        let text = tx.read(place.path("counter"))?;
        let number: u64 = String::from_utf8_lossy(&text).parse().map_err(Error::abort)?;
        tx.write(place.path("counter"), (number + 1).to_string())?;
        tx.append(place.path("log"), "x")
    });
    counted.expect("it commits in the end");
}

#[test]
fn write_skew_does_not_happen() {
    let place = Place::with(Options { durable: false, retries: 100_000, ..Options::default() });
    place.put("x", "1");
    place.put("y", "1");
    // Each takes one away from its own file if the sum of both allows it: never both.
    thread::scope(|scope| {
        for own in ["x", "y"] {
            let (system, place) = (place.another(), &place);
            scope.spawn(move || {
                let taken = system.transaction(|tx| {
                    let number = |bytes: Vec<u8>| {
                        String::from_utf8_lossy(&bytes).parse::<i64>().map_err(Error::abort)
                    };
                    let sum =
                        number(tx.read(place.path("x"))?)? + number(tx.read(place.path("y"))?)?;
                    if sum >= 2 {
                        tx.write(place.path(own), "0")?;
                    }
                    Ok(())
                });
                taken.unwrap();
            });
        }
    });
    let sum: i64 = ["x", "y"].iter().map(|name| place.get(name).parse::<i64>().unwrap()).sum();
    assert_eq!(sum, 1);
}

#[test]
fn an_error_of_the_closure_aborts_and_comes_back() {
    let place = Place::new();
    let result: Result<(), Error> = place.system.transaction(|tx| {
        tx.write(place.path("f"), "never")?;
        Err(Error::abort("changed my mind"))
    });
    assert_eq!(result.unwrap_err().to_string(), "changed my mind");
    assert!(!place.path("f").exists());
}

#[test]
fn losses_without_end_come_to_an_end() {
    let place = Place::with(Options { durable: false, retries: 3, ..Options::default() });
    place.put("f", "0");
    let mut runs = 0;
    let result = place.system.transaction(|tx| {
        runs += 1;
        tx.read(place.path("f"))?;
        place.put("f", &runs.to_string());
        tx.write(place.path("g"), "")
    });
    assert!(matches!(result, Err(Error::Retries { attempts: 4, .. })), "{result:?}");
    assert_eq!(runs, 4);
    assert!(!place.path("g").exists());
}

#[test]
fn who_loses_again_and_again_gets_a_turn() {
    use std::time::Duration;
    let place = Place::new();
    place.put("f", "0");
    let (f, copy) = (place.path("f"), place.path("copy"));
    let (stop, commits) = (AtomicBool::new(false), AtomicU64::new(0));
    let another = place.another();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = commits.load(Ordering::Relaxed) + 1;
                another.transaction(|tx| tx.write(&f, number.to_string())).unwrap();
                commits.store(number, Ordering::Relaxed);
            }
        });
        let mut attempts = 0;
        let copied = place.system.transaction(|tx| {
            attempts += 1;
            let text = tx.read(&f)?;
            let begun = commits.load(Ordering::Relaxed);
            // Until others have committed, unless nobody can: then it looks for a while.
            for _ in 0..if attempts < 9 { 30_000 } else { 100 } {
                if commits.load(Ordering::Relaxed) > begun + 1 {
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
            tx.write(&copy, &text)?;
            Ok(text)
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(place.get("copy").as_bytes(), copied.unwrap());
        assert_eq!(attempts, 9, "eight losses, then nobody else commits");
    });
}

/// A closure that waits for another's commit is not waited for in vain.
#[test]
fn a_turn_that_is_not_used_ends() {
    let place = Place::new();
    place.put("f", "0");
    let (f, other) = (place.path("f"), place.path("other"));
    let mut attempts = 0;
    place
        .system
        .attempts_of(1, &mut |mut tx| {
            attempts += 1;
            let text = tx.read(&f)?;
            if attempts == 1 {
                place.put("f", "1");
            }
            place.another().transaction(|tx| tx.write(&other, "made beside it"))?;
            tx.write(place.path("copy"), text)?;
            tx.commit()
        })
        .unwrap();
    assert_eq!((attempts, place.get("copy").as_str()), (2, "1"));
}

/// Exchanges a directory and a link to a trap as fast as it can, until dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Swapper {
    fn start(dir: std::path::PathBuf, link: std::path::PathBuf) -> Swapper {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) || swaps % 2 == 1 {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).expect("an exchange");
                swaps += 1;
            }
            swaps
        });
        Swapper { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it ended well")
    }
}

#[test]
fn nothing_gets_through_a_link_that_is_swapped_in_and_out() {
    let place = Place::new();
    for dir in ["d", "d/e", "trap", "trap/e"] {
        fs::create_dir(place.path(dir)).unwrap();
    }
    for file in ["d/e/f", "trap/e/f"] {
        place.put(file, "old");
    }
    std::os::unix::fs::symlink("trap", place.path("link")).unwrap();
    let trap = support::tree(&place.path("trap"));
    let swapper = Swapper::start(place.path("d"), place.path("link"));
    let mut commits = 0;
    for round in 0..3000 {
        let mut tx = place.system.begin().unwrap();
        let made = (|| {
            // Through a link nobody goes on, as one who looks first.
            if tx.lstat(place.path("d"))?.kind != txos_api::FileKind::Dir {
                return Ok(false);
            }
            tx.write(place.path("d/e/f"), format!("{round}"))?;
            tx.write(place.path(&format!("d/e/n{round}")), "new")?;
            tx.rename(place.path("d/e/f"), place.path("d/e/g"))?;
            tx.rename(place.path("d/e/g"), place.path("d/e/f"))?;
            tx.commit()?;
            Ok::<bool, Error>(true)
        })();
        match made {
            Ok(done) => commits += u32::from(done),
            Err(Error::Conflict(_)) => {}
            // It vanished between two calls of one look, which a plain call would have met as well.
            Err(Error::Os { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(support::tree(&place.path("trap")), trap, "round {round}");
    }
    let swaps = swapper.end();
    assert!(swaps > 3000, "{swaps} swaps");
    println!("{swaps} swaps, {commits} of 3000 transactions committed");
}

#[test]
fn an_operation_that_fails_for_what_others_changed_is_a_conflict() {
    let place = Place::new();
    place.put("f", "old");
    let (f, g) = (place.path("f"), place.path("g"));
    let lost = meeting(&place, |tx| tx.rename(&f, &g).unwrap(), || fs::remove_file(&f).unwrap());
    assert_eq!(lost, Err(Facet::Binding));
    let lost = meeting(&place, |tx| tx.create(&f, 0o600).unwrap(), || place.put("f", "theirs"));
    assert_eq!(lost, Err(Facet::Binding));
}
