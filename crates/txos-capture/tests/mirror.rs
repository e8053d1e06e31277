//! The mirror under an overlay, as programs in a view see it.

mod support;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
};

use support::Lab;
use txos_capture::{WHITEOUT_STAND_IN, parse_origin};
use txos_core::{FileKind, Origins};

#[test]
fn shows_what_is_stable_and_changes_stay_above() {
    needs_mounts!();
    let lab = Lab::new();
    let tree = lab.tree();
    fs::create_dir(tree.join("d")).unwrap();
    fs::write(tree.join("d/file"), b"content").unwrap();
    fs::set_permissions(tree.join("d/file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", tree.join("d/link")).unwrap();
    let native = fs::metadata(tree.join("d/file")).unwrap();
    let (captured, ()) = lab.run(lab.spec(), move |root| {
        assert_eq!(fs::read(root.join("d/file")).unwrap(), b"content");
        let seen = fs::metadata(root.join("d/file")).unwrap();
        assert_eq!((seen.mode(), seen.len()), (native.mode(), native.len()));
        assert_eq!(
            (seen.mtime_nsec(), seen.ctime_nsec()),
            (native.mtime_nsec(), native.ctime_nsec())
        );
        assert_eq!(fs::read_link(root.join("d/link")).unwrap().as_os_str(), "file");
        assert!(fs::symlink_metadata(root.join("d/none")).is_err());
        let names: Vec<_> =
            fs::read_dir(root.join("d")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2);
        fs::write(root.join("d/new"), b"new").unwrap();
        fs::write(root.join("d/file"), b"other").unwrap();
        fs::remove_file(root.join("d/link")).unwrap();
    });
    assert_eq!(fs::read(tree.join("d/file")).unwrap(), b"content");
    assert!(captured.doomed.is_none());
    let stats = captured.workset.stats();
    assert_eq!((stats.contents, stats.links, stats.listings), (1, 1, 1));
    assert!(stats.absent >= 2);
    let value = xattr(&lab.places.upper.join("d/file"), c"trusted.overlay.origin");
    let origin = captured.origin(parse_origin(&value).unwrap()).unwrap();
    assert_eq!(origin.path, std::path::Path::new("/d/file"));
    assert_eq!(origin.attrs.kind, FileKind::File);
}

#[test]
fn a_real_device_0_0_is_not_a_whiteout() {
    needs_mounts!();
    let lab = Lab::new();
    let device = lab.tree().join("device");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, 0).unwrap();
    let (captured, ()) = lab.run(lab.spec(), |root| {
        let seen = fs::symlink_metadata(root.join("device")).unwrap();
        assert!(seen.file_type().is_char_device());
        assert_eq!(seen.rdev(), WHITEOUT_STAND_IN);
        assert_eq!(fs::read_dir(root).unwrap().count(), 1);
    });
    assert!(captured.doomed.is_none());
}

fn xattr(path: &std::path::Path, name: &std::ffi::CStr) -> Vec<u8> {
    let mut value = vec![0; 256];
    let length = rustix::fs::lgetxattr(path, name, &mut value).expect("the attribute");
    value.truncate(length);
    value
}

#[test]
fn a_capture_ends_while_somebody_still_looks_back() {
    needs_mounts!();
    for _ in 0..10 {
        let lab = Lab::new();
        let tree = lab.tree();
        (0..300).for_each(|number| fs::write(tree.join(number.to_string()), b"x").unwrap());
        let mut looking = None;
        let program = |root: &std::path::Path| {
            (0..300).for_each(|number| {
                assert_eq!(fs::read(root.join(number.to_string())).unwrap(), b"x")
            });
        };
        let (captured, ()) = lab.run_beside(lab.spec(), program, |capture| {
            let (judge, (begun, begins)) = (capture.judge(), std::sync::mpsc::channel());
            looking = Some(std::thread::spawn(move || {
                assert!(judge.look_back().is_none());
                begun.send(()).unwrap();
                (0..20).for_each(|_| assert!(judge.look_back().is_none()));
            }));
            begins.recv().unwrap();
        });
        assert!(captured.doomed.is_none());
        assert_eq!(captured.workset.stats().contents, 300);
        looking.unwrap().join().unwrap();
    }
}

#[test]
fn looking_back_finds_what_was_changed_before() {
    needs_mounts!();
    let lab = Lab::new();
    let tree = lab.tree();
    (0..1200).for_each(|number| fs::write(tree.join(number.to_string()), b"x").unwrap());
    let program = |root: &std::path::Path| {
        (0..1200).for_each(|number| assert!(root.join(number.to_string()).exists()));
    };
    lab.run_beside(lab.spec(), program, |capture| {
        assert!(capture.judge().look_back().is_none());
        fs::write(tree.join("1100"), b"y").unwrap();
        let conflict = capture.judge().look_back().expect("the change is seen");
        assert_eq!(conflict.path, std::path::Path::new("/1100"));
    });
}
