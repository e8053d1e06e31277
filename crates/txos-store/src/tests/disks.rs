//! File systems that are full, or not there, before the record, behind it, and at recovery.

use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
};

use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use txos_core::TxId;

use super::{
    small::{DURABLE, QUICK},
    world::{World, able, in_private_namespace},
};
use crate::{
    NoDomain, Prepared, Privilege, RecoveryReport, SmallOp, StateDir, Store, StoreError,
    closed_paths, give_up,
    sys::watch::{KillAfterRecord, watched},
};

/// A directory for the state and one for files, on which something is mounted.
struct Disks {
    dir: tempfile::TempDir,
}

impl Disks {
    fn new() -> Disks {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("disk")).unwrap();
        Disks { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap().join(name)
    }

    fn disk(&self) -> PathBuf {
        self.path("disk")
    }

    fn state(&self) -> StateDir {
        StateDir::open(self.path("state"), Privilege::Root).unwrap()
    }

    fn store(&self) -> Store {
        Store::open(self.state()).unwrap()
    }

    /// Mounts an ext4 made with such options on the disk; `false` where that can't be done.
    fn mount_ext4(&self, options: &[&str]) -> bool {
        let image = self.path("image");
        fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
        run(Command::new("mkfs.ext4").arg("-q").args(options).arg(&image)) && self.attach(&image)
    }

    fn attach(&self, image: &Path) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(image).arg(self.disk());
        mount.output().is_ok_and(|done| done.status.success())
    }

    /// Commits up to the record, and dies.
    fn die_behind_record(&self, ops: &[SmallOp<'_>]) {
        let store = self.store();
        let killer = Rc::new(RefCell::new(KillAfterRecord::default()));
        watched(killer, || {
            assert!(store.commit_small(ops, &DURABLE, &mut || Ok(())).is_err());
            drop(store);
        });
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = unmount(self.disk(), UnmountFlags::DETACH);
    }
}

/// Recovers. A child that another test has just started has the locks of this process until it executes.
fn recover(state: &StateDir) -> Result<RecoveryReport, StoreError> {
    loop {
        match crate::recover(state) {
            Ok(report) if report.busy.is_some() => std::thread::yield_now(),
            done => return done,
        }
    }
}

