//! What someone outside does meanwhile is never lost.

use std::{cell::RefCell, fs, path::Path, rc::Rc};

use rustix::io::Errno;
use txos_core::Seen;

use super::{
    small::like,
    world::{THEN, World, able, scan, set_times},
};
use crate::{
    Committed, Domain, NoDomain, Phase, Prepared, Result, StoreError, recover,
    sys::watch::{FailRecordFlush, KillAfterRecord, watched},
};

fn tree(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    for file in ["file", "other", "dir/a", "dir/sub/b"] {
        fs::write(root.join(file), file).unwrap();
    }
}

/// Commits `inside` after `outside` has changed the host.
fn after(inside: &(dyn Fn(&Path) + Sync), outside: impl Fn(&Path)) -> (World, Result<Committed>) {
    let world = World::new(tree);
    let origins = world.inodes();
    let tx = world.run(inside);
    let delta = world.extract(&tx, &origins).unwrap();
    let lock = world.state.try_lock("test").unwrap();
    let result = Prepared::stage(&world.state, tx, delta).and_then(|mut prepared| {
        let host = world.host.clone();
        let mut validate = |phase| {
            if phase == Phase::Early {
                outside(&host);
            }
            Ok(())
        };
        prepared.commit(&lock, &mut validate, &mut NoDomain, true)
    });
    drop(lock);
    (world, result)
}

