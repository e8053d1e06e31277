//! How high a starter ranks.

use rustix::process::Pid;
use txos_core::{Stamp, TxId, contention::Standing};

/// Added for real-time classes, so that each stands above all nice values.
const REAL_TIME: i32 = 1000;
const DEADLINE: i32 = 2000;
/// Below all nice values.
const IDLE: i32 = -1000;

/// The rank of a transaction that this process starts.
pub fn standing(id: TxId, started: Stamp, priority: i32, meek: bool) -> Standing {
    let scheduling = scheduling(0);
    Standing { id, priority, scheduling, started, size: 0, losses: 0, meek }
}

/// The rank of one that a thread of another process has begun, after so many losses.
pub fn standing_of(task: i32, id: TxId, started: Stamp, losses: u32) -> Standing {
    let scheduling = scheduling(task);
    Standing { id, priority: 0, scheduling, started, size: 0, losses, meek: false }
}

/// Scheduling class and nice value of a thread as one number (sched(7)); 0 is the calling one.
fn scheduling(task: i32) -> i32 {
    match class(task) {
        libc::SCHED_DEADLINE => DEADLINE,
        libc::SCHED_FIFO | libc::SCHED_RR => REAL_TIME + real_time_priority(task),
        libc::SCHED_IDLE => IDLE,
        _ => -rustix::process::getpriority_process(Pid::from_raw(task)).unwrap_or(0),
    }
}

#[allow(unsafe_code)] // rustix has no scheduling classes
fn class(task: i32) -> i32 {
    // SAFETY: it takes no pointer.
    unsafe { libc::sched_getscheduler(task) }
}

#[allow(unsafe_code)] // see above
fn real_time_priority(task: i32) -> i32 {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is a whole sched_param that lives through the call.
    unsafe { libc::sched_getparam(task, &mut param) };
    param.sched_priority
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nicer_process_ranks_lower() {
        let stamp = Stamp::default();
        let now = standing(TxId(1), stamp, 3, false);
        assert_eq!((now.priority, now.scheduling.abs() <= 20 || class(0) != 0), (3, true));
    }
}
