//! What a transaction asked for outside itself, and the lines that tell it.

use crate::filter::class::Class;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::fs::FileTypeExt;

/// Distinct entries kept; what comes after is counted under "and others". A member could else make
/// the manager hold one entry for every path that it can think of.
const MAX_ENTRIES: usize = 500;

/// One kind of call that was refused, or let through by `--on-unsupported allow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the system call.
    pub call: String,
    /// What it was asked for: a socket family, namespace flags, a mount's target. May be empty.
    pub detail: String,
    /// Why a transaction does not make it.
    pub class: Class,
    /// The flag of `txos run` that would let it through; empty where none does.
    pub flag: String,
    /// How often it was made.
    pub count: u64,
    /// Name of the first program that made it.
    pub first: String,
}

/// An address outside that members tried to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// `1.2.3.4:80`, `[::1]:80`, a path, or `@name` for an abstract local socket.
    pub address: String,
    /// How often it was tried.
    pub count: u64,
    /// Name of the first program that tried.
    pub first: String,
}

/// What the supervisor saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectsReport {
    /// Calls that failed with `ENOTXSUPPORT`.
    pub refused: Vec<Refusal>,
    /// Calls that were made for real, outside the transaction.
    pub allowed: Vec<Refusal>,
    /// Network addresses that were contacted (`--allow net`).
    pub contacted: Vec<Contact>,
    /// What became of recorded streams, a line each (`--net record`).
    #[serde(default)]
    pub replayed: Vec<String>,
    /// Local sockets that were tried. One of the host answers `ECONNREFUSED` in the view unless
    /// `--allow PATH` lets it through: see [`EffectsReport::host_sockets`].
    pub local: Vec<Contact>,
    /// Files whose locks were also taken outside, until the end.
    #[serde(default)]
    pub locked: Vec<String>,
    /// Signals to processes outside, which are sent after a commit.
    #[serde(default)]
    pub signals: Vec<String>,
    /// Messages to the system log, which are sent after a commit.
    #[serde(default)]
    pub messages: Vec<String>,
    /// Objects of System V and POSIX communication that were made outside after the commit.
    #[serde(default)]
    pub published: Vec<String>,
    /// Those that were left, cannot be made outside, and are gone.
    #[serde(default)]
    pub left: Vec<String>,
    /// What went wrong in the supervisor itself.
    pub trouble: Vec<String>,
}

/// A line for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A call was refused.
    Refused(Refusal),
    /// A call was refused and ends the transaction.
    Aborting(Refusal),
    /// A call was let through.
    Allowed(Refusal),
    /// The supervisor itself has a problem; what was tried, and why it failed.
    Trouble(String),
}

impl Refusal {
    /// The end of a line: what lets it through, if anything does.
    fn remedy(&self) -> String {
        match self.flag.is_empty() {
            true => String::new(),
            false => format!("; {} lets it through", self.flag),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.call, self.detail)?;
        if !self.first.is_empty() {
            write!(f, " by {}", self.first)?;
        }
        Ok(())
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Refused(what) => {
                write!(f, "refused {what}: {}{}", what.class.why(), what.remedy())
            }
            Notice::Aborting(what) => write!(
                f,
                "aborting: {what} cannot be part of a transaction: {}{}",
                what.class.why(),
                what.remedy()
            ),
            Notice::Allowed(what) => {
                write!(
                    f,
                    "warning: {what} was let through: {}",
                    what.class.when_allowed(&what.call)
                )
            }
            Notice::Trouble(text) => f.write_str(text),
        }
    }
}

impl EffectsReport {
    /// The local sockets that members tried and that belong to processes outside: they answered
    /// `ECONNREFUSED`, or were let through by `--allow PATH`. Looks at the stable tree, so it must be
    /// called outside the view.
    pub fn host_sockets(&self) -> impl Iterator<Item = &Contact> {
        use crate::syslog::{JOURNAL, JOURNAL_LOG, JOURNAL_STREAMS, LOG};
        let own = |contact: &&Contact| {
            [LOG, JOURNAL, JOURNAL_LOG, JOURNAL_STREAMS].contains(&&*contact.address)
        };
        self.local.iter().filter(move |contact| !own(contact)).filter(|contact| {
            std::fs::metadata(&contact.address).is_ok_and(|status| status.file_type().is_socket())
        })
    }

    /// Whether nothing outside was asked for.
    pub fn is_empty(&self) -> bool {
        *self == EffectsReport::default()
    }
}

/// Collects the report: equal entries become one with a count, in the order of first sight.
#[derive(Debug, Default)]
pub(super) struct Collector {
    report: EffectsReport,
    refused: Index,
    allowed: Index,
    contacted: Index,
    local: Index,
}

type Index = BTreeMap<String, usize>;

/// Where an entry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Refused,
    Allowed,
}

impl Collector {
    /// Counts a call; the entry when this is the first of its kind, so that it is told once.
    /// `make` gives an entry with its detail, and is called for the first alone.
    pub(super) fn call(
        &mut self,
        kind: Kind,
        call: &str,
        mut detail: String,
        make: impl FnOnce(String) -> Refusal,
    ) -> Option<Refusal> {
        let (index, list) = match kind {
            Kind::Refused => (&mut self.refused, &mut self.report.refused),
            Kind::Allowed => (&mut self.allowed, &mut self.report.allowed),
        };
        if list.len() >= MAX_ENTRIES {
            "and others".clone_into(&mut detail);
        }
        let at = *index.entry(format!("{call} {detail}")).or_insert(list.len());
        match list.get_mut(at) {
            Some(known) => {
                known.count += 1;
                None
            }
            None => {
                let what = make(detail);
                list.push(what.clone());
                Some(what)
            }
        }
    }

    /// Counts a contact.
    pub(super) fn contact(&mut self, local: bool, mut address: String, first: String) {
        let (index, list) = match local {
            true => (&mut self.local, &mut self.report.local),
            false => (&mut self.contacted, &mut self.report.contacted),
        };
        if list.len() >= MAX_ENTRIES {
            "and others".clone_into(&mut address);
        }
        let at = *index.entry(address.clone()).or_insert(list.len());
        match list.get_mut(at) {
            Some(known) => known.count += 1,
            None => list.push(Contact { address, count: 1, first }),
        }
    }

    /// Notes a file that was locked outside.
    pub(super) fn locked(&mut self, path: String) {
        if self.report.locked.len() < MAX_ENTRIES && !self.report.locked.contains(&path) {
            self.report.locked.push(path);
        }
    }

    /// Notes a signal that waits for the commit.
    pub(super) fn signal(&mut self, text: String) {
        if self.report.signals.len() < MAX_ENTRIES {
            self.report.signals.push(text);
        }
    }

    /// Notes what became of a recorded stream.
    pub(super) fn replayed(&mut self, text: &str) {
        if self.report.replayed.len() < MAX_ENTRIES {
            self.report.replayed.push(text.to_owned());
        }
    }

    /// Notes a fault of the supervisor's own.
    pub(super) fn trouble(&mut self, text: &str) {
        if self.report.trouble.len() < MAX_ENTRIES {
            self.report.trouble.push(text.to_owned());
        }
    }

    /// The report so far.
    pub(super) fn report(&self) -> EffectsReport {
        self.report.clone()
    }
}
