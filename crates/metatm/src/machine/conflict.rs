//! What happens when an access meets a transaction: judgement, restart, overflow.
//!
//! Order of rules, first match decides:
//! 1. A non-transactional access wins against every transaction (asymmetric conflict; paper,
//!    section 6.2), except `xcas`, which is judged.
//! 2. A transaction suspended under the asker, on the same thread, loses: it cannot end before the
//!    asker does (deduced). This covers `xcas` too: figure 2 of the paper puts the lock into the
//!    read set before it disables interrupts, so a handler that wants the lock can come between.
//! 3. A transaction whose thread is on no processor loses: nobody can say when it will end
//!    (deduced).
//! 4. A transaction that spins in `xtest` loses: it waits for a lock, perhaps the asker's
//!    (deduced; switched off by `spinner_yields = false`, which brings section 5.3 back).
//! 5. The contention policy decides. The asker must win against every holder, else it restarts.

use super::{KEY_SHIFT, Machine};
use crate::config::{Overflow, Sabotage, XcasRule};
use crate::error::SimError;
use crate::htm::Slot;
use crate::htm::policy::{Claim, Manager, Verdict, judge};
use crate::htm::status::{Reason, Status};
use crate::kernel::prio;
use crate::stats::Rule;

/// Restarts of one transaction after which it counts as livelocked.
const LIVELOCK: u32 = 20_000;

impl Machine {
    /// Resolves the conflict with `self.enemies`; true if the access may go on.
    pub(crate) fn contend(&mut self, me: Option<Slot>) -> bool {
        let enemies = std::mem::take(&mut self.enemies);
        let go_on = match me {
            None => {
                let mine = self.threads[self.thread_id()].prio;
                for foe in &enemies {
                    self.note(Rule::Plain, mine, self.htm.tx[*foe].prio);
                    self.abort(*foe, Reason::Asymmetric);
                }
                true
            }
            Some(me) => self.contend_tx(me, &enemies),
        };
        self.enemies = enemies;
        go_on
    }

    fn contend_tx(&mut self, me: Slot, enemies: &[Slot]) -> bool {
        let claim = self.htm.tx[me].claim();
        let waited = self.htm.tx[me].waited;
        let mut verdict = Verdict::Win;
        let mut winner = None;
        for foe in enemies {
            match self.against(&claim, Some(me), *foe, waited) {
                Verdict::Win => {}
                Verdict::Lose => {
                    verdict = Verdict::Lose;
                    winner = Some(*foe);
                    break;
                }
                Verdict::Wait => verdict = Verdict::Wait,
            }
        }
        match verdict {
            Verdict::Win => {
                self.htm.tx[me].waited = 0;
                for foe in enemies {
                    let rule = self.forced(*foe).unwrap_or(Rule::Policy);
                    self.note(rule, claim.prio, self.htm.tx[*foe].prio);
                    self.abort(*foe, Reason::Conflict);
                }
                true
            }
            Verdict::Lose => {
                if let Some(foe) = winner {
                    let spins = self.cfg.spinner_yields && self.htm.tx[me].spinning;
                    let rule = if spins { Rule::Spinner } else { Rule::Policy };
                    self.note(rule, self.htm.tx[foe].prio, claim.prio);
                }
                self.abort(me, Reason::Conflict);
                false
            }
            Verdict::Wait => {
                self.htm.tx[me].waited += 1;
                let mut left = u64::from(self.cfg.polite_base) << waited;
                // What an interrupt leaves of the wait is not made up for.
                let _ = self.pass(&mut left);
                false
            }
        }
    }

    /// The verdict for a claim against one holder.
    fn against(&self, claim: &Claim, me: Option<Slot>, foe: Slot, waited: u32) -> Verdict {
        if self.forced(foe).is_some() {
            return Verdict::Win;
        }
        if me.is_some_and(|me| self.cfg.spinner_yields && self.htm.tx[me].spinning) {
            return Verdict::Lose;
        }
        let manager = Manager {
            policy: self.cfg.policy,
            fallback: self.cfg.fallback_restarts,
            polite_waits: self.cfg.polite_waits,
        };
        judge(manager, claim, &self.htm.tx[foe].claim(), waited)
    }

    /// The rule by which `foe` must lose whatever the policy says, if one does.
    fn forced(&self, foe: Slot) -> Option<Rule> {
        let f = &self.htm.tx[foe];
        if f.thread == self.thread_id() {
            Some(Rule::Own)
        } else if f.parked {
            Some(Rule::Parked)
        } else {
            (self.cfg.spinner_yields && f.spinning).then_some(Rule::Spinner)
        }
    }

    /// Counts a conflict that `rule` decided, and whether it inverted priority or policy.
    fn note(&mut self, rule: Rule, winner: u8, loser: u8) {
        let d = &mut self.stats.decided[rule as usize];
        d.conflicts += 1;
        // A thread cannot have precedence over itself.
        if rule != Rule::Own {
            d.inversions += u64::from(winner < loser);
            d.policy_inversions += u64::from(prio::is_rt(loser) && !prio::is_rt(winner));
        }
    }

