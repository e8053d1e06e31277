use std::{
    collections::BTreeMap,
    ffi::CString,
    fs,
    os::unix::fs::{PermissionsExt, lchown},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps, XattrFlags, renameat_with, utimensat},
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount},
    thread::UnshareFlags,
};
use txos_core::{Attrs, FileKind, ObjectId, Origin, Origins, Stamp};
use txos_host::{Tree, XattrSet, attrs_at, read_xattrs_at};

use crate::{
    Committed, Delta, ExtractOptions, NoDomain, Prepared, Privilege, Result, StateDir, TxDir,
    delta::fid::{OriginMark, parse},
};

/// When everything in a test's tree was last changed.
pub(super) const THEN: Stamp = Stamp { sec: 1_000_000_000, nsec: 123_456_789 };

/// A stable tree, a twin of it for native execution, and a state directory.
pub(super) struct World {
    dir: tempfile::TempDir,
    pub host: PathBuf,
    pub native: PathBuf,
    pub state: StateDir,
    pub options: MountOptions,
    state_dir: tempfile::TempDir,
}

#[derive(Clone, Copy)]
pub(super) struct MountOptions(pub &'static str);

pub(super) const FULL: MountOptions = MountOptions("redirect_dir=on,index=on,metacopy=on,xino=off");
pub(super) const NO_METACOPY: MountOptions =
    MountOptions("redirect_dir=on,index=on,metacopy=off,xino=off");

/// As a view of an ordinary user is mounted.
pub(super) const USER: MountOptions = MountOptions("userxattr");

/// Whether overlays can be mounted here; says why not.
pub(super) fn able() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("Skip: overlays are mounted as root only");
    }
    root
}

/// The capture in small: the overlay over a plain directory names inode numbers.
pub(super) struct Inodes(BTreeMap<u64, Origin>);

impl Origins for Inodes {
    fn origin(&self, node_id: u64) -> Option<Origin> {
        self.0.get(&node_id).cloned()
    }

    fn copied(&self, id: &ObjectId) -> Option<Stamp> {
        self.0.contains_key(&id.ino).then_some(Stamp { sec: i64::MAX, nsec: 0 })
    }

    fn filled(&self, _: &ObjectId) -> Option<Stamp> {
        None
    }
}

impl World {
    /// Two like trees, made by `setup`, all times [`THEN`].
    pub(super) fn new(setup: impl Fn(&Path)) -> World {
        Self::with_state_in(setup, &std::env::temp_dir())
    }

    /// The same, with the state directory on another file system than the tree.
    pub(super) fn across(setup: impl Fn(&Path)) -> World {
        Self::with_state_in(setup, Path::new("/dev/shm"))
    }

    /// The same, as an ordinary user has it.
    pub(super) fn user(setup: impl Fn(&Path)) -> World {
        let mut world = Self::new(setup);
        let path = world.state_dir.path().join("user");
        world.state = StateDir::open(path, Privilege::User).unwrap();
        world.options = USER;
        world
    }

    fn with_state_in(setup: impl Fn(&Path), above: &Path) -> World {
        let dir = tempfile::tempdir().unwrap();
        let (host, native) = (dir.path().join("host"), dir.path().join("native"));
        for tree in [&host, &native] {
            fs::create_dir(tree).unwrap();
            setup(tree);
            settle(tree);
        }
        let state_dir = tempfile::tempdir_in(above).unwrap();
        let state = StateDir::open(state_dir.path().join("state"), Privilege::Root).unwrap();
        World { dir, host, native, state, options: FULL, state_dir }
    }

    pub(super) fn inodes(&self) -> Inodes {
        inodes_of(&self.host)
    }

    /// For trees that [`scan`] cannot walk: no origin is told, and what the names say counts.
    pub(super) fn inodes_shallow(&self) -> Inodes {
        Inodes(BTreeMap::new())
    }

    /// Runs `act` in a view of the host tree, and gives the transaction's directory.
    pub(super) fn run(&self, act: &(dyn Fn(&Path) + Sync)) -> TxDir {
        run_in(&self.state, &self.host, &self.dir.path().join("view"), self.options, act)
    }

    pub(super) fn extract(&self, tx: &TxDir, origins: &Inodes) -> Result<Delta> {
        let tree = Tree::open(&self.host).unwrap();
        let options = ExtractOptions::new(self.state.privilege(), tx.meta.started);
        Delta::extract(&tx.meta.layers, &tree, origins, &options)
    }

