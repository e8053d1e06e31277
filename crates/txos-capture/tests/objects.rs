//! Kinds of objects that a lower layer under overlayfs has to carry faithfully.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, MetadataExt},
    },
    path::Path,
    process::Command,
    thread,
};

use rustix::{
    fs::{CWD, FileType, Mode, XattrFlags, getxattr, listxattr, mknodat, setxattr},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::UnshareFlags,
};
use support::Lab;
use txos_capture::{ValidateOptions, parse_origin, validate};
use txos_core::Origins;
use txos_host::Tree;

const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

fn xattr(path: &Path, name: &std::ffi::CStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 256];
    let length = getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

#[test]
fn attributes_and_capabilities_pass_and_are_copied_up() {
    needs_mounts!();
    let lab = Lab::new();
    let file = lab.tree().join("file");
    fs::write(&file, b"content").unwrap();
    setxattr(&file, c"security.capability", CAPABILITY, XattrFlags::empty()).unwrap();
    setxattr(&file, c"user.k", b"v", XattrFlags::empty()).unwrap();
    setxattr(&file, c"trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let (_, ()) = lab.run(lab.spec(), |root| {
        let file = root.join("file");
        assert_eq!(xattr(&file, c"security.capability").unwrap(), CAPABILITY);
        assert_eq!(xattr(&file, c"user.k").unwrap(), b"v");
        let mut list = vec![0; 256];
        let length = listxattr(&file, &mut list).unwrap();
        assert!(!String::from_utf8_lossy(&list[..length]).contains("overlay"));
        // A copy-up.
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(xattr(&file, c"user.k").unwrap(), b"v");
    });
    assert_eq!(xattr(&lab.places.upper.join("file"), c"security.capability").unwrap(), CAPABILITY);
    let opaque = xattr(&lab.places.upper.join("file"), c"trusted.overlay.opaque");
    assert_eq!(opaque, Err(Errno::NODATA));
}

#[test]
fn holes_stay_holes() {
    needs_mounts!();
    let lab = Lab::new();
    let path = lab.tree().join("sparse");
    let file = File::create(&path).unwrap();
    file.write_all_at(b"begin", 0).unwrap();
    file.write_all_at(b"end", 64 << 20).unwrap();
    drop(file);
    let (_, ()) = lab.run(lab.spec(), |root| {
        let mut file = fs::OpenOptions::new().append(true).open(root.join("sparse")).unwrap();
        file.write_all(b"!").unwrap();
    });
    let upper = lab.places.upper.join("sparse");
    let copied = fs::metadata(&upper).unwrap();
    assert_eq!(copied.len(), (64 << 20) + 4);
    // Overlayfs copies at least a mebibyte at a time.
    assert!(copied.blocks() * 512 < 4 << 20, "{} blocks", copied.blocks());
    let mut end = String::new();
    let mut file = File::open(&upper).unwrap();
    file.seek(SeekFrom::Start(64 << 20)).unwrap();
    file.read_to_string(&mut end).unwrap();
    assert_eq!(end, "end!");
}

#[test]
fn large_files_and_odd_names() {
    needs_mounts!();
    let lab = Lab::new();
    let name = OsStr::from_bytes(b"\xff caf\xe9 \n\\");
    let block: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
    let mut file = File::create(lab.tree().join(name)).unwrap();
    for _ in 0..40 {
        file.write_all(&block).unwrap();
    }
    drop(file);
    fs::create_dir(lab.tree().join("many")).unwrap();
    for number in 0..3000 {
        File::create(lab.tree().join(format!("many/{number}-{}", "n".repeat(60)))).unwrap();
    }
    let (captured, ()) = lab.run(lab.spec(), move |root| {
        let bytes = fs::read(root.join(name)).unwrap();
        assert!(bytes.len() == 40 << 20 && bytes.chunks(1 << 20).all(|chunk| chunk == block));
        for _ in 0..2 {
            assert_eq!(fs::read_dir(root.join("many")).unwrap().count(), 3000);
        }
    });
    assert_eq!(captured.doomed, None);
    let tree = Tree::open(lab.tree()).unwrap();
    assert_eq!(validate(&captured.workset, &tree, &ValidateOptions::default()).unwrap(), []);
}

