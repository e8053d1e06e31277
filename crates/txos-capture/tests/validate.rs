//! What is read in a view and then changed outside conflicts by exactly the facets that were read.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use support::Lab;
use txos_capture::{CaptureSpec, Captured, ValidateOptions, read_ahead_only, validate};
use txos_core::{Facet, Seen, Workset};
use txos_host::Tree;

/// A tree with a bit of everything.
fn populate(tree: &Path) {
    fs::create_dir_all(tree.join("dir/sub")).unwrap();
    fs::write(tree.join("dir/file"), b"content").unwrap();
    fs::write(tree.join("dir/other"), b"other").unwrap();
    fs::write(tree.join("dir/sub/deep"), b"deep").unwrap();
    symlink("file", tree.join("dir/link")).unwrap();
}

fn conflicts(lab: &Lab, workset: &Workset) -> Vec<(PathBuf, Facet, Seen)> {
    let tree = Tree::open(lab.tree()).unwrap();
    let found = validate(workset, &tree, &ValidateOptions::default()).unwrap();
    found.into_iter().map(|conflict| (conflict.path, conflict.facet, conflict.seen)).collect()
}

/// Runs `read` in a view, then `change` outside, and validates; before the change everything must
/// hold, and after it what was written to bytes and back must say the same.
fn after(
    read: impl FnOnce(&Path) + Send + 'static,
    change: impl FnOnce(&Path),
) -> Vec<(PathBuf, Facet, Seen)> {
    let lab = Lab::new();
    populate(&lab.tree());
    let (captured, ()) = lab.run(lab.spec(), read);
    assert_eq!(captured.doomed, None);
    assert_eq!(conflicts(&lab, &captured.workset), []);
    change(&lab.tree());
    let found = conflicts(&lab, &captured.workset);
    let stored = Workset::decode(&captured.workset.encode()).unwrap();
    assert_eq!(conflicts(&lab, &stored), found);
    found
}

fn one(path: &str, facet: Facet, seen: Seen) -> Vec<(PathBuf, Facet, Seen)> {
    vec![(PathBuf::from(path), facet, seen)]
}

/// Counts the names of a directory, and asks for nothing else.
fn names(dir: &Path) -> usize {
    use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = openat(CWD, dir, flags, Mode::empty()).unwrap();
    Dir::new(dir).unwrap().count() - 2
}

fn read_file(root: &Path) {
    assert_eq!(fs::read(root.join("dir/file")).unwrap(), b"content");
}

#[test]
fn a_file_that_was_read() {
    needs_mounts!();
    let file = "/dir/file";
    let write = |tree: &Path| fs::write(tree.join("dir/file"), b"CONTENT").unwrap();
    assert_eq!(after(read_file, write), one(file, Facet::Content, Seen::Changed));
    let chmod = |tree: &Path| {
        fs::set_permissions(tree.join("dir/file"), fs::Permissions::from_mode(0o600)).unwrap();
    };
    assert_eq!(after(read_file, chmod), one(file, Facet::Attrs, Seen::Changed));
    let remove = |tree: &Path| fs::remove_file(tree.join("dir/file")).unwrap();
    assert_eq!(after(read_file, remove), one(file, Facet::Binding, Seen::Removed));
    let replace = |tree: &Path| {
        fs::write(tree.join("dir/new"), b"content").unwrap();
        fs::rename(tree.join("dir/new"), tree.join("dir/file")).unwrap();
    };
    assert_eq!(after(read_file, replace), one(file, Facet::Binding, Seen::Replaced));
}

#[test]
fn what_was_not_read_does_not_matter() {
    needs_mounts!();
    let change = |tree: &Path| {
        fs::write(tree.join("dir/other"), b"changed").unwrap();
        fs::write(tree.join("dir/new"), b"new").unwrap();
        fs::remove_file(tree.join("dir/sub/deep")).unwrap();
        fs::read(tree.join("dir/file")).unwrap();
    };
    assert_eq!(after(read_file, change), []);
}

#[test]
fn a_name_that_was_absent() {
    needs_mounts!();
    let look = |root: &Path| assert!(!root.join("dir/new").exists());
    let create = |tree: &Path| fs::write(tree.join("dir/new"), b"").unwrap();
    assert_eq!(after(look, create), one("/dir/new", Facet::Binding, Seen::Created));
    let create_other = |tree: &Path| fs::write(tree.join("dir/newer"), b"").unwrap();
    assert_eq!(after(look, create_other), []);
}

