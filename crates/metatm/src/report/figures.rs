//! Figures 4 to 6, 8 and 9, and the numbers of section 7.4.

use super::svg::{Series, bars};
use super::{Basis, Plot, Section, Table, paper};
use crate::config::{KernelKind, SchedKind};
use crate::experiment::stat::{Mean, mean};
use crate::experiment::suite::{CPUS, PIPELINE_CPUS, Point, Suite, percent};
use crate::htm::status::Reason;
use crate::kernel::site::{Site, Treat};
use crate::litmus::Counts;
use crate::stats::{Region, Stats};
use crate::workload::Workload;

/// The point of every workload and processor count, with `set` applied.
pub(super) fn grid(set: impl Fn(&mut Point)) -> Vec<Point> {
    let mut all = Vec::new();
    for w in Workload::TABLE5 {
        for cpus in CPUS {
            let mut p = Point::plain(w, cpus, KernelKind::Ss);
            set(&mut p);
            all.push(p);
        }
    }
    all
}

pub(super) fn labels(points: &[Point]) -> Vec<String> {
    points.iter().map(|p| format!("{} {}", p.workload.name(), p.cpus)).collect()
}

pub(super) fn pair(m: Mean) -> (f64, f64) {
    (m.value, m.half)
}

pub(super) fn plot(
    file: &str,
    title: &str,
    unit: &str,
    categories: &[String],
    series: &[Series],
) -> Plot {
    Plot { file: file.into(), title: title.into(), svg: bars(title, unit, categories, series) }
}

/// Synchronization in percent of kernel time.
pub(super) fn sync(s: &Stats) -> f64 {
    percent(s.sync_cycles(), s.kernel())
}

pub(super) fn figure4(suite: &Suite) -> Section {
    let (linux, ss) = (grid(|p| p.kernel = KernelKind::Locks), grid(|_| ()));
    let title = "Figure 4: time lost to synchronization";
    let part = |f: fn(&Stats) -> u64| move |s: &Stats| percent(f(s), s.kernel());
    let mut t = Table::new(&[
        "run",
        "Linux",
        "TxLinux-SS",
        "of it acquiring",
        "of it restarts",
        "of it overflow",
        "change",
    ]);
    for (l, s) in linux.iter().zip(&ss) {
        t.row([
            format!("{} {}", l.workload.name(), l.cpus),
            format!("{:.1} %", suite.mean(*l, sync)),
            format!("{:.1} %", suite.mean(*s, sync)),
            format!("{:.2} %", suite.mean(*s, part(|s| s.acquire_cycles)).value),
            format!("{:.2} %", suite.mean(*s, part(Stats::restart_cycles)).value),
            format!("{:.2} %", suite.mean(*s, part(|s| s.virt_cycles)).value),
            format!("{:+.0} %", suite.change(*l, *s, |s| s.sync_cycles() as f64)),
        ]);
    }
    let series = [
        Series {
            name: "Linux".into(),
            values: linux.iter().map(|p| pair(suite.mean(*p, sync))).collect(),
        },
        Series {
            name: "TxLinux-SS".into(),
            values: ss.iter().map(|p| pair(suite.mean(*p, sync))).collect(),
        },
    ];
    Section {
        title: title.into(),
        text: "Percent of kernel time spent acquiring spinlocks, in attempts that restarted, in \
               backoff, and on overflowed lines. As in the paper, waiting for sequence locks is not \
               counted."
            .into(),
        tables: vec![t],
        plots: vec![plot("figure4.svg", title, "% of kernel time", &labels(&linux), &series)],
    }
}

/// The regions of the runs of figure 5 and 6, joined: config, find, mab, pmake.
pub(super) fn joined(suite: &Suite, cpus: &[usize]) -> Vec<(usize, Region)> {
    let mut all = vec![Region::default(); Site::COUNT];
    for w in [Workload::Config, Workload::Find, Workload::Mab, Workload::Pmake] {
        for cpus in cpus {
            for s in suite.at(Point::plain(w, *cpus, KernelKind::Cx)) {
                for (sum, r) in all.iter_mut().zip(&s.regions) {
                    sum.entries += r.entries;
                    sum.tx_entries += r.tx_entries;
                    sum.most = sum.most.max(r.most);
                    sum.io += r.io;
                    for (sum, n) in sum.exclusive.iter_mut().zip(r.exclusive) {
                        *sum += n;
                    }
                }
            }
        }
    }
    all.into_iter().enumerate().filter(|(_, r)| r.entries > 0).collect()
}

