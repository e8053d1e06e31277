//! The state machine explored: every cell of its tables, and every interleaving of every small
//! program on it.
#![cfg(not(any(loom, miri)))]

mod model;
mod search;
mod tables;

use cxlock::machine::Manager;
use model::{Design, Ends, Lock, Op, Target};
use search::{Findings, explore};

use Op::{Begin, Commit, End, Exclusive, Io, Optimistic};

const MANAGERS: [Manager; 2] = [Manager::Restart, Manager::Wait];
const TARGETS: [Target; 2] = [Target::Outermost, Target::EachLevel];

/// Designs that must hold in every program.
fn good_designs() -> impl Iterator<Item = Design> {
    MANAGERS.into_iter().flat_map(|manager| {
        TARGETS.into_iter().map(move |target| Design { manager, target, ..Design::OURS })
    })
}

/// One section, or nothing: up to `depth` nested locks taken in ascending order from `first`, of
/// both kinds, with I/O before or after what is nested, ended in order and out of it.
fn programs(first: Lock, locks: Lock, depth: u32) -> Vec<Vec<Op>> {
    let mut all = vec![vec![]];
    if depth == 0 {
        return all;
    }
    for lock in first..locks {
        let nested = programs(lock + 1, locks, depth - 1);
        let bodies = nested.into_iter().flat_map(|nested| {
            let before = [&[Io], &nested[..]].concat();
            let after = (!nested.is_empty()).then(|| [&nested[..], &[Io]].concat());
            [Some(nested), Some(before), after].into_iter().flatten()
        });
        for body in bodies {
            for start in [Optimistic(lock), Exclusive(lock)] {
                let mut program = [&[start], &body[..], &[End(lock)]].concat();
                all.push(program.clone());
                // The same, ended before the last thing that is nested in it ends.
                let last = program.len() - 1;
                if matches!((start, program[last - 1]), (Exclusive(_), End(_))) {
                    program.swap(last - 1, last);
                    all.push(program);
                }
            }
        }
    }
    all
}

/// Explores all combinations with repetition of so many programs, and gives the number of states.
fn explore_all(programs: &[Vec<Op>], chosen: &mut Vec<usize>, threads: usize) -> usize {
    if chosen.len() == threads {
        let together: Vec<&[Op]> = chosen.iter().map(|&i| &programs[i][..]).collect();
        let run = |design| {
            let found = explore(&together, &design);
            assert!(found.is_clean(), "{together:?} {design:?}: {found:?}");
            found.states
        };
        return good_designs().map(run).sum();
    }
    let from = chosen.last().copied().unwrap_or(0);
    let mut states = 0;
    for next in from..programs.len() {
        chosen.push(next);
        states += explore_all(programs, chosen, threads);
        chosen.pop();
    }
    states
}

#[test]
fn two_threads_on_three_locks() {
    let programs = programs(0, 3, 3);
    let stride = if cfg!(debug_assertions) { 9 } else { 1 };
    let programs: Vec<_> = programs.into_iter().step_by(stride).collect();
    let states = explore_all(&programs, &mut Vec::new(), 2);
    println!("{} programs, {states} states", programs.len());
    assert!(programs.len() > 40 && states > 100_000);
}

#[test]
fn three_threads_on_two_locks() {
    let programs = programs(0, 2, 2);
    let stride = if cfg!(debug_assertions) { 3 } else { 1 };
    let programs: Vec<_> = programs.into_iter().skip(1).step_by(stride).collect();
    let states = explore_all(&programs, &mut Vec::new(), 3);
    println!("{} programs, {states} states", programs.len());
    assert!(programs.len() > 10 && states > 100_000);
}

/// Section 5.3: t1 is in a transaction, has been in A, and wants B; t2 holds B and wants A.
const NESTED: [Op; 6] = [Optimistic(2), Optimistic(0), End(0), Optimistic(1), End(1), End(2)];
const LOCKING: [Op; 4] = [Exclusive(1), Exclusive(0), End(0), End(1)];