    pub(super) fn commit(&self, tx: TxDir, delta: Delta) -> Result<Committed> {
        let lock = self.state.try_lock("test").unwrap();
        let mut prepared = Prepared::stage(&self.state, tx, delta)?;
        prepared.commit(&lock, &mut |_| Ok(()), &mut NoDomain, true)
    }

    /// Runs `act` in a view and commits; runs it natively on the twin; the two must be alike.
    pub(super) fn check(&self, act: &(dyn Fn(&Path) + Sync)) -> Delta {
        let origins = self.inodes();
        let (host_before, native_before) = (scan(&self.host), scan(&self.native));
        let tx = self.run(act);
        let delta = self.extract(&tx, &origins).unwrap();
        let shown = self.extract(&tx, &origins).unwrap();
        let report = self.commit(tx, delta).unwrap();
        assert_eq!(report.kept, [], "nothing outside was in the way");
        assert_eq!(report.unfinished, None);
        act(&self.native);
        let (host_after, native_after) = (scan(&self.host), scan(&self.native));
        same(&host_before, &host_after, &native_before, &native_after);
        assert_eq!(fs::read_dir(self.state.path().join("tx")).unwrap().count(), 0);
        shown
    }
}

/// Runs `act` in a view of the tree `host`, and gives the transaction's directory.
pub(super) fn run_in(
    state: &StateDir,
    host: &Path,
    view: &Path,
    options: MountOptions,
    act: &(dyn Fn(&Path) + Sync),
) -> TxDir {
    let id = state.next_id().unwrap();
    let mut tx = TxDir::create(state, id, "test").unwrap();
    let tree = Tree::open(host).unwrap();
    let layer = tx.add_layer(&tree, Path::new("/")).unwrap().clone();
    fs::create_dir_all(view).unwrap();
    in_private_namespace(|| {
        let mount_options = format!(
            "lowerdir={},upperdir={},workdir={},{}",
            host.display(),
            layer.upper.display(),
            layer.work.display(),
            options.0
        );
        let data = CString::new(mount_options).unwrap();
        mount("overlay", view, "overlay", MountFlags::empty(), Some(&*data)).unwrap();
        act(view);
        unmount_patiently(view);
    });
    if options.0 == USER.0 {
        name_origins(&layer.upper);
    }
    tx
}

/// The origins of all objects of a tree.
pub(super) fn inodes_of(host: &Path) -> Inodes {
    let mut all = BTreeMap::new();
    for (path, item) in scan(host) {
        let path = Path::new("/").join(path);
        all.entry(item.attrs.id.ino).or_insert(Origin { attrs: item.attrs, path });
    }
    Inodes(all)
}

/// A program that another test has just forked may hold a copy of a descriptor for a moment.
fn unmount_patiently(view: &Path) {
    for _ in 0..200 {
        match unmount(view, UnmountFlags::empty()) {
            Err(Errno::BUSY) => thread::sleep(Duration::from_millis(10)),
            other => return other.unwrap(),
        }
    }
    panic!("{} stays busy", view.display());
}

/// Over a FUSE in a user namespace the overlay notes no file handles, and the capture names the
/// originals of regular files.
fn name_origins(upper: &Path) {
    for (path, item) in scan(upper) {
        let origin = c"user.overlay.origin";
        let Some(value) = item.xattrs.get(origin) else { continue };
        let set = |name, value: &[u8]| {
            rustix::fs::lsetxattr(upper.join(&path), name, value, XattrFlags::empty()).unwrap();
        };
        if let (FileKind::File, Some(OriginMark::Node(node))) = (item.attrs.kind, parse(value)) {
            set(c"user.txos.origin", &node.to_le_bytes());
        }
        set(origin, b"");
    }
}

/// One object under one name.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub attrs: Attrs,
    pub xattrs: XattrSet,
    pub content: Option<Vec<u8>>,
    pub link: Option<PathBuf>,
}

pub(super) type Scan = BTreeMap<PathBuf, Item>;