fn conflict(result: Result<Committed>) -> (String, Seen) {
    match result {
        Err(StoreError::Conflict(conflicts)) => {
            (conflicts[0].path.display().to_string(), conflicts[0].seen)
        }
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn a_write_to_the_same_file_conflicts() {
    if !able() {
        return;
    }
    let write = |root: &Path| fs::write(root.join("file"), "inside").unwrap();
    let (world, result) = after(&write, |host| fs::write(host.join("file"), "outside").unwrap());
    assert_eq!(conflict(result).1, Seen::Changed);
    assert_eq!(fs::read(world.host.join("file")).unwrap(), b"outside");
}

#[test]
fn a_file_made_in_a_removed_directory_survives() {
    if !able() {
        return;
    }
    let remove = |root: &Path| {
        fs::remove_dir_all(root.join("dir")).unwrap();
        fs::create_dir(root.join("dir")).unwrap();
    };
    let (world, result) = after(&remove, |host| fs::write(host.join("dir/mine"), "m").unwrap());
    assert_eq!(conflict(result), ("/dir".to_owned(), Seen::Changed));
    assert_eq!(fs::read(world.host.join("dir/mine")).unwrap(), b"m");
    assert_eq!(fs::read(world.host.join("dir/a")).unwrap(), b"dir/a");
}

#[test]
fn a_parent_swapped_for_a_link_is_not_followed() {
    if !able() {
        return;
    }
    let write = |root: &Path| fs::write(root.join("dir/new"), "inside").unwrap();
    let (world, result) = after(&write, |host| {
        fs::create_dir(host.join("elsewhere")).unwrap();
        fs::rename(host.join("dir"), host.join("was-dir")).unwrap();
        std::os::unix::fs::symlink("elsewhere", host.join("dir")).unwrap();
    });
    conflict(result);
    assert_eq!(fs::read_dir(world.host.join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn names_made_and_replaced_outside_conflict() {
    if !able() {
        return;
    }
    let create = |root: &Path| fs::write(root.join("new"), "inside").unwrap();
    let (_world, result) = after(&create, |host| fs::write(host.join("new"), "outside").unwrap());
    assert_eq!(conflict(result), ("/new".to_owned(), Seen::Created));
    let replace = |root: &Path| {
        fs::write(root.join("t"), "inside").unwrap();
        fs::rename(root.join("t"), root.join("file")).unwrap();
    };
    let (_world, result) = after(&replace, |host| fs::remove_file(host.join("file")).unwrap());
    assert_eq!(conflict(result), ("/file".to_owned(), Seen::Removed));
}

#[test]
fn unrelated_changes_in_the_same_directory_stay() {
    if !able() {
        return;
    }
    let create = |root: &Path| fs::write(root.join("dir/new"), "inside").unwrap();
    let (world, result) = after(&create, |host| {
        fs::write(host.join("dir/theirs"), "outside").unwrap();
        fs::remove_file(host.join("dir/a")).unwrap();
    });
    assert_eq!(result.unwrap().kept, []);
    let names: Vec<_> = scan(&world.host.join("dir")).into_keys().collect();
    let expected = ["", "new", "sub", "sub/b", "theirs"].map(std::path::PathBuf::from);
    assert_eq!(names, expected);
}

/// A domain that is none: an outsider acts between validation and apply.
struct Leaky<F: FnMut()>(F);

impl<F: FnMut()> Domain for Leaky<F> {
    fn pause(&mut self) -> Result<()> {
        Ok(())
    }

    fn resume(&mut self) {
        (self.0)();
    }
}

/// What an outsider does between the commit record and the recovery that applies it.
fn between(inside: &(dyn Fn(&Path) + Sync), outside: impl Fn(&Path)) -> (World, Vec<crate::Kept>) {
    let world = World::new(tree);
    let origins = world.inodes();
    let tx = world.run(inside);
    let delta = world.extract(&tx, &origins).unwrap();
    let lock = world.state.try_lock("test").unwrap();
    let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
    let result = watched(Rc::new(RefCell::new(KillAfterRecord::default())), || {
        let result = prepared.commit(&lock, &mut |_| Ok(()), &mut Leaky(|| ()), true);
        drop((prepared, lock));
        result
    });
    assert!(matches!(result, Err(StoreError::Unfinished { .. })), "{result:?}");
    outside(&world.host);
    let report = recover(&world.state).unwrap();
    assert_eq!(report.finished.len(), 1);
    let kept = report.finished[0].kept.clone();
    (world, kept)
}

#[test]
fn recovery_keeps_what_was_written_since() {
    if !able() {
        return;
    }
    let write = |root: &Path| fs::write(root.join("file"), "inside").unwrap();
    let (world, kept) = between(&write, |host| fs::write(host.join("file"), "outside").unwrap());
    assert_eq!(fs::read(world.host.join("file")).unwrap(), b"outside");
    let saved = kept[0].saved.as_ref().unwrap();
    assert_eq!(fs::read(saved).unwrap(), b"inside");
}

#[test]
fn recovery_keeps_what_was_made_or_replaced_since() {
    if !able() {
        return;
    }
    let act = |root: &Path| {
        fs::write(root.join("new"), "inside").unwrap();
        fs::write(root.join("t"), "inside").unwrap();
        fs::rename(root.join("t"), root.join("file")).unwrap();
        fs::remove_dir_all(root.join("dir")).unwrap();
    };
    let (world, kept) = between(&act, |host| {
        fs::write(host.join("new"), "outside").unwrap();
        fs::write(host.join("t2"), "outside").unwrap();
        fs::rename(host.join("t2"), host.join("file")).unwrap();
        fs::write(host.join("dir/mine"), "outside").unwrap();
    });
    for name in ["new", "file", "dir/mine"] {
        assert_eq!(fs::read(world.host.join(name)).unwrap(), b"outside", "{name}");
    }
    assert!(!world.host.join("dir/a").exists());
    assert_eq!(kept.len(), 3, "{kept:?}");
    let saved = kept.iter().filter_map(|kept| kept.saved.as_ref());
    assert_eq!(saved.map(|path| fs::read(path).unwrap()).collect::<Vec<_>>(), [b"inside"; 2]);
}

#[test]
fn later_times_of_a_directory_do_not_go_back() {
    if !able() {
        return;
    }
    let later = txos_core::Stamp { sec: 4_000_000_000, nsec: 5 };
    let world = World::new(tree);
    let origins = world.inodes();
    let tx = world.run(&|root| fs::write(root.join("dir/new"), "inside").unwrap());
    set_times(&world.host.join("dir"), THEN, later);
    let delta = world.extract(&tx, &origins).unwrap();
    world.commit(tx, delta).unwrap();
    assert_eq!(scan(&world.host)[Path::new("dir")].attrs.mtime, later);
}

#[test]
fn prepared_waits_and_commits_or_meets_a_conflict() {
    if !able() {
        return;
    }
    for conflicting in [false, true] {
        let world = World::new(tree);
        let origins = world.inodes();
        let tx = world.run(&|root| {
            fs::write(root.join("file"), "inside").unwrap();
            fs::write(root.join("new"), "inside").unwrap();
        });
        let id = tx.meta.id;
        let delta = world.extract(&tx, &origins).unwrap();
        Prepared::stage(&world.state, tx, delta).unwrap().keep(b"read", b"shown").unwrap();
        assert!(recover(&world.state).unwrap().is_empty());
        assert_eq!(world.state.prepared_report(id).unwrap(), b"shown");
        if conflicting {
            fs::write(world.host.join("file"), "outside").unwrap();
        }
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = world.state.prepared(id).unwrap();
        assert_eq!(prepared.workset(), b"read");
        let result = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true);
        if conflicting {
            assert_eq!(conflict(result).0, world.host.join("file").display().to_string());
            drop((prepared, lock));
            world.state.prepared(id).unwrap().abort().unwrap();
            assert_eq!(fs::read(world.host.join("file")).unwrap(), b"outside");
            assert!(!world.host.join("new").exists());
        } else {
            result.unwrap();
            assert_eq!(fs::read(world.host.join("file")).unwrap(), b"inside");
        }
        assert_eq!(world.state.transactions().unwrap(), []);
    }
}

#[test]
fn an_append_outside_is_not_undone() {
    if !able() {
        return;
    }
    let world = World::new(tree);
    let origins = world.inodes();
    let append = |root: &Path, text: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(root.join("file")).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    let tx = world.run(&|root| append(root, "inside"));
    append(&world.host, "outside");
    assert!(matches!(world.extract(&tx, &origins), Err(StoreError::Conflict(_))));
}

#[test]
fn a_poisoned_journal_takes_no_commit_until_recovered() {
    if !able() {
        return;
    }
    let world = World::new(tree);
    let act = |root: &Path| fs::write(root.join("new"), "x").unwrap();
    let attempt = || {
        let origins = world.inodes();
        let tx = world.run(&act);
        let delta = world.extract(&tx, &origins).unwrap();
        world.commit(tx, delta)
    };
    let failing = Rc::new(RefCell::new(FailRecordFlush::times(1)));
    let failed = watched(failing, attempt);
    assert!(matches!(failed, Err(StoreError::Io { errno: Errno::IO, .. })), "{failed:?}");
    assert!(matches!(attempt(), Err(StoreError::Refused { .. })));
    assert!(!world.host.join("new").exists());
    recover(&world.state).unwrap();
    attempt().unwrap();
    assert!(world.host.join("new").exists());
}

/// The flush of the record fails, and so does that of what makes it void: only a recovery can tell. One
/// that works at once does; else the next one does, and finds all it needs.
#[test]
fn a_commit_whose_record_may_be_there_is_settled_by_a_recovery() {
    if !able() {
        return;
    }
    for (failures, undecided) in [(2, false), (u32::MAX, true)] {
        let world = World::across(tree);
        let before = scan(&world.host);
        let attempt = || {
            let act = |root: &Path| {
                fs::write(root.join("new"), "new").unwrap();
                fs::rename(root.join("file"), root.join("dir/file")).unwrap();
            };
            let origins = world.inodes();
            let tx = world.run(&act);
            let delta = world.extract(&tx, &origins).unwrap();
            world.commit(tx, delta)
        };
        let failing = Rc::new(RefCell::new(FailRecordFlush::times(failures)));
        let failed = watched(failing, attempt);
        let said = match &failed {
            Err(StoreError::Undecided { .. }) => true,
            Err(StoreError::Io { errno: Errno::IO, .. }) => false,
            other => panic!("{other:?}"),
        };
        assert_eq!(said, undecided, "{failures} failures");
        recover(&world.state).unwrap();
        assert!(like(&scan(&world.host), &before), "{failures} failures");
        attempt().unwrap();
        assert!(world.host.join("new").exists() && world.host.join("dir/file").exists());
    }
}
