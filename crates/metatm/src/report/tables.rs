//! Tables 1 to 7.

use super::paper::{TABLE6, TABLE7};
use super::{LitmusRun, Section, Table};
use crate::config::KernelKind;
use crate::experiment::stat::Mean;
use crate::experiment::suite::{CPUS, Point, Suite, percent};
use crate::htm::status::Reason;
use crate::kernel::site::{Class, Site};
use crate::litmus::Table as Kind;
use crate::stats::Stats;
use crate::workload::Workload;

/// Tables 1 to 3, section 5.3 and the checkers: what each litmus test found in this run.
pub(super) fn litmus_sections(litmus: &LitmusRun) -> Vec<Section> {
    let parts = [
        (Kind::One, "Table 1: instructions", "One litmus test for each instruction and concept."),
        (Kind::Two, "Table 2: kinds of lock", "One litmus test for each cell."),
        (Kind::Three, "Table 3: states of a cxspinlock", "One litmus test for each cell."),
        (
            Kind::Deadlock,
            "Section 5.3: deadlock",
            "The deadlock of a transaction and a lock holder, made and resolved.",
        ),
        (
            Kind::Checks,
            "Checkers",
            "What would make figures wrong is broken on purpose; each must end the run with an error.",
        ),
    ];
    parts
        .into_iter()
        .map(|(kind, title, text)| {
            let mut t = Table::new(&["case", "must be seen", "seen"]);
            for (case, outcome) in litmus.0.iter().filter(|(c, _)| c.table == kind) {
                let seen = match outcome {
                    Ok(()) => "yes".to_owned(),
                    Err(e) => format!("NO: {e}"),
                };
                t.row([case.name.to_owned(), case.claim.to_owned(), seen]);
            }
            Section { title: title.into(), text: text.into(), tables: vec![t], plots: Vec::new() }
        })
        .collect()
}

/// Sum of `f` over all runs of a kernel at the paper's default policy and scheduler.
fn total(suite: &Suite, kernel: KernelKind, f: impl Fn(&Stats) -> u64) -> u64 {
    let plain = |w, c| Point::plain(w, c, kernel);
    let points = Workload::TABLE5.into_iter().flat_map(|w| CPUS.map(|c| plain(w, c)));
    points.flat_map(|p| suite.at(p)).map(f).sum()
}

pub(super) fn table4(suite: &Suite) -> Section {
    let classes = [
        (Class::Slab, "slab allocator"),
        (Class::Dcache, "dentry cache"),
        (Class::Rcu, "RCU"),
        (Class::AddressSpace, "struct address_space"),
        (Class::Zone, "zoned page frame allocator"),
        (Class::Time, "timekeeping architecture"),
        (Class::MmList, "memory descriptor list"),
        (Class::Files, "VFS file objects"),
        (Class::VmList, "noncontiguous memory areas"),
    ];
    let of = |class: Class| {
        move |s: &Stats| {
            let regions = s.regions.iter().enumerate();
            regions
                .filter(|(i, _)| Site::class_of(*i) == Some(class))
                .map(|(_, r)| r.tx_entries)
                .sum()
        }
    };
    let ss = |s: &Stats| s.regions.iter().map(|r| r.tx_entries).sum();
    let all = total(suite, KernelKind::Ss, ss);
    let mut t = Table::new(&["subsystem (paper, table 4)", "transactions in TxLinux-SS", "share"]);
    for (class, name) in classes {
        let n = total(suite, KernelKind::Ss, of(class));
        t.row([name.to_owned(), n.to_string(), format!("{:.1} %", percent(n, all))]);
    }
    Section {
        title: "Table 4: converted subsystems".into(),
        text: "Every subsystem of the paper's table has its model; how often each ran in a \
               transaction, over all workloads and runs of TxLinux-SS."
            .into(),
        tables: vec![t],
        plots: Vec::new(),
    }
}

pub(super) fn table5(suite: &Suite) -> Section {
    let mut t =
        Table::new(&["workload", "model", "CPUs", "user", "sys + intr", "I/O wait", "idle"]);
    for w in Workload::TABLE5 {
        for cpus in CPUS {
            let p = Point::plain(w, cpus, KernelKind::Locks);
            let share = |modes: &'static [usize]| {
                let f = move |s: &Stats| {
                    let part = modes.iter().map(|m| s.cycles[*m]).sum();
                    percent(part, s.cycles.iter().sum())
                };
                format!("{:.1} %", suite.mean(p, f).value)
            };
            t.row([
                w.name().to_owned(),
                if cpus == CPUS[0] { w.describe().to_owned() } else { String::new() },
                cpus.to_string(),
                share(&[0]),
                share(&[1, 2]),
                share(&[3]),
                share(&[4]),
            ]);
        }
    }
    Section {
        title: "Table 5 and figure 3: workloads".into(),
        text:
            "What the scripts model, and where their time goes on unmodified Linux. (The paper's \
               figure 3 has no numbers in its text.)"
                .into(),
        tables: vec![t],
        plots: Vec::new(),
    }
}

