//! Recovery from threads that died inside a section (section 8.2.6 of the source).
//!
//! Every step is a compare-and-exchange, so any number of threads may do it at once:
//! 1. a dead reader: `L -> L|1`;
//! 2. a dead writer with a published epoch `my > C`: each logged slot `my -> my|1`, and when
//!    `C == my - 2`, `C -> my`: an empty commit. If `C >= my`, it had committed;
//! 3. a dead writer in `CLAIMING`: it may have taken an epoch that no seat names. Epoch `x = C + 2`,
//!    handed out (`x <= M`), has lost its owner if a scan over all seats finds `x` in none, and no
//!    living one in `CLAIMING`, while `C` stays: a living owner is at `CLAIMING` until it publishes
//!    `x`, and keeps `x` until it is committed. Then `C -> x`.
//!
//! Out of scope: finding out that a thread is dead. The algorithm needs fail-stop deaths, reported by
//! somebody who knows: a parent that has reaped a process, a kernel that has torn down a thread.

use crate::audit::Published;
use crate::epoch::{INACTIVE, STEP};
use crate::group::{Domain, Group};
use crate::log;
use crate::member::Member;
use crate::seat::{CLAIMING, CLEARING, FAILED, FREE, IDLE, Seat, TAKEN, state_of, with_state};
use crate::sync::Ordering;
use crate::wait::{self, Backoff};

impl<const SEATS: usize, const LOG: usize> Group<SEATS, LOG> {
    /// Reports the member at `seat` ([`Member::seat`]) as dead. [`Member::recover`] then frees what it
    /// holds.
    ///
    /// # Safety
    ///
    /// The thread will never take another step in any section of that member, and all that it did
    /// happens before this call.
    #[allow(unsafe_code)] // A promise of the caller's.
    pub unsafe fn report_failed(&self, seat: usize) {
        let seats = self.domain().seats;
        if let Some(seat) = seats.get(seat) {
            let taken = seat.state.load(Ordering::Relaxed);
            if state_of(taken) == TAKEN {
                let failed = with_state(taken, FAILED);
                let _ =
                    seat.state.compare_exchange(taken, failed, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }
}

impl Member<'_> {
    /// The number of this member's seat.
    pub fn seat(&self) -> usize {
        self.seat
    }

    /// Ends the sections of all members that were reported as dead, and frees their seats. Their
    /// changes are void unless they had committed. Returns how many seats this call freed.
    ///
    /// May wait for living writers that are older than the dead ones.
    pub fn recover(&mut self) -> usize {
        let d = self.d;
        let helping = Helping::begin(d);
        for (i, seat) in d.seats.iter().enumerate() {
            if state_of(seat.state.load(Ordering::Acquire)) == FAILED {
                undo(d, i, seat);
            }
        }
        settle_epochs(d);
        helping.end()
    }
}

/// While somebody helps, the dead keep their pins: the nodes in their logs stay in memory. Clearing
/// seats therefore takes a moment without other helpers; the last to leave does it.
struct Helping<'g>(Domain<'g>);

impl<'g> Helping<'g> {
    /// `helpers` while seats are being cleared.
    const CLEARING: usize = usize::MAX;

    fn begin(d: Domain<'g>) -> Self {
        let helpers = &d.counters.helpers;
        let mut backoff = Backoff::default();
        let mut n = helpers.load(Ordering::Relaxed);
        loop {
            if n == Self::CLEARING {
                backoff.pause();
                n = helpers.load(Ordering::Relaxed);
                continue;
            }
            match helpers.compare_exchange(n, n + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Self(d),
                Err(now) => n = now,
            }
        }
    }

