//! The contention manager: who goes on when two transactions meet.
//!
//! Every policy but `eager` and `polite` is a total order over what the two claim, so of two
//! transactions that keep meeting one gets through. Size may change at a restart, so size alone
//! could livelock: after `fallback_restarts` restarts of either party age decides (TXLINUX.md,
//! deduced). Age is the time of the first attempt, never refreshed, and unique.

use std::cmp::Ordering;

/// A contention policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Larger read and write set wins, then the older (paper's default).
    SizeMatters,
    /// The older wins.
    Timestamp,
    /// Higher conflict priority, then size, then age (section 6.2).
    OsPrio,
    /// Whoever asks wins.
    Eager,
    /// Whoever asks waits, a little longer each time; after `polite_waits` waits it wins.
    Polite,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 5] =
        [Self::SizeMatters, Self::Timestamp, Self::OsPrio, Self::Eager, Self::Polite];
}

/// What a party to a conflict can say for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Conflict priority, larger wins: policy in the high bits, scheduling priority in the low.
    pub prio: u8,
    /// Words read and written.
    pub size: u32,
    /// Cycle of the first attempt.
    pub born: u64,
    /// Restarts so far.
    pub restarts: u32,
    /// Unique; breaks the last tie.
    pub id: u64,
}

/// The manager's word to whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The holder restarts.
    Win,
    /// The asker restarts.
    Lose,
    /// The asker waits and asks again.
    Wait,
}

fn older(me: &Claim, foe: &Claim) -> Ordering {
    foe.born.cmp(&me.born).then(foe.id.cmp(&me.id))
}

fn larger(me: &Claim, foe: &Claim, fallback: u32) -> Ordering {
    if me.restarts.max(foe.restarts) >= fallback {
        older(me, foe)
    } else {
        me.size.cmp(&foe.size).then(older(me, foe))
    }
}

/// A policy with its constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manager {
    /// The policy.
    pub policy: Policy,
    /// Restarts of either party after which age decides and size no longer does.
    pub fallback: u32,
    /// Waits that `polite` grants before it insists.
    pub polite_waits: u32,
}

/// Judges `me`, who asks for a word that `foe` holds; `waited` counts the waits so far.
pub fn judge(manager: Manager, me: &Claim, foe: &Claim, waited: u32) -> Verdict {
    let fallback = manager.fallback;
    let order = match manager.policy {
        Policy::Eager => return Verdict::Win,
        Policy::Polite if waited < manager.polite_waits => return Verdict::Wait,
        Policy::Polite => return Verdict::Win,
        Policy::Timestamp => older(me, foe),
        Policy::SizeMatters => larger(me, foe, fallback),
        Policy::OsPrio => me.prio.cmp(&foe.prio).then(larger(me, foe, fallback)),
    };
    if order == Ordering::Greater { Verdict::Win } else { Verdict::Lose }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(policy: Policy) -> Manager {
        Manager { policy, fallback: 32, polite_waits: 4 }
    }

    fn claim(prio: u8, size: u32, born: u64, id: u64) -> Claim {
        Claim { prio, size, born, restarts: 0, id }
    }

    #[test]
    fn each_policy_looks_at_its_own_key() {
        let big_young = claim(10, 9, 200, 2);
        let small_old = claim(20, 3, 100, 1);
        let j = |p, a: &Claim, b: &Claim| judge(by(p), a, b, 0);
        assert_eq!(j(Policy::SizeMatters, &big_young, &small_old), Verdict::Win);
        assert_eq!(j(Policy::Timestamp, &big_young, &small_old), Verdict::Lose);
        assert_eq!(j(Policy::OsPrio, &big_young, &small_old), Verdict::Lose);
        assert_eq!(j(Policy::Eager, &small_old, &big_young), Verdict::Win);
        assert_eq!(j(Policy::Polite, &small_old, &big_young), Verdict::Wait);
        assert_eq!(judge(by(Policy::Polite), &small_old, &big_young, 4), Verdict::Win);
    }

    #[test]
    fn ordered_policies_are_total_orders() {
        let claims: Vec<Claim> = (0..4u8)
            .flat_map(|p| (0..3u32).map(move |s| (p, s)))
            .enumerate()
            .map(|(i, (p, s))| claim(p, s, (i as u64) % 3, i as u64))
            .collect();
        for policy in [Policy::SizeMatters, Policy::Timestamp, Policy::OsPrio] {
            let wins = |a: &Claim, b: &Claim| judge(by(policy), a, b, 0) == Verdict::Win;
            for a in &claims {
                for b in claims.iter().filter(|b| b.id != a.id) {
                    assert_ne!(wins(a, b), wins(b, a), "{policy:?}: exactly one wins");
                    for c in &claims {
                        if wins(a, b) && c.id != b.id && c.id != a.id && wins(b, c) {
                            assert!(wins(a, c), "{policy:?}: transitive");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_restarts_fall_back_to_age_but_never_below_priority() {
        let mut big = claim(1, 100, 50, 1);
        let old = claim(1, 1, 10, 2);
        assert_eq!(judge(by(Policy::SizeMatters), &big, &old, 0), Verdict::Win);
        big.restarts = 32;
        assert_eq!(judge(by(Policy::SizeMatters), &big, &old, 0), Verdict::Lose);
        assert_eq!(judge(by(Policy::OsPrio), &big, &old, 0), Verdict::Lose);
        big.prio = 2;
        assert_eq!(judge(by(Policy::OsPrio), &big, &old, 0), Verdict::Win);
    }
}
