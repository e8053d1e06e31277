//! Who outranks whom.

use std::{cmp::Ordering, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Stamp, TxId};

/// After so many losses one on another the age alone decides under [`Policy::SizeMatters`]: sizes
/// begin anew with each retry, so that a small one could lose for ever.
const PATIENCE: u32 = 8;

/// By what the winner of a conflict is chosen.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// The higher priority (`--priority`, then scheduling class and nice value of the starter);
    /// among equals the older. The default, as in TxOS.
    #[default]
    OsPrio,
    /// The older one.
    Timestamp,
    /// The one that has read more objects, as in MetaTM; among equals the older.
    SizeMatters,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 3] = [Policy::OsPrio, Policy::Timestamp, Policy::SizeMatters];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Policy::OsPrio => "osprio",
            Policy::Timestamp => "timestamp",
            Policy::SizeMatters => "sizematters",
        }
    }

    /// Whether `one` wins against `other`. A total order: of two that differ in their id exactly
    /// one wins.
    pub fn outranks(self, one: &Standing, other: &Standing) -> bool {
        self.compare(one, other) == Ordering::Greater
    }

    fn compare(self, one: &Standing, other: &Standing) -> Ordering {
        let age = || (other.started, other.id).cmp(&(one.started, one.id));
        let by_policy = || match self {
            Policy::OsPrio => {
                (one.priority, one.scheduling).cmp(&(other.priority, other.scheduling))
            }
            Policy::Timestamp => Ordering::Equal,
            Policy::SizeMatters => {
                let patient = |standing: &Standing| standing.losses >= PATIENCE;
                let size = |standing: &Standing| if patient(standing) { 0 } else { standing.size };
                patient(one).cmp(&patient(other)).then(size(one).cmp(&size(other)))
            }
        };
        other.meek.cmp(&one.meek).then_with(by_policy).then_with(age)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Policy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("no policy {name:?}: there are {names}")
        })
    }
}

/// What the rank of a transaction depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// Its id; the lower one is the older where the time is the same.
    pub id: TxId,
    /// As its user says; more is higher.
    pub priority: i32,
    /// Scheduling class and nice value of its starter as one number; more is higher.
    pub scheduling: i32,
    /// When it began; kept across retries.
    pub started: Stamp,
    /// Objects that it has read, as last told.
    pub size: u64,
    /// How many times it has lost.
    pub losses: u32,
    /// It waits for a person (`--keep`, `--review`) and never wins against one that does not.
    pub meek: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(id: u64) -> Standing {
        let started = Stamp { sec: 7, nsec: 0 };
        let id = TxId(id);
        Standing { id, priority: 0, scheduling: 0, started, size: 0, losses: 0, meek: false }
    }

    fn wins(policy: Policy, one: &Standing, other: &Standing) {
        assert!(policy.outranks(one, other) && !policy.outranks(other, one), "{policy}");
    }

    #[test]
    fn each_policy_has_its_order_and_age_decides_at_last() {
        let old = standing(1);
        for policy in Policy::ALL {
            wins(policy, &old, &standing(2));
            let earlier = Standing { started: Stamp::default(), ..standing(3) };
            wins(policy, &earlier, &old);
            let meek = Standing { meek: true, priority: 9, size: 9, ..earlier };
            wins(policy, &standing(2), &meek);
            assert_eq!(policy.name().parse(), Ok(policy));
            assert!(!policy.outranks(&old, &old));
        }
        let urgent = Standing { priority: 1, ..standing(9) };
        wins(Policy::OsPrio, &urgent, &Standing { scheduling: 19, ..old.clone() });
        wins(Policy::OsPrio, &Standing { scheduling: 1, ..standing(9) }, &old);
        wins(Policy::Timestamp, &old, &urgent);
        let large = Standing { size: 10, ..standing(9) };
        wins(Policy::SizeMatters, &large, &urgent);
        wins(Policy::SizeMatters, &Standing { losses: PATIENCE, ..standing(10) }, &large);
        assert!("fair".parse::<Policy>().unwrap_err().contains("osprio"));
    }
}