/// All of a tree, by relative path; the root is the empty path.
pub(super) fn scan(root: &Path) -> Scan {
    let mut all = Scan::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        let full = root.join(&path);
        let (above, name) = (full.parent().unwrap(), full.file_name().unwrap());
        let dir = fs::File::open(above).unwrap();
        let attrs = attrs_at(&dir, name).unwrap().unwrap();
        let xattrs = read_xattrs_at(&dir, name).unwrap();
        let content = (attrs.kind == FileKind::File).then(|| fs::read(&full).unwrap());
        let link = (attrs.kind == FileKind::Symlink).then(|| fs::read_link(&full).unwrap());
        if attrs.kind == FileKind::Dir {
            for entry in fs::read_dir(&full).unwrap() {
                pending.push(path.join(entry.unwrap().file_name()));
            }
        }
        all.insert(path, Item { attrs, xattrs, content, link });
    }
    all
}

/// Compares what a transaction and what native execution made of like trees.
pub(super) fn same(host_was: &Scan, host: &Scan, native_was: &Scan, native: &Scan) {
    let names = |scan: &Scan| scan.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(host), names(native), "names (committed, native)");
    for (path, item) in host {
        let other = &native[path];
        let at = path.display();
        let (one, two) = (&item.attrs, &other.attrs);
        assert_eq!(one.kind, two.kind, "type of {at}");
        assert_eq!(format!("{:o}", one.perm), format!("{:o}", two.perm), "mode of {at}");
        assert_eq!((one.uid, one.gid), (two.uid, two.gid), "owner of {at}");
        assert_eq!(one.rdev, two.rdev, "device number of {at}");
        assert_eq!(one.nlink, two.nlink, "links of {at}");
        assert_eq!(item.link, other.link, "target of {at}");
        assert_eq!(item.xattrs, other.xattrs, "extended attributes of {at}");
        if one.kind == FileKind::File {
            assert_eq!(one.size, two.size, "size of {at}");
            assert!(item.content == other.content, "content of {at}");
            let slack = 16; // blocks of metadata differ from file to file
            assert!(
                one.blocks.abs_diff(two.blocks) <= slack,
                "sparseness of {at}: {} {}",
                one.blocks,
                two.blocks
            );
        }
        // Times that came about by themselves differ from run to run.
        let recent = |stamp: Stamp| stamp.sec > THEN.sec + 100_000_000;
        assert_eq!(
            recent(one.mtime),
            recent(two.mtime),
            "age of {at}: {:?} {:?}",
            one.mtime,
            two.mtime
        );
        if !recent(one.mtime) {
            assert_eq!(one.mtime, two.mtime, "modification time of {at}");
        }
        if !recent(one.atime) && !recent(two.atime) {
            assert_eq!(one.atime, two.atime, "access time of {at}");
        }
    }
    // Which objects live on, under which names.
    for (path, item) in host {
        let lives = |was: &Scan, id| {
            was.iter()
                .filter(|(_, old)| old.attrs.id == id)
                .map(|(path, _)| path.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lives(host_was, item.attrs.id),
            lives(native_was, native[path].attrs.id),
            "former names of {}",
            path.display()
        );
        let shares = |now: &Scan, id| {
            now.iter()
                .filter(|(_, new)| new.attrs.id == id)
                .map(|(path, _)| path.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shares(host, item.attrs.id),
            shares(native, native[path].attrs.id),
            "names of {}",
            path.display()
        );
    }
}

/// Runs `act` in a mount namespace of its own, on a thread of its own.
pub(super) fn in_private_namespace(act: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            #[allow(unsafe_code)]
            // SAFETY: the thread was just made for this and shares no assumption about its
            // namespace with others; no descriptor table is unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }
                .unwrap();
            mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE).unwrap();
            act();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Sets the times of everything below and at `root`.
pub(super) fn settle(root: &Path) {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    while at < paths.len() {
        let path = paths[at].clone();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    for path in paths.iter().rev() {
        set_times(path, THEN, THEN);
    }
}

pub(super) fn set_times(path: &Path, atime: Stamp, mtime: Stamp) {
    let spec = |stamp: Stamp| Timespec { tv_sec: stamp.sec, tv_nsec: stamp.nsec.into() };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub(super) fn exchange(one: &Path, other: &Path) {
    renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
}

pub(super) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(super) fn chown(path: &Path, uid: u32, gid: u32) {
    lchown(path, Some(uid), Some(gid)).unwrap();
}
