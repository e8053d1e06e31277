//! Random lists of operations in a transaction and natively: every result, and in the end the tree,
//! must be the same.
//!
//! ```sh
//! TXOS_LISTS=20000 cargo test --release -p txos-api --test random     # the long form
//! ```

mod support;

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::SystemTime,
};

use proptest::prelude::*;
use support::{Place, age, shown_time, tree};
use txos_api::Transaction;

const NAMES: [&str; 24] = [
    "a", "b", "d", "e", "l", "d/a", "d/b", "d/e", "d/l", "e/a", "e/d", "e/e", "d/d", "d/e/a",
    "d/e/d", "e/d/a", "e/d/b", "e/e/a", "d/d/b", "l/a", "l/e/a", "d/../a", "d/.", "b/",
];

#[derive(Clone, Debug)]
enum Op {
    Read(usize),
    ReadRange(usize, u64, usize),
    Write(usize, Vec<u8>),
    WriteRange(usize, u64, Vec<u8>),
    Append(usize, Vec<u8>),
    Truncate(usize, u64),
    Create(usize, u32),
    CreateDir(usize, u32),
    Symlink(usize, usize),
    Link(usize, usize),
    Rename(usize, usize),
    Remove(usize),
    RemoveDir(usize),
    SetMode(usize, u32),
    SetTimes(usize, i64),
    SetXattr(usize, Option<Vec<u8>>),
    Xattr(usize),
    Stat(usize),
    List(usize),
    ReadLink(usize),
    Exists(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let name = || 0..NAMES.len();
    let data = || proptest::collection::vec(b'a'..=b'z', 0..9);
    let mode = || prop_oneof![Just(0o644u32), Just(0o600), Just(0o755), Just(0o4711)];
    prop_oneof![
        name().prop_map(Op::Read),
        (name(), 0u64..12, 0usize..12).prop_map(|(n, o, l)| Op::ReadRange(n, o, l)),
        (name(), data()).prop_map(|(n, d)| Op::Write(n, d)),
        (name(), 0u64..12, data()).prop_map(|(n, o, d)| Op::WriteRange(n, o, d)),
        (name(), data()).prop_map(|(n, d)| Op::Append(n, d)),
        (name(), 0u64..12).prop_map(|(n, s)| Op::Truncate(n, s)),
        (name(), mode()).prop_map(|(n, m)| Op::Create(n, m)),
        (name(), mode()).prop_map(|(n, m)| Op::CreateDir(n, m & 0o777)),
        (name(), name()).prop_map(|(t, n)| Op::Symlink(t, n)),
        (name(), name()).prop_map(|(a, b)| Op::Link(a, b)),
        (name(), name()).prop_map(|(a, b)| Op::Rename(a, b)),
        (name(), name()).prop_map(|(a, b)| Op::Rename(a, b)),
        name().prop_map(Op::Remove),
        name().prop_map(Op::RemoveDir),
        (name(), mode()).prop_map(|(n, m)| Op::SetMode(n, m)),
        (name(), 1i64..1000).prop_map(|(n, s)| Op::SetTimes(n, s)),
        (name(), proptest::option::of(data())).prop_map(|(n, v)| Op::SetXattr(n, v)),
        name().prop_map(Op::Xattr),
        name().prop_map(Op::Stat),
        name().prop_map(Op::List),
        name().prop_map(Op::ReadLink),
        name().prop_map(Op::Exists),
    ]
}

fn at(top: &Path, name: usize) -> PathBuf {
    // Joined by hand: a dot or slash at the end must stay.
    PathBuf::from(format!("{}/{}", top.display(), NAMES[name]))
}

/// Where a symbolic link points: to a neighbour, so that both trees can hold it.
fn target(name: usize) -> &'static str {
    ["a", "d", "e", "nowhere", "l", "d/e", "."][name % 7]
}

