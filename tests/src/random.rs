//! Random operation lists, reproducible from a seed, and making a failing one small.

use std::time::{Duration, Instant};

use crate::op::{Op, RenameHow, Special, escape};
use crate::who::Who;
use crate::xattr;

/// A small generator of numbers: splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
/// Number Generators, OOPSLA 2014).
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// One of these.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// The directories of [`setup`].
const DIRECTORIES: &[&str] = &["a", "a/b", "a/b/c", "d", "e", "e/g"];

/// The tree in which random lists work: some of everything.
pub fn setup(who: Who) -> Vec<Op> {
    let t = |s: &str| s.to_owned();
    let mut ops = Vec::new();
    ops.extend(DIRECTORIES.iter().map(|d| Op::Mkdir { path: t(d), mode: 0o755 }));
    let file = |path: &str, len, seed| Op::Create { path: t(path), mode: 0o644, len, seed };
    ops.extend([
        file("f1", 10, 1),
        file("a/f2", 9000, 2),
        file("a/b/f3", 200_000, 3),
        file("d/h1", 500, 4),
        file("e/x1", 100, 5),
        file("e/g/empty", 0, 0),
        file("a/%ff%0aname", 40, 6),
        // No target leads upwards: wherever a link is moved, it stays within the tree.
        Op::Symlink { target: t("f2"), path: t("a/l1") },
        Op::Symlink { target: t("b"), path: t("a/ld") },
        Op::Symlink { target: t("nowhere"), path: t("l2") },
        Op::Mknod { path: t("e/p"), kind: Special::Fifo, mode: 0o640, major: 0, minor: 0 },
        Op::Mknod { path: t("e/s"), kind: Special::Socket, mode: 0o600, major: 0, minor: 0 },
        Op::Write { path: t("f1"), off: 3_000_000, len: 50, seed: 7 },
        Op::SetXattr { path: t("e/x1"), name: t("user.one"), value: t("1%002") },
        Op::SetXattr { path: t("a/b"), name: t("user.dir"), value: t("d") },
        Op::Chmod { path: t("e/x1"), mode: 0o4755 },
    ]);
    if who == Who::Root {
        // Without privilege the view shows no ACLs.
        let acl = |path: &str, kind: &str, user, perm| Op::SetXattr {
            path: t(path),
            name: format!("system.posix_acl_{kind}"),
            value: escape(&xattr::acl_with_user(user, perm)),
        };
        ops.push(acl("a/f2", "access", 7, 6));
        ops.push(acl("e/g", "default", 8, 4));
        // Without privilege overlayfs has no index, so the names of one file come apart in the view.
        ops.push(Op::Link { from: t("d/h1"), to: t("d/h2") });
        ops.push(Op::Link { from: t("d/h1"), to: t("a/h3") });
        ops.push(Op::Mknod {
            path: t("e/n"),
            kind: Special::Char,
            mode: 0o600,
            major: 1,
            minor: 3,
        });
    }
    ops
}

/// Names that a list works on: few, so that operations meet one another.
const NAMES: &[&str] = &[
    "a",
    "a/b",
    "a/b/c",
    "a/b/f3",
    "a/b/new",
    "a/f2",
    "a/h3",
    "a/l1",
    "a/ld",
    "a/n1",
    "a/%ff%0aname",
    "d",
    "d/h1",
    "d/h2",
    "d/n2",
    "d/n2/n3",
    "e",
    "e/g",
    "e/g/empty",
    "e/g/n4",
    "e/n",
    "e/p",
    "e/s",
    "e/x1",
    "f1",
    "l2",
    "n5",
    "n5/n6",
    "n5/n6/n7",
    "n8",
];

/// `count` random operations.
pub fn ops(random: &mut Random, count: usize, who: Who) -> Vec<Op> {
    (0..count).flat_map(|i| one(random, i as u8, who)).collect()
}

/// An operation. After one that may change a file's time and nothing else comes one that changes
/// its content: what only moves a time within some milliseconds of an open for writing is not told
/// from the open itself (see `Scenario::may_open_without_writing`).
fn one(r: &mut Random, seed: u8, who: Who) -> Vec<Op> {
    let op = op(r, seed, who);
    let change = match &op {
        Op::Truncate { path, .. } | Op::Allocate { path, .. } | Op::Punch { path, .. } => {
            Some(Op::Append { path: path.clone(), len: 1, seed })
        }
        _ => None,
    };
    std::iter::once(op).chain(change).collect()
}

