//! What cannot be applied is refused before anything is.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::{
    fs::{CWD, FileType, Mode, makedev, mknodat},
    io::Errno,
};
use txos_host::Tree;

use super::world::{World, able, chmod, same, scan};
use crate::{Delta, ExtractOptions, Privilege, Result, StoreError};

fn tree(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    for file in ["file", "dir/a", "dir/sub/b"] {
        fs::write(root.join(file), file).unwrap();
    }
}

/// Runs `inside` in a view, `prepare` on the host, and gives why the commit is refused; the host
/// must be as it was.
fn refused(inside: &(dyn Fn(&Path) + Sync), prepare: impl Fn(&Path)) -> (String, PathBuf) {
    let world = World::new(tree);
    let origins = world.inodes();
    let tx = world.run(inside);
    prepare(&world.host);
    let before = scan(&world.host);
    let delta = world.extract(&tx, &origins).unwrap();
    let result = world.commit(tx, delta);
    same(&before, &scan(&world.host), &before, &before);
    let _ = Command::new("chattr").args(["-R", "-i", "-a"]).arg(&world.host).status();
    match result {
        Err(StoreError::Refused { path, reason, .. }) => (reason, path),
        other => panic!("not refused: {other:?}"),
    }
}

fn chattr(flag: &str, path: &Path) -> bool {
    Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
}

#[test]
fn immutable_targets() {
    let probe = tempfile::tempdir().unwrap();
    if !able() || !chattr("+i", probe.path()) || !chattr("-i", probe.path()) {
        eprintln!("Skip: no chattr here");
        return;
    }
    let write = |root: &Path| fs::write(root.join("file"), "x").unwrap();
    let chmods = |root: &Path| chmod(&root.join("file"), 0o600);
    let remove = |root: &Path| fs::remove_file(root.join("file")).unwrap();
    let create = |root: &Path| fs::write(root.join("dir/new"), "x").unwrap();
    let lock = |name: &'static str, flag: &'static str| {
        move |host: &Path| assert!(chattr(flag, &host.join(name)))
    };
    let acts: [&(dyn Fn(&Path) + Sync); 4] = [&write, &chmods, &remove, &create];
    for (act, name) in acts.into_iter().zip(["file", "file", "file", "dir"]) {
        let (reason, path) = refused(act, lock(name, "+i"));
        assert!(reason.contains("immutable"), "{reason}");
        assert_eq!(path.file_name().unwrap(), name);
    }
    let (reason, _) = refused(&remove, lock("file", "+a"));
    assert!(reason.contains("append-only"), "{reason}");
}

#[test]
fn running_programs() {
    if !able() {
        return;
    }
    let world = World::new(|root| {
        // By another process: a descriptor for writing that a neighbour test's child inherits
        // would keep the copy from being executed.
        let copied = Command::new("cp").arg("/bin/sleep").arg(root.join("sleep")).status();
        assert!(copied.unwrap().success());
    });
    let origins = world.inodes();
    let tx = world.run(&|root| fs::write(root.join("sleep"), "x").unwrap());
    let mut child = Command::new(world.host.join("sleep")).arg("60").spawn().unwrap();
    let delta = world.extract(&tx, &origins).unwrap();
    let result = world.commit(tx, delta);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        matches!(&result, Err(StoreError::Refused { reason, .. }) if reason.contains("executed")),
        "{result:?}"
    );
}

#[test]
fn protected_paths_and_mount_points() {
    if !able() {
        return;
    }
    let extract = |act: &(dyn Fn(&Path) + Sync), protect: &str| -> Result<Delta> {
        let world = World::new(tree);
        let origins = world.inodes();
        let tx = world.run(act);
        let options = ExtractOptions {
            protect: vec![PathBuf::from(protect)],
            ..ExtractOptions::new(Privilege::Root, tx.meta.started)
        };
        let host = Tree::open(&world.host).unwrap();
        Delta::extract(&tx.meta.layers, &host, &origins, &options)
    };
    let remove = |root: &Path| fs::remove_dir_all(root.join("dir")).unwrap();
    let rename = |root: &Path| fs::rename(root.join("dir"), root.join("d2")).unwrap();
    let write = |root: &Path| fs::write(root.join("dir/sub/new"), "x").unwrap();
    let acts: [&(dyn Fn(&Path) + Sync); 3] = [&remove, &rename, &write];
    for act in acts {
        let result = extract(act, "/dir/sub");
        assert!(matches!(result, Err(StoreError::Refused { .. })), "{result:?}");
        assert!(extract(act, "/other").is_ok());
    }
}

