//! Commits without a view: as natively, or not at all.

use std::{
    cell::RefCell,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    rc::Rc,
};

use rustix::io::Errno;
use txos_core::{Conflict, Facet, Seen};

use super::world::{Scan, able, chmod, chown, same, scan, settle};
use crate::{
    Key, Privilege, SmallCommitted, SmallOp, SmallOptions, StateDir, Store, StoreError, recover,
    sys::watch::{KillAt, watched},
};

pub(super) const DURABLE: SmallOptions<'_> =
    SmallOptions { durable: true, reads: None, follow: true };
pub(super) const QUICK: SmallOptions<'_> =
    SmallOptions { durable: false, reads: None, follow: true };

/// Commits some operations.
pub(super) type Commit<'c> = dyn FnMut(&[SmallOp<'_>]) + 'c;

/// A tree, its twin, and a state directory.
pub(super) struct Pair {
    _dir: tempfile::TempDir,
    pub host: PathBuf,
    pub native: PathBuf,
    pub state: PathBuf,
}

impl Pair {
    pub(super) fn new(setup: impl Fn(&Path)) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let (host, native, state) = (base.join("host"), base.join("native"), base.join("state"));
        for tree in [&host, &native] {
            fs::create_dir(tree).unwrap();
            setup(tree);
            settle(tree);
        }
        Pair { _dir: dir, host, native, state }
    }

    pub(super) fn open_state(&self) -> StateDir {
        StateDir::open(&self.state, Privilege::Root).unwrap()
    }

    pub(super) fn store(&self) -> Store {
        Store::open(self.open_state()).unwrap()
    }

    fn check(&self, ops: &dyn Fn(&Path, &mut Commit<'_>), act: impl Fn(&Path)) {
        for options in [DURABLE, QUICK] {
            let (host_was, native_was) = (scan(&self.host), scan(&self.native));
            let store = self.store();
            ops(&self.host, &mut |ops| {
                let done = store.commit_small(ops, &options, &mut || Ok(())).unwrap();
                assert_eq!(done, SmallCommitted::default());
            });
            act(&self.native);
            same(&host_was, &scan(&self.host), &native_was, &scan(&self.native));
        }
    }
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("f"), vec![b'f'; 10_000]).unwrap();
    fs::write(root.join("g"), "g").unwrap();
    fs::write(root.join("d/h"), "h").unwrap();
    symlink("f", root.join("l")).unwrap();
}

