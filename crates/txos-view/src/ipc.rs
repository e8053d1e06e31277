//! What processes leave in the view's IPC namespace: System V objects, POSIX queues and shared memory.
//!
//! Natively such objects outlive their makers. The view's end with it, at commit too, so init looks for
//! them when the last process has ended, and the report says what is gone.

use std::fs;

/// So many are named at the most.
const MAX_NAMES: usize = 50;

/// Names of what is left. Source: sysvipc(7), mq_overview(7), shm_overview(7).
pub(crate) fn left() -> Vec<String> {
    let queues = ["/dev/shm", "/dev/mqueue"].into_iter().flat_map(|dir| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(move |entry| format!("{dir}/{}", entry.file_name().to_string_lossy()))
    });
    let kinds = [("msg", "message queue"), ("sem", "semaphores"), ("shm", "shared memory")];
    let objects = kinds.into_iter().flat_map(|(file, what)| {
        let text = fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
        identifiers(&text).into_iter().map(move |id| format!("{what} {id}")).collect::<Vec<_>>()
    });
    queues.chain(objects).take(MAX_NAMES).collect()
}

/// The identifiers in a table of `/proc/sysvipc`: its second column, below the heading.
fn identifiers(table: &str) -> Vec<&str> {
    table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_kernel_are_understood() {
        let table = "       key      msqid perms\n         0          7   644\n        12         32   600\n";
        assert_eq!(identifiers(table), ["7", "32"]);
        assert!(identifiers("").is_empty());
    }
}