/// Regions that ever ran in a transaction; percent of them with more than one thread.
pub(super) fn concurrent(regions: &[(usize, Region)]) -> f64 {
    let tx: Vec<_> = regions.iter().filter(|(_, r)| r.tx_entries > 0).collect();
    percent(tx.iter().filter(|(_, r)| r.most > 1).count() as u64, tx.len() as u64)
}

pub(super) fn figure5(suite: &Suite) -> Section {
    let regions = joined(suite, &[32]);
    let tx: Vec<_> = regions.iter().filter(|(_, r)| r.tx_entries > 0).collect();
    let title = "Figure 5: most threads at once in a critical region, TxLinux-CX, 32 processors";
    let edges = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];
    let mut counts = vec![0u32; edges.len()];
    for (_, r) in &tx {
        let bin = edges.iter().rposition(|e| r.most >= *e).unwrap_or(0);
        counts[bin] += 1;
    }
    let categories: Vec<String> = edges
        .iter()
        .zip(edges.iter().skip(1).map(Some).chain([None]))
        .map(|(a, b)| match b {
            Some(b) if b - 1 > *a => format!("{a}-{}", b - 1),
            Some(_) => a.to_string(),
            None => format!("{a}"),
        })
        .collect();
    let values = counts.iter().map(|n| (f64::from(*n), 0.0)).collect();
    let mut top = tx.clone();
    top.sort_by_key(|(_, r)| std::cmp::Reverse((r.most, r.entries)));
    let mut t = Table::new(&["region", "most threads at once", "executions"]);
    for (i, r) in top.iter().take(12) {
        t.row([Site::name_of(*i).to_owned(), r.most.to_string(), r.entries.to_string()]);
    }
    Section {
        title: title.into(),
        text: format!(
            "{:.0} % of {} regions that ran in transactions had more than one thread inside (paper: \
             {:.0} % of 284, at most {}).",
            concurrent(&regions),
            tx.len(),
            paper::CONCURRENT.0,
            paper::CONCURRENT.1
        ),
        tables: vec![t],
        plots: vec![plot(
            "figure5.svg",
            title,
            "regions",
            &categories,
            &[Series { name: "regions".into(), values }],
        )],
    }
}

/// Regions that `cx_optimistic` protects and in which I/O was done, with the percent of their
/// executions that did some.
pub(super) fn with_io(regions: &[(usize, Region)]) -> Vec<(usize, Region, f64)> {
    let optimistic =
        |i: usize| Site::class_of(i).is_some_and(|c| c.treat(KernelKind::Cx) == Treat::Optimistic);
    let some = regions.iter().filter(|(i, r)| optimistic(*i) && r.io > 0);
    some.map(|(i, r)| (*i, *r, percent(r.io, r.entries))).collect()
}

