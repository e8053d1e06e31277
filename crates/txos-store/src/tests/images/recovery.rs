//! Power cuts while a recovery finishes what an earlier one left.

use std::{cell::RefCell, fs, rc::Rc};

use super::{Ground, Rng, Run, cuts};
use crate::{
    SmallOp, Store, recover,
    sys::watch::{KillAt, dead, watched},
    tests::small::DURABLE,
};

/// Commits of which a power cut left only the records, and a recovery of them, of which each call is
/// recorded.
fn run(ground: Ground, rng: &mut Rng) -> Run {
    let hosts = ground.hosts();
    let store = Store::open(ground.state()).unwrap();
    let commits = 1 + rng.below(2);
    for commit in 0..commits {
        let dir = hosts[1].join(format!("d{commit}"));
        let mut paths = vec![dir.join("in"), dir.join("in2")];
        let count = *rng.of(&[1, 5, 20, 60]);
        paths.extend((0..count).map(|number| {
            let host = if rng.below(4) == 0 { &hosts[1] } else { &hosts[0] };
            host.join(format!("{commit}-{number}"))
        }));
        // Not so much that the segment gets half full: the commits before would be flushed then.
        let size = |number| if number == 0 { 5000 } else { 1 + number * 7 };
        let bytes: Vec<Vec<u8>> =
            (0..paths.len()).map(|number| vec![b'a' + commit as u8; size(number)]).collect();
        let mut ops = vec![SmallOp::CreateDir { path: &dir, mode: 0o755 }];
        ops.extend(paths.iter().zip(&bytes).map(|(path, bytes)| SmallOp::Create {
            path,
            bytes,
            mode: 0o640,
        }));
        let link = hosts[0].join(format!("link{commit}"));
        if paths.last().is_some_and(|last| last.starts_with(&hosts[0])) {
            ops.push(SmallOp::Link { from: &paths[paths.len() - 1], to: &link });
        }
        store.commit_small(&ops, &DURABLE, &mut || Ok(())).unwrap();
    }
    let whole = ground.looks();
    // Its process has died before it could close it, the shared page is gone, and so is what was not flushed.
    watched(Rc::new(RefCell::new(KillAt(0))), || {
        assert!(store.checkpoint().is_err() && dead());
        drop(store);
    });
    fs::remove_file(ground.roots()[0].join("journal/control")).unwrap();
    for host in &hosts {
        for entry in fs::read_dir(host).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.unwrap();
        }
    }
    let state = ground.state();
    let mut run = Run::new(ground, &[]);
    run.aside(|| {
        let report = recover(&state).unwrap();
        assert_eq!(report.finished.len(), commits);
        assert!(report.finished.iter().all(|done| done.kept.is_empty()), "{report:?}");
    });
    run.states.push(whole);
    // It was promised before.
    run.promised.push(0);
    run
}

#[test]
fn power_cuts_in_a_recovery_lose_nothing() {
    crate::tests::world::in_private_namespace(power_cuts);
}

fn power_cuts() {
    let images = cuts(100, |_| 20, |_, ground, rng| Some(run(ground, rng)));
    println!("{} images of recoveries", images.distinct.len());
}
