//! A commit stopped before each of its changes, and recovered, is a whole commit.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, symlink},
    path::Path,
    rc::Rc,
};

use super::world::{World, able, chmod, chown, exchange, same, scan, set_times};
use crate::{
    NoDomain, Prepared, StoreError, recover,
    sys::watch::{KillAt, watched},
};

fn tree(root: &Path) {
    for dir in ["a/in", "b/in", "gone/deep", "stay"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for file in ["a/x", "a/in/x", "b/y", "b/in/y", "gone/1", "gone/deep/2", "stay/s", "f", "g"] {
        fs::write(root.join(file), file).unwrap();
    }
    fs::write(root.join("big"), vec![1; 40_000]).unwrap();
    fs::hard_link(root.join("big"), root.join("big2")).unwrap();
}

/// Something of every operation.
fn everything(root: &Path) {
    fs::create_dir_all(root.join("new/sub")).unwrap();
    fs::write(root.join("new/sub/n"), "n").unwrap();
    fs::write(root.join("stay/n2"), "n2").unwrap();
    symlink("f", root.join("stay/l")).unwrap();
    fs::write(root.join("f.tmp"), "replaced").unwrap();
    fs::rename(root.join("f.tmp"), root.join("f")).unwrap();
    fs::remove_dir_all(root.join("gone")).unwrap();
    fs::rename(root.join("a/in"), root.join("new/moved")).unwrap();
    fs::rename(root.join("a"), root.join("t")).unwrap();
    fs::rename(root.join("b"), root.join("a")).unwrap();
    fs::rename(root.join("t"), root.join("b")).unwrap();
    fs::write(root.join("b/x"), "changed where it went").unwrap();
    fs::rename(root.join("g"), root.join("stay/s")).unwrap();
    let big = OpenOptions::new().write(true).open(root.join("big")).unwrap();
    big.write_at(b"two", 5_000).unwrap();
    big.write_at(b"three", 30_000).unwrap();
    big.set_len(35_000).unwrap();
    fs::hard_link(root.join("big"), root.join("new/big3")).unwrap();
    OpenOptions::new().append(true).open(root.join("a/y")).unwrap().write_all(b"+").unwrap();
    chown(&root.join("a/y"), 1, 2);
    chmod(&root.join("a/y"), 0o4755);
    chmod(&root.join("stay"), 0o700);
    set_times(&root.join("b"), super::world::THEN, super::world::THEN);
}

#[test]
fn stopped_anywhere_and_recovered_is_committed() {
    if able() {
        stop_everywhere(&|| World::new(tree), &everything);
    }
}

#[test]
fn stopped_anywhere_across_file_systems() {
    if able() {
        stop_everywhere(&|| World::across(tree), &everything);
    }
}

/// Names that go, and are found in what has come to their place.
#[test]
fn stopped_anywhere_while_directories_take_each_others_places() {
    if !able() {
        return;
    }
    let tree = |root: &Path| {
        tree(root);
        fs::write(root.join("b/in/x"), "b/in/x").unwrap();
        fs::hard_link(root.join("stay/s"), root.join("a/s")).unwrap();
    };
    let swap = |root: &Path| {
        fs::remove_file(root.join("a/in/x")).unwrap();
        exchange(&root.join("a/in"), &root.join("b/in"));
        fs::rename(root.join("stay/s"), root.join("gone/s")).unwrap();
        fs::remove_file(root.join("a/s")).unwrap();
        fs::remove_dir(root.join("stay")).unwrap();
        fs::rename(root.join("gone"), root.join("stay")).unwrap();
    };
    stop_everywhere(&|| World::new(tree), &swap);
    stop_everywhere(&|| World::across(tree), &swap);
}

/// A name that is removed, and another of the same object that comes to its path with a directory.
#[test]
fn stopped_anywhere_while_directories_with_names_of_one_file_trade_places() {
    if !able() {
        return;
    }
    let tree = |root: &Path| {
        tree(root);
        fs::write(root.join("b/in/x"), "b/in/x").unwrap();
        fs::hard_link(root.join("a/in/x"), root.join("a/in/z")).unwrap();
        fs::hard_link(root.join("stay/s"), root.join("a/in/q")).unwrap();
        fs::hard_link(root.join("stay/s"), root.join("b/in/q")).unwrap();
    };
    let stays = |root: &Path| {
        fs::remove_file(root.join("a/in/q")).unwrap();
        fs::rename(root.join("a/in"), root.join("c")).unwrap();
        fs::rename(root.join("b/in"), root.join("a/in")).unwrap();
    };
    let replaces = |root: &Path| {
        fs::remove_file(root.join("a/in/z")).unwrap();
        fs::rename(root.join("a/in/x"), root.join("b/in/x")).unwrap();
        fs::rename(root.join("a/in"), root.join("c")).unwrap();
        fs::rename(root.join("b/in"), root.join("a/in")).unwrap();
    };
    stop_everywhere(&|| World::new(tree), &stays);
    stop_everywhere(&|| World::new(tree), &replaces);
}

fn stop_everywhere(make: &dyn Fn() -> World, act: &(dyn Fn(&Path) + Sync)) {
    let mut stop = 0;
    let mut kinds = BTreeSet::new();
    loop {
        let world = make();
        let origins = world.inodes();
        let (host_was, native_was) = (scan(&world.host), scan(&world.native));
        let tx = world.run(&act);
        let id = tx.meta.id;
        let delta = world.extract(&tx, &origins).unwrap();
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
        let killer = Rc::new(RefCell::new(KillAt(stop)));
        let result = watched(killer.clone(), || {
            let result = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true);
            drop((prepared, lock));
            result
        });
        let killed = killer.borrow().0 == 0;
        let report = recover(&world.state).unwrap();
        act(&world.native);
        let (host, native) = (scan(&world.host), scan(&world.native));
        let finished = report.finished.len();
        let committed = result.is_ok() || finished == 1;
        if committed {
            assert!(report.finished.iter().all(|finished| finished.kept.is_empty()), "call {stop}");
            same(&host_was, &host, &native_was, &native);
        } else {
            assert!(!matches!(result, Err(StoreError::Unfinished { .. })), "call {stop}");
            assert_eq!(report.discarded, [id], "call {stop}");
            same(&host_was, &host, &host_was, &host_was);
        }
        kinds.insert((result.is_ok(), finished));
        assert!(recover(&world.state).unwrap().is_empty(), "recovered twice at call {stop}");
        assert_eq!(fs::read_dir(world.state.path().join("tx")).unwrap().count(), 0);
        if !killed {
            assert_eq!(result.unwrap().unfinished, None);
            break;
        }
        stop += 1;
    }
    assert!(stop > 20, "only {stop} calls");
    assert_eq!(kinds.len(), 4, "{kinds:?}");
}