    /// Judges a non-transactional `xcas` against `self.enemies`; true if it may swap.
    pub(crate) fn contend_xcas(&mut self) -> bool {
        let enemies = std::mem::take(&mut self.enemies);
        let now = self.now();
        let cpu = &self.cpus[self.cur];
        let born = if cpu.refused.0 == 0 { now } else { cpu.refused.1 };
        let prio = self.threads[cpu.thread].prio;
        // A caller has no set; after as many refusals as a transaction may have restarts its age
        // counts, so it is not starved by a stream of transactions (section 4.3.2: fairness).
        let claim = Claim { prio, size: 0, born, restarts: cpu.refused.0, id: 0 };
        let waited = cpu.refused.0;
        let refuses = |foe: &&Slot| match self.cfg.xcas {
            XcasRule::CallerWins => false,
            XcasRule::TransactionsWin => self.forced(**foe).is_none(),
            XcasRule::Judge => self.against(&claim, None, **foe, waited) != Verdict::Win,
        };
        let refusing = enemies.iter().find(refuses).copied();
        let wins = refusing.is_none();
        if let Some(foe) = refusing {
            self.note(Rule::Xcas, self.htm.tx[foe].prio, prio);
        }
        if wins {
            for foe in &enemies {
                let rule = self.forced(*foe).unwrap_or(Rule::Xcas);
                self.note(rule, prio, self.htm.tx[*foe].prio);
                self.abort(*foe, Reason::Conflict);
            }
            self.cpus[self.cur].refused = (0, 0);
        } else {
            self.stats.xcas_refused += 1;
            self.cpus[self.cur].refused = (waited.saturating_add(1), born);
        }
        self.enemies = enemies;
        wins
    }

    /// Makes `slot` restart: old values back, sets empty, its thread sent to its scope.
    pub(crate) fn abort(&mut self, slot: Slot, reason: Reason) {
        let forget = self.cfg.sabotage == Some(Sabotage::ForgetUndo);
        if self.htm.tx[slot].aborted.is_some() {
            return;
        }
        let words = match self.htm.roll_back(slot, &mut self.mem, forget) {
            Ok(words) => words,
            Err(what) => {
                let cycle = self.now();
                return self.fail(SimError::Isolation { cycle, what });
            }
        };
        let cost = u64::from(self.cfg.abort_cost) * (1 + u64::from(words));
        let tx = &mut self.htm.tx[slot];
        tx.aborted = Some(reason);
        tx.status = Status { reason: Some(reason), code: 0 };
        tx.restarts += 1;
        tx.spinning = false;
        let (thread, frame, scope, restarts) = (tx.thread, tx.frame, tx.scope, tx.restarts);
        self.stats.restarts[reason.index()] += 1;
        self.stats.most_restarts = self.stats.most_restarts.max(restarts);
        if restarts > LIVELOCK {
            let cycle = self.now();
            let what = format!(
                "a transaction of thread {thread} restarted {restarts} times, last because of \
                 {reason:?}: livelock"
            );
            self.fail(SimError::NoProgress { cycle, waited: 0, what });
        }
        let running = self.threads[thread].tx == Some(slot);
        if running && self.threads[thread].frame == frame {
            self.threads[thread].restart_to = Some(scope);
        }
        let cpu = if thread == self.thread_id() {
            Some(self.cur)
        } else {
            self.cpus.iter().position(|c| c.thread == thread && !c.dead)
        };
        let Some(cpu) = cpu else {
            self.stats.wasted[reason.index()] += self.htm.tx[slot].cycles;
            return;
        };
        self.cpus[cpu].hw_restarts = self.cpus[cpu].hw_restarts.saturating_add(1).min(255);
        if cpu == self.cur {
            if running {
                self.advance(cost);
            }
        } else if running && self.threads[thread].frame == frame {
            self.squash(cpu, slot, cost);
        }
        self.stats.wasted[reason.index()] += self.htm.tx[slot].cycles;
    }

    /// The victim's instruction in flight is dropped: its clock goes back to now, plus the cost.
    fn squash(&mut self, cpu: usize, slot: Slot, cost: u64) {
        let now = self.now();
        let then = self.keys[cpu] >> KEY_SHIFT;
        let target = now + cost;
        self.keys[cpu] = target << KEY_SHIFT | cpu as u64;
        let t = &self.threads[self.cpus[cpu].thread];
        let mode = if t.frame > 0 { crate::stats::Mode::Irq } else { t.mode };
        let booked = &mut self.stats.cycles[mode as usize];
        *booked = (*booked + target).saturating_sub(then);
        let tx = &mut self.htm.tx[slot];
        tx.cycles = (tx.cycles + target).saturating_sub(then);
        self.horizon = self.horizon.min(self.keys[cpu]);
    }

    /// A marked line left L1; the cycles it costs.
    pub(crate) fn overflow(&mut self, mark: u32) -> u64 {
        let t = &self.threads[self.thread_id()];
        let owner =
            t.tx.iter()
                .chain(t.pushed.iter().flatten())
                .copied()
                .find(|s| self.htm.tx[*s].mark == mark && self.htm.tx[*s].aborted.is_none());
        let Some(slot) = owner else { return 0 };
        if self.cfg.overflow_rule() == Overflow::Exclusive {
            self.abort(slot, Reason::Overflow);
            return 0;
        }
        self.htm.tx[slot].overflowed += 1;
        self.stats.virt_cycles += u64::from(self.cfg.virt_cost);
        u64::from(self.cfg.virt_cost)
    }
}