fn errno(error: io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

fn natively(top: &Path, op: &Op) -> Result<String, i32> {
    let nothing = |(): ()| String::new();
    let cstring = |path: PathBuf| CString::new(path.as_os_str().as_bytes()).expect("no NUL");
    match op {
        Op::Read(name) => fs::read(at(top, *name)).map(|bytes| format!("{bytes:?}")),
        Op::ReadRange(name, offset, len) => (|| {
            let file = File::open(at(top, *name))?;
            let mut bytes = vec![0; *len];
            let count = file.read_at(&mut bytes, *offset)?;
            if file.metadata()?.is_dir() {
                return Err(io::Error::from_raw_os_error(21));
            }
            Ok(format!("{:?}", &bytes[..count]))
        })(),
        Op::Write(name, data) => (|| {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o666).open(at(top, *name))?;
            file.write_all(data).map(nothing)
        })(),
        Op::WriteRange(name, offset, data) => (|| {
            let file = OpenOptions::new().write(true).open(at(top, *name))?;
            file.write_all_at(data, *offset).map(nothing)
        })(),
        Op::Append(name, data) => (|| {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).create(true).mode(0o666).open(at(top, *name))?;
            file.write_all(data).map(nothing)
        })(),
        Op::Truncate(name, size) => {
            rustix::fs::open(at(top, *name), rustix::fs::OFlags::WRONLY, 0.into())
                .and_then(|file| rustix::fs::ftruncate(file, *size))
                .map_err(io::Error::from)
                .map(nothing)
        }
        Op::Create(name, mode) => {
            let mut options = OpenOptions::new();
            let made = options.write(true).create_new(true).mode(*mode).open(at(top, *name));
            made.map(|_| String::new())
        }
        Op::CreateDir(name, mode) => {
            fs::DirBuilder::new().mode(*mode).create(at(top, *name)).map(nothing)
        }
        Op::Symlink(to, name) => {
            std::os::unix::fs::symlink(target(*to), at(top, *name)).map(nothing)
        }
        Op::Link(from, to) => fs::hard_link(at(top, *from), at(top, *to)).map(nothing),
        Op::Rename(from, to) => fs::rename(at(top, *from), at(top, *to)).map(nothing),
        Op::Remove(name) => fs::remove_file(at(top, *name)).map(nothing),
        Op::RemoveDir(name) => fs::remove_dir(at(top, *name)).map(nothing),
        Op::SetMode(name, mode) => {
            let mode = fs::Permissions::from_mode(*mode);
            fs::set_permissions(at(top, *name), mode).map(nothing)
        }
        Op::SetTimes(name, sec) => {
            let stamp = rustix::fs::Timespec { tv_sec: *sec, tv_nsec: 0 };
            let times = rustix::fs::Timestamps { last_access: stamp, last_modification: stamp };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(rustix::fs::CWD, at(top, *name), &times, flags)
                .map_err(io::Error::from)
                .map(nothing)
        }
        Op::SetXattr(name, value) => {
            let path = cstring(at(top, *name));
            let flags = rustix::fs::XattrFlags::empty();
            match value {
                Some(value) => rustix::fs::lsetxattr(path.as_c_str(), c"user.x", value, flags),
                None => rustix::fs::lremovexattr(path.as_c_str(), c"user.x"),
            }
            .map_err(io::Error::from)
            .map(nothing)
        }
        Op::Xattr(name) => {
            let mut value = [0; 100];
            match rustix::fs::lgetxattr(at(top, *name), c"user.x", &mut value[..]) {
                Ok(count) => Ok(format!("{:?}", Some(&value[..count]))),
                Err(rustix::io::Errno::NODATA) => Ok(format!("{:?}", None::<&[u8]>)),
                Err(errno) => Err(errno.into()),
            }
        }
        Op::Stat(name) => {
            use std::os::unix::fs::MetadataExt;
            fs::metadata(at(top, *name)).map(|meta| {
                let size = if meta.is_dir() { 0 } else { meta.size() };
                let links = if meta.is_dir() { 0 } else { meta.nlink() };
                let mtime = shown_time(meta.mtime(), meta.mtime_nsec());
                let mode = meta.mode() & 0o7777;
                format!("{mode:o} {} {} {size} {links} {mtime}", meta.uid(), meta.gid())
            })
        }
        Op::List(name) => fs::read_dir(at(top, *name)).map(|entries| {
            let mut names: Vec<_> =
                entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            format!("{names:?}")
        }),
        Op::ReadLink(name) => fs::read_link(at(top, *name)).map(|link| format!("{link:?}")),
        Op::Exists(name) => match fs::metadata(at(top, *name)) {
            Ok(_) => Ok("true".into()),
            Err(error) if matches!(errno_of(&error), 2 | 20) => Ok("false".into()),
            Err(error) => Err(error),
        },
    }
    .map_err(errno)
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(-1)
}

