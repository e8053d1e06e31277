use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::Path,
};

use rustix::fs::{
    CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags, fallocate, makedev, mkdirat, mknodat,
    openat, removexattr, setxattr,
};
use txos_core::Stamp;

use super::world::{FULL, NO_METACOPY, THEN, World, able, chmod, chown, exchange, set_times};

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

/// A tree with something of every kind in it.
fn rich(root: &Path) {
    basic(root);
    fs::create_dir_all(root.join("d1/in")).unwrap();
    fs::create_dir_all(root.join("d2/in")).unwrap();
    for name in ["d1/x", "d1/in/x", "d2/y", "d2/in/y"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::write(root.join("one"), "linked").unwrap();
    fs::hard_link(root.join("one"), root.join("two")).unwrap();
    fs::hard_link(root.join("one"), root.join("dir/three")).unwrap();
    mknod(&root.join("null"), FileType::CharacterDevice, makedev(1, 3));
    mknod(&root.join("fifo"), FileType::Fifo, 0);
    fs::write(root.join("setuid"), "s").unwrap();
    chmod(&root.join("setuid"), 0o6755);
    fs::write(root.join("caps"), "c").unwrap();
    setxattr(root.join("caps"), c"security.capability", CAPABILITY, XattrFlags::empty()).unwrap();
    setxattr(root.join("dir"), c"user.tag", b"1", XattrFlags::empty()).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_at(b"end", 10 << 20).unwrap();
    sparse.set_len(20 << 20).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
}

/// `cap_net_raw+ep`, version 2 (`linux/capability.h`).
const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn mknod(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device).unwrap();
}