#[test]
fn ignored_paths_are_left_out() {
    if !able() {
        return;
    }
    let world = World::new(tree);
    let origins = world.inodes();
    let tx = world.run(&|root| {
        fs::write(root.join("dir/stub"), "stub").unwrap();
        fs::create_dir(root.join("made")).unwrap();
        fs::write(root.join("made/stub"), "stub").unwrap();
        fs::write(root.join("made/kept"), "kept").unwrap();
    });
    let options = ExtractOptions {
        ignore: vec![PathBuf::from("/dir/stub"), PathBuf::from("/made/stub")],
        ..ExtractOptions::new(Privilege::Root, tx.meta.started)
    };
    let host = Tree::open(&world.host).unwrap();
    let delta = Delta::extract(&tx.meta.layers, &host, &origins, &options).unwrap();
    let shown = delta.to_string();
    assert_eq!(shown, "created   /made/\ncreated   /made/kept 4 bytes\n");
    world.commit(tx, delta).unwrap();
    assert!(!world.host.join("dir/stub").exists() && !world.host.join("made/stub").exists());
    assert!(world.host.join("made/kept").exists());
}

/// The capture shows a real device 0:0 under another number; it comes back as what it is.
#[test]
fn a_null_device_under_its_substitute() {
    if !able() {
        return;
    }
    let alias = makedev(0, 0xfffff);
    let device = |path: &Path, number| {
        mknodat(CWD, path, FileType::CharacterDevice, Mode::from_raw_mode(0o644), number)
    };
    let world = World::new(tree);
    if device(&world.host.join("probe"), 0) == Err(Errno::PERM) {
        eprintln!("Skip: no devices here");
        return;
    }
    let origins = world.inodes();
    let tx = world.run(&|root| device(&root.join("dir/null"), alias).unwrap());
    let options = ExtractOptions {
        null_device_alias: alias,
        ..ExtractOptions::new(Privilege::Root, tx.meta.started)
    };
    let host = Tree::open(&world.host).unwrap();
    let delta = Delta::extract(&tx.meta.layers, &host, &origins, &options).unwrap();
    world.commit(tx, delta).unwrap();
    let after = scan(&world.host);
    let made = &after[Path::new("dir/null")].attrs;
    assert_eq!((made.rdev, made.perm, made.nlink), (0, 0o644, 1));
    assert!(after.contains_key(Path::new("probe")));
}

#[test]
fn a_users_copy_of_which_nothing_tells_the_original() {
    if !able() {
        return;
    }
    let acts: [&(dyn Fn(&Path) + Sync); 3] = [
        &|root| {
            fs::rename(root.join("file"), root.join("dir/a")).unwrap();
            fs::write(root.join("dir/a"), "written").unwrap();
        },
        &|root| {
            fs::write(root.join("file"), "written").unwrap();
            fs::rename(root.join("file"), root.join("new")).unwrap();
        },
        &|root| fs::write(root.join("file"), "written").unwrap(),
    ];
    for act in acts {
        let world = World::user(tree);
        let origins = world.inodes();
        let tx = world.run(act);
        for (path, item) in scan(&tx.meta.layers[0].upper) {
            if item.xattrs.contains_key(c"user.txos.origin") {
                let path = tx.meta.layers[0].upper.join(path);
                rustix::fs::removexattr(path, c"user.txos.origin").unwrap();
            }
        }
        let result = world.extract(&tx, &origins);
        assert!(matches!(&result, Err(StoreError::Refused { .. })), "{result:?}");
    }
}