#[test]
fn a_listing() {
    needs_mounts!();
    let list = |root: &Path| assert_eq!(names(&root.join("dir")), 4);
    let listing = one("/dir", Facet::Listing, Seen::Changed);
    assert_eq!(after(list, |tree| fs::write(tree.join("dir/new"), b"").unwrap()), listing);
    assert_eq!(after(list, |tree| fs::remove_file(tree.join("dir/other")).unwrap()), listing);
    assert_eq!(after(list, |tree| fs::write(tree.join("dir/other"), b"x").unwrap()), []);
    let come_and_go = |tree: &Path| {
        fs::write(tree.join("dir/new"), b"").unwrap();
        fs::remove_file(tree.join("dir/new")).unwrap();
    };
    assert_eq!(after(list, come_and_go), []);
}

#[test]
fn a_directory_walked_through() {
    needs_mounts!();
    let chmod = |tree: &Path| {
        fs::set_permissions(tree.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    };
    assert_eq!(after(read_file, chmod), one("/dir", Facet::Perms, Seen::Changed));
    let move_away = |tree: &Path| {
        fs::rename(tree.join("dir"), tree.join("gone")).unwrap();
        symlink("gone", tree.join("dir")).unwrap();
    };
    let found = after(read_file, move_away);
    assert!(
        found.iter().all(|(path, _, seen)| path == Path::new("/dir") && *seen == Seen::Replaced)
    );
    assert!(!found.is_empty());
}

#[test]
fn attributes_of_a_directory() {
    needs_mounts!();
    let create = |tree: &Path| fs::write(tree.join("dir/new"), b"").unwrap();
    let stat = |root: &Path| assert!(fs::metadata(root.join("dir")).unwrap().is_dir());
    assert_eq!(after(stat, create), [], "times of directories do not count");
    let chmod = |tree: &Path| {
        fs::set_permissions(tree.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    };
    assert_eq!(after(stat, chmod), one("/dir", Facet::Perms, Seen::Changed));
    let access = |root: &Path| fs::write(root.join("dir/mine"), b"mine").unwrap();
    assert_eq!(after(access, create), [], "two creations in one directory do not conflict");
    let mkdir = |root: &Path| fs::create_dir(root.join("dir/mine")).unwrap();
    assert_eq!(after(mkdir, create), []);
    let rename = |root: &Path| fs::rename(root.join("dir/file"), root.join("dir/mine")).unwrap();
    assert_eq!(after(rename, create), []);
}

#[test]
fn a_link() {
    needs_mounts!();
    let read = |root: &Path| drop(fs::read_link(root.join("dir/link")).unwrap());
    let replace = |tree: &Path| {
        fs::remove_file(tree.join("dir/link")).unwrap();
        symlink("other", tree.join("dir/link")).unwrap();
    };
    let found = after(read, replace);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, Path::new("/dir/link"));
}

#[test]
fn attributes_with_names() {
    needs_mounts!();
    let flags = rustix::fs::XattrFlags::empty();
    let read = |root: &Path| {
        let none = rustix::fs::getxattr(root.join("dir"), c"user.k", &mut [0u8; 8]);
        assert_eq!(none, Err(rustix::io::Errno::NODATA));
    };
    let set = move |tree: &Path| {
        rustix::fs::setxattr(tree.join("dir"), c"user.k", b"v", flags).unwrap();
    };
    assert_eq!(after(read, set), one("/dir", Facet::Xattrs, Seen::Changed));
    assert_eq!(after(read_file, set), []);
}

#[test]
fn stores_that_move_no_time() {
    needs_mounts!();
    let lab = Lab::new();
    populate(&lab.tree());
    let writer = fs::OpenOptions::new().write(true).open(lab.tree().join("dir/file")).unwrap();
    let (captured, ()) = lab.run(lab.spec(), read_file);
    assert_eq!(captured.workset.stats().hashed, 1, "somebody could write without being seen");
    assert_eq!(conflicts(&lab, &captured.workset), []);
    // What a store to a dirty page of a mapping does: other bytes, the same times.
    drop(writer);
    let file = lab.tree().join("dir/file");
    let broken = with_wrong_hash(&captured);
    assert_eq!(conflicts(&lab, &broken), one("/dir/file", Facet::Content, Seen::Changed));
    fs::write(&file, b"changed").unwrap();
    assert_eq!(conflicts(&lab, &captured.workset), one("/dir/file", Facet::Content, Seen::Changed));
}

/// The workset as if other bytes had been served.
fn with_wrong_hash(captured: &Captured) -> Workset {
    let (node, chunk, hash) = captured.workset.chunks()[0];
    let mut bytes = captured.workset.encode();
    let entry: Vec<u8> =
        [(node.raw() as u32).to_le_bytes().as_slice(), &chunk.to_le_bytes(), &hash.to_le_bytes()]
            .concat();
    let place = bytes.windows(entry.len()).rposition(|window| window == entry).unwrap();
    bytes[place + 8] ^= 1;
    let end = bytes.len() - 8;
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[16..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    Workset::decode(&bytes).unwrap()
}

#[test]
fn relaxed_paths_are_not_validated() {
    needs_mounts!();
    let lab = Lab::new();
    populate(&lab.tree());
    let relax = vec![PathBuf::from("/dir/sub")];
    let spec = CaptureSpec { relax: relax.clone(), ..lab.spec() };
    let (captured, ()) = lab.run(spec, |root| {
        fs::read(root.join("dir/sub/deep")).unwrap();
        names(&root.join("dir/sub"));
        assert!(!root.join("dir/sub/new").exists());
    });
    assert_eq!(captured.workset.relaxed_below(&relax), [(relax[0].clone(), 2)]);
    fs::write(lab.tree().join("dir/sub/deep"), b"changed").unwrap();
    fs::write(lab.tree().join("dir/sub/new"), b"new").unwrap();
    assert_eq!(conflicts(&lab, &captured.workset), []);
    fs::rename(lab.tree().join("dir/sub"), lab.tree().join("moved")).unwrap();
    assert_eq!(conflicts(&lab, &captured.workset), one("/dir/sub", Facet::Binding, Seen::Removed));
}

#[test]
fn hidden_paths_are_absent() {
    needs_mounts!();
    let lab = Lab::new();
    populate(&lab.tree());
    let hidden = vec![PathBuf::from("/dir/sub"), PathBuf::from("/later")];
    let spec = CaptureSpec { hidden: hidden.clone(), ..lab.spec() };
    let (captured, ()) = lab.run(spec, |root| {
        assert!(!root.join("dir/sub").exists());
        assert!(!root.join("later").exists());
        assert_eq!(names(&root.join("dir")), 3);
        assert_eq!(names(root), 1);
    });
    fs::remove_dir_all(lab.tree().join("dir/sub")).unwrap();
    fs::create_dir(lab.tree().join("later")).unwrap();
    let tree = Tree::open(lab.tree()).unwrap();
    let options = ValidateOptions { hidden, ..ValidateOptions::default() };
    assert_eq!(validate(&captured.workset, &tree, &options).unwrap(), []);
}

#[test]
fn what_is_given_ahead_counts_and_says_so() {
    needs_mounts!();
    let walk = |root: &Path| {
        for dir in 0..7 {
            for entry in fs::read_dir(root.join(format!("{dir}"))).unwrap() {
                fs::symlink_metadata(entry.unwrap().path()).unwrap();
            }
        }
        // A walker by now: what it lists is given with the attributes.
        assert_eq!(names(&root.join("7")), 8);
    };
    let changed = |prefetch: bool| {
        let lab = Lab::new();
        for dir in 0..8 {
            fs::create_dir(lab.tree().join(format!("{dir}"))).unwrap();
            for file in 0..8 {
                fs::write(lab.tree().join(format!("{dir}/{file}")), b"").unwrap();
            }
        }
        let spec = CaptureSpec { prefetch, ..lab.spec() };
        let (captured, ()) = lab.run(spec, walk);
        assert_eq!(conflicts(&lab, &captured.workset), []);
        let tree = Tree::open(lab.tree()).unwrap();
        for path in ["6/1", "7/1"] {
            fs::write(lab.tree().join(path), b"changed").unwrap();
        }
        let found = validate(&captured.workset, &tree, &ValidateOptions::default()).unwrap();
        found.iter().map(|c| (c.path.clone(), read_ahead_only(c))).collect::<Vec<_>>()
    };
    let asked = (PathBuf::from("/6/1"), false);
    assert_eq!(changed(true), [asked.clone(), (PathBuf::from("/7/1"), true)]);
    assert_eq!(changed(false), [asked]);
}
