//! Scheduling priorities, as in Linux 2.6: 0 to 99 real-time, 100 to 139 normal, smaller is better.

/// Number of priority levels.
pub const LEVELS: u32 = 140;

/// First level of normal threads.
pub const NORMAL: u32 = 100;

/// The 8-bit conflict priority (paper, section 6.2): policy in the top bit, priority below;
/// larger is better.
pub fn conflict_priority(prio: u32) -> u8 {
    if prio < NORMAL {
        0x80 | (NORMAL - 1 - prio) as u8
    } else {
        (LEVELS - 1).saturating_sub(prio) as u8
    }
}

/// True if a conflict priority belongs to a real-time thread.
pub fn is_rt(conflict: u8) -> bool {
    conflict & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_orders_like_the_scheduler() {
        for prio in 1..LEVELS {
            assert!(conflict_priority(prio - 1) > conflict_priority(prio), "{prio}");
            assert_eq!(is_rt(conflict_priority(prio)), prio < NORMAL);
        }
    }
}
