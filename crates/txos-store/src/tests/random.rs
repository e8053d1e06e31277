//! Random operations: committed is as native, and so is a commit that was stopped and recovered.

use std::{
    cell::RefCell,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, symlink},
    path::{Path, PathBuf},
    rc::Rc,
};

use proptest::prelude::*;
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with, setxattr};

use super::world::{World, able, chmod, chown, same, scan};
use crate::{
    NoDomain, Prepared, recover,
    sys::watch::{KillAt, watched},
};

#[derive(Clone, Debug)]
enum Op {
    Write(usize, u8),
    Append(usize, u8),
    WriteAt(usize, u16, u8),
    Truncate(usize, u16),
    Mkdir(usize),
    Remove(usize),
    RemoveTree(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Symlink(usize),
    Chmod(usize, u8),
    Chown(usize, u8),
    Xattr(usize, u8),
}

/// Few names, so that operations meet.
fn name(root: &Path, number: usize) -> PathBuf {
    const NAMES: [&str; 16] = [
        "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f", "f/a", "f/g", "f/g/a",
        "a/a", "a/b", "f/g/b",
    ];
    root.join(NAMES[number % NAMES.len()])
}

/// What fails natively fails in a view: errors are no matter.
fn perform(root: &Path, op: &Op) {
    let at = |number: &usize| name(root, *number);
    // Not through links: they lead out of the tree in one of the two worlds.
    let plain = |number: &usize| {
        at(number)
            .ancestors()
            .take_while(|path| path.starts_with(root))
            .all(|path| !path.is_symlink())
    };
    match op {
        Op::Write(n, byte) if plain(n) => drop(fs::write(at(n), vec![*byte; 6000])),
        Op::Append(n, byte) if plain(n) => {
            let file = OpenOptions::new().append(true).open(at(n));
            drop(file.and_then(|mut file| file.write_all(&[*byte; 100])));
        }
        Op::WriteAt(n, offset, byte) if plain(n) => {
            let file = OpenOptions::new().write(true).open(at(n));
            drop(file.and_then(|file| file.write_at(&[*byte; 10], u64::from(*offset))));
        }
        Op::Truncate(n, size) if plain(n) => {
            let file = OpenOptions::new().write(true).open(at(n));
            drop(file.and_then(|file| file.set_len(u64::from(*size))));
        }
        Op::Mkdir(n) => drop(fs::create_dir(at(n))),
        Op::Remove(n) => drop(fs::remove_file(at(n)).or_else(|_| fs::remove_dir(at(n)))),
        Op::RemoveTree(n) => drop(fs::remove_dir_all(at(n))),
        Op::Rename(from, to) => drop(fs::rename(at(from), at(to))),
        Op::Exchange(one, other) => {
            let _ = renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE);
        }
        Op::Link(from, to) => drop(fs::hard_link(at(from), at(to))),
        Op::Symlink(n) => drop(symlink("target", at(n))),
        Op::Chmod(n, bits) if at(n).exists() && plain(n) => {
            chmod(&at(n), 0o700 | u32::from(*bits & 0o77));
        }
        Op::Chown(n, id) if fs::symlink_metadata(at(n)).is_ok() => {
            chown(&at(n), u32::from(*id), u32::from(*id));
        }
        Op::Xattr(n, byte) if at(n).exists() && plain(n) => {
            let _ = setxattr(at(n), c"user.x", &[*byte], XattrFlags::empty());
        }
        _ => {}
    }
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::create_dir_all(root.join("f/g")).unwrap();
    for file in ["a", "d/a", "d/e/a", "f/a", "f/g/a"] {
        fs::write(root.join(file), vec![b'o'; 9000]).unwrap();
    }
    fs::hard_link(root.join("a"), root.join("d/b")).unwrap();
    fs::hard_link(root.join("f/a"), root.join("f/g/b")).unwrap();
}

fn op() -> impl Strategy<Value = Op> {
    let n = || 0usize..16;
    prop_oneof![
        2 => (n(), any::<u8>()).prop_map(|(n, b)| Op::Write(n, b)),
        1 => (n(), any::<u8>()).prop_map(|(n, b)| Op::Append(n, b)),
        1 => (n(), 0u16..20_000, any::<u8>()).prop_map(|(n, o, b)| Op::WriteAt(n, o, b)),
        1 => (n(), 0u16..20_000).prop_map(|(n, s)| Op::Truncate(n, s)),
        2 => n().prop_map(Op::Mkdir),
        2 => n().prop_map(Op::Remove),
        1 => n().prop_map(Op::RemoveTree),
        5 => (n(), n()).prop_map(|(a, b)| Op::Rename(a, b)),
        2 => (n(), n()).prop_map(|(a, b)| Op::Exchange(a, b)),
        2 => (n(), n()).prop_map(|(a, b)| Op::Link(a, b)),
        1 => n().prop_map(Op::Symlink),
        1 => (n(), any::<u8>()).prop_map(|(n, b)| Op::Chmod(n, b)),
        1 => (n(), any::<u8>()).prop_map(|(n, b)| Op::Chown(n, b)),
        1 => (n(), any::<u8>()).prop_map(|(n, b)| Op::Xattr(n, b)),
    ]
}

fn rounds() -> u32 {
    std::env::var("TXOS_STORE_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_are_as_native(ops in prop::collection::vec(op(), 1..14), stop: Option<u8>, across: bool) {
        if !able() {
            return Ok(());
        }
        let world = if across { World::across(tree) } else { World::new(tree) };
        let origins = world.inodes();
        let (host_was, native_was) = (scan(&world.host), scan(&world.native));
        let act = |root: &Path| ops.iter().for_each(|op| perform(root, op));
        let tx = world.run(&act);
        let delta = world.extract(&tx, &origins).unwrap();
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
        let commit = || {
            let result = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, false);
            drop((prepared, lock));
            result
        };
        let result = match stop {
            Some(stop) => watched(Rc::new(RefCell::new(KillAt(u64::from(stop % 64)))), commit),
            None => commit(),
        };
        let report = recover(&world.state).unwrap();
        prop_assert!(report.finished.iter().all(|finished| finished.kept.is_empty()), "{:?}", report);
        if let Ok(committed) = &result {
            prop_assert!(committed.kept.is_empty(), "{:?}", committed);
        }
        if result.is_ok() || !report.finished.is_empty() {
            act(&world.native);
        }
        same(&host_was, &scan(&world.host), &native_was, &scan(&world.native));
    }
}
