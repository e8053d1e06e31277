//! `acquire`: a writer's own version of a node.
//!
//! The writer logs the node, scans its slots, takes one that nobody needs, and copies the newest
//! committed version into it. While nobody interferes that is one pass and one compare-and-exchange.
//!
//! What the scan makes of a slot with epoch `x`, read with `C` and `R` loaded before the scan:
//!
//! | `x` | meaning | action |
//! |---|---|---|
//! | `== my` | mine | skip |
//! | `<= C\|1`, even | committed | newest: the one to copy; `<= R`: free if it is not the newest such |
//! | `<= C\|1`, odd | given up by a finished writer | free |
//! | `== my\|1`, other attempt | given up by me | free, and the best choice |
//! | `== my\|1`, this attempt | somebody undid this section | retry |
//! | `< my` | an older writer is at work | wait for its commit, scan anew |
//! | `> my` | a younger writer is at work | ignore |
//!
//! *The reservation.* A writer that is not next to commit leaves one free slot for the one that is;
//! so the oldest writer never waits for a younger one, only for readers, and they end. That is why
//! all writers end, with any `K >= 2`.

use crate::epoch::{INACTIVE, STEP};
use crate::error::Error;
use crate::node::Node;
use crate::seat::UNCLAIMED;
use crate::sync::{Ordering, fence};
use crate::wait::{self, Backoff};
use crate::write::Write;

/// What a scan found.
struct View {
    /// Newest committed slot and its epoch.
    source: (usize, u64),
    /// The slot to take and the epoch it has.
    victim: Option<(usize, u64)>,
    /// Free slots, less the one held back: the newest valid one `<= R`.
    spare: i32,
    /// This writer is the next to commit.
    next: bool,
}

enum Scan {
    Found(View),
    /// A writer with this epoch is older and still at work.
    Wait(u64),
    /// The slots changed under the scan.
    Torn,
    /// Somebody took this section's slot away.
    Undone,
    /// The section has this slot already.
    Mine(usize),
}

impl Write<'_, '_> {
    /// The slot of `node` that belongs to this section, filled on the first call.
    pub(crate) fn acquire<const K: usize>(&mut self, node: &Node<K>) -> Result<usize, Error> {
        let my = self.section().my;
        if self.section().need_retry {
            return Err(Error::Retry);
        }
        // First: an epoch says something about a node of this group only.
        node.settle(self.domain().id()).map_err(|e| self.misused(e))?;
        let mut record = None;
        let mut mine = None;
        let mut backoff = Backoff::default();
        loop {
            let view = match self.scan(node, mine.is_none()) {
                Scan::Found(view) => view,
                Scan::Torn => {
                    backoff.pause();
                    continue;
                }
                Scan::Wait(older) => {
                    self.wait_for(older)?;
                    continue;
                }
                Scan::Undone => return Err(self.lost()),
                // Not in this call: then a scan does not look for it.
                Scan::Mine(i) => return Ok(i),
            };
            // The record comes before the slot, for `recover`.
            let record = match record {
                Some(n) => n,
                None => *record.insert(self.log(node, UNCLAIMED, my)?),
            };
            if mine.is_none() {
                let Some(victim) = self.affordable(&view) else {
                    self.make_room(&view, &mut backoff)?;
                    continue;
                };
                mine = self.take(node, victim);
                self.section().owns |= mine.is_some();
                self.section().glance_below = 0;
            }
            let Some(slot) = mine else { continue };
            #[cfg(all(test, not(any(loom, shuttle))))]
            crate::interpose::before_copy();
            if copy(node, view.source, slot) {
                self.settle_record(record, slot, view.source.1);
                self.still_consistent(view.source.1)?;
                return Ok(slot);
            }
        }
    }

    /// The slot to take, if this writer may.
    fn affordable(&self, view: &View) -> Option<(usize, u64)> {
        let held_back = i32::from(!view.next);
        if view.spare > held_back { view.victim } else { None }
    }

    fn scan<const K: usize>(&self, node: &Node<K>, fresh: bool) -> Scan {
        let (my, attempt) = (self.member.section.my, self.member.section.attempt);
        let d = self.member.d;
        // Acquire `C`: all that the owners of epochs up to `C` did to their slots, so the slots' own epochs
        // need no more than relaxed loads. Acquire `R`: the loads of the readers that have gone, which the
        // overwriting of their slots must not precede.
        let c = d.counters.committed.0.load(Ordering::Acquire);
        let r = d.counters.read.0.load(Ordering::Acquire);
        let mut source: Option<(usize, u64)> = None;
        let mut victim: Option<(u8, u64, usize)> = None;
        let mut offer = |rank, x, i| {
            if victim.is_none_or(|(vr, vx, _)| (rank, x) < (vr, vx)) {
                victim = Some((rank, x, i));
            }
        };
        let mut spare = -1;
        for i in 0..K {
            let x = node.epochs[i].load(Ordering::Relaxed);
            let odd = x & INACTIVE != 0;
            if x == my {
                if fresh {
                    return Scan::Mine(i);
                }
                continue;
            }
            if x <= c | INACTIVE {
                if !odd && source.is_none_or(|(_, newest)| x > newest) {
                    source = Some((i, x));
                }
                if odd || x <= r {
                    spare += 1;
                    offer(if odd { 1 } else { 2 }, x, i);
                }
            } else if x == my | INACTIVE {
                if node.attempt[i].load(Ordering::Relaxed) == attempt {
                    return Scan::Undone;
                }
                spare += 1;
                offer(0, x, i);
            } else if x < my {
                return Scan::Wait(x & !INACTIVE);
            }
        }
        match source {
            None => Scan::Torn,
            Some(source) => Scan::Found(View {
                source,
                victim: victim.map(|(_, x, i)| (i, x)),
                spare,
                next: c + STEP == my,
            }),
        }
    }

