//! Power cuts by the thousand: random transactions are recorded call by call, every state that a
//! power cut may leave (see `model`) is rebuilt, recovered, and compared: all or nothing, what was
//! committed is there, nothing is left over.
//!
//! A short run with a fresh seed, which it prints, is part of the tests. The long one:
//!
//! ```sh
//! TXOS_IMAGES=100000 cargo test --release -p txos-store images -- --nocapture
//! TXOS_SEED=… repeats it, with TXOS_RUN=… from that run on
//! ```

mod model;
mod puppet;
mod recorder;
mod recovery;
mod rng;
mod views;

use std::{
    cell::RefCell,
    collections::HashSet,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    rc::Rc,
    time::{Instant, SystemTime},
};

use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use self::{
    model::Order,
    recorder::{Recorder, gather, set_aside},
    rng::Rng,
};
use super::{
    small::DURABLE,
    world::{Scan, scan},
};
use crate::{
    Privilege, SmallOp, StateDir, Store, recover,
    sys::watch::{Call, Fate, Watcher, watched},
};

/// Directories on two file systems in memory, each with a vault beside it.
pub(super) struct Ground {
    _dirs: [tempfile::TempDir; 2],
    /// The first holds the state directory and a tree, the second another tree.
    bases: [PathBuf; 2],
}

impl Ground {
    /// In a mount namespace of the caller's own; `None` if the caller is not root.
    fn new() -> Option<Ground> {
        if !super::world::able() {
            return None;
        }
        let make = || {
            let dir = tempfile::tempdir().unwrap();
            let base = fs::canonicalize(dir.path()).unwrap();
            mount("tmpfs", &base, "tmpfs", MountFlags::empty(), None).unwrap();
            for name in ["host", "vault"] {
                fs::create_dir(base.join(name)).unwrap();
            }
            (dir, base)
        };
        let ((one, first), (other, more)) = (make(), make());
        Some(Ground { _dirs: [one, other], bases: [first, more] })
    }

    pub(super) fn hosts(&self) -> [PathBuf; 2] {
        [0, 1].map(|index| self.bases[index].join("host"))
    }

    pub(super) fn state(&self) -> StateDir {
        StateDir::open(self.bases[0].join("state"), Privilege::Root).unwrap()
    }

    fn roots(&self) -> Vec<PathBuf> {
        let mut roots = vec![self.bases[0].join("state")];
        roots.extend(self.hosts());
        roots
    }

    fn recorder(&self, fresh: &[PathBuf]) -> Recorder {
        let vault = |root: &Path| root.parent().unwrap().join("vault");
        let roots: Vec<_> =
            self.roots().into_iter().map(|root| (root.clone(), vault(&root))).collect();
        Recorder::new(&roots, fresh)
    }

    fn looks(&self) -> Vec<Scan> {
        self.hosts().iter().map(|host| scan(host)).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for base in &self.bases {
            let _ = unmount(base, UnmountFlags::DETACH);
        }
    }
}

/// A recorded run: the states that it went through, and when each was promised to be lasting.
pub(super) struct Run {
    pub ground: Ground,
    recorder: Rc<RefCell<Recorder>>,
    pub states: Vec<Vec<Scan>>,
    /// How many events had happened when a commit returned.
    promised: Vec<usize>,
    /// What the commits were, for who looks into a failure.
    steps: Vec<String>,
}

impl Run {
    pub(super) fn new(ground: Ground, fresh: &[PathBuf]) -> Run {
        let recorder = Rc::new(RefCell::new(ground.recorder(fresh)));
        let states = vec![ground.looks()];
        Run { ground, recorder, states, promised: Vec::new(), steps: Vec::new() }
    }

    /// Records `commit`; if it commits, a state has been reached.
    pub(super) fn step(&mut self, commit: impl FnOnce() -> bool) {
        self.recorder.borrow_mut().begin();
        if watched(self.recorder.clone(), commit) {
            self.states.push(self.ground.looks());
            self.promised.push(self.recorder.borrow().events.len());
        }
    }

    /// Records something that commits nothing.
    pub(super) fn aside(&mut self, act: impl FnOnce()) {
        self.recorder.borrow_mut().begin();
        watched(self.recorder.clone(), act);
    }
}

/// Recovery, of which no object gets lost.
struct Careful {
    vaults: [(u64, PathBuf); 2],
}

impl Watcher for Careful {
    fn before(&mut self, _call: &Call<'_>) -> Fate {
        Fate::Pass
    }