/// A counter's name and how to read it.
type Counter = (&'static str, fn(&Stats) -> f64);

/// The three counters of table 6.
pub(super) const COUNTERS6: [Counter; 3] = [
    ("acquires", |s| s.acquires as f64),
    ("test&set", |s| s.test_and_set as f64),
    ("test", |s| s.tests as f64),
];

/// Percent by which TxLinux-SS cuts counter `i` of table 6.
pub(super) fn cut(suite: &Suite, w: Workload, cpus: usize, i: usize) -> Mean {
    let (linux, ss) =
        (Point::plain(w, cpus, KernelKind::Locks), Point::plain(w, cpus, KernelKind::Ss));
    let change = suite.change(linux, ss, COUNTERS6[i].1);
    Mean { value: -change.value, half: change.half }
}

pub(super) fn table6(suite: &Suite) -> Section {
    let mut t = Table::new(&[
        "workload",
        "CPUs",
        "acquires",
        "contended per 100",
        "t&s per 100",
        "paper",
        "test per t&s",
        "paper",
        "test per acquire",
        "paper",
        "cut of acquires",
        "paper",
        "cut of t&s",
        "paper",
        "cut of test",
        "paper",
    ]);
    for (w, cpus, linux, cuts) in TABLE6 {
        let p = Point::plain(*w, *cpus, KernelKind::Locks);
        let at = |i: usize| suite.mean(p, COUNTERS6[i].1).value;
        let mut row = vec![
            w.name().to_owned(),
            cpus.to_string(),
            format!("{:.0}", at(0)),
            format!("{:.2}", 100.0 * suite.mean(p, |s| s.contended as f64).value / at(0)),
            format!("{:.2}", 100.0 * at(1) / at(0)),
            format!("{:.2}", 100.0 * linux[1] / linux[0]),
            format!("{:.0}", at(2) / at(1)),
            format!("{:.0}", linux[2] / linux[1]),
            format!("{:.2}", at(2) / at(0)),
            format!("{:.2}", linux[2] / linux[0]),
        ];
        for (i, paper) in cuts.iter().enumerate() {
            row.push(format!("{:.0} %", cut(suite, *w, *cpus, i)));
            row.push(format!("{paper:.0} %"));
        }
        t.row(row);
    }
    Section {
        title: "Table 6: spinlocks in Linux and TxLinux-SS".into(),
        text: "Amounts of work differ from the paper's, so its counts appear as ratios. Cuts are \
               what TxLinux-SS saves against Linux. A contended acquire is one whose first attempt \
               failed; t&s are all failed attempts. Why those are more than the paper's: see the \
               probes."
            .into(),
        tables: vec![t],
        plots: Vec::new(),
    }
}

/// Percent of kernel time wasted by restarts for I/O.
pub(super) fn waste(s: &Stats) -> f64 {
    percent(s.wasted[Reason::Io.index()] + s.wasted[Reason::User.index()], s.kernel())
}

/// Mean nesting depth of cancelled I/O.
pub(super) fn nesting(s: &Stats) -> f64 {
    s.io_depth as f64 / s.io_cancelled.max(1) as f64
}

/// Percent of transactions that began in system calls.
pub(super) fn from_syscalls(s: &Stats) -> f64 {
    percent(s.commits - s.commits_irq, s.commits)
}

pub(super) fn table7(suite: &Suite) -> Section {
    let mut t = Table::new(&[
        "workload", "CPUs", "nesting", "paper", "waste", "paper", "sys (SS)", "paper", "sys (CX)",
        "paper",
    ]);
    for (w, cpus, nest, wasted, ss_sys, cx_sys) in TABLE7 {
        let cx = Point::plain(*w, *cpus, KernelKind::Cx);
        let ss = Point::plain(*w, *cpus, KernelKind::Ss);
        t.row([
            w.name().to_owned(),
            cpus.to_string(),
            format!("{:.2}", suite.mean(cx, nesting).value),
            format!("{nest:.2}"),
            format!("{:.2} %", suite.mean(cx, waste).value),
            format!("{wasted:.1} %"),
            format!("{:.1} %", suite.mean(ss, from_syscalls).value),
            format!("{ss_sys:.1} %"),
            format!("{:.1} %", suite.mean(cx, from_syscalls).value),
            format!("{cx_sys:.1} %"),
        ]);
    }
    Section {
        title: "Table 7: cxspinlocks in use".into(),
        text: "Nesting depth when I/O is cancelled, time wasted by restarts for I/O in percent of \
               kernel time, and where transactions begin."
            .into(),
        tables: vec![t],
        plots: Vec::new(),
    }
}
