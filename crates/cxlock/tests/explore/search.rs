//! All states that programs can reach, and what is wrong with them.

use crate::model::{Design, Op, World};
use std::collections::HashMap;

/// What an exploration found.
#[derive(Debug, Default)]
pub struct Findings {
    pub states: usize,
    /// States in which not everybody has ended and nobody can do anything.
    pub deadlocks: usize,
    /// States from which no end can be reached, deadlocks included: somebody is in a loop for good.
    pub hopeless: usize,
    /// Broken invariants and invalid calls, the first few.
    pub faults: Vec<String>,
    /// Restarts for exclusion on the way to each end, least and most.
    pub restarts: Option<(u8, u8)>,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.deadlocks == 0 && self.hopeless == 0 && self.faults.is_empty()
    }
}

pub fn explore(programs: &[&[Op]], design: &Design) -> Findings {
    let mut found = Findings::default();
    let start = World::new(programs.len());
    let mut numbers = HashMap::from([(start.clone(), 0_usize)]);
    let mut worlds = vec![start];
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut ends = Vec::new();
    let mut at = 0;
    while at < worlds.len() {
        let world = worlds[at].clone();
        if let Err(fault) = world.check(programs) {
            found.faults.push(fault);
        }
        let mut stuck = true;
        for t in 0..programs.len() {
            match world.next(t, programs, design) {
                None => {}
                Some(Err(fault)) => found.faults.push(fault),
                Some(Ok(next)) => {
                    stuck = false;
                    let number = *numbers.entry(next.clone()).or_insert_with(|| {
                        worlds.push(next);
                        before.push(Vec::new());
                        worlds.len() - 1
                    });
                    before[number].push(at);
                }
            }
        }
        if world.is_done(programs) {
            ends.push(at);
            let (least, most) = found.restarts.unwrap_or((u8::MAX, 0));
            found.restarts = Some((least.min(world.restarts()), most.max(world.restarts())));
        } else if stuck && found.faults.is_empty() {
            found.deadlocks += 1;
        }
        if found.faults.len() > 3 {
            break;
        }
        at += 1;
    }
    found.states = worlds.len();
    found.hopeless = worlds.len() - reachable_backwards(&before, ends);
    found
}

/// How many states can reach one of `ends`.
fn reachable_backwards(before: &[Vec<usize>], ends: Vec<usize>) -> usize {
    let mut hopeful = vec![false; before.len()];
    let mut queue = ends;
    queue.iter().for_each(|end| hopeful[*end] = true);
    while let Some(state) = queue.pop() {
        for &previous in &before[state] {
            if !std::mem::replace(&mut hopeful[previous], true) {
                queue.push(previous);
            }
        }
    }
    hopeful.into_iter().filter(|hopeful| *hopeful).count()
}
