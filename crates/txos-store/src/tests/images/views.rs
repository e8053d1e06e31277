//! Transactions of a view: the commit of a delta, with what is staged and what is copied to another
//! file system.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, symlink},
    path::Path,
};

use txos_host::Tree;

use super::{Ground, Run, rng::Rng, setup};
use crate::{Delta, ExtractOptions, NoDomain, Prepared, Store, StoreError, tests::world};

/// What a command may do; what fails is left out.
fn act(root: &Path, choices: &[(usize, usize, usize)]) {
    let names = ["a", "b", "d/a", "d/b", "d/e/b", "n", "d/n", "m", "d"];
    for (kind, one, other) in choices {
        let (path, to) = (root.join(names[one % 8]), root.join(names[other % 8]));
        match kind {
            0 => drop(fs::write(&path, vec![*other as u8; 1 + other * 97])),
            1 => {
                let file = OpenOptions::new().write(true).open(&path);
                drop(file.and_then(|file| file.write_at(b"within", *other as u64 * 31)));
            }
            2 => drop(fs::remove_file(&path)),
            3 => drop(fs::rename(&path, &to)),
            4 => drop(fs::hard_link(&path, &to)),
            5 => drop(symlink("target", &path)),
            6 => drop(
                fs::create_dir_all(root.join("new/sub"))
                    .and_then(|()| fs::write(root.join("new/sub/x"), vec![7; other * 50])),
            ),
            7 => drop(fs::rename(root.join("d/e"), root.join("moved"))),
            8 if path.is_file() && !path.is_symlink() => world::chmod(&path, 0o640),
            _ => drop(fs::remove_dir_all(root.join("d/e"))),
        }
    }
}

/// Runs a random command in a view of one of the trees and commits it. `None` if its delta is
/// refused: the overlay cannot name the origin of every copy here.
pub(super) fn run(ground: Ground, rng: &mut Rng) -> Option<Run> {
    let hosts = ground.hosts();
    for host in &hosts {
        setup(host);
        // Of a file with several names the overlay can't tell the origin on a file system in memory.
        fs::remove_file(host.join("d/b")).unwrap();
    }
    let state = ground.state();
    drop(Store::open(ground.state()).unwrap());
    // The second tree lies on another file system than the state directory.
    let host = hosts[rng.below(2)].clone();
    let count = 1 + rng.below(6);
    let choices: Vec<_> =
        (0..count).map(|_| (rng.below(10), rng.below(64), rng.below(64))).collect();
    let view = host.parent().unwrap().join("view");
    let origins = world::inodes_of(&host);
    let tx = world::run_in(&state, &host, &view, world::FULL, &|root| act(root, &choices));
    let tree = Tree::open(&host).unwrap();
    let options = ExtractOptions::new(state.privilege(), tx.meta.started);
    let delta = match Delta::extract(&tx.meta.layers, &tree, &origins, &options) {
        Err(StoreError::Refused { .. }) => return None,
        other => other.unwrap(),
    };
    let lock = state.try_lock("test").unwrap();
    let fresh = vec![tx.path().to_owned()];
    let mut run = Run::new(ground, &fresh);
    let state = run.ground.state();
    run.step(|| {
        let mut prepared = Prepared::stage(&state, tx, delta).unwrap();
        let done = prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true).unwrap();
        assert!(done.kept.is_empty(), "{done:?}");
        assert_eq!(done.unfinished, None);
        drop(prepared);
        true
    });
    Some(run)
}