#[test]
fn each_operation_is_as_natively() {
    use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
    let pair = Pair::new(tree);
    pair.check(
        &|root, commit| {
            let at = |name: &str| root.join(name);
            let (f, g, n, s, k) = (at("f"), at("g"), at("d/e/n"), at("s"), at("k"));
            let (dir, inside, h, moved) = (at("new"), at("new/x"), at("d/h"), at("d/moved"));
            commit(&[
                SmallOp::Write { path: &f, offset: 4090, bytes: b"0123456789" },
                SmallOp::Append { path: &f, bytes: b"tail" },
                SmallOp::Replace { path: &g, bytes: b"replaced" },
                SmallOp::Create { path: &n, bytes: b"new", mode: 0o640 },
                SmallOp::Write { path: &n, offset: 5, bytes: b"!" },
                SmallOp::CreateDir { path: &dir, mode: 0o750 },
                SmallOp::Create { path: &inside, bytes: &[7; 20_000], mode: 0o600 },
                SmallOp::Symlink { path: &s, target: Path::new("some/where") },
                SmallOp::Link { from: &g, to: &k },
                SmallOp::Rename { from: &h, to: &moved, replace: false },
                SmallOp::SetMode { path: &g, mode: 0o604 },
                SmallOp::SetXattr { path: &g, name: c"user.a", value: Some(b"1") },
            ]);
            let dir = at("new");
            commit(&[
                SmallOp::Remove { path: &inside },
                SmallOp::RemoveDir { path: &dir },
                SmallOp::Remove { path: &s },
                SmallOp::Truncate { path: &f, size: 5000 },
                SmallOp::Remove { path: &k },
                SmallOp::Rename { from: &moved, to: &h, replace: false },
                SmallOp::Rename { from: &n, to: &g, replace: true },
            ]);
        },
        |root| {
            let at = |name: &str| root.join(name);
            let f = fs::OpenOptions::new().write(true).open(at("f")).unwrap();
            f.write_at(b"0123456789", 4090).unwrap();
            f.write_at(b"tail", f.metadata().unwrap().len()).unwrap();
            fs::write(at("g"), "replaced").unwrap();
            let mut options = fs::OpenOptions::new();
            let n = options.write(true).create(true).truncate(true).mode(0o640);
            let n = n.open(at("d/e/n")).unwrap();
            n.write_at(b"new\0\0!", 0).unwrap();
            fs::DirBuilder::new().mode(0o750).create(at("new")).unwrap();
            fs::hard_link(at("g"), at("k")).unwrap();
            fs::rename(at("d/h"), at("d/moved")).unwrap();
            fs::set_permissions(at("g"), fs::Permissions::from_mode(0o604)).unwrap();
            fs::remove_dir(at("new")).unwrap();
            f.set_len(5000).unwrap();
            fs::remove_file(at("k")).unwrap();
            fs::rename(at("d/moved"), at("d/h")).unwrap();
            fs::rename(at("d/e/n"), at("g")).unwrap();
        },
    );
}

#[test]
fn names_cross_and_directories_move() {
    let pair = Pair::new(tree);
    pair.check(
        &|root, commit| {
            let at = |name: &str| root.join(name);
            let (f, g, t, d, e) = (at("f"), at("g"), at("t"), at("d"), at("dd"));
            let (h, below, far) = (at("dd/h"), at("dd/e/below"), at("dd/e/far"));
            commit(&[
                SmallOp::Rename { from: &f, to: &t, replace: false },
                SmallOp::Rename { from: &g, to: &f, replace: false },
                SmallOp::Rename { from: &t, to: &g, replace: false },
                SmallOp::Rename { from: &d, to: &e, replace: false },
                SmallOp::Append { path: &h, bytes: b"+" },
                SmallOp::Create { path: &below, bytes: b"below", mode: 0o644 },
                SmallOp::Link { from: &f, to: &far },
            ]);
            commit(&[
                SmallOp::Remove { path: &below },
                SmallOp::Remove { path: &far },
                SmallOp::Rename { from: &e, to: &d, replace: false },
            ]);
        },
        |root| {
            let at = |name: &str| root.join(name);
            fs::rename(at("f"), at("t")).unwrap();
            fs::rename(at("g"), at("f")).unwrap();
            fs::rename(at("t"), at("g")).unwrap();
            fs::rename(at("d"), at("dd")).unwrap();
            let mut h = fs::read(at("dd/h")).unwrap();
            h.push(b'+');
            fs::write(at("dd/h"), h).unwrap();
            fs::write(at("dd/e/below"), "below").unwrap();
            fs::hard_link(at("f"), at("dd/e/far")).unwrap();
            fs::remove_file(at("dd/e/below")).unwrap();
            fs::remove_file(at("dd/e/far")).unwrap();
            fs::rename(at("dd"), at("d")).unwrap();
        },
    );
}

