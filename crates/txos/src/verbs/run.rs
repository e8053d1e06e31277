use std::{
    ffi::OsString,
    net::{IpAddr, ToSocketAddrs},
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use txos_domain::DomainError;
use txos_effects::{Host, OnUnsupported};

use crate::{
    cli::{absolute, duration, size, time_limit},
    exit::Exit,
    manager::{self, BesideOptions, Finish, Limits, Linger, Options, ReportFile, Towards},
    verbs::helper::HELPERS,
};

/// Options of `txos run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit 0 of the command commits; anything else aborts.")]
pub struct Args {
    /// Show the changes and ask before they are committed (without a terminal: as --keep)
    #[arg(long, conflicts_with_all = ["dry_run", "keep"])]
    review: bool,

    /// Show the changes and abort
    #[arg(long, conflicts_with = "keep")]
    dry_run: bool,

    /// Leave the transaction prepared, for `txos commit ID` or `txos abort ID`
    #[arg(long)]
    keep: bool,

    /// Run again at most N times when someone changed what was read
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,

    /// Do not run again after a conflict
    #[arg(long, conflicts_with = "retries")]
    no_retry: bool,

    /// Do not wait until the changes are on disk
    #[arg(long)]
    nondurable: bool,

    /// Only DIR is transactional, elsewhere writes are refused (may be repeated)
    #[arg(long, value_name = "DIR")]
    tree: Vec<PathBuf>,

    /// Let reads and writes below PATH through to the machine (may be repeated)
    #[arg(long, value_name = "PATH")]
    live: Vec<PathBuf>,

    /// Do not validate what is read below PATH (may be repeated)
    #[arg(long, value_name = "PATH")]
    relax: Vec<PathBuf>,

    /// Let the network (`net`), a host (`net:HOST[:PORT]`), or a socket, device or other path through
    /// (may be repeated)
    #[arg(long, value_name = "net|PATH")]
    allow: Vec<PathBuf>,

    /// Record what comes over TCP from the allowed hosts (from all, where none is named): running
    /// again sees the same bytes
    #[arg(long, value_name = "HOW", value_enum)]
    net: Option<Net>,

    /// What a call does that cannot be isolated or undone
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Unsupported::Error)]
    on_unsupported: Unsupported,

    /// When the command's output appears
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Output::Auto)]
    output: Output,

    /// Write the whole report to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Abort after this time (a number with ms, s, m or h)
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    timeout: Option<Duration>,

    /// Abort when more than SIZE bytes were written (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<u64>,

    /// Abort when more than N files, directories and other objects are changed
    #[arg(long, value_name = "N")]
    max_objects: Option<u64>,

    /// Abort when more than N processes run at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_processes: Option<u64>,

    /// Abort when the processes have more than SIZE of memory of their own (K, M, G)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<u64>,

    /// Let what is appended to FILE through at once: it survives an abort, and what is in FILE cannot be
    /// changed (may be repeated)
    #[arg(long, value_name = "FILE")]
    exempt_log: Vec<PathBuf>,

    /// Whose processes stand still while the transaction commits, so that they see all of it or
    /// nothing: a domain (see `txos domain`), the whole `system`, or `none`
    #[arg(long, value_name = "NAME|system|none", value_parser = towards, default_value = "none")]
    domain: Towards,

    /// How long a domain may stand still before the commit is decided
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "250ms")]
    pause_limit: Duration,

    /// After N losses hold the members of the domain who keep changing what is read, or without a
    /// domain have writers of it wait where the kernel grants that; 0 for never
    #[arg(long, value_name = "N", default_value_t = 3)]
    hold_after: u32,

    /// How long members are held, or writers wait, at the most
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    hold_limit: Duration,

    /// Do not listen to changes by others while the command runs; they are found at commit
    #[arg(long)]
    no_early_doom: bool,

    /// What happens to processes that outlive the command
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Linger::Wait)]
    linger: Linger,

    /// Let the command inherit descriptor N, which stays outside the transaction
    #[arg(long, value_name = "N")]
    pass_fd: Vec<i32>,

    /// Win conflicts with transactions of a lower N (default 0; among equals scheduling class and
    /// nice value count, then age)
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,

    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Net {
    /// Streams are recorded, and replayed when the command runs again
    Record,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unsupported {
    /// It fails with ENOTXSUPPORT (134)
    Error,
    /// The transaction is aborted
    Abort,
    /// It is let through, with a warning
    Allow,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// At once
    Live,
    /// When it has ended: by a commit, or as what a failed command said; else never
    Deferred,
    /// At once on a terminal, else deferred
    Auto,
}

/// Runs a command as one transaction.
pub fn run(args: Args) -> Result<Exit> {
    // It would wait for the transaction that it is part of.
    ensure!(
        !Path::new(HELPERS).exists(),
        "this is inside a transaction already: run the command without `txos run`, and it belongs \
         to that transaction"
    );
    let finish = match (args.review, args.dry_run, args.keep) {
        (true, _, _) => Finish::Review,
        (_, true, _) => Finish::DryRun,
        (_, _, true) => Finish::Keep,
        _ => Finish::Commit,
    };
    let net = |path: &PathBuf| path.as_os_str() == "net";
    let paths = |paths: Vec<PathBuf>, option: &str| -> Result<Vec<PathBuf>> {
        let exists = |path: PathBuf| {
            let path = absolute(path).with_context(|| format!("option {option}"))?;
            path.symlink_metadata()
                .with_context(|| format!("{option} {}: it must exist", path.display()))?;
            Ok(path)
        };
        paths.into_iter().map(exists).collect()
    };
    let mut live = paths(args.live, "--live")?;
    let allow_net = args.allow.iter().any(net);
    let mut allow_hosts = Vec::new();
    let mut allow_paths = Vec::new();
    for path in args.allow.into_iter().filter(|path| !net(path)) {
        match path.to_str().and_then(|text| text.strip_prefix("net:")) {
            Some(host) => allow_hosts.extend(hosts(host)?),
            None => allow_paths.push(path),
        }
    }
    ensure!(
        args.net.is_none() || !allow_net,
        "--net record records what txos carries, and with --allow net members use the host's network \
         themselves: give --net record alone, for all hosts, or with --allow net:HOST"
    );
    live.extend(paths(allow_paths, "--allow")?);
    let logs = args.exempt_log.iter().map(|log| {
        manager::exempt_log(log).with_context(|| format!("--exempt-log {}", log.display()))
    });
    let exempt_logs = logs.collect::<Result<_>>()?;
    let relax = args.relax.into_iter().map(absolute).collect::<std::io::Result<_>>();
    manager::run(Options {
        finish,
        retries: if args.no_retry { 0 } else { args.retries },
        durable: !args.nondurable,
        trees: paths(args.tree, "--tree")?,
        live,
        exempt_logs,
        relax: relax.context("option --relax")?,
        allow_net,
        record: args.net.is_some(),
        allow_hosts,
        on_unsupported: match args.on_unsupported {
            Unsupported::Error => OnUnsupported::Error,
            Unsupported::Abort => OnUnsupported::Abort,
            Unsupported::Allow => OnUnsupported::Allow,
        },
        output: match args.output {
            Output::Live => txos_effects::streams::OutputMode::Live,
            Output::Deferred => txos_effects::streams::OutputMode::Deferred,
            Output::Auto => txos_effects::streams::OutputMode::Auto,
        },
        report: args.json.map(ReportFile::open).transpose()?,
        timeout: args.timeout,
        limits: Limits {
            bytes: args.max_bytes,
            objects: args.max_objects,
            processes: args.max_processes,
            memory: args.max_memory,
        },
        beside: BesideOptions {
            towards: args.domain,
            pause_limit: args.pause_limit,
            hold_after: args.hold_after,
            hold_limit: args.hold_limit,
            early_doom: !args.no_early_doom,
        },
        linger: args.linger,
        priority: args.priority,
        pass_fds: args.pass_fd,
        quiet: args.quiet,
        command: args.command,
    })
}

/// Whose processes stand still.
fn towards(text: &str) -> Result<Towards, String> {
    match text {
        "none" => Ok(Towards::Nobody),
        "system" => Ok(Towards::System),
        name => name.parse().map(Towards::Domain).map_err(|error: DomainError| error.to_string()),
    }
}

/// The addresses of `HOST` or `HOST:PORT`; an IPv6 address with a port stands in brackets.
fn hosts(text: &str) -> Result<Vec<Host>> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if text.parse::<IpAddr>().is_err() => {
            let port: NonZero<u16> =
                port.parse().with_context(|| format!("--allow net:{text}: the port"))?;
            let port = port.get();
            (host.trim_matches(['[', ']']), Some(port))
        }
        _ => (text, None),
    };
    ensure!(!host.is_empty(), "--allow net:{text}: no host; give net:HOST or net:HOST:PORT");
    let found = (host, port.unwrap_or(0)).to_socket_addrs();
    let found = found.with_context(|| format!("--allow net:{text}: no address of {host}"))?;
    Ok(found.map(|address| Host { ip: address.ip(), port }).collect())
}
