//! Conformance: many small cases of system calls, whose answers are lines of text.
//!
//! The same program runs natively and in a transaction; every line has to be equal, and what the
//! cases left in the tree too. What is known to differ stands in one table with its reason
//! ([`differs`]), and the document `docs/conformance.md` is made from both.
//!
//! Two parts are matrices, so that no combination is left out because nobody thought of it: every call
//! that takes a path with every kind of path ([`paths`]), and every call that takes a descriptor with
//! every kind of descriptor ([`descriptors`]). The others are written by hand, by subject, after what
//! the manual pages promise and what the Linux Test Project's cases of the same names look at.
//!
//! Rules for cases: an answer must be the same on every run (no process ids, times, addresses, inode
//! numbers); nothing waits without a limit; nothing outside the working directory is changed.

mod asynchronous;
mod descriptors;
pub mod differs;
mod ipc;
mod locks;
mod memory;
mod moves;
pub mod paths;
mod processes;
mod sockets;
pub mod sys;
mod timers;
mod waits;
mod watches;
mod xattrs;

use std::fmt::Display;

/// Where the answers are collected.
#[derive(Debug, Default)]
pub struct Book {
    group: &'static str,
    lines: Vec<String>,
}

impl Book {
    /// The cases that follow belong to this group.
    pub fn group(&mut self, name: &'static str) {
        self.group = name;
    }

    /// Notes the answer of a case.
    pub fn note(&mut self, case: impl Display, answer: impl Display) {
        self.lines.push(format!("{}: {case}: {answer}", self.group));
    }
}

/// The groups, each with what makes its cases.
type Group = (&'static str, fn(&mut Book));

const GROUPS: &[Group] = &[
    ("paths", paths::run),
    ("descriptors", descriptors::run),
    ("locks", locks::run),
    ("xattrs", xattrs::run),
    ("waits", waits::run),
    ("moves", moves::run),
    ("sockets", sockets::run),
    ("ipc", ipc::run),
    ("watches", watches::run),
    ("memory", memory::run),
    ("timers", timers::run),
    ("processes", processes::run),
    ("asynchronous", asynchronous::run),
];

/// Names of the groups.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|group| group.0)
}

/// Makes in the working directory what the cases of `paths` and `descriptors` work on. Made before a
/// transaction it is the lower layer, made inside it is the upper one.
pub fn prepare() {
    paths::prepare();
    descriptors::prepare();
}

/// Runs the groups of these names (all where none is given) in the working directory.
pub fn run(names: &[String]) -> Vec<String> {
    let mut book = Book::default();
    for (name, cases) in GROUPS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            book.group(name);
            cases(&mut book);
        }
    }
    book.lines
}
