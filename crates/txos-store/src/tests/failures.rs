//! Each call of a commit fails once, with each error: what the commit says is true.
//!
//! | said | must hold |
//! |---|---|
//! | committed | all of it is there |
//! | not finished | all of it is there after a recovery |
//! | not known (`Undecided`) | after a recovery all of it is there, or nothing |
//! | anything else | nothing of it is there, before and after a recovery |
//!
//! And after the recovery the store takes the next commit. With `TXOS_FAULTS=all` a view's commit
//! meets each error at each call, otherwise two of them at each; small commits always meet all. A disk
//! that is gone fails a call and all after it that need the disk.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, symlink},
    path::Path,
    rc::Rc,
};

use rustix::io::Errno;

use super::{
    small::{DURABLE, Pair, QUICK, like},
    world::{Scan, World, able, chmod, scan},
};
use crate::{
    NoDomain, Prepared, Result, SmallOp, SmallOptions, Store, StoreError, recover,
    sys::watch::{Call, Fate, Watcher, watched},
};

/// What a disk, a full file system, a quota, a signal, a want of memory and an odd file system give.
const FATES: [Fate; 8] = [
    Fate::Fail(Errno::IO),
    Fate::Fail(Errno::NOSPC),
    Fate::Fail(Errno::DQUOT),
    Fate::Fail(Errno::INTR),
    Fate::Fail(Errno::NOMEM),
    Fate::Fail(Errno::ACCESS),
    Fate::Fail(Errno::ROFS),
    Fate::Short,
];

/// Lets one call meet a fate.
struct FailAt {
    left: u64,
    fate: Fate,
    /// Whether every call after it that needs the disk meets the same: a disk that is gone, while
    /// names still change in memory.
    lasting: bool,
    /// Whether it came to that call.
    met: bool,
}

impl Watcher for FailAt {
    fn before(&mut self, call: &Call<'_>) -> Fate {
        let data = matches!(call, Call::Write { .. } | Call::Flush { .. } | Call::FlushFs { .. });
        if (self.met && !(self.lasting && data)) || self.left > 0 {
            self.left = self.left.saturating_sub(1);
            return Fate::Pass;
        }
        self.met = true;
        self.fate
    }
}

/// What a commit said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Committed,
    Unfinished,
    Undecided,
    Nothing,
}

fn said<T>(result: &Result<T>, unfinished: impl Fn(&T) -> bool) -> Said {
    match result {
        Ok(done) if unfinished(done) => Said::Unfinished,
        Ok(_) => Said::Committed,
        Err(StoreError::Unfinished { .. }) => Said::Unfinished,
        Err(StoreError::Undecided { .. }) => Said::Undecided,
        Err(_) => Said::Nothing,
    }
}

/// Holds what is there against what was said: `now` before a recovery, `last` after it.
fn judge(said: Said, [before, after]: [&Scan; 2], now: &Scan, last: &Scan, what: &str) {
    let whole = like(last, after);
    assert!(whole || like(last, before), "{what}: {said:?}, and half of it is there");
    match said {
        Said::Committed => {
            assert!(like(now, after), "{what}: said to be committed, and is not");
            assert!(whole, "{what}: the recovery took a commit back");
        }
        Said::Unfinished => assert!(whole, "{what}: the recovery did not finish a commit"),
        Said::Undecided => {}
        Said::Nothing => {
            assert!(like(now, before), "{what}: said not to be done, and something is");
            assert!(!whole, "{what}: said not to be committed, and the recovery made it so");
        }
    }
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("f"), vec![b'f'; 9000]).unwrap();
    fs::write(root.join("g"), "g").unwrap();
    fs::write(root.join("d/h"), "h").unwrap();
}

/// Something of every kind.
fn commit_small(store: &Store, root: &Path, options: &SmallOptions<'_>) -> Result<()> {
    let at = |name: &str| root.join(name);
    let (f, g, h, n, m) = (at("f"), at("g"), at("d/h"), at("n"), at("n/m"));
    let (l, e, k, s) = (at("d/l"), at("d/e"), at("n/k"), at("s"));
    let ops = [
        SmallOp::Write { path: &f, offset: 4000, bytes: &[b'1'; 200] },
        SmallOp::Append { path: &f, bytes: &[b'2'; 3000] },
        SmallOp::CreateDir { path: &n, mode: 0o750 },
        SmallOp::Create { path: &m, bytes: &[b'n'; 6000], mode: 0o640 },
        SmallOp::Link { from: &m, to: &k },
        SmallOp::Symlink { path: &s, target: Path::new("t") },
        SmallOp::Rename { from: &h, to: &g, replace: true },
        SmallOp::Link { from: &f, to: &l },
        SmallOp::RemoveDir { path: &e },
        SmallOp::SetMode { path: &f, mode: 0o600 },
    ];
    store.commit_small(&ops, options, &mut || Ok(())).map(|done| {
        assert_eq!(done.kept, []);
    })
}

#[test]
fn a_small_commit_says_the_truth_whichever_call_fails() {
    let met = fail_small(&FATES, false);
    assert!(met.contains(&Said::Nothing) && met.contains(&Said::Unfinished), "{met:?}");
}

