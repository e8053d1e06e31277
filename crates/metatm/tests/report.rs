//! The whole reproduction at the smallest scale: every table and figure is there, and the number of
//! host threads changes nothing.

use metatm::experiment::{Effort, Job, run_all};
use metatm::report::reproduce;
use metatm::workload::Workload;
use metatm::{Config, config::KernelKind};

#[test]
fn every_table_and_figure_is_written() {
    let effort = Effort { seeds: 1, scale: 3, threads: 2, full_sweep: false };
    let report = reproduce(effort, &|_, _, _| {}).expect("runs");
    let dir = std::env::temp_dir().join(format!("metatm-report-{}", std::process::id()));
    report.write(&dir).expect("written");
    let text = std::fs::read_to_string(dir.join("report.md")).expect("report.md");
    let html = std::fs::read_to_string(dir.join("report.html")).expect("report.html");
    for n in 1..=7 {
        assert!(text.contains(&format!("Table {n}")), "table {n}");
    }
    for n in 4..=9 {
        assert!(text.contains(&format!("Figure {n}")), "figure {n}");
        assert!(dir.join(format!("plots/figure{n}.svg")).exists(), "plot {n}");
    }
    assert!(text.contains("## Sensitivity"));
    assert_eq!(html.matches("<svg").count(), 6);
    std::fs::remove_dir_all(&dir).expect("cleaned");
    let unwritable = std::path::Path::new("/proc/metatm-report");
    assert!(report.write(unwritable).expect_err("no such place").to_string().contains("--out"));
}

#[test]
fn host_threads_change_no_figure() {
    let job = |seed| Job {
        workload: Workload::Dpunish,
        cfg: Config {
            cpus: 4,
            seed,
            scale: 20,
            perturb: 9,
            kernel: KernelKind::Cx,
            ..Config::default()
        },
    };
    let jobs: Vec<Job> = (0..6).map(job).collect();
    let one = run_all(&jobs, 1, &|_, _| {}).expect("runs");
    assert_eq!(one, run_all(&jobs, 3, &|_, _| {}).expect("runs"));
    assert_ne!(one[0].end, one[1].end);
}
