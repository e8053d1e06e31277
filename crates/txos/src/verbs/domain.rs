//! Domains: which processes stand still while a transaction commits.

use std::{ffi::OsString, os::unix::process::CommandExt, process::Command};

use anyhow::Result;
use clap::Subcommand;
use txos_domain::{DomainName, Domains};

use crate::{
    exit::Exit,
    text::{processes, say},
    verbs::print,
};

/// Options of `txos domain`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A transaction that is run with `txos run --domain NAME` is wholly visible \
    to the processes of the domain, or not at all: they stand still while it commits."
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make an empty domain
    Create {
        /// Letters, digits, - and _
        name: DomainName,
    },
    /// Move processes into a domain; children that they start later follow them
    Add {
        /// Which domain
        name: DomainName,
        /// The processes
        #[arg(required = true)]
        pids: Vec<u32>,
    },
    /// Run a command in a domain
    Exec {
        /// Which domain
        name: DomainName,
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<OsString>,
    },
    /// List the domains and their processes
    List {
        /// Print JSON, one domain a line
        #[arg(long)]
        json: bool,
    },
    /// Remove an empty domain, or take processes out of it
    Remove {
        /// Which domain
        name: DomainName,
        /// Only take these processes out
        pids: Vec<u32>,
    },
}

/// Manages domains.
pub fn run(args: Args) -> Result<Exit> {
    let domains = Domains::find()?;
    match args.action {
        Action::Create { name } => domains.create(&name)?,
        Action::Add { name, pids } => {
            pids.iter().try_for_each(|pid| domains.add(&name, *pid))?;
        }
        Action::Exec { name, command } => {
            domains.add(&name, std::process::id())?;
            let error = Command::new(&command[0]).args(&command[1..]).exec();
            say(format!("cannot execute {:?}: {error}", command[0].to_string_lossy()));
            return Ok(Exit::of_exec(error.raw_os_error().unwrap_or(0)));
        }
        Action::List { json } => list(&domains, json)?,
        Action::Remove { name, pids } if pids.is_empty() => domains.remove(&name)?,
        Action::Remove { name, pids } => domains.dismiss(&name, &pids)?,
    }
    Ok(Exit::Success)
}

fn list(domains: &Domains, json: bool) -> Result<()> {
    for domain in domains.list() {
        if json {
            print(format_args!("{}\n", crate::text::json(&domain)?))?;
            continue;
        }
        let state = if domain.frozen { "  stands still" } else { "" };
        let members = processes(domain.processes.len());
        print(format_args!(
            "{:<20} {members:<14} {}{state}\n",
            domain.name,
            domain.group.display()
        ))?;
    }
    Ok(())
}
