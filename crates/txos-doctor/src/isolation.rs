//! What isolation follows from what the probes showed.
//!
//! The verdict is about transactions of *this* caller on *this* machine, in the state of the code:
//! strong isolation needs a domain whose processes are paused while a commit applies, and is claimed
//! for its members alone, where they can be frozen.

use std::fmt;

use serde::Serialize;

use crate::report::{Probe, Status};

/// How far a transaction is isolated from those who use none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// `txos run` cannot work here.
    None,
    /// A transaction that read what an outsider changed never commits; an outsider may see an
    /// apply half-way.
    Detected,
    /// The same; and the processes of a domain see all of a commit or nothing of it.
    Domain,
}

/// The verdict, in words that hold.
#[derive(Clone, Debug, Serialize)]
pub struct Isolation {
    /// The short form.
    pub level: Level,
    /// What a transaction gets.
    pub verdict: String,
    /// What it does not get here, one line each.
    pub limits: Vec<String>,
}

impl Isolation {
    /// Draws the conclusion for a caller with or without root's privilege.
    pub(crate) fn follows_from(probes: &[Probe], root: bool) -> Self {
        let lacking = lacking(probes, root);
        if !lacking.is_empty() {
            return Self {
                level: Level::None,
                verdict: format!("`txos run` cannot work here without: {}", lacking.join(", ")),
                limits: Vec::new(),
            };
        }
        let whose =
            if root { "the whole root tree" } else { "the whole tree, as this user sees it" };
        let verdict = format!(
            "a transaction covers {whose}. One that read what somebody outside changed never \
             commits; outsiders may see a commit half-way while it is applied"
        );
        let domain = status(probes, FREEZER) != Status::Missing;
        let (level, members) = match domain {
            true => (
                Level::Domain,
                ", processes of a domain (txos domain, txos run --domain) see all of it or nothing.",
            ),
            false => (Level::Detected, "."),
        };
        Self { level, verdict: verdict + members, limits: limits(probes, root) }
    }
}

const FREEZER: &str = "cgroup v2 freezer";

/// What a view can't do without, for this caller.
fn lacking(probes: &[Probe], root: bool) -> Vec<&'static str> {
    let needed: &[&'static str] = if root {
        &["state directory", "mount namespace", "overlay as root", "FUSE as root", "openat2"]
    } else {
        &[
            "state directory",
            "user namespace",
            "overlay in a user namespace",
            "FUSE in a user namespace",
            "openat2",
        ]
    };
    needed.iter().copied().filter(|name| status(probes, name) == Status::Missing).collect()
}

fn limits(probes: &[Probe], root: bool) -> Vec<String> {
    let mut limits = Vec::new();
    let mut say = |applies: bool, line: &str| {
        if applies {
            limits.push(line.to_owned());
        }
    };
    let unprivileged = !root;
    say(unprivileged, "renaming a directory that existed before gives EXDEV (mv copies instead)");
    say(
        unprivileged,
        "files of other users appear as nobody's and can't be given away (EOVERFLOW)",
    );
    say(
        unprivileged,
        "a file with several hard links that is changed keeps its old content under \
                       its other names until the commit",
    );
    say(
        root && status(probes, "overlay as root") == Status::Limited,
        "renaming a directory that existed before gives EXDEV (mv copies instead)",
    );
    say(
        status(probes, "fanotify") != Status::Ok,
        "outside changes are noticed at commit, by comparing everything that was read; not early",
    );
    say(
        status(probes, FREEZER) == Status::Missing,
        "there are no domains: nobody stands still while a commit is applied",
    );
    say(
        status(probes, "read lease") != Status::Ok,
        "a file that somebody may be writing while it is read is compared by content",
    );
    say(
        coarse_times(probes),
        "where change times are coarse, recently changed files are compared \
                               by content",
    );
    say(
        true,
        "times, size and link count of a directory are shown but not validated (its names, owner \
         and mode are)",
    );
    say(
        status(probes, "seccomp notification") == Status::Missing,
        "calls with effects outside can't be deferred or refused: only commands without such calls \
         are safe",
    );
    say(
        true,
        "changes by other txos state directories (other users' transactions) count as \
               outside changes",
    );
    say(true, "asynchronous I/O that an outsider has in flight is not stopped by anything");
    limits
}

fn coarse_times(probes: &[Probe]) -> bool {
    probes.iter().any(|probe| probe.name.starts_with("change times") && probe.status != Status::Ok)
}

/// A probe that was not made proves nothing.
fn status(probes: &[Probe], name: &str) -> Status {
    probes.iter().find(|probe| probe.name == name).map_or(Status::Missing, |probe| probe.status)
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "isolation: {}", self.verdict)?;
        self.limits.iter().try_for_each(|limit| writeln!(f, "  - {limit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(missing: &[&'static str]) -> Vec<Probe> {
        [
            "state directory",
            "mount namespace",
            "user namespace",
            "overlay as root",
            "overlay in a user namespace",
            "FUSE as root",
            "FUSE in a user namespace",
            "openat2",
            "fanotify",
            "read lease",
            "seccomp notification",
            FREEZER,
        ]
        .into_iter()
        .map(|name| match missing.contains(&name) {
            true => Probe::missing(name, "refused", "none"),
            false => Probe::ok(name, "works"),
        })
        .collect()
    }

    #[test]
    fn root_does_not_need_user_namespaces() {
        let probes = machine(&["user namespace", "FUSE in a user namespace"]);
        assert_eq!(Isolation::follows_from(&probes, true).level, Level::Domain);
        let user = Isolation::follows_from(&probes, false);
        assert_eq!(user.level, Level::None);
        assert!(user.verdict.contains("user namespace, FUSE in a user namespace"), "{user}");
    }

    #[test]
    fn nothing_tried_is_nothing_promised() {
        assert_eq!(Isolation::follows_from(&[], true).level, Level::None);
    }

    #[test]
    fn what_is_missing_shows_among_the_limits() {
        let all = Isolation::follows_from(&machine(&[]), true).limits;
        let without = Isolation::follows_from(&machine(&["fanotify"]), true).limits;
        assert_eq!(without.len(), all.len() + 1);
    }

    #[test]
    fn a_user_is_told_of_directory_renames() {
        let user = Isolation::follows_from(&machine(&[]), false);
        assert!(user.limits.iter().any(|limit| limit.contains("EXDEV")), "{user}");
    }

    #[test]
    fn strong_isolation_is_claimed_for_domains_alone() {
        let best = Isolation::follows_from(&machine(&[]), true);
        assert!(best.verdict.contains("half-way") && best.verdict.contains("domain"), "{best}");
        let without = Isolation::follows_from(&machine(&[FREEZER]), true);
        assert_eq!(without.level, Level::Detected);
        assert!(!without.verdict.contains("domain"), "{without}");
        assert!(without.limits.iter().any(|limit| limit.contains("no domains")), "{without}");
    }
}