#[test]
fn what_fails_natively_fails_and_nothing_is_done() {
    let pair = Pair::new(tree);
    let store = pair.store();
    let before = scan(&pair.host);
    let at = |name: &str| pair.host.join(name);
    let (f, none, dir, new, deep) = (at("f"), at("none"), at("d"), at("new"), at("none/x"));
    let first = SmallOp::Append { path: &f, bytes: b"never seen" };
    let cases: [(SmallOp<'_>, Errno); 12] = [
        (SmallOp::Append { path: &none, bytes: b"x" }, Errno::NOENT),
        (SmallOp::Append { path: &dir, bytes: b"x" }, Errno::ISDIR),
        (SmallOp::Create { path: &f, bytes: b"", mode: 0o600 }, Errno::EXIST),
        (SmallOp::Create { path: &deep, bytes: b"", mode: 0o600 }, Errno::NOENT),
        (SmallOp::CreateDir { path: &f, mode: 0o700 }, Errno::EXIST),
        (SmallOp::Remove { path: &none }, Errno::NOENT),
        (SmallOp::Remove { path: &dir }, Errno::ISDIR),
        (SmallOp::RemoveDir { path: &dir }, Errno::NOTEMPTY),
        (SmallOp::RemoveDir { path: &f }, Errno::NOTDIR),
        (SmallOp::Rename { from: &none, to: &new, replace: true }, Errno::NOENT),
        (SmallOp::Rename { from: &f, to: &dir, replace: true }, Errno::ISDIR),
        (SmallOp::Link { from: &dir, to: &new }, Errno::PERM),
    ];
    for (op, wanted) in cases {
        match store.commit_small(&[first, op], &DURABLE, &mut || Ok(())) {
            Err(StoreError::Operation { index: 1, errno, .. }) => {
                assert_eq!(errno, wanted, "{op:?}")
            }
            other => panic!("{op:?}: {other:?}"),
        }
    }
    let conflict = || Conflict {
        path: f.clone(),
        facet: Facet::Content,
        seen: Seen::Changed,
        detail: txos_core::Detail::None,
    };
    let result = store.commit_small(&[first], &DURABLE, &mut || Err(vec![conflict()]));
    assert!(matches!(result, Err(StoreError::Conflict(_))));
    same(&before, &scan(&pair.host), &before, &before);
    assert_eq!(store.commits().started, 0);
}

#[test]
fn parents_may_be_links() {
    let pair = Pair::new(tree);
    symlink("d", pair.host.join("dl")).unwrap();
    let store = pair.store();
    let path = pair.host.join("dl/h");
    store
        .commit_small(&[SmallOp::Append { path: &path, bytes: b"+" }], &QUICK, &mut || Ok(()))
        .unwrap();
    assert_eq!(fs::read(pair.host.join("d/h")).unwrap(), b"h+");
    let strict = SmallOptions { follow: false, ..QUICK };
    let ops = [SmallOp::Append { path: &path, bytes: b"+" }];
    let result = store.commit_small(&ops, &strict, &mut || Ok(()));
    assert!(matches!(result, Err(StoreError::Operation { errno: Errno::LOOP, .. })), "{result:?}");
    assert_eq!(fs::read(pair.host.join("d/h")).unwrap(), b"h+");
}

#[test]
fn many_threads_and_processes_of_state_share_one_journal() {
    let pair = Pair::new(tree);
    const EACH: usize = 40;
    let stores = [pair.store(), pair.store()];
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (store, pair) = (&stores[thread % 2], &pair);
            scope.spawn(move || {
                let own = pair.host.join(format!("own{thread}"));
                let shared = pair.host.join("g");
                let options = [DURABLE, QUICK][thread / 3];
                let create = SmallOp::Create { path: &own, bytes: b"", mode: 0o600 };
                store.commit_small(&[create], &options, &mut || Ok(())).unwrap();
                for _ in 0..EACH {
                    let ops = [
                        SmallOp::Append { path: &own, bytes: b"12345678" },
                        SmallOp::Append { path: &shared, bytes: b"x" },
                    ];
                    store.commit_small(&ops, &options, &mut || Ok(())).unwrap();
                }
            });
        }
    });
    let length = |name: &str| fs::metadata(pair.host.join(name)).unwrap().size();
    assert_eq!(length("g"), 1 + 6 * EACH as u64);
    assert!((0..6).all(|thread| length(&format!("own{thread}")) == 8 * EACH as u64));
    let commits = stores[0].commits();
    assert_eq!((commits.started, commits.ended), (6 * (EACH as u64 + 1), 6 * (EACH as u64 + 1)));
}

