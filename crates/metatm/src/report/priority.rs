//! Figure 7: conflicts that go to the lower scheduling priority, and which rule decided them.

use super::figures::{grid, labels, pair, plot};
use super::svg::Series;
use super::{Section, Table};
use crate::config::{KernelKind, SchedKind};
use crate::experiment::suite::{Point, Suite, percent};
use crate::htm::policy::Policy;
use crate::stats::{Decided, Rule, Stats};
use crate::workload::Workload;

/// Percent of the conflicts that the manager saw that went to the lower priority.
pub(super) fn inversion(s: &Stats) -> f64 {
    let d = s.managed();
    percent(d.inversions, d.conflicts)
}

pub(super) fn figure7(suite: &Suite) -> Section {
    let title = "Figure 7: conflicts decided for the lower scheduling priority, TxLinux-SS";
    let base = grid(|_| ());
    let configs = [
        ("SizeMatters, default", SchedKind::Default, Policy::SizeMatters),
        ("SizeMatters, aware", SchedKind::Aware, Policy::SizeMatters),
        ("os_prio, default", SchedKind::Default, Policy::OsPrio),
        ("os_prio, aware", SchedKind::Aware, Policy::OsPrio),
    ];
    let at = |p: &Point, c: &(&str, SchedKind, Policy)| Point { sched: c.1, policy: c.2, ..*p };
    let series: Vec<Series> = configs
        .iter()
        .map(|c| Series {
            name: c.0.into(),
            values: base.iter().map(|p| pair(suite.mean(at(p, c), inversion))).collect(),
        })
        .collect();
    let mut t = Table::new(&[
        "run",
        "SizeMatters",
        "timestamp",
        "SizeMatters, aware",
        "os_prio",
        "os_prio, aware",
        "policy inversion",
        "time with os_prio",
        "and aware",
    ]);
    for p in &base {
        let cell = |p: Point| format!("{:.1} %", suite.mean(p, inversion));
        let policy = |s: &Stats| {
            let d = s.managed();
            percent(d.policy_inversions, d.conflicts)
        };
        let cost = |sched| {
            let from = Point { sched, ..*p };
            let to = Point { policy: Policy::OsPrio, ..from };
            format!("{:+.1} %", suite.change(from, to, |s| s.end as f64))
        };
        t.row([
            format!("{} {}", p.workload.name(), p.cpus),
            cell(*p),
            cell(Point { policy: Policy::Timestamp, ..*p }),
            cell(at(p, &configs[1])),
            cell(at(p, &configs[2])),
            cell(at(p, &configs[3])),
            format!("{:.3} %", suite.mean(*p, policy).value),
            cost(SchedKind::Default),
            cost(SchedKind::Aware),
        ]);
    }
    Section {
        title: title.into(),
        text: "Percent of the conflicts that the contention manager saw (forced ones and xcas \
               included) and that the lower scheduling priority won, and what os_prio costs; then \
               the same for TxLinux-CX, and which rule decided. A forced conflict is one that no \
               policy may decide otherwise: a transaction that spins in xtest waits for a lock, \
               perhaps the asker's, and without the rule the sweep of spinner_yields ends in \
               deadlock. Plain accesses always win (section 6.2); the manager is not asked, and the \
               paper, too, counts them apart."
            .into(),
        tables: vec![t, figure7_cx(suite), deciders(suite)],
        plots: vec![plot("figure7.svg", title, "% of conflicts", &labels(&base), &series)],
    }
}

/// Figure 7 for TxLinux-CX.
fn figure7_cx(suite: &Suite) -> Table {
    let mut t = Table::new(&[
        "run, TxLinux-CX",
        "SizeMatters",
        "os_prio",
        "os_prio, aware",
        "policy inversion",
        "time with os_prio",
    ]);
    for p in grid(|p| p.kernel = KernelKind::Cx) {
        let os_prio = Point { policy: Policy::OsPrio, ..p };
        let cell = |p: Point| format!("{:.1} %", suite.mean(p, inversion));
        let policy = |s: &Stats| percent(s.managed().policy_inversions, s.managed().conflicts);
        t.row([
            format!("{} {}", p.workload.name(), p.cpus),
            cell(p),
            cell(os_prio),
            cell(Point { sched: SchedKind::Aware, ..os_prio }),
            format!("{:.3} %", suite.mean(p, policy).value),
            format!("{:+.1} %", suite.change(p, os_prio, |s| s.end as f64)),
        ]);
    }
    t
}

/// Which rule decided how many conflicts, and inverted how many, by kernel and policy.
fn deciders(suite: &Suite) -> Table {
    let mut t =
        Table::new(&["kernel", "policy", "decided by", "conflicts", "inverted", "real time"]);
    for (kernel, name) in [(KernelKind::Ss, "TxLinux-SS"), (KernelKind::Cx, "TxLinux-CX")] {
        for policy in [Policy::SizeMatters, Policy::OsPrio] {
            for rule in Rule::ALL {
                let mut sum = Decided::default();
                let table5 = |p: &Point| p.workload != Workload::Pipeline;
                for (_, s) in suite
                    .all()
                    .filter(|(p, _)| p.kernel == kernel && p.policy == policy && table5(p))
                {
                    sum.conflicts += s.by(rule).conflicts;
                    sum.inversions += s.by(rule).inversions;
                    sum.policy_inversions += s.by(rule).policy_inversions;
                }
                t.row([
                    name.to_owned(),
                    policy.name().to_owned(),
                    rule.describe().to_owned(),
                    sum.conflicts.to_string(),
                    sum.inversions.to_string(),
                    sum.policy_inversions.to_string(),
                ]);
            }
        }
    }
    t
}