fn run_5_3(design: Design) -> Findings {
    explore(&[&NESTED, &LOCKING], &design)
}

#[test]
fn the_deadlock_of_section_5_3_and_its_end() {
    let polite = Design { manager: Manager::Wait, ..Design::OURS };
    let found = run_5_3(Design { waiting_loses: false, ..polite });
    assert!(found.deadlocks > 0 && found.faults.is_empty(), "the paper's deadlock: {found:?}");
    assert!(run_5_3(polite).is_clean());
    assert!(run_5_3(Design::OURS).is_clean());
    // Plain locks in the same places would not deadlock.
    let plain: Vec<Op> = NESTED
        .into_iter()
        .map(|op| if let Optimistic(lock) = op { Exclusive(lock) } else { op })
        .collect();
    assert!(explore(&[&plain, &LOCKING], &Design::OURS).is_clean());
}

#[test]
fn a_debtor_that_waits_deadlocks_unless_it_restarts() {
    let debtor = [Exclusive(0), Optimistic(1), End(0), Optimistic(2), End(2), End(1)];
    let other = [Exclusive(2), Exclusive(0), End(0), End(2)];
    let found = explore(&[&debtor, &other], &Design { debtors_restart: false, ..Design::OURS });
    assert!(found.deadlocks > 0, "{found:?}");
    for design in good_designs() {
        assert!(explore(&[&debtor, &other], &design).is_clean());
    }
}

#[test]
fn ends_by_transaction_break_release_out_of_order() {
    let program = [Exclusive(0), Optimistic(1), End(0), End(1)];
    let found = explore(&[&program], &Design { ends: Ends::ByTransaction, ..Design::OURS });
    assert!(!found.faults.is_empty(), "A stays locked: {found:?}");
    for design in good_designs() {
        assert!(explore(&[&program], &design).is_clean());
    }
}

#[test]
fn a_naked_transaction_around_a_lock_can_loop() {
    let naked = [Begin, Optimistic(0), Io, End(0), Commit];
    let found = explore(&[&naked], &Design::OURS);
    assert_eq!((found.deadlocks, found.faults.len()), (0, 0));
    assert!(found.hopeless > 0, "{found:?}");
    // It is harmless as long as nothing inside needs exclusion.
    let quiet = [Begin, Optimistic(0), End(0), Commit];
    assert!(explore(&[&quiet, &LOCKING], &Design::OURS).is_clean());
}

#[test]
fn the_target_changes_the_number_of_restarts_and_nothing_else() {
    let nested = [Optimistic(0), Optimistic(1), Optimistic(2), Io, End(2), End(1), End(0)];
    let run = |target| explore(&[&nested], &Design { target, ..Design::OURS });
    let (outermost, each) = (run(Target::Outermost), run(Target::EachLevel));
    assert!(outermost.is_clean() && each.is_clean());
    // Exclusive from the outside in: three restarts at 3 + 2 + 1 levels, or at one each.
    assert_eq!(outermost.restarts, Some((3, 3)));
    assert_eq!(each.restarts, Some((6, 6)));
}

/// The explorer must find what is there: a lock order that really deadlocks.
#[test]
fn the_explorer_finds_a_plain_deadlock() {
    let one = [Exclusive(0), Exclusive(1), End(1), End(0)];
    let other = [Exclusive(1), Exclusive(0), End(0), End(1)];
    let found = explore(&[&one, &other], &Design::OURS);
    assert_eq!((found.deadlocks, found.faults.len()), (1, 0));
    // As transactions the same order is harmless.
    let optimistic: Vec<Op> = other
        .into_iter()
        .map(|op| if let Exclusive(lock) = op { Optimistic(lock) } else { op })
        .collect();
    assert!(explore(&[&one, &optimistic], &Design::OURS).is_clean());
}