fn commit(store: &Store, ops: &[SmallOp<'_>]) -> Result<(), StoreError> {
    store.commit_small(ops, &QUICK, &mut || Ok(())).map(|done| assert_eq!(done.kept, []))
}

/// Writes until nothing fits any more.
fn fill(filler: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(filler).unwrap();
    for size in [65_536, 4096] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
}

#[test]
fn what_does_not_fit_fails_before_its_record_and_what_is_decided_is_finished_later() {
    if !able() {
        return;
    }
    in_private_namespace(|| {
        let disks = Disks::new();
        mount("tmpfs", disks.disk(), "tmpfs", MountFlags::empty(), Some(c"size=2m")).unwrap();
        let at = |name: &str| disks.disk().join(name);
        let (f, a, b, big) = (at("f"), at("a"), at("b"), at("big"));
        fs::write(&f, "old").unwrap();
        // Before: too large for what is left, which leaves room for a recovery.
        let store = disks.store();
        let filler = at("filler");
        fs::write(&filler, vec![1; 1_500_000]).unwrap();
        let large = vec![2; 600_000];
        let ops = [
            SmallOp::Append { path: &f, bytes: b"never" },
            SmallOp::Create { path: &big, bytes: &large, mode: 0o600 },
        ];
        let result = commit(&store, &ops);
        assert!(matches!(result, Err(StoreError::NoSpace { .. })), "{result:?}");
        assert_eq!((fs::read(&f).unwrap(), big.exists()), (b"old".to_vec(), false));
        // Behind the record: others take all that is left before it is applied.
        let bytes = vec![3; 100_000];
        let ops = [
            SmallOp::Append { path: &f, bytes: b" and new" },
            SmallOp::Create { path: &a, bytes: &bytes, mode: 0o600 },
            SmallOp::Create { path: &b, bytes: &bytes, mode: 0o600 },
        ];
        drop(store);
        disks.die_behind_record(&ops);
        fill(&at("filler2"));
        let full = recover(&disks.state());
        assert!(matches!(full, Err(StoreError::NoSpace { .. })), "{full:?}");
        // Nobody commits over what is not finished, and it is not forgotten.
        assert!(Store::open(disks.state()).is_err());
        fs::remove_file(at("filler2")).unwrap();
        let report = recover(&disks.state()).unwrap();
        assert!(report.finished.iter().all(|done| done.kept.is_empty()), "{report:?}");
        assert_eq!(report.finished.len(), 1);
        assert_eq!(fs::read(&f).unwrap(), b"old and new");
        assert!([&a, &b].iter().all(|path| fs::read(path).unwrap() == bytes));
        assert!(recover(&disks.state()).unwrap().is_empty());
        commit(&disks.store(), &[SmallOp::Remove { path: &a }]).unwrap();
    });
}

#[test]
fn a_commit_waits_for_its_file_system_and_what_it_changes_is_closed() {
    if !able() {
        return;
    }
    in_private_namespace(|| {
        let disks = Disks::new();
        let (disk, image) = (disks.disk(), disks.path("image"));
        if !disks.mount_ext4(&[]) {
            eprintln!("Skip: no mkfs.ext4 or no loop device here");
            return;
        }
        let (far, near, other) = (disk.join("far"), disks.path("near"), disks.path("other"));
        for path in [&far, &near, &other] {
            fs::write(path, "old").unwrap();
        }
        disks.die_behind_record(&[
            SmallOp::Append { path: &far, bytes: b"+far" },
            SmallOp::Append { path: &near, bytes: b"+near" },
        ]);
        unmount(&disk, UnmountFlags::empty()).unwrap();
        for _ in 0..2 {
            let report = recover(&disks.state()).unwrap();
            assert_eq!((report.finished.len(), report.pending.len()), (0, 1), "{report:?}");
            assert!(report.pending[0].reason.contains("mount it"), "{report:?}");
        }
        // One record decides for both: nothing of it is there, and nobody touches what it changes.
        let (read, closed) = (|path| fs::read(path).unwrap(), closed_paths(&disks.state()));
        assert_eq!(read(&near), b"old");
        assert!(closed.unwrap().contains(&near));
        let store = disks.store();
        let result = commit(&store, &[SmallOp::Append { path: &near, bytes: b"x" }]);
        assert!(
            matches!(&result, Err(StoreError::Refused { remedy, .. }) if remedy.contains("mount it")),
            "{result:?}"
        );
        let result = commit(&store, &[SmallOp::Remove { path: &near }]);
        assert!(matches!(result, Err(StoreError::Refused { .. })), "{result:?}");
        commit(&store, &[SmallOp::Append { path: &other, bytes: b"+" }]).unwrap();
        drop(store);
        assert!(disks.attach(&image));
        let report = recover(&disks.state()).unwrap();
        assert_eq!((report.finished.len(), report.pending.len()), (1, 0), "{report:?}");
        assert_eq!(report.finished[0].kept, []);
        let now = [&far, &near, &other].map(read);
        assert_eq!(now, [&b"old+far"[..], b"old+near", b"old+"].map(<[u8]>::to_vec));
        assert_eq!(closed_paths(&disks.state()).unwrap(), Vec::<PathBuf>::new());
        commit(&disks.store(), &[SmallOp::Append { path: &near, bytes: b"!" }]).unwrap();
        assert_eq!(read(&near), b"old+near!");
    });
}

#[test]
fn what_never_comes_back_can_be_given_up_and_nothing_else() {
    if !able() {
        return;
    }
    in_private_namespace(|| {
        let disks = Disks::new();
        mount("tmpfs", disks.disk(), "tmpfs", MountFlags::empty(), None).unwrap();
        let (far, near) = (disks.disk().join("far"), disks.path("near"));
        fs::write(&near, "old").unwrap();
        disks.die_behind_record(&[
            SmallOp::Create { path: &far, bytes: b"far", mode: 0o600 },
            SmallOp::Append { path: &near, bytes: b"+near" },
        ]);
        unmount(disks.disk(), UnmountFlags::empty()).unwrap();
        let report = recover(&disks.state()).unwrap();
        let id = report.pending[0].id;
        let give_up = |id| {
            let state = disks.state();
            let lock = state.try_lock("test").unwrap();
            give_up(&state, &lock, id)
        };
        let other = give_up(TxId(id.0 + 1));
        assert!(matches!(other, Err(StoreError::Refused { .. })), "{other:?}");
        assert_eq!(fs::read(&near).unwrap(), b"old");
        let report = give_up(id).unwrap();
        assert_eq!((report.finished.len(), report.pending.len()), (1, 0), "{report:?}");
        let [kept] = &report.finished[0].kept[..] else { panic!("{report:?}") };
        assert!(kept.path == disks.disk() && kept.reason.contains("1 change below"), "{kept:?}");
        assert!(kept.saved.as_ref().unwrap().join("record").is_file());
        assert_eq!(fs::read(&near).unwrap(), b"old+near");
        assert!(!far.exists() && recover(&disks.state()).unwrap().is_empty());
        assert_eq!(closed_paths(&disks.state()).unwrap(), Vec::<PathBuf>::new());
    });
}

/// Of a view's commit what was staged is kept, too.
#[test]
fn what_is_given_up_is_kept_aside() {
    if !able() {
        return;
    }
    let old = |root: &Path| fs::write(root.join("old"), "old").unwrap();
    for world in [World::new(old), World::across(old)] {
        let origins = world.inodes();
        let tx = world.run(&|root| fs::write(root.join("new"), vec![b'n'; 100_000]).unwrap());
        let id = tx.meta.id;
        let delta = world.extract(&tx, &origins).unwrap();
        let lock = world.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&world.state, tx, delta).unwrap();
        watched(Rc::new(RefCell::new(KillAfterRecord::default())), || {
            let done = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true);
            assert!(done.is_err());
            drop((prepared, lock));
        });
        let gone = world.host.with_extension("gone");
        fs::rename(&world.host, &gone).unwrap();
        fs::create_dir(&world.host).unwrap();
        let report = recover(&world.state).unwrap();
        assert!(
            report.pending[0].reason.contains("is not the directory that it was"),
            "{report:?}"
        );
        let lock = world.state.try_lock("test").unwrap();
        let report = give_up(&world.state, &lock, id).unwrap();
        drop(lock);
        let [kept] = &report.finished[0].kept[..] else { panic!("{report:?}") };
        let saved = kept.saved.as_ref().unwrap();
        assert!(saved.join("record").is_file() && saved.join("staged").is_dir(), "{kept:?}");
        assert!(recover(&world.state).unwrap().is_empty());
        assert_eq!(fs::read_dir(world.state.path().join("tx")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&world.host).unwrap().count(), 0);
    }
}

