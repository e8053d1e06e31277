use std::{
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::symlink,
    path::Path,
};

use super::world::{World, able, chmod, chown};

fn basic(root: &Path) {
    fs::create_dir_all(root.join("dir/sub")).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    fs::write(root.join("dir/a"), "a").unwrap();
    fs::write(root.join("dir/b"), "b").unwrap();
    fs::write(root.join("dir/sub/deep"), "deep").unwrap();
    fs::write(root.join("big"), vec![7; 100_000]).unwrap();
    symlink("file", root.join("link")).unwrap();
}

#[test]
fn created_modified_removed() {
    if !able() {
        return;
    }
    let world = World::new(basic);
    let delta = world.check(&|root| {
        fs::write(root.join("new"), "new").unwrap();
        fs::create_dir_all(root.join("made/in/depth")).unwrap();
        fs::write(root.join("made/in/depth/x"), "x").unwrap();
        fs::write(root.join("dir/a"), "other").unwrap();
        fs::remove_file(root.join("dir/b")).unwrap();
        fs::remove_dir_all(root.join("dir/sub")).unwrap();
        let mut big = OpenOptions::new().write(true).open(root.join("big")).unwrap();
        big.seek(SeekFrom::Start(50_000)).unwrap();
        big.write_all(b"changed").unwrap();
    });
    let lines = delta.to_string();
    assert_eq!(
        lines,
        "modified  /big\n\
         modified  /dir/a 1 -> 5 bytes\n\
         removed   /dir/b\n\
         removed   /dir/sub/\n\
         removed   /dir/sub/deep\n\
         created   /made/\n\
         created   /made/in/\n\
         created   /made/in/depth/\n\
         created   /made/in/depth/x 1 bytes\n\
         created   /new 3 bytes\n"
    );
}

#[test]
fn nothing_changed_writes_nothing() {
    if !able() {
        return;
    }
    let world = World::new(basic);
    let delta = world.check(&|root| {
        fs::read(root.join("file")).unwrap();
        OpenOptions::new().append(true).open(root.join("file")).unwrap();
    });
    assert!(delta.is_empty(), "{delta}");
    assert!(fs::metadata(world.state.path().join("journal")).is_err());
}

#[test]
fn metadata() {
    if !able() {
        return;
    }
    let world = World::new(basic);
    world.check(&|root| {
        chmod(&root.join("file"), 0o4711);
        chmod(&root.join("dir"), 0o700);
        chown(&root.join("dir/sub"), 12, 13);
        chown(&root.join("link"), 14, 15);
        chown(&root.join("dir/a"), 1, 1);
    });
}