fn inside(tx: &mut Transaction, top: &Path, op: &Op) -> Result<String, i32> {
    let nothing = |(): ()| String::new();
    let path = |name: &usize| at(top, *name);
    match op {
        Op::Read(name) => tx.read(path(name)).map(|bytes| format!("{bytes:?}")),
        Op::ReadRange(name, offset, len) => {
            tx.read_range(path(name), *offset, *len).map(|bytes| format!("{bytes:?}"))
        }
        Op::Write(name, data) => tx.write(path(name), data).map(nothing),
        Op::WriteRange(name, offset, data) => {
            tx.write_range(path(name), *offset, data).map(nothing)
        }
        Op::Append(name, data) => tx.append(path(name), data).map(nothing),
        Op::Truncate(name, size) => tx.truncate(path(name), *size).map(nothing),
        Op::Create(name, mode) => tx.create(path(name), *mode).map(nothing),
        Op::CreateDir(name, mode) => tx.create_dir(path(name), *mode).map(nothing),
        Op::Symlink(to, name) => tx.symlink(target(*to), path(name)).map(nothing),
        Op::Link(from, to) => tx.link(path(from), path(to)).map(nothing),
        Op::Rename(from, to) => tx.rename(path(from), path(to)).map(nothing),
        Op::Remove(name) => tx.remove(path(name)).map(nothing),
        Op::RemoveDir(name) => tx.remove_dir(path(name)).map(nothing),
        Op::SetMode(name, mode) => tx.set_mode(path(name), *mode).map(nothing),
        Op::SetTimes(name, sec) => {
            let stamp = Some(txos_api::Stamp { sec: *sec, nsec: 0 });
            tx.set_times(path(name), stamp, stamp).map(nothing)
        }
        Op::SetXattr(name, value) => {
            tx.set_xattr(path(name), "user.x", value.as_deref()).map(nothing)
        }
        Op::Xattr(name) => {
            tx.xattr(path(name), "user.x").map(|value| format!("{:?}", value.as_deref()))
        }
        Op::Stat(name) => tx.stat(path(name)).map(|stat| {
            let dir = stat.kind == txos_api::FileKind::Dir;
            let (size, links) = if dir { (0, 0) } else { (stat.size, stat.nlink) };
            let mtime = shown_time(stat.mtime.sec, stat.mtime.nsec.into());
            format!("{:o} {} {} {size} {links} {mtime}", stat.mode, stat.uid, stat.gid)
        }),
        Op::List(name) => tx.list(path(name)).map(|names| format!("{names:?}")),
        Op::ReadLink(name) => tx.read_link(path(name)).map(|link| format!("{link:?}")),
        Op::Exists(name) => tx.exists(path(name)).map(|there| there.to_string()),
    }
    .map_err(|error| error.errno().map_or(-2, |errno| errno.raw_os_error()))
}

/// What is there before: the same in both trees.
fn prepare(top: &Path) {
    fs::create_dir_all(top.join("d/e")).expect("directories");
    fs::write(top.join("a"), "stable a").expect("a file");
    fs::write(top.join("d/b"), "stable b").expect("a file");
    fs::hard_link(top.join("a"), top.join("d/a")).expect("a link");
    std::os::unix::fs::symlink("d", top.join("l")).expect("a link");
}

/// How many lists; the long form of the test sets `TXOS_LISTS`.
const LISTS: u32 = 200;

fn given<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Other lists each time; `TXOS_SEED=…` repeats those of a failure, which prints its seed.
fn config() -> ProptestConfig {
    let fresh = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64
    };
    let seed = given("TXOS_SEED").unwrap_or_else(fresh);
    println!("TXOS_SEED={seed}");
    ProptestConfig {
        cases: given("TXOS_LISTS").unwrap_or(LISTS),
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_transaction_does_what_the_system_calls_do(
        lists in proptest::collection::vec(proptest::collection::vec(op(), 0..20), 1..3),
    ) {
        let place = Place::new();
        let (ours, theirs) = (place.path("ours"), place.path("theirs"));
        prepare(&ours);
        prepare(&theirs);
        for list in &lists {
            // Whether a time moves must show, in each list anew.
            age(&ours);
            age(&theirs);
            let mut tx = place.system.begin().expect("a transaction");
            for op in list {
                let native = natively(&theirs, op);
                let result = inside(&mut tx, &ours, op);
                prop_assert_eq!(&result, &native, "{:?}", op);
            }
            tx.commit().expect("nobody else was there");
            prop_assert_eq!(tree(&ours), tree(&theirs));
        }
    }
}
