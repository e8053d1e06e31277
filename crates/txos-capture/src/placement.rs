//! On which processor the leader works.
//!
//! A program that touches one thing after the other waits for each answer, so that it and the
//! leader never run at the same time. On one processor a request is then two context switches; on
//! two it is two wake-ups of a sleeping processor, which cost many times as much. The scheduler
//! prefers the second, since it cannot know that they take turns. So while one thread alone is
//! asking, the leader follows it to its processor, and lets go when others ask too.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::caller::Callers;

/// So many requests of one thread in a row make it the only one.
const ALONE: u32 = 24;
/// How often it is looked whether it has moved, in requests.
const LOOK: u32 = 256;
/// So many requests since the last long row mean that several threads ask by turns.
const CROWD: u32 = 400;

pub(crate) struct Placement {
    /// Where the leader may run at all.
    all: Option<CpuSet>,
    pinned: Option<usize>,
    client: u32,
    in_a_row: u32,
    since_alone: u32,
}

impl Placement {
    /// For the calling thread.
    pub(crate) fn new() -> Self {
        let all = sched_getaffinity(None).ok();
        Placement { all, pinned: None, client: 0, in_a_row: 0, since_alone: 0 }
    }

    /// Takes note that thread `client` was answered.
    pub(crate) fn served(&mut self, client: u32, callers: &Callers) {
        self.since_alone = self.since_alone.saturating_add(1);
        if client == self.client {
            self.in_a_row = self.in_a_row.wrapping_add(1);
            if self.in_a_row >= ALONE {
                self.since_alone = 0;
                if (self.in_a_row - ALONE).is_multiple_of(LOOK) {
                    self.follow(callers);
                }
            }
        } else {
            self.client = client;
            self.in_a_row = 0;
            if self.since_alone > CROWD {
                self.let_go();
            }
        }
    }

    fn follow(&mut self, callers: &Callers) {
        let Some(cpu) = callers.processor(self.client) else { return };
        let allowed = self.all.is_some_and(|all| cpu < CpuSet::MAX_CPU && all.is_set(cpu));
        if !allowed || self.pinned == Some(cpu) && sched_getcpu() == cpu {
            return;
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        if sched_setaffinity(None, &only).is_ok() {
            self.pinned = Some(cpu);
        }
    }

    fn let_go(&mut self) {
        if self.pinned.take().is_some()
            && let Some(all) = &self.all
        {
            // Stays where it is if that fails, which is slower and nothing else.
            let _ = sched_setaffinity(None, all);
        }
    }
}