/// Two disjoint commits need not wait for one another if their readers say what they read.
#[test]
fn keys_tell_who_must_wait() {
    let pair = Pair::new(tree);
    let dir = pair.host.join("d");
    let one = Key::listing(&dir);
    assert_eq!(one, Key::listing(&dir));
    assert_ne!(one, Key::name(&dir));
    assert_ne!(Key::name(&dir.join("x")), Key::name(&dir.join("y")));
}

/// Something of every kind, in two commits that build on each other.
fn everything(root: &Path, commit: &mut Commit<'_>) {
    let at = |name: &str| root.join(name);
    let (f, g, n, s, h) = (at("f"), at("g"), at("d/e/n"), at("s"), at("d/h"));
    let (dir, inside, l) = (at("new"), at("new/x"), at("l"));
    let (n_too, s_too) = (at("c"), at("d/t"));
    commit(&[
        SmallOp::Write { path: &f, offset: 4000, bytes: &[b'1'; 200] },
        SmallOp::Append { path: &f, bytes: &[b'2'; 5000] },
        SmallOp::Create { path: &n, bytes: &[b'n'; 6000], mode: 0o640 },
        SmallOp::CreateDir { path: &dir, mode: 0o750 },
        SmallOp::Create { path: &inside, bytes: b"inside", mode: 0o600 },
        SmallOp::Symlink { path: &s, target: Path::new("t") },
        SmallOp::Link { from: &n, to: &n_too },
        SmallOp::Link { from: &s, to: &s_too },
        SmallOp::Remove { path: &l },
        SmallOp::SetMode { path: &h, mode: 0o600 },
    ]);
    commit(&[
        SmallOp::Write { path: &f, offset: 0, bytes: b"second" },
        SmallOp::Rename { from: &h, to: &g, replace: true },
        SmallOp::Truncate { path: &n, size: 10 },
    ]);
}

/// The states between the commits of [`everything`], made by a store that nothing stops.
fn states() -> Vec<Scan> {
    let pair = Pair::new(tree);
    let store = pair.store();
    let mut states = vec![scan(&pair.host)];
    everything(&pair.host, &mut |ops| {
        store.commit_small(ops, &DURABLE, &mut || Ok(())).unwrap();
        states.push(scan(&pair.host));
    });
    states
}

pub(super) fn like(one: &Scan, other: &Scan) -> bool {
    let plain = |scan: &Scan| {
        let items = scan.iter().map(|(path, item)| {
            let attrs = &item.attrs;
            let what = (item.content.clone(), item.link.clone(), item.xattrs.clone());
            (path.clone(), attrs.kind, attrs.perm, attrs.nlink, what)
        });
        items.collect::<Vec<_>>()
    };
    plain(one) == plain(other)
}

#[test]
fn killed_anywhere_a_small_commit_is_whole() {
    let states = states();
    for options in [DURABLE, QUICK] {
        let mut stop = 0;
        let mut met = std::collections::BTreeSet::new();
        loop {
            let pair = Pair::new(tree);
            let store = pair.store();
            let killer = Rc::new(RefCell::new(KillAt(stop)));
            let done = RefCell::new(0);
            watched(killer.clone(), || {
                everything(&pair.host, &mut |ops| {
                    if store.commit_small(ops, &options, &mut || Ok(())).is_ok() {
                        *done.borrow_mut() += 1;
                    }
                });
                drop(store);
            });
            let report = recover(&pair.open_state()).unwrap();
            let kept: Vec<_> = report.finished.iter().flat_map(|finished| &finished.kept).collect();
            assert!(kept.is_empty(), "call {stop}: {kept:?}");
            let now = scan(&pair.host);
            let state = states.iter().position(|state| like(state, &now));
            let state = state.unwrap_or_else(|| panic!("call {stop}: half a commit"));
            assert!(state >= *done.borrow(), "call {stop}: lost a commit");
            met.insert(state);
            let killed = killer.borrow().0 == 0;
            if !killed {
                break;
            }
            stop += 1;
        }
        assert!(stop > 15 && met.len() == 3, "{stop} calls, {met:?}");
    }
}

