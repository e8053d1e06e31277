//! Which groups stand still when the domain is the whole system.
//!
//! Everything that may be frozen is, in as few groups as possible: a group all of whose processes
//! may be frozen is frozen as a whole; one that holds somebody who must not be is entered, and its
//! parts are looked at one by one. Who sits directly in a group with somebody who must go on cannot
//! be frozen, nor can anybody in the root group. If such processes are left, isolation towards them
//! is not given, and the caller decides whether that is refused.
//!
//! Who must go on: txos with its transactions and watchdogs (in a group of their own), the first
//! process of the system (it answers for automatic mounts, and ends what hangs), FUSE servers,
//! fanotify permission listeners, and whoever shows the terminal that txos writes to.

use std::path::{Path, PathBuf};

use crate::{
    group::{child_groups, processes_in},
    members::{self, Obstacle},
};

/// What a pause of the whole system consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemPlan {
    /// The groups to freeze; none lies in another.
    pub freeze: Vec<PathBuf>,
    /// Processes that may be frozen and cannot, since they share a group with one that may not.
    pub left: Vec<u32>,
}

/// A group with what is in it.
#[derive(Clone, Debug, Default)]
struct Node {
    path: PathBuf,
    processes: Vec<u32>,
    below: Vec<Node>,
}

/// Looks at all groups below the mount point of the hierarchy. `ours` is the group of running
/// transactions, which is never frozen.
pub fn plan_system(mount: &Path, ours: &Path) -> SystemPlan {
    let top = read(mount, ours);
    let must_go_on = |pid: u32| {
        pid == 1
            || members::obstacle(pid).is_some_and(|why| why != Obstacle::Txos)
            || is_kernel(pid)
    };
    let mut plan = SystemPlan::default();
    // The root group cannot be frozen.
    plan.left.extend(top.processes.iter().filter(|pid| !must_go_on(**pid)));
    top.below.iter().for_each(|node| divide(node, &must_go_on, &mut plan));
    plan
}

fn read(path: &Path, ours: &Path) -> Node {
    let below = child_groups(path).into_iter().filter(|child| child != ours);
    Node {
        path: path.to_owned(),
        processes: processes_in(path).unwrap_or_default(),
        below: below.map(|child| read(&child, ours)).collect(),
    }
}

fn divide(node: &Node, must_go_on: &impl Fn(u32) -> bool, plan: &mut SystemPlan) {
    fn any(node: &Node, test: &impl Fn(u32) -> bool) -> bool {
        node.processes.iter().any(|pid| test(*pid)) || node.below.iter().any(|n| any(n, test))
    }
    if !any(node, &|_| true) {
        return;
    }
    if !any(node, must_go_on) {
        plan.freeze.push(node.path.clone());
        return;
    }
    plan.left.extend(node.processes.iter().filter(|pid| !must_go_on(**pid)));
    node.below.iter().for_each(|below| divide(below, must_go_on, plan));
}

/// A kernel thread has no memory of its own and no command line.
fn is_kernel(pid: u32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_err() && std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(path: &str, processes: &[u32], below: Vec<Node>) -> Node {
        Node { path: path.into(), processes: processes.to_vec(), below }
    }

    fn plan(node: &Node, go_on: &[u32]) -> SystemPlan {
        let mut plan = SystemPlan::default();
        divide(node, &|pid| go_on.contains(&pid), &mut plan);
        plan
    }

    #[test]
    fn groups_are_frozen_whole_where_nobody_must_go_on() {
        let system = node(
            "/s",
            &[],
            vec![node("/s/a", &[2], vec![node("/s/a/x", &[3], vec![])]), node("/s/e", &[], vec![])],
        );
        assert_eq!(plan(&system, &[]).freeze, [PathBuf::from("/s")]);
        assert_eq!(plan(&node("/e", &[], vec![]), &[]), SystemPlan::default());
    }

    #[test]
    fn a_group_with_somebody_who_must_go_on_is_entered() {
        let user = node(
            "/u",
            &[9],
            vec![
                node("/u/shell", &[2, 4], vec![]),
                node("/u/fuse", &[7], vec![node("/u/fuse/x", &[8], vec![])]),
            ],
        );
        let found = plan(&user, &[7]);
        assert_eq!(found.freeze, [PathBuf::from("/u/shell"), PathBuf::from("/u/fuse/x")]);
        assert_eq!(found.left, [9]);
    }
}