fn op(r: &mut Random, seed: u8, who: Who) -> Op {
    let mut path = || (*r.one(NAMES)).to_owned();
    let (path, other) = (path(), path());
    let mode = *r.one(&[0o644, 0o600, 0o755, 0o4711, 0o2755, 0o1777, 0o700]);
    let len = *r.one(&[0, 1, 100, 4096, 5000, 70_000]);
    let off = *r.one(&[0, 10, 4096, 8191, 1_000_000]);
    match r.below(42) {
        0 | 1 => Op::Create { path, mode, len, seed },
        2 | 3 => Op::Save { path, mode, len, seed },
        4 | 5 => Op::Write { path, off, len, seed },
        6 => Op::Append { path, len, seed },
        7 => Op::Store { path, off, len, seed },
        8 => Op::Truncate { path, len: off },
        9 => Op::Allocate { path, off, len: len.max(1) },
        10 => Op::Punch { path, off, len: len.max(1) },
        11 if who == Who::User && DIRECTORIES.contains(&path.as_str()) => Op::Stat { path },
        11 => Op::RenameThenWrite { from: path, to: other, len, seed },
        12 => Op::UnlinkThenWrite { path, len, seed },
        13 => Op::Replace { path, mode, len, seed },
        14 => Op::Tmpfile { dir: "d".into(), path, mode, len, seed },
        15..=18 => {
            let how = *r.one(&[RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange]);
            // One third of the plain ones would be too few.
            let how = if r.below(2) == 0 { RenameHow::Replace } else { how };
            // An ordinary user can't rename a directory that exists outside (see `known`).
            let shut = |p: &str| who == Who::User && DIRECTORIES.contains(&p);
            if shut(&path) || (how == RenameHow::Exchange && shut(&other)) {
                Op::List { path }
            } else {
                Op::Rename { from: path, to: other, how }
            }
        }
        19 | 20 => Op::Link { from: path, to: other },
        21 => Op::Symlink { target: other, path },
        22 | 23 => Op::Unlink { path },
        24 => Op::Rmdir { path: (*r.one(&["a/b/c", "n5/n6", "n8", "e/g", &path])).to_owned() },
        25 => Op::RemoveTree { path },
        26 | 27 => Op::Mkdir { path, mode },
        28 => {
            let kinds = [Special::Fifo, Special::Socket, Special::Char, Special::Block];
            let kind = *r.one(if who == Who::Root { &kinds } else { &kinds[..2] });
            Op::Mknod { path, kind, mode, major: 1, minor: 5 }
        }
        29 => Op::Chmod { path, mode },
        30 => match who {
            Who::Root => Op::Chown { path, uid: *r.one(&[0, 33, 4242]), gid: *r.one(&[0, 8]) },
            Who::User => Op::Chown { path, uid: who.uid(), gid: who.uid() },
        },
        31 => Op::Times { path, sec: 1_100_000_000 + i64::from(seed), nsec: 987_654_321 },
        32 => {
            let name = (*r.one(&["user.one", "user.two", "user.dir"])).to_owned();
            Op::SetXattr { path, name, value: format!("v{seed}") }
        }
        // Half of them where the set-up has put one, or hardly any would find something to remove.
        33 => match r.below(4) {
            0 => Op::RemoveXattr { path: "e/x1".to_owned(), name: "user.one".to_owned() },
            1 => Op::RemoveXattr { path: "a/b".to_owned(), name: "user.dir".to_owned() },
            _ => Op::RemoveXattr { path, name: (*r.one(&["user.one", "user.dir"])).to_owned() },
        },
        34 => match (who, r.below(2)) {
            (Who::User, _) => Op::Xattrs { path },
            (_, 0) => Op::SetXattr {
                path,
                name: "system.posix_acl_access".into(),
                value: escape(&xattr::acl_with_user(9, 6)),
            },
            _ => Op::RemoveXattr { path, name: "system.posix_acl_access".into() },
        },
        _ => match r.below(6) {
            0 => Op::Read { path },
            1 => Op::List { path },
            2 => Op::Stat { path },
            3 => Op::ReadLink { path: (*r.one(&["a/l1", "a/ld", "l2", &path])).to_owned() },
            4 => Op::Xattrs { path },
            _ => Op::Fsync { path },
        },
    }
}

/// Makes a failing list smaller as long as `fails` says that it still fails, within a time limit
/// (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002, without its
/// complement step).
pub fn shrink(mut ops: Vec<Op>, limit: Duration, mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let start = Instant::now();
    let mut chunk = ops.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        while at < ops.len() {
            if start.elapsed() > limit {
                return ops;
            }
            let mut fewer = ops.clone();
            fewer.drain(at..(at + chunk).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                at += chunk;
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_list() {
        let list = |seed| ops(&mut Random::new(seed), 50, Who::Root);
        assert_eq!(list(1), list(1));
        assert_ne!(list(1), list(2));
    }

    #[test]
    fn shrinking_keeps_what_matters() {
        let list = ops(&mut Random::new(3), 60, Who::Root);
        let (first, second) = (list[17].clone(), list[40].clone());
        let needs = |l: &[Op]| l.contains(&first) && l.contains(&second);
        let small = shrink(list.clone(), Duration::from_secs(5), needs);
        assert_eq!(small, [first.clone(), second.clone()]);
    }
}