pub(super) fn figure6(suite: &Suite) -> Section {
    let regions = joined(suite, &CPUS);
    let title = "Figure 6: executions that restart for I/O, regions that do I/O on some path";
    let mut bins = [0u32; 10];
    let mut t = Table::new(&["region", "executions", "did I/O", "cancelled for it"]);
    for (i, r, share) in with_io(&regions) {
        bins[((share / 10.0) as usize).min(9)] += 1;
        let cancelled = percent(r.exclusive[Reason::Io.index()], r.entries);
        t.row([
            Site::name_of(i).to_owned(),
            r.entries.to_string(),
            format!("{share:.1} %"),
            format!("{cancelled:.1} %"),
        ]);
    }
    let mut others = Table::new(&[
        "region without I/O that went exclusive",
        "executions",
        "for overflow",
        "for a nested cx_exclusive",
    ]);
    for (i, r) in regions.iter().filter(|(_, r)| r.io == 0) {
        let by = |reason: Reason| r.exclusive[reason.index()];
        if r.exclusive.iter().sum::<u64>() > 0 {
            others.row([
                Site::name_of(*i).to_owned(),
                r.entries.to_string(),
                by(Reason::Overflow).to_string(),
                by(Reason::User).to_string(),
            ]);
        }
    }
    let categories: Vec<String> = (0..10).map(|i| format!("{}-{}", i * 10, i * 10 + 10)).collect();
    let values = bins.iter().map(|n| (f64::from(*n), 0.0)).collect();
    Section {
        title: title.into(),
        text:
            "Regions of TxLinux-CX under cx_optimistic in which I/O was done, there or in a region \
               nested in them: how many of their executions did some, and how many began as a \
               transaction that the I/O cancelled (fewer where the region was exclusive already, more \
               where the second attempt finds nothing to do). \
               The paper: several do so on a small percentage of paths, the majority on all or \
               nearly all. Regions that went exclusive for other reasons are not in the figure; \
               they are listed below it."
                .into(),
        tables: vec![t, others],
        plots: vec![plot(
            "figure6.svg",
            title,
            "regions",
            &categories,
            &[Series { name: "regions, by percent of executions".into(), values }],
        )],
    }
}

/// Instructions and cycles of the average transaction of TxLinux-CX.
pub(super) fn transaction(suite: &Suite) -> (f64, f64) {
    let points = grid(|p| p.kernel = KernelKind::Cx);
    let runs: Vec<&Stats> = points.iter().flat_map(|p| suite.at(*p)).collect();
    let commits = runs.iter().map(|s| s.commits).sum::<u64>().max(1) as f64;
    let instrs: u64 = runs.iter().map(|s| s.commit_instrs).sum();
    let cycles: u64 = runs.iter().map(|s| s.commit_cycles).sum();
    (instrs as f64 / commits, cycles as f64 / commits)
}

/// Change of kernel time against Linux in percent, averaged over the workloads.
pub(super) fn kernel_change(suite: &Suite, kernel: KernelKind, cpus: usize) -> Mean {
    let changes: Vec<f64> = Workload::TABLE5
        .iter()
        .map(|w| {
            let linux = Point::plain(*w, cpus, KernelKind::Locks);
            suite.change(linux, Point { kernel, ..linux }, |s| s.kernel() as f64).value
        })
        .collect();
    mean(&changes)
}

pub(super) fn section74(suite: &Suite, c: &Counts) -> Section {
    let mut t = Table::new(&["quantity", "paper", "measured", "basis"]);
    let pair = |(i, m): (u64, u64)| format!("{i} instructions, {m} references");
    let built = || super::basis(Basis::Construction).to_owned();
    let predicted = || super::basis(Basis::Predicted).to_owned();
    for (what, paper, measured) in [
        ("cx_optimistic, uncontended", "21 instructions, 9 references", pair(c.optimistic)),
        ("cx_exclusive, uncontended", "21 instructions, 8 references", pair(c.exclusive)),
        ("spin_lock, uncontended", "3 instructions, 2 references", pair(c.spin)),
        (
            "spin_lock, contended, besides waiting",
            "9 instructions",
            format!("{} instructions", c.spin_contended),
        ),
        (
            "load: L1 hit, L1 miss, L2 miss",
            "1, 1 + 16, 1 + 16 + 200 cycles",
            format!("{:?} cycles", c.load),
        ),
    ] {
        t.row([what.into(), paper.into(), measured, built()]);
    }
    let (instrs, cycles) = transaction(suite);
    t.row([
        "average transaction".into(),
        format!("{:.0} instructions, {:.0} cycles", paper::TRANSACTION.0, paper::TRANSACTION.1),
        format!("{instrs:.0} instructions, {cycles:.0} cycles"),
        predicted(),
    ]);
    for (i, cpus) in CPUS.into_iter().enumerate() {
        for (name, kernel, wanted) in [
            ("cxspinlocks", KernelKind::Cx, paper::CX_CHANGE[i]),
            ("TxLinux-SS", KernelKind::Ss, paper::SS_CHANGE[i]),
        ] {
            t.row([
                format!("kernel time with {name}, {cpus} CPUs"),
                format!("{wanted:+.1} %"),
                format!("{:+.1} %", kernel_change(suite, kernel, cpus).value),
                predicted(),
            ]);
        }
    }
    Section {
        title: "Section 7.4: costs".into(),
        text: "Counts of instructions and references are the paper's by construction: the guest \
               code is written to them, and they are measured to show that it still is. Changes of \
               kernel time are averages over the six workloads."
            .into(),
        tables: vec![t],
        plots: Vec::new(),
    }
}

