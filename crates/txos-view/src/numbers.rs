//! Which process numbers of the view have been used.
//!
//! A number that a file names may be that of an outsider or of a member that has ended. The kernel
//! gives the numbers of a pid namespace in ascending order, so one above the last that was given was
//! never a member's. That holds until the numbers begin anew at the greatest one; before the
//! machine has made as many processes and threads as there are numbers since the view was made, they
//! can't have. Source: pid_namespaces(7), proc_loadavg(5) (last field, in the reader's pid namespace),
//! proc_stat(5) (`processes`, the machine's forks since boot).

use std::fs;

/// Counts from when the view was made. Made and asked in init, whose `/proc` is the view's.
pub(crate) struct Numbers {
    forks_before: Option<u64>,
}

impl Numbers {
    pub(crate) fn new() -> Numbers {
        Numbers { forks_before: forks() }
    }

    /// The greatest number that a process or thread of the view has had so far; `None` when that can't
    /// be told (any more).
    pub(crate) fn used_up_to(&self) -> Option<u32> {
        let last = last_given(&fs::read_to_string("/proc/loadavg").ok()?)?;
        let limit = fs::read_to_string("/proc/sys/kernel/pid_max").ok()?;
        let limit: u64 = limit.trim().parse().ok()?;
        // Looked at after the last number: later forks can only make the count greater.
        let made = forks()?.checked_sub(self.forks_before?)?;
        (made < limit / 2).then_some(last)
    }
}

/// The last field of `/proc/loadavg`.
fn last_given(text: &str) -> Option<u32> {
    text.split_ascii_whitespace().nth(4)?.parse().ok()
}

fn forks() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    text.lines().find_map(|line| line.strip_prefix("processes "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_is_not_above_the_last() {
        assert_eq!(last_given("0.40 1.18 1.94 2/310 20588\n"), Some(20588));
        assert_eq!(last_given("junk"), None);
        let numbers = Numbers::new();
        let child = std::process::Command::new("true").spawn().and_then(|mut child| {
            let pid = child.id();
            child.wait().map(|_| pid)
        });
        // On a machine whose numbers begin anew just now there is nothing to compare.
        if let (Ok(pid), Some(last)) = (child, numbers.used_up_to())
            && last > 1000
        {
            assert!(pid <= last, "{pid} was given, and {last} is said to be the last");
        }
    }

    #[test]
    fn after_as_many_forks_as_numbers_nothing_is_told() {
        assert_eq!(Numbers { forks_before: Some(0) }.used_up_to().is_some(), {
            let limit = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
            forks().unwrap() < limit.trim().parse::<u64>().unwrap() / 2
        });
        assert_eq!(Numbers { forks_before: Some(u64::MAX) }.used_up_to(), None);
        assert_eq!(Numbers { forks_before: None }.used_up_to(), None);
    }
}
