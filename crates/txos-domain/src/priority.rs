use std::fs;

/// How much a process is preferred by its user: its static scheduling priority. The greater one is
/// preferred; what the scheduler makes of it from moment to moment does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Priority {
    /// Real-time priority, 1 to 99; 0 for a process that has none (`sched(7)`).
    realtime: u32,
    /// 20 minus the nice value: 1 to 40.
    favour: i32,
}

impl Priority {
    /// That of process `pid`; `None` if it has ended.
    pub fn of(pid: u32) -> Option<Priority> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// From `/proc/PID/stat` (`proc_pid_stat(5)`): field 19 is the nice value, field 40 the real-time
/// priority, field 41 the policy, of which the batch and idle ones are below all others.
fn parse(stat: &str) -> Option<Priority> {
    const IDLE: u32 = 5;
    // The name in parentheses may hold anything; behind it stands field 3.
    let (_, after) = stat.rsplit_once(") ")?;
    let field = |number: usize| after.split_whitespace().nth(number - 3);
    let nice: i32 = field(19)?.parse().ok()?;
    let realtime = field(40)?.parse().ok()?;
    let idle = field(41)?.parse() == Ok(IDLE);
    Some(Priority { realtime, favour: if idle { 0 } else { 20 - nice } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(nice: i32, realtime: u32, policy: u32) -> String {
        let mut fields: Vec<String> = (3..=52).map(|_| "0".to_owned()).collect();
        fields[19 - 3] = nice.to_string();
        fields[40 - 3] = realtime.to_string();
        fields[41 - 3] = policy.to_string();
        format!("7 (a) b) {}", fields.join(" "))
    }

    #[test]
    fn real_time_before_nice_before_idle() {
        let order = [stat(0, 0, 5), stat(19, 0, 0), stat(0, 0, 0), stat(-5, 0, 0), stat(0, 1, 2)];
        let found: Vec<_> = order.iter().map(|stat| parse(stat).unwrap()).collect();
        assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
        assert_eq!(parse("7 (a"), None);
        assert!(Priority::of(std::process::id()).is_some());
        assert_eq!(Priority::of(u32::MAX), None);
    }
}
