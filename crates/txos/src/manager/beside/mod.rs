//! Everybody else on the machine: the outsiders that change what a transaction reads, and the domain
//! that stands still while it commits.
//!
//! # Invariants
//!
//! - Safety rests on validation at commit. What is heard of outsiders only ends a lost attempt sooner,
//!   and lets the validation inside a pause look at less; without it, everything is looked at.
//! - Inside a pause everything is compared that changed since everything was compared before it:
//!   what was touched according to events, what somebody had open for writing then, and what only its
//!   bytes can prove. If events may be missing, all of it is compared again.
//! - A hold lasts for one attempt, with its commit, and ends before the next. So does a lease, which is
//!   what there is without a domain.

mod leases;
mod listen;
mod pausing;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use txos_capture::{Judge, ValidateOptions, validate, validate_probing, validate_touched};
use txos_core::{Conflict, Detail, Facet, NodeId, Workset};
use txos_domain::{
    DomainError, DomainName, Domains, Held, Hold, Obstacle, Pauser, PauserSpec, Priority, Watchdog,
    leave, members, plan_system,
};
use txos_host::Tree;
use txos_store::{Phase, Privilege, StateDir};

pub use pausing::Pausing;

use super::attempt::Event;
use crate::text::{printable, processes, say};
use leases::Leases;
use listen::Listening;

/// So many conflicts are enough to know.
const CONFLICTS: usize = 100;
/// How many times a freeze is tried.
const TRIES: u32 = 4;

/// Which processes stand still while a transaction commits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Towards {
    /// None.
    #[default]
    Nobody,
    /// Those of a domain.
    Domain(DomainName),
    /// All of the machine that can.
    System,
}

/// How a transaction deals with those who use none.
#[derive(Clone, Debug)]
pub struct BesideOptions {
    /// Who stands still.
    pub towards: Towards,
    /// How long, before the commit is decided.
    pub pause_limit: Duration,
    /// After so many losses to outsiders members of the domain are held; 0 for never.
    pub hold_after: u32,
    /// How long, at the most.
    pub hold_limit: Duration,
    /// Whether changes by outsiders are listened to.
    pub early_doom: bool,
}

/// See the module.
pub struct Beside {
    options: BesideOptions,
    listening: Listening,
    domain: Option<Domain>,
    losses: Cell<u32>,
    /// What somebody had open for writing at the last whole comparison.
    suspects: RefCell<Vec<NodeId>>,
    /// Files whose changes have made this transaction lose, and the leases on them.
    contended: RefCell<BTreeSet<PathBuf>>,
    leases: RefCell<Option<Leases>>,
}

struct Domain {
    domains: Domains,
    watchdog: Arc<Watchdog>,
}

impl Beside {
    /// Leaves the domain, starts the watchdog and begins to listen, as far as `options` say so.
    ///
    /// # Errors
    /// If the domain is missing, or cannot be paused.
    pub(super) fn begin(options: BesideOptions, state: &StateDir) -> Result<Beside> {
        if let (Towards::Nobody, Ok(domains)) = (&options.towards, Domains::find()) {
            // A member's own transaction must not stand still in another one's pause.
            leave(domains.hierarchy(), false)?;
        }
        let domain = match options.towards {
            Towards::Nobody => None,
            _ => Some(Domain::begin(&options.towards, state)?),
        };
        let wanted = options.early_doom && state.privilege() == Privilege::Root;
        let beside = Beside {
            options,
            listening: Listening::new(wanted),
            domain,
            losses: Cell::new(0),
            suspects: RefCell::default(),
            contended: RefCell::default(),
            leases: RefCell::default(),
        };
        beside.check_members()?;
        Ok(beside)
    }

    /// What isolation is given, for the report.
    pub(super) fn isolation(&self) -> String {
        let noticed = match self.listening.possible() {
            true => "changes by others are noticed while the command runs, and at commit",
            false => "changes by others are detected at commit",
        };
        match &self.options.towards {
            Towards::Nobody => format!("{noticed}; others may see an apply half-way"),
            Towards::Domain(name) => format!(
                "{noticed}; processes of the domain {name} see all of a commit or nothing of it, \
                 others may see an apply half-way"
            ),
            Towards::System => {
                format!("{noticed}; all processes see all of a commit or nothing of it")
            }
        }
    }