#[test]
fn a_small_commit_says_the_truth_of_a_disk_that_is_gone() {
    let met = fail_small(&[Fate::Fail(Errno::IO)], true);
    assert!(met.contains(&Said::Undecided), "{met:?}");
}

/// What was said when each call met each of the fates.
fn fail_small(fates: &[Fate], lasting: bool) -> BTreeSet<Said> {
    let pair = Pair::new(tree);
    let before = scan(&pair.host);
    commit_small(&pair.store(), &pair.host, &DURABLE).unwrap();
    let after = scan(&pair.host);
    let mut met = BTreeSet::new();
    let both = [DURABLE, QUICK];
    for (options, fate) in both.iter().flat_map(|options| fates.iter().map(move |f| (options, *f)))
    {
        for call in 0.. {
            let durable = options.durable;
            let what = format!("call {call} with {fate:?}, lasting: {lasting}, durable: {durable}");
            let pair = Pair::new(tree);
            let store = pair.store();
            let fault = Rc::new(RefCell::new(FailAt { left: call, fate, lasting, met: false }));
            let result = watched(fault.clone(), || commit_small(&store, &pair.host, options));
            let said = said(&result, |()| false);
            let now = scan(&pair.host);
            // As after a death: nothing is flushed at the end.
            std::mem::forget(store);
            recover(&pair.open_state()).unwrap_or_else(|error| panic!("{what}: {error}"));
            judge(said, [&before, &after], &now, &scan(&pair.host), &what);
            let g = pair.host.join("g");
            let next = [SmallOp::Append { path: &g, bytes: b"next" }];
            pair.store()
                .commit_small(&next, &DURABLE, &mut || Ok(()))
                .unwrap_or_else(|error| panic!("{what}: the next commit: {error}"));
            met.insert(said);
            if !fault.borrow().met {
                assert!(call > 10, "only {call} calls");
                break;
            }
        }
    }
    met
}

fn everything(root: &Path) {
    let f = OpenOptions::new().write(true).open(root.join("f")).unwrap();
    f.write_at(b"within", 5000).unwrap();
    fs::create_dir(root.join("n")).unwrap();
    fs::write(root.join("n/m"), vec![b'n'; 6000]).unwrap();
    fs::hard_link(root.join("n/m"), root.join("n/k")).unwrap();
    symlink("t", root.join("s")).unwrap();
    fs::rename(root.join("d/h"), root.join("g")).unwrap();
    fs::rename(root.join("d/e"), root.join("n/e")).unwrap();
    fs::remove_dir(root.join("d")).unwrap();
    chmod(&root.join("f"), 0o600);
}

#[test]
fn a_views_commit_says_the_truth_whichever_call_fails() {
    if able() {
        fail_everywhere(&|| World::new(tree), None);
    }
}

#[test]
fn a_views_commit_across_file_systems_says_the_truth_whichever_call_fails() {
    if able() {
        fail_everywhere(&|| World::across(tree), None);
    }
}

#[test]
fn a_views_commit_across_file_systems_says_the_truth_of_a_disk_that_is_gone() {
    if able() {
        let met = fail_everywhere(&|| World::across(tree), Some(Fate::Fail(Errno::IO)));
        assert!(met.contains(&Said::Undecided), "{met:?}");
    }
}

/// Each call of a view's commit meets a fate: `lasting` from there on, or one after the other once.
fn fail_everywhere(make: &dyn Fn() -> World, lasting: Option<Fate>) -> BTreeSet<Said> {
    let all =
        lasting.is_none() && std::env::var_os("TXOS_FAULTS").is_some_and(|value| value == "all");
    let mut met = BTreeSet::new();
    let rounds = match (lasting, all) {
        (Some(_), _) => 1,
        (None, true) => FATES.len(),
        (None, false) => 2,
    };
    for round in 0..rounds {
        for call in 0.. {
            let fate = match (lasting, all) {
                (Some(fate), _) => fate,
                (None, true) => FATES[round],
                (None, false) => FATES[(call as usize * 2 + round) % FATES.len()],
            };
            let lasting = lasting.is_some();
            let what = format!("call {call} with {fate:?}, lasting: {lasting}");
            let world = make();
            let origins = world.inodes();
            let before = scan(&world.host);
            let tx = world.run(&everything);
            let delta = world.extract(&tx, &origins).unwrap();
            let lock = world.state.try_lock("test").unwrap();
            let fault = Rc::new(RefCell::new(FailAt { left: call, fate, lasting, met: false }));
            let result = watched(fault.clone(), || {
                let mut prepared = Prepared::stage(&world.state, tx, delta)?;
                prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true)
            });
            let said = said(&result, |done| done.unfinished.is_some());
            drop(lock);
            let now = scan(&world.host);
            recover(&world.state).unwrap_or_else(|error| panic!("{what}: {error}"));
            everything(&world.native);
            let after = scan(&world.native);
            judge(said, [&before, &after], &now, &scan(&world.host), &what);
            let left = fs::read_dir(world.state.path().join("tx")).unwrap().count();
            assert_eq!(left, 0, "{what}: left over");
            met.insert(said);
            if !fault.borrow().met {
                assert!(call > 10, "only {call} calls");
                break;
            }
        }
    }
    assert!(met.contains(&Said::Nothing) && met.contains(&Said::Committed), "{met:?}");
    met
}
