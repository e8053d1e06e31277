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

use super::{
    small::{DURABLE, QUICK},
    world::{able, in_private_namespace},
};
use crate::{
    Privilege, SmallOp, StateDir, Store, StoreError, closed_paths, recover,
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
        let image = disks.path("image");
        let made = fs::File::create(&image).and_then(|file| file.set_len(16 << 20));
        made.unwrap();
        let run = |program: &str, args: &[&Path]| {
            Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
        };
        let disk = disks.disk();
        let attach = || run("mount", &[Path::new("-o"), Path::new("loop"), &image, &disk]);
        if !run("mkfs.ext4", &[Path::new("-q"), &image]) || !attach() {
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
        assert!(attach());
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
