//! The paper's numbers. Graphs are not in its text; these are the numbers that are.

use crate::workload::Workload;

/// A row of table 6: workload, processors, Linux in thousands (acquires, test-and-set, test), and
/// the percent cut by TxLinux-SS.
pub type Row6 = (Workload, usize, [f64; 3], [f64; 3]);

/// Table 6.
pub const TABLE6: &[Row6] = &[
    (Workload::Bonnie, 16, [12_478.0, 132.0, 340_523.0], [28.0, 20.0, 68.0]),
    (Workload::Config, 16, [16_087.0, 62.0, 49_432.0], [31.0, 56.0, 33.0]),
    (Workload::Dpunish, 16, [9_626.0, 35.0, 18_406.0], [51.0, 66.0, 32.0]),
    (Workload::Dpunish, 32, [10_514.0, 102.0, 153_699.0], [49.0, 39.0, 6.0]),
    (Workload::Find, 16, [2_912.0, 72.0, 34_553.0], [39.0, 42.0, 14.0]),
    (Workload::Find, 32, [2_758.0, 183.0, 111_629.0], [40.0, 52.0, 21.0]),
    (Workload::Mab, 16, [15_451.0, 101.0, 45_167.0], [51.0, 81.0, 55.0]),
    (Workload::Mab, 32, [15_871.0, 146.0, 96_370.0], [50.0, 71.0, 39.0]),
    (Workload::Pmake, 16, [764.0, 9.0, 8_981.0], [30.0, 38.0, 24.0]),
    (Workload::Pmake, 32, [1_004.0, 24.0, 35_341.0], [25.0, 48.0, 18.0]),
];

/// A row of table 7: workload, processors, nesting, waste in percent, percent of transactions from
/// system calls in TxLinux-SS and in TxLinux-CX.
pub type Row7 = (Workload, usize, f64, f64, f64, f64);

/// Table 7.
pub const TABLE7: &[Row7] = &[
    (Workload::Config, 16, 1.42, 32.3, 46.3, 49.6),
    (Workload::Config, 32, 1.36, 36.3, 45.9, 49.8),
    (Workload::Find, 16, 1.51, 0.3, 74.8, 68.6),
    (Workload::Find, 32, 1.39, 2.8, 79.5, 67.8),
    (Workload::Mab, 16, 1.36, 13.7, 73.4, 63.6),
    (Workload::Mab, 32, 1.30, 31.2, 73.2, 63.8),
    (Workload::Pmake, 16, 1.51, 0.3, 51.5, 21.3),
    (Workload::Pmake, 32, 1.50, 0.3, 48.6, 15.1),
];

/// Figure 4: range of synchronization time in percent of kernel time.
pub const SYNC_RANGE: (f64, f64) = (1.0, 14.0);

/// Section 7.2: average change of synchronization time by TxLinux-SS, 16 and 32 processors.
pub const SYNC_CHANGE: [f64; 2] = [-57.0, 1.0];

/// Figure 5: percent of regions with more than one thread; most threads in one.
pub const CONCURRENT: (f64, u32) = (67.0, 32);

/// Section 7.4: instructions and cycles of the average transaction.
pub const TRANSACTION: (f64, f64) = (51.0, 449.0);

/// Section 7.4: kernel time change in percent by cxspinlocks, 16 and 32 processors.
pub const CX_CHANGE: [f64; 2] = [3.1, 2.8];

/// Section 7.4: kernel time change in percent by TxLinux-SS, 16 and 32 processors.
pub const SS_CHANGE: [f64; 2] = [2.0, -2.0];

/// Figure 7: average percent of conflicts that invert priority.
pub const INVERSION: f64 = 9.5;

/// Figure 7: most that os_prio may cost in percent, default and aware scheduler.
pub const OS_PRIO_COST: [f64; 2] = [2.5, 1.0];

/// Figure 8: most that perfect scheduling could gain, in percent of all time.
pub const RESTART_BOUND: f64 = 1.0;

/// Section 7.6: most by which the aware scheduler differs in percent.
pub const SCHED_DIFFERENCE: f64 = 1.5;

/// Figure 9: gain of the aware scheduler in percent at 4, 8 and 16 processors (16: not significant).
pub const PIPELINE: [Option<f64>; 3] = [Some(8.0), Some(6.0), None];

/// Section 7.6: change of restarts and of restart cycles by the aware scheduler, in percent.
pub const PIPELINE_RESTARTS: (f64, f64) = (-20.3, -21.5);