/// Restart cycles in percent of all cycles.
pub(super) fn restart_share(s: &Stats) -> f64 {
    percent(s.restart_cycles(), s.cycles.iter().sum())
}

pub(super) fn figure8(suite: &Suite) -> Section {
    let title = "Figure 8: restart cycles, TxLinux-SS";
    let base = grid(|_| ());
    let aware = |p: &Point| Point { sched: SchedKind::Aware, ..*p };
    let series = [
        Series {
            name: "default scheduler".into(),
            values: base.iter().map(|p| pair(suite.mean(*p, restart_share))).collect(),
        },
        Series {
            name: "transaction-aware".into(),
            values: base.iter().map(|p| pair(suite.mean(aware(p), restart_share))).collect(),
        },
    ];
    let mut t = Table::new(&["run", "default", "aware", "change of execution time by aware"]);
    for p in &base {
        t.row([
            format!("{} {}", p.workload.name(), p.cpus),
            format!("{:.2} %", suite.mean(*p, restart_share)),
            format!("{:.2} %", suite.mean(aware(p), restart_share)),
            format!("{:+.2} %", suite.change(*p, aware(p), |s| s.end as f64)),
        ]);
    }
    Section {
        title: title.into(),
        text:
            "Percent of all processor time spent in attempts that restarted and in backoff: what \
               perfect scheduling could gain at most."
                .into(),
        tables: vec![t],
        plots: vec![plot("figure8.svg", title, "% of all time", &labels(&base), &series)],
    }
}

/// The pipeline's point.
pub(super) fn pipeline(cpus: usize, sched: SchedKind) -> Point {
    Point { sched, ..Point::plain(Workload::Pipeline, cpus, KernelKind::Ss) }
}

pub(super) fn figure9(suite: &Suite) -> Section {
    let title = "Figure 9: pipeline micro-benchmark, relative execution time";
    let mut t = Table::new(&[
        "CPUs",
        "change of time by aware",
        "paper",
        "change of restarts",
        "change of restart cycles",
        "descheduled",
    ]);
    let mut values = Vec::new();
    for (i, cpus) in PIPELINE_CPUS.into_iter().enumerate() {
        let (d, a) = (pipeline(cpus, SchedKind::Default), pipeline(cpus, SchedKind::Aware));
        let time = suite.change(d, a, |s| s.end as f64);
        values.push((1.0 + time.value / 100.0, time.half / 100.0));
        t.row([
            cpus.to_string(),
            format!("{time:+.1} %"),
            paper::PIPELINE[i].map_or("not significant".into(), |g| format!("-{g:.0} %")),
            format!("{:+.1} %", suite.change(d, a, |s| s.all_restarts() as f64)),
            format!("{:+.1} %", suite.change(d, a, |s| s.restart_cycles() as f64)),
            format!("{:.0}", suite.mean(a, |s| s.descheduled as f64).value),
        ]);
    }
    let series = [
        Series { name: "default".into(), values: vec![(1.0, 0.0); PIPELINE_CPUS.len()] },
        Series { name: "transaction-aware".into(), values },
    ];
    let categories: Vec<String> = PIPELINE_CPUS.iter().map(|c| format!("{c} CPUs")).collect();
    Section {
        title: title.into(),
        text:
            "Four threads a processor in 8 phases; the scheduler may put a thread of another phase \
               in the place of one that keeps restarting."
                .into(),
        tables: vec![t],
        plots: vec![plot("figure9.svg", title, "relative time", &categories, &series)],
    }
}