/// The new one is like the old one, which goes.
#[test]
fn a_directory_removed_and_made_again_is_another_wherever_it_is_stopped() {
    if !able() {
        return;
    }
    let (mut stop, mut finished) = (0, 0);
    loop {
        let pair = Pair::new(|root| {
            fs::create_dir(root.join("d")).unwrap();
            chmod(&root.join("d"), 0o755);
            chown(&root.join("d"), 5, 5);
            for name in ["d/f", "d/g"] {
                fs::write(root.join(name), name).unwrap();
            }
        });
        let [d, f, g, x] = ["d", "d/f", "d/g", "x"].map(|name| pair.host.join(name));
        let ops = [
            SmallOp::Remove { path: &f },
            SmallOp::Rename { from: &g, to: &x, replace: false },
            SmallOp::RemoveDir { path: &d },
            SmallOp::CreateDir { path: &d, mode: 0o755 },
        ];
        let store = pair.store();
        let killer = Rc::new(RefCell::new(KillAt(stop)));
        let done = watched(killer.clone(), || {
            let done = store.commit_small(&ops, &DURABLE, &mut || Ok(()));
            drop(store);
            done.is_ok()
        });
        let report = recover(&pair.open_state()).unwrap();
        assert!(report.finished.iter().all(|done| done.kept.is_empty()), "{stop}: {report:?}");
        finished += report.finished.len();
        let now = (f.exists(), g.exists(), x.exists());
        if done || !report.finished.is_empty() || now.2 {
            assert_eq!(now, (false, false, true), "call {stop}");
            assert_ne!(fs::metadata(&d).unwrap().uid(), 5, "call {stop}: the old directory");
        } else {
            assert_eq!(now, (true, true, false), "call {stop}");
        }
        if killer.borrow().0 > 0 {
            break;
        }
        stop += 1;
    }
    assert!(finished > 2, "{finished} of {stop} stops were behind the record");
}

#[test]
fn what_went_along_with_a_directory_that_it_had_left_is_found() {
    let mut found = 0;
    for stop in 0..100 {
        let pair = Pair::new(|root| {
            fs::create_dir_all(root.join("d/e")).unwrap();
            fs::write(root.join("d/e/b"), "inner").unwrap();
            fs::write(root.join("d/b"), "outer").unwrap();
        });
        let [inner, outer, e, n] = ["d/e/b", "d/b", "d/e", "n"].map(|name| pair.host.join(name));
        let ops = [
            SmallOp::Rename { from: &inner, to: &outer, replace: true },
            SmallOp::Rename { from: &e, to: &n, replace: false },
        ];
        let store = pair.store();
        watched(Rc::new(RefCell::new(KillAt(stop))), || {
            let _ = store.commit_small(&ops, &DURABLE, &mut || Ok(()));
            drop(store);
        });
        if !inner.exists() {
            break;
        }
        // The power cut kept this one, and lost the one before it.
        fs::rename(&e, &n).unwrap();
        let report = recover(&pair.open_state()).unwrap();
        let [finished] = &report.finished[..] else { continue };
        assert_eq!(finished.kept, [], "call {stop}");
        assert_eq!(fs::read_to_string(&outer).unwrap(), "inner");
        assert!(n.is_dir() && !n.join("b").exists() && !e.exists());
        found += 1;
    }
    assert!(found > 0, "it was never killed between its record and its names");
}