    fn instead(&mut self, call: &Call<'_>) -> Option<Result<(), Errno>> {
        if let Call::Flush { .. } | Call::FlushFs { .. } = call {
            return Some(Ok(()));
        }
        let Call::Unlink { at, flags } = call else { return None };
        let device = txos_host::attrs_of(at.dir).ok()?.id.dev;
        let (_, vault) = self.vaults.iter().find(|(known, _)| *known == device)?;
        Some(set_aside(at, *flags, vault))
    }
}

/// What was counted.
#[derive(Default)]
struct Tally {
    distinct: HashSet<u64>,
    runs: usize,
    transactions: usize,
    /// Images after which recovery finished something.
    finished: usize,
    /// Images that held no record of some commit yet.
    early: usize,
}

/// Rebuilds and recovers images of a run.
fn examine(run: &Run, count: usize, order: Order, rng: &mut Rng, tally: &mut Tally, name: &str) {
    let recorder = run.recorder.borrow();
    let history = recorder.history();
    let (roots, hosts) = (run.ground.roots(), run.ground.hosts());
    let state = roots[0].clone();
    fs::remove_file(state.join("journal/control")).unwrap();
    gather(&recorder, &roots);
    let device = |path: &Path| txos_host::attrs_of(fs::File::open(path).unwrap()).unwrap().id.dev;
    let vaults = [0, 1].map(|index| {
        let vault = run.ground.bases[index].join("vault");
        (device(&vault), vault)
    });
    for _ in 0..count {
        let cut = rng.below(history.events.len() + 1);
        let image = history.image(cut, order, rng);
        let mut hasher = DefaultHasher::new();
        (name, &image).hash(&mut hasher);
        if !tally.distinct.insert(hasher.finish()) {
            continue;
        }
        puppet::realize(&recorder, &roots, &image);
        let what = || format!("{name}, {order:?}, power cut after event {cut}");
        let opened = StateDir::open(&state, Privilege::Root).unwrap();
        let careful = Rc::new(RefCell::new(Careful { vaults: vaults.clone() }));
        let report = watched(careful.clone(), || recover(&opened))
            .unwrap_or_else(|error| panic!("{}: {error}", what()));
        let kept: Vec<_> = report.finished.iter().flat_map(|done| &done.kept).collect();
        assert!(kept.is_empty(), "{}: {kept:?}\n{}", what(), run.steps.join("\n"));
        let now: Vec<Scan> = hosts.iter().map(|host| scan(host)).collect();
        let reached = run.states.iter().rposition(|state| alike(state, &now));
        let reached = reached.unwrap_or_else(|| {
            panic!("{}: half a commit\n{}{}", what(), run.steps.join("\n"), difference(run, &now))
        });
        let promised = run.promised.iter().filter(|events| **events <= cut).count();
        assert!(reached >= promised, "{}: {reached} of {promised} commits", what());
        assert!(reached <= run.states.len(), "{}: {reached}", what());
        let again = watched(careful, || recover(&opened)).unwrap();
        assert!(again.is_empty(), "{}: recovered twice: {again:?}", what());
        let left = fs::read_dir(state.join("tx")).unwrap().count();
        assert_eq!(left, 0, "{}: left over", what());
        tally.finished += usize::from(!report.finished.is_empty());
        tally.early += usize::from(reached + 1 < run.states.len());
        let _ = fs::remove_file(state.join("journal/control"));
        clear_asides(&recorder, &vaults);
    }
}

/// What recovery dropped: objects of the run go back to their places in the vault, others go.
fn clear_asides(recorder: &Recorder, vaults: &[(u64, PathBuf)]) {
    for (_, vault) in vaults {
        for entry in fs::read_dir(vault).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_string_lossy().starts_with("aside-") {
                continue;
            }
            let home = recorder::identify(recorder, &path).map(|node| recorder.vault(node));
            match home {
                Some(home) if fs::symlink_metadata(&home).is_err() => {
                    fs::rename(&path, &home).unwrap();
                }
                _ if path.is_dir() && !path.is_symlink() => fs::remove_dir_all(&path).unwrap(),
                _ => fs::remove_file(&path).unwrap(),
            }
        }
    }
}

/// Whether trees are alike but for times, and for counts of links, which the vault raises.
fn alike(one: &[Scan], other: &[Scan]) -> bool {
    one.iter().map(plain).eq(other.iter().map(plain))
}

fn plain(scan: &Scan) -> Vec<impl PartialEq + std::fmt::Debug> {
    scan.iter()
        .map(|(path, item)| {
            let attrs = &item.attrs;
            let what = (item.content.clone(), item.link.clone(), item.xattrs.clone());
            (path.clone(), attrs.kind, attrs.perm, (attrs.uid, attrs.gid), what)
        })
        .collect()
}