/// On ext4 with blocks of 1024 bytes each quarter of a page is written on its own. A cut behind the
/// record leaves any of them: all of these are our own torn write, and any other byte is not.
#[test]
fn a_page_that_a_power_cut_tore_is_written_again() {
    if !able() {
        return;
    }
    in_private_namespace(|| {
        let disks = Disks::new();
        if !disks.mount_ext4(&["-b", "1024"]) {
            eprintln!("Skip: no mkfs.ext4 or no loop device here");
            return;
        }
        let (f, g) = (disks.disk().join("f"), disks.disk().join("g"));
        let (old, new) = (vec![b'o'; 6000], vec![b'n'; 6000]);
        // f keeps its size, g grows, and its last old page is changed before the new end.
        for torn in 0..64_u8 {
            for path in [&f, &g] {
                fs::write(path, &old).unwrap();
            }
            disks.die_behind_record(&[
                SmallOp::Write { path: &f, offset: 0, bytes: &new },
                SmallOp::Write { path: &g, offset: 300, bytes: &new },
            ]);
            for part in (0..6).filter(|part| torn >> part & 1 == 1) {
                let (start, end) = (part * 1024, 6000.min((part + 1) * 1024));
                write_at(&f, start, &new[start..end]);
                let start = start.max(300);
                write_at(&g, start, &new[..end - start]);
            }
            let report = recover(&disks.state()).unwrap();
            assert_eq!(report.finished.len(), 1, "{torn:b}");
            assert_eq!(report.finished[0].kept, [], "{torn:b}");
            assert_eq!(fs::read(&f).unwrap(), new, "{torn:b}");
            assert_eq!(fs::read(&g).unwrap(), [&old[..300], &new[..]].concat(), "{torn:b}");
        }
        for path in [&f, &g] {
            fs::write(path, &old).unwrap();
        }
        disks.die_behind_record(&[SmallOp::Write { path: &f, offset: 0, bytes: &new }]);
        write_at(&f, 0, &new[..1024]);
        write_at(&f, 2000, b"theirs");
        let report = recover(&disks.state()).unwrap();
        assert_eq!(report.finished[0].kept.len(), 1, "{report:?}");
        assert_eq!(fs::read(&f).unwrap()[2000..2006], *b"theirs");
    });
}

fn write_at(path: &Path, offset: usize, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset as u64).unwrap();
}

#[test]
fn a_full_state_directory_commits_nothing_and_loses_nothing() {
    if !able() {
        return;
    }
    in_private_namespace(|| {
        let disks = Disks::new();
        mount("tmpfs", disks.disk(), "tmpfs", MountFlags::empty(), Some(c"size=2m")).unwrap();
        let state = || StateDir::open(disks.disk().join("state"), Privilege::Root).unwrap();
        let f = disks.path("f");
        fs::write(&f, "").unwrap();
        let store = Store::open(state()).unwrap();
        let append = [SmallOp::Append { path: &f, bytes: b"1" }];
        commit(&store, &append).unwrap();
        let filler = disks.disk().join("filler");
        fill(&filler);
        // A record in the segment takes no room; one that needs a longer segment does.
        commit(&store, &append).unwrap();
        let large = vec![4; 900_000];
        let result = commit(&store, &[SmallOp::Append { path: &f, bytes: &large }]);
        let full = matches!(
            result,
            Err(StoreError::NoSpace { .. } | StoreError::Io { errno: Errno::NOSPC, .. })
        );
        assert!(full, "{result:?}");
        assert_eq!(fs::read(&f).unwrap(), b"11");
        fs::remove_file(&filler).unwrap();
        drop(store);
        recover(&state()).unwrap();
        let store = Store::open(state()).unwrap();
        commit(&store, &[SmallOp::Append { path: &f, bytes: &large }]).unwrap();
        assert_eq!(fs::read(&f).unwrap().len(), 900_002);
    });
}