    /// Dooms attempt `number` through `sender` as soon as somebody changes what `judge` says was
    /// read.
    pub(super) fn attach(&self, judge: Judge, number: u32, sender: Sender<Event>) {
        self.listening.attach(judge, number, sender);
    }

    /// When [`Beside::look`] is to be called.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.listening.due()
    }

    /// Begins to listen if it is time.
    pub(super) fn look(&self) {
        self.listening.look();
    }

    /// Nobody judges any more.
    pub(super) fn detach(&self) {
        self.listening.detach();
    }

    /// Takes note of a lost attempt.
    pub(super) fn lost(&self, conflicts: &[Conflict]) {
        self.leases.replace(None);
        if !conflicts.iter().any(|conflict| matches!(conflict.detail, Detail::Rival(_))) {
            self.losses.set(self.losses.get() + 1);
            let files = conflicts
                .iter()
                .filter(|conflict| matches!(conflict.facet, Facet::Content | Facet::Attrs));
            self.contended.borrow_mut().extend(files.map(|conflict| conflict.path.clone()));
        }
    }

    /// Holds the offenders for the next attempt, if enough was lost to them; without a domain, keeps
    /// writers off what was lost on, as far as the kernel grants that.
    pub(super) fn hold(&self) -> Result<Option<Held>> {
        let after = self.options.hold_after;
        if after == 0 || self.losses.get() < after {
            return Ok(None);
        }
        let Some(domain) = &self.domain else {
            self.lease();
            return Ok(None);
        };
        let offenders = self.listening.take_offenders();
        let hold = Hold {
            groups: self.groups(domain)?,
            limit: self.options.hold_limit,
            priority: Priority::of(std::process::id()).unwrap_or_default(),
        };
        let held = hold.begin(domain.domains.hierarchy(), &offenders, &domain.watchdog)?;
        let shown = |pids: &[u32]| {
            pids.iter().map(|pid| members::shown(*pid)).collect::<Vec<_>>().join(", ")
        };
        if !held.held.is_empty() {
            let limit = self.options.hold_limit;
            let line = format!("lost {} times: held for {limit:?} at the most", self.losses.get());
            say(format!("{line}: {}", printable(&shown(&held.held))));
        }
        if !held.higher.is_empty() {
            let line = "not held, since its priority is higher than this transaction's";
            say(format!("{line}: {}", printable(&shown(&held.higher))));
        }
        Ok(Some(held))
    }

    fn lease(&self) {
        let limit = self.options.hold_limit;
        let leases = Leases::take(self.contended.borrow().iter(), limit);
        if let Some(leases) = &leases {
            let paths: Vec<String> =
                leases.paths().iter().take(5).map(|path| path.display().to_string()).collect();
            let line = format!("lost {} times: writers wait", self.losses.get());
            say(format!("{line} for {limit:?} at the most: {}", printable(&paths.join(", "))));
        }
        self.leases.replace(leases);
    }

    /// Lets writers go on who wait for one of these, which the transaction is going to write itself.
    pub(super) fn give_back<'p>(&self, written: impl Iterator<Item = &'p Path>) {
        if let Some(leases) = &*self.leases.borrow() {
            leases.give_back(written);
        }
    }

    /// Compares what was read with what is stable, as much of it as `phase` needs.
    ///
    /// # Errors
    /// If the comparison itself fails.
    pub(super) fn validate(
        &self,
        phase: Phase,
        state: &StateDir,
        workset: &Workset,
    ) -> Result<Vec<Conflict>> {
        let options = ValidateOptions {
            hidden: vec![state.path().to_owned()],
            limit: CONFLICTS,
            ..ValidateOptions::default()
        };
        let tree = Tree::open("/")?;
        let watched = self.domain.as_ref().and_then(|_| self.listening.outside());
        let watched =
            watched.filter(|outside| workset.devices().iter().all(|dev| outside.covers(*dev)));
        let Some(outside) = watched else { return Ok(validate(workset, &tree, &options)?) };
        match phase {
            Phase::Early => {
                outside.begin();
                let (conflicts, suspects) = validate_probing(workset, &tree, &options)?;
                *self.suspects.borrow_mut() = suspects;
                Ok(conflicts)
            }
            Phase::Paused => {
                let since = outside.since();
                if let Some(why) = since.why_unclean() {
                    tracing::debug!(why, "everything is compared inside the pause");
                    return Ok(validate(workset, &tree, &options)?);
                }
                let suspects = self.suspects.borrow();
                Ok(validate_touched(workset, &tree, &options, since.touched(), &suspects))
            }
        }
    }

    /// What a commit pauses.
    ///
    /// # Errors
    /// If the domain is gone, or holds somebody who must not stand still.
    pub(super) fn pausing(&self) -> Result<Pausing<'_>> {
        let Some(domain) = &self.domain else { return Ok(Pausing::default()) };
        self.check_members()?;
        let spec = PauserSpec {
            name: self.options.towards.name(),
            groups: self.groups(domain)?,
            limit: self.options.pause_limit,
            tries: TRIES,
        };
        let pauser = Pauser::new(spec, Arc::clone(&domain.watchdog))?;
        Ok(Pausing::new(pauser, self.listening.outside()))
    }

    /// The commit is over.
    pub(super) fn committed(&self) {
        self.leases.replace(None);
        if self.pauses()
            && let Some(outside) = self.listening.outside()
        {
            outside.end();
        }
    }

    /// Whether validation before the pause is of use.
    pub(super) fn pauses(&self) -> bool {
        self.domain.is_some()
    }

    fn groups(&self, domain: &Domain) -> Result<Vec<PathBuf>> {
        let hierarchy = domain.domains.hierarchy();
        match &self.options.towards {
            Towards::Nobody => Ok(Vec::new()),
            Towards::Domain(name) => Ok(vec![domain.domains.open(name)?.path().to_owned()]),
            Towards::System => {
                let plan = plan_system(hierarchy.mount(), &hierarchy.transactions());
                if plan.left.is_empty() {
                    return Ok(plan.freeze);
                }
                let some: Vec<_> =
                    plan.left.iter().take(5).map(|pid| members::shown(*pid)).collect();
                bail!(
                    "the whole system cannot be paused: {} in the root group, or in a group with \
                     one that must go on, such as {}; give them groups of their own (systemd does), \
                     or use a named domain",
                    processes(plan.left.len()),
                    printable(&some.join(", "))
                );
            }
        }
    }

    /// Refuses a domain with somebody who must not stand still.
    fn check_members(&self) -> Result<()> {
        let (Some(domain), Towards::Domain(name)) = (&self.domain, &self.options.towards) else {
            return match &self.domain {
                Some(domain) => self.groups(domain).map(drop),
                None => Ok(()),
            };
        };
        let pids = domain.domains.open(name)?.processes()?;
        match members::obstacles(&pids).first() {
            None => Ok(()),
            Some((pid, obstacle)) => {
                let remedy = match obstacle {
                    Obstacle::Terminal => {
                        "run txos from another terminal, or with its output \
                                           redirected"
                    }
                    _ => "take it out with txos domain remove NAME PID",
                };
                let who = printable(&members::shown(*pid));
                let reason = format!("its process {who} {}; {remedy}", obstacle.reason());
                Err(DomainError::Obstacle { name: name.to_string(), reason }.into())
            }
        }
    }
}

impl Domain {
    fn begin(towards: &Towards, state: &StateDir) -> Result<Domain> {
        let domains = Domains::find()?;
        if let Towards::Domain(name) = towards {
            domains.open(name)?;
        }
        txos_domain::sweep()?;
        leave(domains.hierarchy(), *towards == Towards::System)?;
        let program = std::env::current_exe().context("cannot find the txos program")?;
        let words = [OsStr::new("__watchdog"), state.path().as_os_str()];
        let watchdog = Arc::new(Watchdog::start(&program, &words)?);
        Ok(Domain { domains, watchdog })
    }
}

impl Towards {
    fn name(&self) -> String {
        match self {
            Towards::Nobody => "none".to_owned(),
            Towards::System => "system".to_owned(),
            Towards::Domain(name) => name.to_string(),
        }
    }
}