fn difference(run: &Run, now: &[Scan]) -> String {
    let mut text = String::new();
    for (number, state) in run.states.iter().enumerate() {
        for (was, is) in state.iter().zip(now) {
            let short = |scan: &Scan| {
                let item = |(path, item): (&PathBuf, &super::world::Item)| {
                    let content = item.content.as_ref().map(|bytes| runs(bytes));
                    format!(
                        "{} {:o} {content:?} {:?}",
                        path.display(),
                        item.attrs.perm,
                        item.xattrs
                    )
                };
                scan.iter().map(item).collect::<Vec<_>>()
            };
            let (was, is) = (short(was), short(is));
            for line in was.iter().filter(|line| !is.contains(line)) {
                text.push_str(&format!("state {number}: - {line}\n"));
            }
            for line in is.iter().filter(|line| !was.contains(line)) {
                text.push_str(&format!("state {number}: + {line}\n"));
            }
        }
    }
    text
}

/// Bytes as numbers and how often each comes: `111*10 0*4086`.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|one, other| one == other);
    let shown = runs.take(12).map(|run| format!("{}*{}", run[0], run.len()));
    shown.collect::<Vec<_>>().join(" ")
}

fn setup(root: &Path) {
    fs::create_dir_all(root.join("d/e")).unwrap();
    for (name, size) in [("a", 10), ("b", 9000), ("d/a", 5000), ("d/e/b", 0)] {
        fs::write(root.join(name), vec![b'o'; size]).unwrap();
    }
    fs::hard_link(root.join("a"), root.join("d/b")).unwrap();
}

const NAMES: [&str; 14] =
    ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/b", "d/e/c", "n", "n/a", "n/e", "n/e/b", "d/n"];

/// One operation; many fail, and are left out of their commit.
enum Draft {
    Bytes(u8, PathBuf, u64, Vec<u8>),
    Two(u8, PathBuf, PathBuf),
    Value(u8, PathBuf, u64),
}

fn random_op(rng: &mut Rng, hosts: &[PathBuf; 2]) -> Draft {
    let host = rng.of(hosts).clone();
    let path = host.join(rng.of(&NAMES));
    let sizes = [1, 20, 700, 4096, 5000, 30_000];
    match rng.below(14) {
        kind @ 0..=5 => {
            let bytes = vec![rng.next() as u8; *rng.of(&sizes)];
            Draft::Bytes(kind as u8, path, rng.next() % 12_000, bytes)
        }
        kind @ 6..=8 => Draft::Two(kind as u8, path, host.join(rng.of(&NAMES))),
        kind => Draft::Value(kind as u8, path, rng.next()),
    }
}

impl Draft {
    fn shown(&self) -> String {
        match self {
            Draft::Bytes(kind, path, at, bytes) => {
                format!("{kind} {} at {at}: {}", path.display(), runs(bytes))
            }
            Draft::Two(kind, from, to) => format!("{kind} {} {}", from.display(), to.display()),
            Draft::Value(kind, path, value) => format!("{kind} {} {value}", path.display()),
        }
    }

    fn op(&self) -> SmallOp<'_> {
        match self {
            Draft::Bytes(0, path, offset, bytes) => SmallOp::Write { path, offset: *offset, bytes },
            Draft::Bytes(1, path, _, bytes) => SmallOp::Append { path, bytes },
            Draft::Bytes(2, path, _, bytes) => SmallOp::Replace { path, bytes },
            Draft::Bytes(_, path, offset, bytes) => {
                SmallOp::Create { path, bytes, mode: 0o600 + (*offset as u32 & 0o77) }
            }
            Draft::Two(6, from, to) => SmallOp::Link { from, to },
            Draft::Two(_, from, to) => SmallOp::Rename { from, to, replace: true },
            Draft::Value(9, path, _) => SmallOp::Remove { path },
            Draft::Value(10, path, value) => SmallOp::Truncate { path, size: value % 12_000 },
            Draft::Value(11, path, value) if value & 1 == 0 => {
                SmallOp::CreateDir { path, mode: 0o700 + (*value as u32 & 0o70) }
            }
            Draft::Value(11, path, _) => SmallOp::RemoveDir { path },
            Draft::Value(12, path, value) if value & 1 == 0 => {
                SmallOp::SetXattr { path, name: c"user.x", value: Some(b"value") }
            }
            Draft::Value(12, path, _) => SmallOp::Symlink { path, target: Path::new("t") },
            Draft::Value(_, path, value) => {
                SmallOp::SetMode { path, mode: 0o600 + (*value as u32 & 0o77) }
            }
        }
    }
}