/// Every case: what it does, in a view and natively.
type Case = (&'static str, fn(&Path));

const CASES: &[Case] = &[
    ("hard link written through one name", |root| {
        OpenOptions::new().append(true).open(root.join("two")).unwrap().write_all(b"!").unwrap();
    }),
    ("hard link written, and that name removed", |root| {
        OpenOptions::new().append(true).open(root.join("two")).unwrap().write_all(b"!").unwrap();
        fs::remove_file(root.join("two")).unwrap();
    }),
    ("hard link made", |root| fs::hard_link(root.join("file"), root.join("dir/also")).unwrap()),
    ("hard links made inside", |root| {
        fs::write(root.join("n1"), "n").unwrap();
        fs::hard_link(root.join("n1"), root.join("dir/n2")).unwrap();
        fs::create_dir(root.join("nd")).unwrap();
        fs::hard_link(root.join("n1"), root.join("nd/n3")).unwrap();
    }),
    ("hard link of an old file in a new directory", |root| {
        fs::create_dir(root.join("nd")).unwrap();
        fs::hard_link(root.join("file"), root.join("nd/f")).unwrap();
        fs::hard_link(root.join("one"), root.join("nd/one")).unwrap();
    }),
    ("hard link over another file", |root| {
        fs::remove_file(root.join("dir/a")).unwrap();
        fs::hard_link(root.join("file"), root.join("dir/a")).unwrap();
    }),
    ("file renamed", |root| fs::rename(root.join("file"), root.join("dir/moved")).unwrap()),
    ("file renamed and changed", |root| {
        fs::rename(root.join("file"), root.join("moved")).unwrap();
        fs::write(root.join("moved"), "other content").unwrap();
        chmod(&root.join("moved"), 0o600);
    }),
    ("file renamed over another", |root| {
        fs::rename(root.join("file"), root.join("dir/a")).unwrap();
    }),
    ("file renamed into a new directory", |root| {
        fs::create_dir(root.join("nd")).unwrap();
        fs::rename(root.join("file"), root.join("nd/f")).unwrap();
        fs::write(root.join("nd/g"), "g").unwrap();
    }),
    ("one of several names renamed", |root| {
        fs::rename(root.join("two"), root.join("dir/zwei")).unwrap();
    }),
    ("one of several names stays, in a directory that takes the place of its own", |root| {
        fs::rename(root.join("dir/three"), root.join("d1/three")).unwrap();
        fs::remove_dir_all(root.join("dir")).unwrap();
        fs::remove_file(root.join("two")).unwrap();
        fs::rename(root.join("d1"), root.join("dir")).unwrap();
    }),
    ("one of several names stays, in a new directory that takes the place of its own", |root| {
        fs::remove_file(root.join("two")).unwrap();
        fs::create_dir(root.join("new")).unwrap();
        fs::rename(root.join("dir/three"), root.join("new/three")).unwrap();
        fs::remove_dir_all(root.join("dir")).unwrap();
        fs::rename(root.join("new"), root.join("dir")).unwrap();
    }),
    ("files exchanged", |root| exchange(&root.join("file"), &root.join("dir/a"))),
    ("files rotated", |root| {
        fs::rename(root.join("file"), root.join("t")).unwrap();
        fs::rename(root.join("dir/a"), root.join("file")).unwrap();
        fs::rename(root.join("dir/b"), root.join("dir/a")).unwrap();
        fs::rename(root.join("t"), root.join("dir/b")).unwrap();
    }),
    ("directory renamed", |root| fs::rename(root.join("d1"), root.join("d3")).unwrap()),
    ("directory renamed elsewhere", |root| {
        fs::rename(root.join("d1"), root.join("dir/sub/d1")).unwrap();
    }),
    ("directory renamed and changed inside", |root| {
        fs::rename(root.join("d1"), root.join("d3")).unwrap();
        fs::write(root.join("d3/x"), "changed").unwrap();
        fs::write(root.join("d3/new"), "new").unwrap();
        fs::remove_file(root.join("d3/in/x")).unwrap();
        chmod(&root.join("d3"), 0o711);
    }),
    ("directories renamed in one another", |root| {
        fs::rename(root.join("d1/in"), root.join("in")).unwrap();
        fs::rename(root.join("d1"), root.join("in/d1")).unwrap();
        fs::write(root.join("in/d1/x"), "x2").unwrap();
        fs::write(root.join("in/x"), "x3").unwrap();
    }),
    ("directories renamed twice", |root| {
        fs::rename(root.join("d1"), root.join("d3")).unwrap();
        fs::rename(root.join("d3/in"), root.join("d3/inner")).unwrap();
        fs::rename(root.join("d3"), root.join("d4")).unwrap();
    }),
    ("directories exchanged", |root| {
        exchange(&root.join("d1"), &root.join("d2"));
        fs::write(root.join("d1/y"), "y2").unwrap();
        fs::write(root.join("d2/x"), "x2").unwrap();
    }),
    ("nested directories exchanged", |root| {
        exchange(&root.join("d1"), &root.join("d2/in"));
    }),
    ("directory renamed over an emptied one", |root| {
        fs::remove_dir_all(root.join("d2/in")).unwrap();
        fs::remove_file(root.join("d2/y")).unwrap();
        fs::rename(root.join("d1"), root.join("d2")).unwrap();
    }),
    ("directory renamed into a new one", |root| {
        fs::create_dir_all(root.join("n/m")).unwrap();
        fs::rename(root.join("d1"), root.join("n/m/d1")).unwrap();
        fs::write(root.join("n/m/d1/more"), "more").unwrap();
        fs::rename(root.join("d2/in"), root.join("n/m/d1/in2")).unwrap();
    }),
    ("renamed back", |root| {
        fs::rename(root.join("d1"), root.join("t")).unwrap();
        fs::rename(root.join("t"), root.join("d1")).unwrap();
        fs::rename(root.join("file"), root.join("t")).unwrap();
        fs::rename(root.join("t"), root.join("file")).unwrap();
    }),
    ("moved out of a removed directory", |root| {
        fs::rename(root.join("d1/in"), root.join("saved")).unwrap();
        fs::rename(root.join("d1/x"), root.join("saved-x")).unwrap();
        fs::remove_dir_all(root.join("d1")).unwrap();
    }),
    ("directory removed and made again", |root| {
        fs::remove_dir_all(root.join("d1")).unwrap();
        fs::create_dir(root.join("d1")).unwrap();
        fs::write(root.join("d1/x"), "new x").unwrap();
    }),
    ("directory made again with a part of the old", |root| {
        fs::rename(root.join("d1/in"), root.join("t")).unwrap();
        fs::remove_dir_all(root.join("d1")).unwrap();
        fs::create_dir(root.join("d1")).unwrap();
        fs::rename(root.join("t"), root.join("d1/in")).unwrap();
    }),
    ("file to directory, directory to file, to link, and back", |root| {
        fs::remove_file(root.join("file")).unwrap();
        fs::create_dir(root.join("file")).unwrap();
        fs::write(root.join("file/in"), "in").unwrap();
        fs::remove_dir_all(root.join("d1")).unwrap();
        fs::write(root.join("d1"), "a file now").unwrap();
        fs::remove_dir_all(root.join("d2")).unwrap();
        symlink("dir", root.join("d2")).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::create_dir(root.join("link")).unwrap();
        fs::remove_file(root.join("dir/a")).unwrap();
        fs::create_dir(root.join("dir/a")).unwrap();
        fs::remove_dir(root.join("dir/a")).unwrap();
        fs::write(root.join("dir/a"), "again").unwrap();
    }),
    ("replaced by rename", |root| {
        fs::write(root.join("file.new"), "replaced").unwrap();
        fs::rename(root.join("file.new"), root.join("file")).unwrap();
    }),
    ("devices, pipes, sockets", |root| {
        mknod(&root.join("dir/dev"), FileType::BlockDevice, makedev(7, 200));
        mknod(&root.join("dir/pipe"), FileType::Fifo, 0);
        mknod(&root.join("dir/sock"), FileType::Socket, 0);
        chown(&root.join("null"), 3, 4);
        chmod(&root.join("fifo"), 0o600);
        fs::rename(root.join("fifo"), root.join("dir/fifo")).unwrap();
        fs::rename(root.join("null"), root.join("dir/null")).unwrap();
    }),
    ("symbolic links", |root| {
        symlink("nowhere", root.join("dir/l")).unwrap();
        chown(&root.join("dir/l"), 5, 6);
        set_times(&root.join("dir/l"), stamp(5, 6), stamp(7, 8));
        chown(&root.join("link"), 7, 8);
        set_times(&root.join("link"), stamp(9, 1), stamp(9, 999_999_999));
        fs::rename(root.join("link"), root.join("link2")).unwrap();
    }),
    ("set-user-id and capabilities", |root| {
        chown(&root.join("setuid"), 1, 2);
        chmod(&root.join("setuid"), 0o6755);
        chown(&root.join("caps"), 1, 2);
        setxattr(root.join("caps"), c"security.capability", CAPABILITY, XattrFlags::empty())
            .unwrap();
        fs::write(root.join("new"), "n").unwrap();
        setxattr(root.join("new"), c"security.capability", CAPABILITY, XattrFlags::empty())
            .unwrap();
        chmod(&root.join("new"), 0o4755);
    }),
    ("set-user-id and capabilities kept over a write", |root| {
        fs::write(root.join("setuid"), "other").unwrap();
        chmod(&root.join("setuid"), 0o6755);
        fs::write(root.join("caps"), "other").unwrap();
        setxattr(root.join("caps"), c"security.capability", CAPABILITY, XattrFlags::empty())
            .unwrap();
    }),
    ("capabilities lost by a write", |root| {
        fs::write(root.join("caps"), "other").unwrap();
        fs::write(root.join("setuid"), "other").unwrap();
    }),
    ("owner changed only", |root| {
        chown(&root.join("setuid"), 1, 2);
        chown(&root.join("caps"), 1, 2);
    }),
    ("extended attributes", |root| {
        let set = |name: &str, key, value: &[u8]| {
            setxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
        };
        set("file", c"user.a", b"1");
        set("dir", c"user.tag", b"2");
        set("dir", c"trusted.t", b"3");
        set("d1", c"user.overlay.opaque", b"y");
        fs::create_dir(root.join("nd")).unwrap();
        set("nd", c"user.overlay.whiteout", b"y");
        set("nd", c"user.x", &[0; 300]);
        removexattr(root.join("dir"), c"user.tag").unwrap();
    }),
    ("access control lists", |root| {
        // Version 2; owner rw-, user 5 r--, group r--, mask r--, others ---.
        let mut acl = vec![2, 0, 0, 0];
        let entries: [(u16, u16, u32); 5] =
            [(1, 6, !0), (2, 4, 5), (4, 4, !0), (16, 4, !0), (32, 0, !0)];
        for (tag, perm, id) in entries {
            acl.extend(tag.to_le_bytes());
            acl.extend(perm.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        for name in ["file", "dir"] {
            let key = c"system.posix_acl_access";
            setxattr(root.join(name), key, &acl, XattrFlags::empty()).unwrap();
        }
        setxattr(root.join("d1"), c"system.posix_acl_default", &acl, XattrFlags::empty()).unwrap();
        fs::write(root.join("d1/inherits"), "i").unwrap();
        chmod(&root.join("dir"), 0o770);
    }),
    ("sparse files", |root| {
        let file = OpenOptions::new().write(true).open(root.join("sparse")).unwrap();
        file.write_at(b"middle", 15 << 20).unwrap();
        let new = fs::File::create(root.join("sparse2")).unwrap();
        new.set_len(50 << 20).unwrap();
        new.write_at(b"x", 30 << 20).unwrap();
    }),
    ("hole punched", |root| {
        let file = OpenOptions::new().write(true).open(root.join("big")).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, 8192, 65536).unwrap();
    }),
    ("truncated and extended", |root| {
        fs::File::create(root.join("file")).unwrap();
        OpenOptions::new().write(true).open(root.join("big")).unwrap().set_len(5000).unwrap();
        OpenOptions::new().write(true).open(root.join("dir/a")).unwrap().set_len(70_000).unwrap();
    }),
    ("times to the nanosecond", |root| {
        set_times(&root.join("file"), stamp(1, 2), stamp(3, 999_999_999));
        set_times(&root.join("dir"), stamp(-5, 4), stamp(5, 1));
        fs::write(root.join("new"), "n").unwrap();
        set_times(&root.join("new"), stamp(7, 7), stamp(8, 8));
        fs::create_dir(root.join("nd")).unwrap();
        fs::write(root.join("nd/f"), "n").unwrap();
        set_times(&root.join("nd"), stamp(9, 9), stamp(10, 10));
    }),
    ("times of a directory set after it was filled", |root| {
        fs::write(root.join("dir/new"), "n").unwrap();
        fs::remove_file(root.join("dir/b")).unwrap();
        set_times(&root.join("dir"), stamp(11, 1), stamp(12, 2));
    }),
    ("times of a directory restored", |root| {
        fs::write(root.join("dir/new"), "n").unwrap();
        set_times(&root.join("dir"), THEN, THEN);
    }),
    ("root directory", |root| {
        chmod(root, 0o711);
        setxattr(root, c"user.root", b"1", XattrFlags::empty()).unwrap();
    }),
    ("names that are no text", |root| {
        for name in [&b"new\nline"[..], b"\x1b[31mred", b"\xff\xfe", b" ", b"a\\b"] {
            fs::write(root.join(OsStr::from_bytes(name)), "x").unwrap();
        }
    }),
    ("many files in an old and a new directory", |root| {
        fs::create_dir(root.join("many")).unwrap();
        for number in 0..300 {
            fs::write(root.join(format!("many/{number}")), format!("{number}")).unwrap();
            fs::write(root.join(format!("dir/{number}")), format!("{number}")).unwrap();
        }
    }),
    ("changed through a mapping and by direct copies", |root| {
        fs::copy(root.join("big"), root.join("copy")).unwrap();
        fs::copy(root.join("copy"), root.join("big")).unwrap();
    }),
    ("same content written again", |root| {
        fs::write(root.join("file"), "content").unwrap();
    }),
    ("read-only directory filled before", |root| {
        fs::create_dir(root.join("ro")).unwrap();
        fs::create_dir(root.join("ro/in")).unwrap();
        fs::write(root.join("ro/in/f"), "f").unwrap();
        chmod(&root.join("ro/in"), 0o555);
        chmod(&root.join("ro"), 0o555);
    }),
    ("emptied directory", |root| {
        fs::remove_dir_all(root.join("d1/in")).unwrap();
        fs::remove_file(root.join("d1/x")).unwrap();
    }),
    ("everything removed", |root| {
        for entry in fs::read_dir(root).unwrap() {
            let path = entry.unwrap().path();
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
        }
    }),
];

fn stamp(sec: i64, nsec: u32) -> Stamp {
    Stamp { sec, nsec }
}

#[test]
fn committed_is_as_native() {
    if !able() {
        return;
    }
    let only = std::env::var("CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for (options, across) in [(FULL, false), (NO_METACOPY, false), (FULL, true)] {
        for (name, act) in CASES.iter().filter(|(name, _)| name.contains(&only)) {
            let mut world = if across { World::across(rich) } else { World::new(rich) };
            world.options = options;
            let world = std::panic::AssertUnwindSafe(world);
            if std::panic::catch_unwind(move || world.check(act)).is_err() {
                failed.push(format!("{name} ({}, across file systems: {across})", options.0));
            }
        }
    }
    assert!(failed.is_empty(), "not as native: {failed:#?}");
}

#[test]
fn text_and_json_for_people() {
    if !able() {
        return;
    }
    let world = World::new(basic);
    let origins = world.inodes();
    let tx = world.run(&|root| {
        fs::write(root.join("file"), "content\nand \x1b[31mmore\n").unwrap();
        fs::write(root.join("dir/new\n"), "a\\b\n").unwrap();
        fs::remove_file(root.join("dir/a")).unwrap();
        fs::rename(root.join("dir/b"), root.join("b2")).unwrap();
        chmod(&root.join("big"), 0o600);
    });
    let delta = world.extract(&tx, &origins).unwrap();
    assert_eq!(
        delta.to_string(),
        "renamed   /b2 (was /dir/b)\n\
         metadata  /big, mode 0644 -> 0600\n\
         removed   /dir/a\n\
         created   /dir/new\\x0a 4 bytes\n\
         modified  /file 7 -> 22 bytes\n"
    );
    let text = delta.unified(&txos_host::Tree::open(&world.host).unwrap());
    assert!(text.contains("--- a/file\n+++ b/file\n"), "{text}");
    assert!(text.contains("+and \\x1b[31mmore\n"), "{text}");
    assert!(text.contains("--- /dev/null\n+++ b/dir/new\\x0a\n@@ -0,0 +1 @@\n+a\\b\n"), "{text}");
    let json = serde_json::to_string(&delta.changes).unwrap();
    let back: Vec<crate::Change> = serde_json::from_str(&json).unwrap();
    assert_eq!(back, delta.changes);
    let first = serde_json::to_value(&delta.changes[0]).unwrap();
    assert_eq!(first["change"], "renamed");
    assert_eq!(first["from"], "/dir/b");
}

/// Without named origins: what can be told from names, sizes and times alone.
#[test]
fn a_users_view() {
    if !able() {
        return;
    }
    let cases: &[Case] = &[
        ("changed in place", |root| {
            fs::write(root.join("file"), "other").unwrap();
            chmod(&root.join("dir/a"), 0o600);
            chmod(&root.join("dir"), 0o700);
            fs::remove_file(root.join("dir/b")).unwrap();
        }),
        ("made, replaced, removed", |root| {
            fs::create_dir_all(root.join("n/m")).unwrap();
            fs::write(root.join("n/m/f"), "f").unwrap();
            fs::write(root.join("t"), "t").unwrap();
            fs::rename(root.join("t"), root.join("file")).unwrap();
            fs::remove_dir_all(root.join("dir")).unwrap();
            fs::create_dir(root.join("dir")).unwrap();
        }),
        ("renamed", |root| fs::rename(root.join("file"), root.join("n")).unwrap()),
        ("renamed over another", |root| {
            fs::rename(root.join("big"), root.join("file")).unwrap();
        }),
        ("exchanged", |root| exchange(&root.join("big"), &root.join("file"))),
        ("linked", |root| {
            fs::hard_link(root.join("file"), root.join("also")).unwrap();
            fs::hard_link(root.join("big"), root.join("zz")).unwrap();
            fs::hard_link(root.join("link"), root.join("dir/a-link")).unwrap();
        }),
        ("symbolic link renamed", |root| {
            fs::rename(root.join("link"), root.join("dir/link")).unwrap();
        }),
        ("symbolic link changed in place", |root| {
            set_times(&root.join("link"), stamp(5, 6), stamp(7, 8));
        }),
        ("symbolic link to elsewhere", |root| {
            fs::remove_file(root.join("link")).unwrap();
            symlink("elsewhere", root.join("link")).unwrap();
        }),
        ("symbolic link made, then the like of it renamed and removed", |root| {
            symlink("file", root.join("new")).unwrap();
            fs::rename(root.join("link"), root.join("dir/link")).unwrap();
            fs::remove_dir_all(root.join("dir")).unwrap();
        }),
        ("symbolic link made, then put in the place of its like, which was changed", |root| {
            symlink("file", root.join("new")).unwrap();
            set_times(&root.join("link"), stamp(5, 6), stamp(7, 8));
            fs::rename(root.join("new"), root.join("link")).unwrap();
        }),
    ];
    for (name, act) in cases {
        eprintln!("{name}");
        World::user(basic).check(act);
    }
}

/// Opens, or makes, a directory so deep that no path leads to it in one go.
fn deep(root: &Path, make: bool) -> std::os::fd::OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, root, flags, Mode::empty()).unwrap();
    for level in 0..60 {
        let name = format!("{level:0>100}");
        if make {
            mkdirat(&at, &name, Mode::RWXU).unwrap();
        }
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    at
}

#[test]
fn paths_longer_than_the_kernel_takes() {
    if !able() {
        return;
    }
    let file = |dir: &std::os::fd::OwnedFd, name: &str| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        drop(openat(dir, name, flags, Mode::RWXU).unwrap());
    };
    let names = |dir: std::os::fd::OwnedFd| -> Vec<_> {
        let listing = txos_host::read_listing(dir).unwrap();
        listing.entries.into_iter().map(|entry| entry.name.into_string().unwrap()).collect()
    };
    let world = World::new(|_| ());
    deep(&world.host, true);
    let origins = world.inodes_shallow();
    let top = Path::new("other");
    let tx = world.run(&|root| {
        file(&deep(root, false), "new");
        fs::create_dir(root.join(top)).unwrap();
        file(&deep(&root.join(top), true), "new");
    });
    let delta = world.extract(&tx, &origins).unwrap();
    world.commit(tx, delta).unwrap();
    assert_eq!(names(deep(&world.host, false)), ["new"]);
    assert_eq!(names(deep(&world.host.join(top), false)), ["new"]);
    let tx = world.run(&|root| fs::remove_dir_all(root.join(top)).unwrap());
    let delta = world.extract(&tx, &origins).unwrap();
    world.commit(tx, delta).unwrap();
    assert!(!world.host.join(top).exists());
}