#[test]
fn what_never_committed_is_discarded() {
    if !able() {
        return;
    }
    let world = World::new(tree);
    let before = scan(&world.host);
    let id = world.run(&everything).meta.id;
    let report = recover(&world.state).unwrap();
    assert_eq!(report.discarded, [id]);
    same(&before, &scan(&world.host), &before, &before);
    assert!(recover(&world.state).unwrap().is_empty());
}

/// The file system with the stage directory was unmounted since, with the directory on which it was.
#[test]
fn a_stage_directory_that_is_gone_with_all_above_it_keeps_no_recovery_from_ending() {
    if !able() {
        return;
    }
    let mut left = 0;
    for calls in 0.. {
        let world = World::across(tree);
        let origins = world.inodes();
        let tx = world.run(&|root| symlink("t", root.join("stay/l")).unwrap());
        let delta = world.extract(&tx, &origins).unwrap();
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
        let killer = Rc::new(RefCell::new(KillAt(calls)));
        watched(killer.clone(), || {
            let _ = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, false);
            drop((prepared, lock));
        });
        fs::remove_dir_all(&world.host).unwrap();
        let report = recover(&world.state).unwrap_or_else(|error| panic!("call {calls}: {error}"));
        left += report.discarded.len() + report.pending.len();
        if killer.borrow().0 > 0 {
            break;
        }
    }
    assert!(left > 5, "{left}");
}

/// Making a stage directory, and removing it, moves the time of the directory above it, which is set back:
/// also by the recovery, after a death in between.
#[test]
fn a_death_while_staging_elsewhere_leaves_no_time_moved() {
    if !able() {
        return;
    }
    let mut committed = 0;
    for calls in 0.. {
        let world = World::across(tree);
        let origins = world.inodes();
        set_times(&world.host, super::world::THEN, super::world::THEN);
        let tx = world.run(&|root| symlink("t", root.join("stay/l")).unwrap());
        let delta = world.extract(&tx, &origins).unwrap();
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
        let killer = Rc::new(RefCell::new(KillAt(calls)));
        let result = watched(killer.clone(), || {
            let result = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, false);
            drop((prepared, lock));
            result
        });
        let report = recover(&world.state).unwrap();
        committed += u32::from(result.is_ok() || !report.finished.is_empty());
        let now = txos_host::attrs_of(fs::File::open(&world.host).unwrap()).unwrap();
        assert_eq!(now.mtime, super::world::THEN, "killed at call {calls}: {result:?}");
        if result.is_ok_and(|committed| committed.unfinished.is_none()) {
            assert!((10..200).contains(&calls), "{calls}");
            break;
        }
    }
    assert!(committed > 10, "{committed}");
}
