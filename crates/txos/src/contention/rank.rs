//! How high a starter ranks.

use txos_core::{Stamp, TxId, contention::Standing};

/// Added for real-time classes, so that each stands above all nice values.
const REAL_TIME: i32 = 1000;
const DEADLINE: i32 = 2000;
/// Below all nice values.
const IDLE: i32 = -1000;

/// The rank of a transaction that this process starts.
pub fn standing(id: TxId, started: Stamp, priority: i32, meek: bool) -> Standing {
    Standing { id, priority, scheduling: scheduling(), started, size: 0, losses: 0, meek }
}

/// Scheduling class and nice value of this process as one number (sched(7)).
fn scheduling() -> i32 {
    match class() {
        libc::SCHED_DEADLINE => DEADLINE,
        libc::SCHED_FIFO | libc::SCHED_RR => REAL_TIME + real_time_priority(),
        libc::SCHED_IDLE => IDLE,
        _ => -rustix::process::getpriority_process(None).unwrap_or(0),
    }
}

#[allow(unsafe_code)] // rustix has no scheduling classes
fn class() -> i32 {
    // SAFETY: it takes no pointer; 0 is the calling process.
    unsafe { libc::sched_getscheduler(0) }
}

#[allow(unsafe_code)] // see above
fn real_time_priority() -> i32 {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is a whole sched_param that lives through the call.
    unsafe { libc::sched_getparam(0, &mut param) };
    param.sched_priority
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nicer_process_ranks_lower() {
        let stamp = Stamp::default();
        let now = standing(TxId(1), stamp, 3, false);
        assert_eq!((now.priority, now.scheduling.abs() <= 20 || class() != 0), (3, true));
    }
}
