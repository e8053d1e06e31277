//! The rows of the table, one file for each kind of work.

mod beside;
mod build;
mod commit;
mod files;
mod git;
mod package;
mod session;
mod start;
mod store;

use anyhow::Result;

use crate::context::Context;
use crate::report::Figure;

/// One thing that is measured; may give several figures.
pub struct Row {
    /// What the command line calls it.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Measures it.
    pub measure: fn(&Context) -> Result<Vec<Figure>>,
}

/// All of them, short ones first.
pub fn all() -> Vec<Row> {
    let row = |name, title, measure| Row { name, title, measure };
    vec![
        row("empty", "an empty transaction", start::empty as fn(&Context) -> _),
        row("session", "transactions that a program begins", session::own),
        row("explicit", "transactions of the explicit API", session::explicit),
        row("small", "small commits without a view", store::small),
        row("group", "group commit of 8 writers", store::group),
        row("recovery", "recovering 10,000 pending operations", store::recovery),
        row("read", "reading 20,000 small files, twice", files::read),
        row("find", "find /usr -xdev -size +0, twice", files::find),
        row("new-files", "committing 10,000 small new files", commit::new_files),
        row("git-status", "git status over 10,000 files", git::status),
        row("git-checkout", "git checkout of 10,000 files", git::checkout),
        row("memory", "memory of txos for each touched object", files::memory),
        row("tree-size", "commit time against the size of the tree", commit::tree_size),
        row("build", "building nano, make -j2", build::make),
        row("together", "independent transactions, two at a time", beside::together),
        row("outsiders", "building nano beside a transaction", beside::outsiders),
        row("configure", "configuring nano", build::configure),
        row("dpkg", "dpkg -i of openssh-server and its dependencies", package::install),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = super::all().into_iter().map(|row| row.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
