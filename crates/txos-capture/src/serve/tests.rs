//! The mirror asked as the kernel asks, without a kernel: what stands, and what dooms.

use std::{
    fs::{self, OpenOptions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt, symlink},
    },
    path::Path,
    sync::{Arc, Mutex},
};

use rustix::io::Errno;
use tempfile::TempDir;
use txos_core::{Conflict, Facet, NodeId, Seen, workset::Facets};

use crate::{
    CaptureSpec,
    content::CHUNK,
    mirror::Mirror,
    proto::{Reply, Request},
};

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const READLINK: u32 = 5;
const READ: u32 = 15;
const GETXATTR: u32 = 22;
const LISTXATTR: u32 = 23;
const READDIR: u32 = 28;
const IOCTL: u32 = 39;
const LSEEK: u32 = 46;
const STATX: u32 = 52;

struct World {
    dir: TempDir,
    mirror: Mirror,
    doomed: Arc<Mutex<Vec<Conflict>>>,
}

impl World {
    fn new() -> Self {
        World::with(|_| {})
    }

    fn with(adjust: impl FnOnce(&mut CaptureSpec)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let doomed = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&doomed);
        let mut spec = CaptureSpec {
            root: dir.path().to_owned(),
            on_doom: Some(Arc::new(move |conflict: &Conflict| {
                list.lock().unwrap().push(conflict.clone());
            })),
            ..CaptureSpec::default()
        };
        adjust(&mut spec);
        let mirror = Mirror::new(spec).unwrap();
        mirror.begin_recording();
        World { dir, mirror, doomed }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Sends one request and gives the body of the answer.
    fn ask(&self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        bytes.extend((40 + body.len() as u32).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(77u64.to_ne_bytes());
        bytes.extend(node.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(std::process::id().to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(body);
        let mut reply = Reply::default();
        assert!(self.mirror.answer(&Request::parse(&bytes).unwrap(), &mut reply));
        let answer = reply.as_bytes();
        let word = |at: usize| u32::from_ne_bytes(answer[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, answer.len());
        assert_eq!(word(8), 77);
        match word(4) as i32 {
            0 => Ok(answer[16..].to_vec()),
            error => {
                assert_eq!(answer.len(), 16, "an error has no body");
                Err(Errno::from_raw_os_error(-error))
            }
        }
    }

    /// The node of a name, 0 if it is absent.
    fn look_up(&self, dir: u64, name: &str) -> u64 {
        let body = [name.as_bytes(), b"\0"].concat();
        let answer = self.ask(LOOKUP, dir, &body).unwrap();
        assert_eq!(answer.len(), 128);
        u64::from_ne_bytes(answer[..8].try_into().unwrap())
    }

    fn read(&self, node: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let body = [&[0; 8][..], &offset.to_ne_bytes(), &size.to_ne_bytes(), &[0; 20]].concat();
        self.ask(READ, node, &body)
    }

    fn list(&self, node: u64, offset: u64, size: u32) -> Result<Vec<(u64, String)>, Errno> {
        let body = [&[0; 8][..], &offset.to_ne_bytes(), &size.to_ne_bytes(), &[0; 20]].concat();
        let mut rest = &self.ask(READDIR, node, &body)?[..];
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let next = u64::from_ne_bytes(rest[8..16].try_into().unwrap());
            let length = u32::from_ne_bytes(rest[16..20].try_into().unwrap()) as usize;
            let name = String::from_utf8(rest[24..24 + length].to_vec()).unwrap();
            entries.push((next, name));
            rest = &rest[24 + length.next_multiple_of(8)..];
        }
        Ok(entries)
    }

    fn xattr(&self, node: u64, name: &str, size: u32) -> Result<Vec<u8>, Errno> {
        let body = [&size.to_ne_bytes()[..], &[0; 4], name.as_bytes(), b"\0"].concat();
        self.ask(GETXATTR, node, &body)
    }

    fn facets(&self, node: u64) -> Facets {
        self.mirror.known().workset.facets(NodeId::from_raw(node).unwrap())
    }

    /// What doomed the transaction, which is told once.
    fn doom(&self) -> Option<(String, Facet, Seen)> {
        let told = self.doomed.lock().unwrap();
        assert!(told.len() <= 1);
        assert_eq!(told.first(), self.mirror.doom.conflict().as_ref());
        told.first().map(|c| (c.path.display().to_string(), c.facet, c.seen))
    }
}

#[test]
fn an_absent_name_stays_absent() {
    let world = World::new();
    assert_eq!(world.look_up(1, "n"), 0);
    assert_eq!(world.look_up(1, "n"), 0);
    assert_eq!(world.doom(), None);
    fs::write(world.path().join("n"), b"").unwrap();
    assert_eq!(world.look_up(1, "n"), 0);
    assert_eq!(world.doom(), Some(("/n".into(), Facet::Binding, Seen::Created)));
}

#[test]
fn a_file_stays_what_it_was() {
    let world = World::new();
    fs::write(world.path().join("f"), b"first").unwrap();
    let body = b"f\0";
    let first = world.ask(LOOKUP, 1, body).unwrap();
    assert_eq!(world.ask(LOOKUP, 1, body).unwrap(), first);
    fs::write(world.path().join("f"), b"second!").unwrap();
    assert_eq!(world.ask(LOOKUP, 1, body).unwrap(), first, "the first answer");
    assert_eq!(world.doom(), Some(("/f".into(), Facet::Attrs, Seen::Changed)));
    fs::remove_file(world.path().join("f")).unwrap();
    assert_eq!(world.ask(LOOKUP, 1, body).unwrap(), first);
    assert_eq!(world.ask(GETATTR, 2, &[0; 16]).unwrap()[16..], first[40..]);
}

#[test]
fn bytes_of_another_version_are_not_served() {
    let world = World::new();
    fs::write(world.path().join("f"), b"first").unwrap();
    let node = world.look_up(1, "f");
    assert_eq!(world.read(node, 0, 4096).unwrap(), b"first");
    assert_eq!(world.read(node, 2, 2).unwrap(), b"rs");
    assert_eq!(world.read(node, 5, 10).unwrap(), b"");
    assert!(world.facets(node).contains(Facets::CONTENT));
    fs::write(world.path().join("f"), b"second").unwrap();
    assert_eq!(world.read(node, 0, 4096), Err(Errno::STALE));
    assert_eq!(world.doom(), Some(("/f".into(), Facet::Content, Seen::Changed)));
}

#[test]
fn a_file_replaced_before_it_is_read() {
    let world = World::new();
    fs::write(world.path().join("f"), b"first").unwrap();
    let node = world.look_up(1, "f");
    fs::write(world.path().join("g"), b"other").unwrap();
    fs::rename(world.path().join("g"), world.path().join("f")).unwrap();
    assert_eq!(world.read(node, 0, 4096), Err(Errno::STALE));
    assert_eq!(world.doom(), Some(("/f".into(), Facet::Content, Seen::Replaced)));
}

#[test]
fn content_that_times_cannot_prove_is_hashed_as_it_is_served() {
    let world = World::new();
    let path = world.path().join("f");
    let bytes: Vec<u8> = (0..CHUNK * 2 + 100).map(|at| (at / 1000) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let node = world.look_up(1, "f");
    let middle = CHUNK - 10;
    assert_eq!(
        world.read(node, middle, 20).unwrap(),
        &bytes[middle as usize..middle as usize + 20]
    );
    assert!(world.facets(node).contains(Facets::HASHED));
    assert_eq!(world.mirror.known().workset.chunks().len(), 2, "only what was read");
    assert_eq!(world.read(node, 0, 1 << 20).unwrap(), bytes);
    assert_eq!(world.mirror.known().workset.chunks().len(), 3);
    writer.write_all_at(b"x", 5).unwrap();
    assert!(world.read(node, 0, 10).is_err());
    assert_eq!(world.doom().unwrap().1, Facet::Content);
}

#[test]
fn a_quiet_file_is_proven_by_its_time() {
    if rustix::process::geteuid().is_root() && txos_host::multigrain() {
        let world = World::new();
        fs::write(world.path().join("f"), b"first").unwrap();
        let node = world.look_up(1, "f");
        world.read(node, 0, 10).unwrap();
        assert!(!world.facets(node).contains(Facets::HASHED));
    } else {
        eprintln!("skipped: needs root and fine change times");
    }
}

#[test]
fn listings_come_in_pieces_and_stand() {
    let world = World::new();
    for number in 0..50 {
        fs::write(world.path().join(format!("file-{number:02}")), b"").unwrap();
    }
    let whole = world.list(1, 0, 65536).unwrap();
    assert_eq!(whole.len(), 52);
    assert_eq!((whole[0].1.as_str(), whole[1].1.as_str()), (".", ".."));
    let mut pieces = Vec::new();
    while let Ok(piece) = world.list(1, pieces.len() as u64, 200) {
        if piece.is_empty() {
            break;
        }
        pieces.extend(piece);
    }
    assert_eq!(pieces, whole);
    assert!(world.facets(1).contains(Facets::LISTING));
    fs::write(world.path().join("new"), b"").unwrap();
    assert_eq!(world.list(1, 0, 65536).unwrap(), whole, "kept");
    world.mirror.forget_caches();
    assert_eq!(world.list(1, 0, 65536), Err(Errno::STALE), "not at hand any more");
    assert_eq!(world.doom(), Some(("/".into(), Facet::Listing, Seen::Changed)));
}

#[test]
fn a_directory_that_was_replaced_is_not_entered() {
    let world = World::new();
    fs::create_dir_all(world.path().join("a/b")).unwrap();
    fs::write(world.path().join("a/b/f"), b"").unwrap();
    let a = world.look_up(1, "a");
    let b = world.look_up(a, "b");
    assert_ne!(world.look_up(b, "f"), 0);
    fs::rename(world.path().join("a"), world.path().join("away")).unwrap();
    symlink("away", world.path().join("a")).unwrap();
    world.mirror.forget_caches();
    assert_eq!(world.ask(LOOKUP, b, b"g\0"), Err(Errno::STALE));
    assert_eq!(world.doom(), Some(("/a/b".into(), Facet::Binding, Seen::Removed)));
}

#[test]
fn attributes_of_directories_stand_and_their_times_do_not_count() {
    let world = World::new();
    fs::create_dir(world.path().join("d")).unwrap();
    let first = world.ask(LOOKUP, 1, b"d\0").unwrap();
    let node = world.look_up(1, "d");
    assert_eq!(world.facets(node), Facets::PERMS | Facets::ATTRS);
    fs::write(world.path().join("d/new"), b"").unwrap();
    assert_eq!(world.ask(GETATTR, node, &[0; 16]).unwrap()[16..], first[40..]);
    assert_eq!(world.ask(LOOKUP, 1, b"d\0").unwrap(), first);
    assert_eq!(world.doom(), None);
    fs::set_permissions(world.path().join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(world.ask(GETATTR, node, &[0; 16]).unwrap()[16..], first[40..]);
    assert_eq!(world.doom(), Some(("/d".into(), Facet::Attrs, Seen::Changed)));
}

#[test]
fn permissions_of_directories_count_always() {
    let world = World::new();
    fs::create_dir(world.path().join("d")).unwrap();
    world.look_up(1, "d");
    fs::set_permissions(world.path().join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    world.look_up(1, "d");
    assert_eq!(world.doom(), Some(("/d".into(), Facet::Perms, Seen::Changed)));
}

#[test]
fn hard_links_are_one_object() {
    let world = World::new();
    fs::write(world.path().join("f"), b"").unwrap();
    fs::hard_link(world.path().join("f"), world.path().join("g")).unwrap();
    assert_eq!(world.look_up(1, "f"), world.look_up(1, "g"));
    assert_eq!(world.doom(), None);
}

#[test]
fn links_and_what_replaces_them() {
    let world = World::new();
    symlink("target", world.path().join("l")).unwrap();
    let node = world.look_up(1, "l");
    assert_eq!(world.ask(READLINK, node, b"").unwrap(), b"target");
    assert!(world.facets(node).contains(Facets::LINK));
    fs::remove_file(world.path().join("l")).unwrap();
    symlink("other", world.path().join("l")).unwrap();
    assert_eq!(world.ask(READLINK, node, b""), Err(Errno::STALE));
    assert!(world.doom().is_some());
}

#[test]
fn extended_attributes() {
    let world = World::new();
    let path = world.path().join("f");
    fs::write(&path, b"").unwrap();
    let set = |name: &std::ffi::CStr, value: &[u8]| {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty())
    };
    if set(c"user.k", b"value").is_err() {
        eprintln!("skipped: no extended attributes in {}", path.display());
        return;
    }
    set(c"user.overlay.origin", b"mark").unwrap();
    let node = world.look_up(1, "f");
    assert_eq!(world.xattr(node, "user.overlay.origin", 10), Err(Errno::NODATA));
    assert_eq!(world.facets(node), Facets::ATTRS, "overlayfs's own do not count");
    assert_eq!(world.xattr(node, "user.none", 0), Err(Errno::NODATA));
    assert_eq!(world.xattr(node, "user.k", 0).unwrap()[..4], 5u32.to_ne_bytes());
    assert_eq!(world.xattr(node, "user.k", 4), Err(Errno::RANGE));
    assert_eq!(world.xattr(node, "user.k", 5).unwrap(), b"value");
    let list = world.ask(LISTXATTR, node, &[&1000u32.to_ne_bytes()[..], &[0; 4]].concat());
    let list = String::from_utf8(list.unwrap()).unwrap();
    assert!(list.contains("user.k\0") && !list.contains("overlay"));
    assert!(world.facets(node).contains(Facets::XATTRS));
    set(c"user.k", b"other").unwrap();
    assert_eq!(world.xattr(node, "user.k", 5), Err(Errno::STALE));
    assert_eq!(world.doom().unwrap().1, Facet::Xattrs);
}

#[test]
fn holes_are_found() {
    let world = World::new();
    let file = fs::File::create(world.path().join("f")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    drop(file);
    let node = world.look_up(1, "f");
    let seek = |offset: u64, whence: u32| {
        let body = [&[0; 8][..], &offset.to_ne_bytes(), &whence.to_ne_bytes(), &[0; 4]].concat();
        world.ask(LSEEK, node, &body).map(|answer| u64::from_ne_bytes(answer.try_into().unwrap()))
    };
    assert_eq!(seek(0, 3).unwrap(), 1 << 20);
    assert_eq!(seek(0, 4).unwrap(), 0);
    assert_eq!(seek(2 << 20, 3), Err(Errno::NXIO));
    assert_eq!(seek(0, 9), Err(Errno::INVAL));
}

#[test]
fn handles_of_overlayfs() {
    let world = World::new();
    fs::create_dir(world.path().join("d")).unwrap();
    let node = world.look_up(1, "d");
    assert_eq!(world.look_up(node, "."), node);
    assert_eq!(world.look_up(node, ".."), 1);
    assert_eq!(world.look_up(1, ".."), 1);
    assert_eq!(world.ask(LOOKUP, 99, b".\0"), Err(Errno::STALE));
    assert_eq!(world.ask(LOOKUP, 0, b".\0"), Err(Errno::STALE));
}

#[test]
fn names_are_bytes() {
    let world = World::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe \n");
    fs::write(world.path().join(name), b"").unwrap();
    let answer = world.ask(LOOKUP, 1, b"\xff\xfe \n\0").unwrap();
    assert_ne!(answer[..8], [0; 8]);
}

#[test]
fn what_is_refused() {
    let world = World::new();
    assert_eq!(world.ask(IOCTL, 1, &[0; 32]), Err(Errno::NOTTY));
    assert_eq!(world.ask(STATX, 1, &[0; 40]), Err(Errno::NOSYS));
    for change in [4, 6, 8, 9, 10, 11, 12, 13, 16, 21, 24, 35, 43, 45, 47, 51] {
        assert_eq!(world.ask(change, 1, &[0; 64]), Err(Errno::ROFS), "{change}");
    }
    for opcode in 0..70 {
        if ![2, 42].contains(&opcode) {
            // Bodies that are cut short are errors, or not looked at.
            let _ = world.ask(opcode, 1, b"");
        }
    }
    assert_eq!(world.doom(), None);
}

#[test]
fn before_recording_only_names_count() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    fs::write(dir.path().join("d/f"), b"").unwrap();
    let spec = CaptureSpec { root: dir.path().to_owned(), ..CaptureSpec::default() };
    let mirror = Mirror::new(spec).unwrap();
    let world = World { mirror, dir, doomed: Arc::default() };
    let node = world.look_up(1, "d");
    world.ask(GETATTR, node, &[0; 16]).unwrap();
    world.list(node, 0, 4096).unwrap();
    assert_eq!(world.facets(node), Facets::PERMS | Facets::ATTRS);
    world.mirror.begin_recording();
    fs::write(world.path().join("d/new"), b"").unwrap();
    assert_eq!(world.list(node, 0, 4096).unwrap().len(), 4, "listed anew");
    assert_eq!(world.doom(), None);
}