/// Random small commits, some of them to the same files, none flushed but by its record.
fn small_run(ground: Ground, rng: &mut Rng) -> Run {
    let hosts = ground.hosts();
    hosts.iter().for_each(|host| setup(host));
    let store = Store::open(ground.state()).unwrap();
    store.checkpoint().unwrap();
    let mut run = Run::new(ground, &[]);
    for _ in 0..1 + rng.below(4) {
        let count = 1 + rng.below(6);
        let mut drafts: Vec<Draft> = (0..count).map(|_| random_op(rng, &hosts)).collect();
        run.step(|| {
            loop {
                let ops: Vec<SmallOp<'_>> = drafts.iter().map(Draft::op).collect();
                match store.commit_small(&ops, &DURABLE, &mut || Ok(())) {
                    Ok(done) => {
                        assert!(done.kept.is_empty(), "{done:?}");
                        return true;
                    }
                    Err(crate::StoreError::Operation { index, .. }) => drop(drafts.remove(index)),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let shown: Vec<String> = drafts.iter().map(Draft::shown).collect();
        run.steps.push(format!("commit:\n  {}", shown.join("\n  ")));
    }
    run.aside(|| drop(store));
    run
}

fn seed() -> u64 {
    let given = std::env::var("TXOS_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    })
}

#[test]
fn images_of_power_cuts_recover_whole() {
    super::world::in_private_namespace(power_cuts);
}

/// What was in a directory that goes is nowhere else on the disk before its new place is.
#[test]
fn what_was_taken_out_of_a_removed_directory_survives_a_power_cut() {
    super::world::in_private_namespace(|| {
        let mut tally = Tally::default();
        for order in [Order::Ordered, Order::Unordered] {
            let Some(ground) = Ground::new() else { return };
            crate::sys::watch::pass_for_ordered(order == Order::Ordered);
            let [host, _] = ground.hosts();
            setup(&host);
            let store = Store::open(ground.state()).unwrap();
            store.checkpoint().unwrap();
            let mut run = Run::new(ground, &[]);
            run.step(|| {
                let (from, to, dir) = (host.join("d/e/b"), host.join("a"), host.join("d/e"));
                let ops = [
                    SmallOp::Rename { from: &from, to: &to, replace: true },
                    SmallOp::RemoveDir { path: &dir },
                ];
                store.commit_small(&ops, &DURABLE, &mut || Ok(())).unwrap().kept.is_empty()
            });
            run.aside(|| drop(store));
            assert_eq!(run.promised.len(), 1);
            examine(&run, 300, order, &mut Rng::new(7), &mut tally, &format!("{order:?}"));
        }
        crate::sys::watch::pass_for_ordered(false);
        assert!(tally.finished > 0, "nothing was left to a recovery");
    });
}

/// Cuts the runs that `make` makes, each at `each` places of those that are wanted, until there are as many
/// distinct images as `TXOS_IMAGES` says, or `few`; as root alone, without whom there are none.
fn cuts(
    few: usize,
    each: impl Fn(usize) -> usize,
    mut make: impl FnMut(usize, Ground, &mut Rng) -> Option<Run>,
) -> Tally {
    let given = |name| std::env::var(name).ok().and_then(|count| count.parse().ok());
    let wanted: usize = given("TXOS_IMAGES").unwrap_or(few);
    let seed = seed();
    println!("TXOS_SEED={seed}");
    let mut tally = Tally { runs: given("TXOS_RUN").unwrap_or(0), ..Tally::default() };
    while tally.distinct.len() < wanted {
        let mut rng = Rng::new(seed ^ (tally.runs as u64) << 32);
        let Some(ground) = Ground::new() else { break };
        let order = if rng.half() { Order::Ordered } else { Order::Unordered };
        crate::sys::watch::pass_for_ordered(order == Order::Ordered);
        let name = format!("TXOS_SEED={seed} run {}", tally.runs);
        let run = make(tally.runs, ground, &mut rng);
        tally.runs += 1;
        let Some(run) = run else { continue };
        tally.transactions += run.promised.len().max(1);
        examine(&run, each(wanted), order, &mut rng, &mut tally, &name);
    }
    crate::sys::watch::pass_for_ordered(false);
    tally
}

fn power_cuts() {
    let start = Instant::now();
    let mut views = 0;
    let tally = cuts(
        1000,
        |wanted| (wanted / 250).max(40),
        |number, ground, rng| {
            let view = number % 3 == 2;
            let run = if view { views::run(ground, rng) } else { Some(small_run(ground, rng)) };
            views += usize::from(view && run.is_some());
            run
        },
    );
    if tally.runs == 0 {
        return;
    }
    assert!(views > 0, "of {} runs none was of a view", tally.runs);
    println!(
        "{} distinct images of {} transactions ({} of views), {} finished by recovery, {} before the last commit, in {:.0?}",
        tally.distinct.len(),
        tally.transactions,
        views,
        tally.finished,
        tally.early,
        start.elapsed()
    );
}