    /// No slot to spare: see whether readers have gone, and if not, wait for one's turn (or, being
    /// next, for the readers).
    fn make_room(&mut self, view: &View, backoff: &mut Backoff) -> Result<(), Error> {
        if self.domain().advance() {
            return Ok(());
        }
        let nested = self.suspend();
        if view.next {
            backoff.pause();
            self.domain().advance();
        } else {
            self.wait_turn()?;
        }
        if nested { self.resume() } else { Ok(()) }
    }

    /// Takes the slot, if it still is what the scan saw.
    ///
    /// The exchange itself may be relaxed. The former owner's epoch is `<= C`, so the scan's load of `C`
    /// has ordered all that it did before this; or it is `my`, and the owner was this thread. The log record
    /// is visible to `recover` because the death was reported after it. The release fence pairs with the
    /// acquire fence of `copy`: whoever sees one of our pointers in this slot sees that its epoch has changed
    /// as well.
    pub(crate) fn take<const K: usize>(
        &self,
        node: &Node<K>,
        (i, x): (usize, u64),
    ) -> Option<usize> {
        let s = &self.member.section;
        node.epochs[i].compare_exchange(x, s.my, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        fence(Ordering::Release);
        node.attempt[i].store(s.attempt, Ordering::Relaxed);
        Some(i)
    }

    fn settle_record(&self, record: usize, slot: usize, seen: u64) {
        let record = &self.domain().log(self.member.seat)[record];
        record.seen.store(seen, Ordering::Relaxed);
        record.slot.store(slot, Ordering::Relaxed);
    }

    /// Opacity: even a section that will have to run again never sees two states mixed, lest it
    /// wander in circles or act on nonsense.
    fn still_consistent(&mut self, seen: u64) -> Result<(), Error> {
        if let Some(e) = self.section().snapshot {
            // The view is that of the nested read. A node that is newer takes it forward as a whole.
            return if seen > e { self.resume() } else { Ok(()) };
        }
        let c = self.domain().counters.committed.0.load(Ordering::Acquire);
        if c != self.section().validated {
            if !self.holds_at(c) {
                return Err(self.lost());
            }
            self.section().validated = c;
        }
        Ok(())
    }

    /// Waits until the writer with epoch `older` is done.
    fn wait_for(&mut self, older: u64) -> Result<(), Error> {
        let nested = self.suspend();
        let c = wait::committed(self.domain(), self.member.seat, older);
        self.not_evicted(c)?;
        if nested { self.resume() } else { Ok(()) }
    }

    /// Waits until this writer is the next to commit.
    fn wait_turn(&mut self) -> Result<(), Error> {
        let my = self.section().my;
        let c = wait::committed(self.domain(), self.member.seat, my - STEP);
        self.not_evicted(c)
    }

    /// If somebody committed this epoch in our place the section is over, and waiting is useless.
    fn not_evicted(&mut self, c: u64) -> Result<(), Error> {
        if c >= self.section().my { Err(self.lost()) } else { Ok(()) }
    }
}

/// Copies the pointers of `source` into `slot`, which belongs to the caller; false if the source was
/// reused meanwhile.
///
/// A seqlock's reading side: the loads are relaxed, the acquire fence keeps them before the second
/// look at the epoch. If one of them saw a new owner's store, that owner's release fence makes its
/// epoch visible to the second look.
pub(crate) fn copy<const K: usize>(node: &Node<K>, (from, x): (usize, u64), slot: usize) -> bool {
    let next = node.next[from].load(Ordering::Relaxed);
    let prev = node.prev[from].load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    if node.epochs[from].load(Ordering::Relaxed) != x {
        return false;
    }
    // The slot is ours, and unread until our commit releases these.
    node.watch[slot].write();
    node.next[slot].store(next, Ordering::Relaxed);
    node.prev[slot].store(prev, Ordering::Relaxed);
    true
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::interpose::set_before_copy;
    use crate::{End, Group, Node, Place, Write};

    /// While a writer stands between taking its slot and copying, two older ones commit, and the second
    /// takes over the very slot that was to be copied. The writer copies anew, from the newest version,
    /// and need not run again.
    #[test]
    #[allow(unsafe_code)] // Sections by hand.
    fn a_source_that_vanishes_is_copied_anew() {
        static GROUP: Group<4, 8> = Group::new();
        static NODE: Node<3> = Node::new();
        static OTHERS: [Node<3>; 3] = [const { Node::new() }; 3];
        let (group, node) = (&GROUP, &NODE);
        let at = |i: usize| Place::from(&OTHERS[i]).as_ptr();
        let [mut first, mut second, mut third] = [(); 3].map(|()| group.join().unwrap());
        first
            .write(|w| {
                let i = w.acquire(node)?;
                node.set_next(i, at(0));
                Ok::<_, crate::Error>(())
            })
            .unwrap();
        group.domain().advance();
        // SAFETY: nothing is used after the sections.
        let mut c = unsafe {
            first.begin().leave_open();
            second.begin().leave_open();
            third.begin()
        };
        set_before_copy(move || {
            for (member, to) in [(&mut first, 1), (&mut second, 2)] {
                // SAFETY: its section was left open above.
                let mut w = unsafe { Write::reopen(member) };
                let i = w.acquire(node).unwrap();
                node.set_next(i, at(to));
                assert!(matches!(w.finish(true), Ok(End::Done(_))));
                group.domain().advance();
            }
        });
        let i = c.acquire(node).unwrap();
        assert_eq!(node.next_in(i), at(2), "the slot was returned without its content");
        assert_eq!(c.finish(true), Ok(End::Done(8)), "the copy is of the newest version");
    }
}