    /// Leaves; clears the recovered seats if nobody else helps. Returns how many.
    fn end(self) -> usize {
        let d = self.0;
        let helpers = &d.counters.helpers;
        let mut n = helpers.load(Ordering::Relaxed);
        loop {
            let then = if n == 1 { Self::CLEARING } else { n - 1 };
            // Release: our reads of the logs come before the clearing. Acquire: so do the others'.
            match helpers.compare_exchange(n, then, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if then == Self::CLEARING => break,
                Ok(_) => return 0,
                Err(now) => n = now,
            }
        }
        let cleared = (0..d.seats.len()).filter(|&i| clear(d, i)).count();
        helpers.store(0, Ordering::Release);
        cleared
    }
}

/// Step 1, and the first half of step 2.
fn undo(d: Domain<'_>, i: usize, seat: &Seat) {
    let l = seat.reading.load(Ordering::Acquire);
    d.counters.mirror.note(i, Published::Reading, INACTIVE);
    let _ = seat.reading.compare_exchange(l, l | INACTIVE, Ordering::AcqRel, Ordering::Relaxed);
    let my = seat.writing.load(Ordering::Acquire);
    if my & INACTIVE == 0 && d.counters.committed.0.load(Ordering::Acquire) < my {
        let logged = seat.logged.load(Ordering::Acquire);
        log::invalidate(&d.log(i)[..logged], my);
    }
}

/// Who owns an epoch that is next to commit.
enum Owner {
    /// A thread that will commit it.
    Living,
    /// The seat of this number, reported dead.
    Dead(usize),
    /// Nobody who is still there.
    Lost,
}

/// Commits the epochs of the dead, up to the newest that was handed out when this began.
fn settle_epochs(d: Domain<'_>) {
    let target = d.counters.max.0.load(Ordering::Acquire);
    let mut backoff = Backoff::default();
    loop {
        let c = d.counters.committed.0.load(Ordering::Acquire);
        if c >= target {
            return;
        }
        let x = c + STEP;
        match owner(d, x) {
            Owner::Living => {
                backoff.pause();
                continue;
            }
            // It may have been reported after the first pass.
            Owner::Dead(i) => undo(d, i, &d.seats[i]),
            Owner::Lost => {}
        }
        let at = &d.counters.committed.0;
        // Fails if somebody else has done it. Release: the slots were given up before.
        if at.compare_exchange(c, x, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            wait::announce(d, x);
        }
    }
}

/// Step 3: the owner of `x`, which is handed out and not committed.
fn owner(d: Domain<'_>, x: u64) -> Owner {
    for (i, seat) in d.seats.iter().enumerate() {
        let writing = seat.writing.load(Ordering::Acquire);
        let dead = state_of(seat.state.load(Ordering::Acquire)) == FAILED;
        match (writing == x, dead) {
            (true, true) => return Owner::Dead(i),
            (true, false) => return Owner::Living,
            (false, false) if writing == CLAIMING => return Owner::Living,
            _ => {}
        }
    }
    Owner::Lost
}

/// Clears a dead member's seat for the next one.
fn clear(d: Domain<'_>, i: usize) -> bool {
    let seat = &d.seats[i];
    let writing = seat.writing.load(Ordering::Acquire);
    if writing & INACTIVE == 0 && d.counters.committed.0.load(Ordering::Acquire) < writing {
        // Reported after this call had looked; the next call ends it.
        return false;
    }
    let failed = seat.state.load(Ordering::Relaxed);
    let clearing = with_state(failed, CLEARING);
    if state_of(failed) != FAILED
        || seat
            .state
            .compare_exchange(failed, clearing, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
    {
        return false;
    }
    d.counters.mirror.note(i, Published::Reading, INACTIVE);
    seat.reading.store(INACTIVE, Ordering::Relaxed);
    seat.writing.store(IDLE, Ordering::Relaxed);
    seat.logged.store(0, Ordering::Relaxed);
    d.counters.mirror.note(i, Published::Pin, INACTIVE);
    seat.pin.store(INACTIVE, Ordering::Release);
    // Release pairs with the acquire of the next `join`.
    seat.state.store(with_state(failed, FREE), Ordering::Release);
    true
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    //! Deaths inside of a call: each store that a section makes to shared memory, one by one.

    #![allow(clippy::unwrap_used)] // Tests' helpers.

    use super::*;
    use crate::place::Place;
    use crate::write::{Write, claim};
    use crate::{Error, Node};

    type Small = Group<4, 8>;

    /// How far the dead writer got.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Death {
        BeforeClaim,
        AfterClaim,
        Logged,
        Taken,
        Copied,
        Hinted,
        Committed,
    }

    const DEATHS: [Death; 7] = [
        Death::BeforeClaim,
        Death::AfterClaim,
        Death::Logged,
        Death::Taken,
        Death::Copied,
        Death::Hinted,
        Death::Committed,
    ];

    fn die(member: &mut Member<'_>, node: &Node, how: Death) {
        let d = member.d;
        let own = member.published();
        match how {
            Death::BeforeClaim => own.writing.store(CLAIMING, Ordering::Relaxed),
            Death::AfterClaim => {
                claim(d, own);
                own.writing.store(CLAIMING, Ordering::Relaxed);
            }
            _ => {
                let mut w = Write::begin(member);
                let my = w.epoch();
                if how == Death::Logged {
                    w.log(node, crate::seat::UNCLAIMED, my).unwrap();
                } else if how == Death::Taken {
                    w.log(node, crate::seat::UNCLAIMED, my).unwrap();
                    w.take(node, (2, 1)).unwrap();
                } else {
                    w.unlink(Place::from(node)).unwrap();
                }
                if how == Death::Hinted || how == Death::Committed {
                    let n = w.section().logged;
                    log::announce(&d.log(w.member.seat)[..n], my);
                }
                if how == Death::Committed {
                    d.counters.committed.0.store(my, Ordering::Release);
                }
                w.leave_open();
            }
        }
    }

    #[test]
    #[allow(unsafe_code)] // Linking, and reports of deaths.
    fn death_at_every_step() {
        for how in DEATHS {
            let (group, head, node) = (Small::new(), Node::<4>::new(), Node::<4>::new());
            let mut m = group.join().unwrap();
            // SAFETY: the nodes outlive the members.
            m.write(|w| unsafe { w.link_after(Place::from(&head), Place::from(&node)) }).unwrap();
            let mut dead = group.join().unwrap();
            die(&mut dead, &node, how);
            let seat = dead.seat;
            core::mem::forget(dead);
            // SAFETY: the member is forgotten.
            unsafe { group.report_failed(seat) };
            assert_eq!(m.recover(), 1, "{how:?}");
            let r = m.read();
            // SAFETY: the nodes outlive the members.
            let linked = unsafe { r.next(Place::from(&head)) } != Place::from(&head);
            drop(r);
            assert_eq!(linked, how != Death::Committed, "{how:?}: half a section is visible");
            // All goes on: as many sections as would use up the slots several times over.
            for _ in 0..6 {
                if linked {
                    m.write(|w| w.unlink(Place::from(&node))).unwrap();
                }
                // SAFETY: as above.
                m.write(|w| unsafe { w.link_after(Place::from(&head), Place::from(&node)) })
                    .unwrap();
                if !linked {
                    m.write(|w| w.unlink(Place::from(&node))).unwrap();
                }
            }
            if linked {
                m.write(|w| w.unlink(Place::from(&node))).unwrap();
            }
            assert!(matches!(m.write(|w| w.unlink(Place::from(&node))), Err(Error::NotLinked)));
        }
    }
}
