//! What can be said on the command line. A verb's own options stand in its file.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, Subcommand};

use crate::verbs::{
    abort, commit, completions, contention, diff, doctor, domain, enter, exec, log, policy, ps,
    recover, run, session, show, stats, syscalls, watchdog, why,
};

/// System transactions for stock Linux: any command, unmodified, as one ACID transaction.
#[derive(Debug, Parser)]
#[command(name = "txos", version, max_term_width = 100)]
#[command(after_help = "The state directory is $TXOS_STATE, else /var/lib/txos for root and \
    $XDG_STATE_HOME/txos (~/.local/state/txos) for others. \
    Exit status: that of the command; 75 conflicts outlasted the retries; 125 txos failed, and nothing \
    was changed; 74 the disk failed behind the commit record; \
    126, 127 the command cannot be executed or found; 128+N ended by signal N.")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a command as one transaction: all of its changes happen, or none
    Run(Box<run::Args>),
    /// Show the changes of a transaction that was kept
    Diff(diff::Args),
    /// Show what is known of a transaction
    Show(show::Args),
    /// Commit a transaction that was kept
    Commit(commit::Args),
    /// Abort a transaction that was kept
    Abort(abort::Args),
    /// List the transactions that run or are kept
    Ps(ps::Args),
    /// List the transactions that have ended
    Log(log::Args),
    /// Say why a transaction lost the last time: which object, which facet, and to whom
    Why(why::Args),
    /// Show what was counted: conflicts, waits, pauses
    Stats(stats::Args),
    /// Show or set by what the winner of a conflict is chosen
    Policy(policy::Args),
    /// Finish or discard what a crash left, and say what was done
    Recover(recover::Args),
    /// Manage domains: which processes stand still while a transaction commits
    Domain(domain::Args),
    /// Say what this machine grants and what isolation follows
    Doctor(doctor::Args),
    /// Say what becomes of each system call inside a transaction
    Syscalls(syscalls::Args),
    /// Print a completion script for a shell
    Completions(completions::Args),
    /// Run a program that begins transactions itself (sys_xbegin), with a session for it
    Exec(exec::Args),
    #[command(name = "__manager", hide = true)]
    Manager(contention::Args),
    #[command(name = "__enter", hide = true)]
    Enter(enter::Args),
    #[command(name = "__watchdog", hide = true)]
    Watchdog(watchdog::Args),
    #[command(name = "__session", hide = true)]
    Session(session::Args),
}

/// Parses a length of time: a number with an optional unit `ms`, `s`, `m` or `h` (seconds if none).
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| "not a number".to_owned())?;
    let scale = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit {unit:?}: use ms, s, m or h")),
    };
    /// So that it can be added to any point in time.
    const LONGEST: f64 = 100.0 * 366.0 * 24.0 * 3600.0;
    let seconds = number * scale;
    if seconds > LONGEST {
        return Err("longer than a hundred years".to_owned());
    }
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Parses a length of time as [`duration`] does; one in which nothing can happen is refused.
pub fn time_limit(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("no time at all: give more, or leave the option out".to_owned()),
        limit => Ok(limit),
    }
}

/// Parses a size in bytes: a number with an optional unit `K`, `M`, `G` or `T` (powers of 1024).
pub fn size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "not a number".to_owned())?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("unknown unit {unit:?}: use K, M, G or T")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

/// Makes a path absolute without following its links; `..` is resolved by name.
pub fn absolute(path: PathBuf) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            std::path::Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert!(duration("5 parsecs").is_err() && duration("").is_err() && duration("-1").is_err());
        assert!(duration("3000000000000000h").is_err() && duration("1e300").is_err());
        assert!(time_limit("0").is_err() && time_limit("0.5").is_ok());
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("2K"), Ok(2048));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert!(size("99999999999T").is_err() && size("x").is_err());
    }

    #[test]
    fn paths_become_absolute_and_clean() {
        assert_eq!(absolute("/a/./b/../c".into()).unwrap(), PathBuf::from("/a/c"));
    }
}
