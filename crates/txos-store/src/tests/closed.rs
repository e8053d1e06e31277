//! An ordinary user's commits of directories that keep him out in the end, stopped anywhere and recovered.

use std::{cell::RefCell, fs, panic::resume_unwind, path::Path, rc::Rc, thread};

use rustix::{
    fs::Gid,
    process::{Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};

use super::{
    small::{Commit, DURABLE, Pair, like},
    world::{Scan, chmod, chown, scan},
};
use crate::{
    SmallOp, recover,
    sys::watch::{KillAt, watched},
};

const USER: u32 = 65534;

/// Acts in a thread that has no privilege.
fn as_user(act: impl FnOnce() + Send) {
    let act = || {
        if geteuid().is_root() {
            let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
        }
        act();
    };
    thread::scope(|scope| scope.spawn(act).join()).unwrap_or_else(|panic| resume_unwind(panic));
}

/// Makes some commits in a directory.
type Commits = fn(&Path, &mut Commit<'_>);

/// The one that closes the directory comes after the one that makes a file in it.
fn across_records(root: &Path, commit: &mut Commit<'_>) {
    let [d, f, g, x] = ["d", "d/f", "d/g", "x"].map(|name| root.join(name));
    commit(&[SmallOp::Create { path: &f, bytes: b"f", mode: 0o640 }]);
    commit(&[SmallOp::SetMode { path: &d, mode: 0o200 }]);
    commit(&[
        SmallOp::SetMode { path: &d, mode: 0o700 },
        SmallOp::Create { path: &x, bytes: b"x", mode: 0o640 },
    ]);
    commit(&[SmallOp::Create { path: &g, bytes: b"g", mode: 0o640 }]);
}

/// A directory in a new one, both of them closed.
fn within_one_record(root: &Path, commit: &mut Commit<'_>) {
    let [d, f, m, inner] = ["d", "d/f", "m", "m/d"].map(|name| root.join(name));
    commit(&[SmallOp::Create { path: &f, bytes: b"f", mode: 0o640 }]);
    commit(&[
        SmallOp::CreateDir { path: &m, mode: 0o750 },
        SmallOp::Rename { from: &d, to: &inner, replace: false },
        SmallOp::SetMode { path: &inner, mode: 0o200 },
        SmallOp::SetMode { path: &m, mode: 0o200 },
    ]);
}

fn pair() -> Pair {
    let pair = Pair::new(|root| {
        fs::create_dir(root.join("d")).unwrap();
        chmod(&root.join("d"), 0o755);
    });
    if geteuid().is_root() {
        let base = pair.host.parent().unwrap();
        for path in [base, &pair.host, &pair.host.join("d")] {
            chown(path, USER, USER);
        }
    }
    pair
}

/// Commits as the user, the process dying before change `stop` to the disk; tells how many commits were done,
/// and whether it died. Nothing is checkpointed, as after a power cut.
fn stopped_at(stop: u64, pair: &Pair, commits: Commits) -> (usize, bool) {
    let mut told = (0, false);
    as_user(|| {
        let store = pair.store();
        let killer = Rc::new(RefCell::new(KillAt(stop)));
        watched(killer.clone(), || {
            commits(&pair.host, &mut |ops| {
                told.0 += usize::from(store.commit_small(ops, &DURABLE, &mut || Ok(())).is_ok());
            });
        });
        told.1 = killer.borrow().0 == 0;
        watched(Rc::new(RefCell::new(KillAt(0))), || drop(store));
    });
    fs::remove_file(pair.state.join("journal/control")).unwrap();
    told
}

/// The trees between the commits, of a store that nothing stops.
fn states(commits: Commits) -> Vec<Scan> {
    let pair = pair();
    let store = pair.store();
    let mut states = vec![scan(&pair.host)];
    commits(&pair.host, &mut |ops| {
        store.commit_small(ops, &DURABLE, &mut || Ok(())).unwrap();
        states.push(scan(&pair.host));
    });
    states
}

fn recover_wholly(pair: &Pair, told: &str) {
    let report = recover(&pair.open_state()).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert!(report.finished.iter().all(|done| done.kept.is_empty()), "{told}: {report:?}");
}

fn stopped_anywhere(commits: Commits) {
    let states = states(commits);
    for stop in 0.. {
        let pair = pair();
        let (told, died) = stopped_at(stop, &pair, commits);
        as_user(|| recover_wholly(&pair, &format!("call {stop}")));
        let now = scan(&pair.host);
        let state = states.iter().position(|state| like(state, &now));
        assert!(state.is_some_and(|state| state >= told), "call {stop}: {state:?}, {told} told");
        if !died {
            assert!(stop > 5 && told == states.len() - 1, "{stop}, {told}");
            return;
        }
    }
}

#[test]
fn a_later_record_closes_what_an_earlier_one_needs() {
    stopped_anywhere(across_records);
}

#[test]
fn a_closed_directory_in_a_new_closed_one() {
    stopped_anywhere(within_one_record);
}

/// What the user's recovery has opened is no stranger's doing for root's.
#[test]
fn root_goes_on_where_a_users_recovery_died() {
    for commits in [across_records as Commits, within_one_record] {
        let states = states(commits);
        for stop in 0.. {
            let pair = pair();
            stopped_at(u64::MAX, &pair, commits);
            let mut died = false;
            as_user(|| {
                let killer = Rc::new(RefCell::new(KillAt(stop)));
                died = watched(killer, || recover(&pair.open_state())).is_err();
            });
            chown(&pair.state, geteuid().as_raw(), USER);
            let told = format!("call {stop} of the recovery");
            recover_wholly(&pair, &told);
            assert!(like(&states[states.len() - 1], &scan(&pair.host)), "{told}");
            if !died {
                break;
            }
        }
    }
}