#[test]
fn special_files() {
    needs_mounts!();
    let lab = Lab::new();
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, lab.tree().join("fifo"), FileType::Fifo, mode, 0).unwrap();
    let null = rustix::fs::makedev(1, 3);
    mknodat(CWD, lab.tree().join("null"), FileType::CharacterDevice, mode, null).unwrap();
    drop(std::os::unix::net::UnixListener::bind(lab.tree().join("socket")).unwrap());
    let (_, ()) = lab.run(lab.spec(), move |root| {
        let kind = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().file_type();
        assert!(kind("fifo").is_fifo() && kind("socket").is_socket());
        assert_eq!(fs::symlink_metadata(root.join("null")).unwrap().rdev(), null);
        fs::write(root.join("null"), b"gone").unwrap();
        // Moving one needs its copy-up.
        fs::rename(root.join("fifo"), root.join("moved")).unwrap();
    });
    let moved = fs::symlink_metadata(lab.places.upper.join("moved")).unwrap();
    assert!(moved.file_type().is_fifo() && moved.mode() & 0o7777 == 0o640);
}

#[test]
fn programs_run_and_hard_links_are_one() {
    needs_mounts!();
    let lab = Lab::new();
    fs::copy("/bin/true", lab.tree().join("true")).unwrap();
    fs::hard_link(lab.tree().join("true"), lab.tree().join("same")).unwrap();
    let (captured, ()) = lab.run(lab.spec(), |root| {
        assert!(Command::new(root.join("true")).status().unwrap().success());
        let numbers: Vec<u64> =
            ["true", "same"].map(|name| fs::metadata(root.join(name)).unwrap().ino()).to_vec();
        assert_eq!(numbers[0], numbers[1]);
        let mut file = fs::OpenOptions::new().append(true).open(root.join("same")).unwrap();
        file.write_all(b"more").unwrap();
    });
    let value = xattr(&lab.places.upper.join("same"), c"trusted.overlay.origin").unwrap();
    let origin = captured.origin(parse_origin(&value).unwrap()).unwrap();
    assert_eq!(origin.attrs.nlink, 2);
    assert!(captured.origin_of_path(Path::new("/same")).is_some());
    assert!(captured.origin_of_path(Path::new("/none")).is_none());
}

#[test]
fn mounts_of_the_host_are_seen_through() {
    needs_mounts!();
    // In a mount name space of its own, so that the machine sees nothing of this mount.
    let test = thread::spawn(|| {
        #[allow(unsafe_code)] // unshare(2) of a part of the process's state
        // SAFETY: only the mount name space and the working directory of this thread are unshared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let lab = Lab::new();
        let inner = lab.tree().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(lab.tree().join("outer-file"), b"outer").unwrap();
        mount("tmpfs", &inner, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(inner.join("file"), b"inside").unwrap();
        let native = fs::metadata(inner.join("file")).unwrap().ino();
        // As the mirror shows it: overlayfs does not cross into another file system by itself.
        let fuse = lab.places.fuse.clone();
        let (captured, ()) = lab.run(lab.spec(), move |_| {
            assert_eq!(fs::read(fuse.join("inner/file")).unwrap(), b"inside");
            let seen = fs::metadata(fuse.join("inner/file")).unwrap().ino();
            assert_ne!(seen, native, "unique over all devices");
        });
        let tree = Tree::open(lab.tree()).unwrap();
        let check = || validate(&captured.workset, &tree, &ValidateOptions::default()).unwrap();
        assert_eq!(check(), []);
        rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::DETACH).unwrap();
        let found = check();
        assert!(!found.is_empty() && found[0].path == Path::new("/inner"), "{found:?}");
    });
    test.join().unwrap();
}
