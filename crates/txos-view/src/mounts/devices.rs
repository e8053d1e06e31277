use std::{
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::symlink,
    },
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, chmodat, openat},
    io::Errno,
    mount::{MountFlags, mount, mount_bind},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
    pty::{ptsname, unlockpt},
};

use super::{inside, make_dir, make_file, mount_flags, remount_read_only, tmpfs};
use crate::{Channel, FromView, Result, ViewError, ViewSpec};

/// Where the host's journal takes entries, and where it takes those of syslog(3).
const JOURNAL: &str = "/run/systemd/journal/socket";
const JOURNAL_LOG: &str = "/run/systemd/journal/dev-log";
/// Where it takes streams, those of systemd-cat(1).
const JOURNAL_STREAMS: &str = "/run/systemd/journal/stdout";

/// The devices that every program may use and that hold no state of the machine.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Makes `/dev`: harmless nodes of the host, terminals, shared memory and message queues of the
/// view's own, and the txos helpers. Whatever else the host has there is closed; `--allow PATH`
/// lets a node through.
pub(super) fn mount_devices(
    spec: &ViewSpec,
    root: &Path,
    channel: &Channel,
) -> Result<Option<OwnedFd>> {
    let dev = root.join("dev");
    tmpfs(&dev, "mode=0755,size=256k")?;
    for name in NODES {
        bind_node(&Path::new("/dev").join(name), &dev.join(name))?;
    }
    for (name, target) in LINKS {
        symlink(target, dev.join(name)).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ViewError::step(format!("link /dev/{name}"), errno)
        })?;
    }
    for name in ["pts", "shm", "mqueue", "txos"] {
        make_dir(&dev.join(name))?;
    }
    let helpers = dev.join("txos");
    for name in &spec.helpers {
        bind_read_only(&spec.program, &helpers.join(name))?;
    }
    for original in &spec.originals {
        bind_read_only(&original.path, &helpers.join(format!("real-{}", original.name)))?;
    }
    bind_file(&spec.requests, &helpers.join("requests"))?;
    for path in spec.live.iter().filter(|path| path.starts_with("/dev")) {
        make_place(path, root)?;
    }

    let none = MountFlags::NOSUID | MountFlags::NOEXEC;
    let pts = dev.join("pts");
    let options = c"newinstance,ptmxmode=0666,mode=0620";
    mount("devpts", &pts, "devpts", none, Some(options))
        .map_err(|errno| ViewError::mount("devpts", &pts, errno))?;
    tmpfs(&dev.join("shm"), "mode=1777")?;
    // Message queues may be left out of the kernel: then programs meet the same lack as outside.
    let queues = dev.join("mqueue");
    let result = mount("mqueue", &queues, "mqueue", none | MountFlags::NODEV, None);
    if !matches!(result, Ok(()) | Err(Errno::NODEV)) {
        result.map_err(|errno| ViewError::mount("mqueue", &queues, errno))?;
    }
    if !is_live(spec, Path::new("/dev/log")) {
        let socket = bind_log(&dev, "log")?;
        channel.send(&FromView::Log, Some(socket.as_fd()))?;
        show_log(spec, root, &dev.join("log"), JOURNAL_LOG)?;
    }
    if !is_live(spec, Path::new(JOURNAL)) && inside(root, Path::new(JOURNAL)).exists() {
        let socket = bind_log(&helpers, "journal")?;
        channel.send(&FromView::Journal, Some(socket.as_fd()))?;
        show_log(spec, root, &helpers.join("journal"), JOURNAL)?;
    }
    if !is_live(spec, Path::new(JOURNAL_STREAMS))
        && inside(root, Path::new(JOURNAL_STREAMS)).exists()
    {
        let socket = bind_socket(&helpers, "journal-streams", SocketType::STREAM)?;
        listen(&socket, 128).map_err(|errno| ViewError::step("listen for streams", errno))?;
        channel.send(&FromView::JournalStreams, Some(socket.as_fd()))?;
        show_log(spec, root, &helpers.join("journal-streams"), JOURNAL_STREAMS)?;
    }
    let terminal = match spec.terminal.contains(&true) {
        true => Some(open_terminal(&pts, channel)?),
        false => None,
    };
    // What a command made here would be lost without a word: so it cannot.
    remount_read_only(&dev, mount_flags(true, false, true))?;
    Ok(terminal)
}

/// Whether a path of the host is let through.
fn is_live(spec: &ViewSpec, path: &Path) -> bool {
    spec.live.iter().any(|live| path.starts_with(live))
}

/// Shows a log of the view also where the host has one at `path`.
fn show_log(spec: &ViewSpec, root: &Path, from: &Path, path: &str) -> Result<()> {
    let at = inside(root, Path::new(path));
    if is_live(spec, Path::new(path)) || !at.exists() {
        return Ok(());
    }
    mount_bind(from, &at).map_err(|errno| ViewError::mount("the view's log", &at, errno))
}

/// A log of the view: a socket whose messages the manager keeps until the commit.
fn bind_log(dir: &Path, name: &str) -> Result<OwnedFd> {
    bind_socket(dir, name, SocketType::DGRAM)
}

fn bind_socket(dir: &Path, name: &str, kind: SocketType) -> Result<OwnedFd> {
    let failed = |errno| ViewError::step(format!("make the view's {name} socket"), errno);
    let place = openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed)?;
    let socket =
        socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(failed)?;
    // An address holds 108 bytes only, which the path of a state directory can exceed.
    let short = format!("/proc/self/fd/{}/{name}", place.as_raw_fd());
    bind(&socket, &SocketAddrUnix::new(short).map_err(failed)?).map_err(failed)?;
    chmodat(&place, name, Mode::from_raw_mode(0o666), AtFlags::empty()).map_err(failed)?;
    Ok(socket)
}

/// A pair of terminal ends in the view's own devpts; the master goes to the manager.
fn open_terminal(pts: &Path, channel: &Channel) -> Result<OwnedFd> {
    let failed = |errno| ViewError::step("open a terminal in the view", errno);
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = openat(CWD, pts.join("ptmx"), flags, Mode::empty()).map_err(failed)?;
    unlockpt(&master).map_err(failed)?;
    let name = ptsname(&master, Vec::new()).map_err(failed)?;
    let number = name.to_string_lossy().rsplit('/').next().unwrap_or_default().to_owned();
    let slave = openat(CWD, pts.join(number), flags, Mode::empty()).map_err(failed)?;
    channel.send(&FromView::Terminal, Some(master.as_fd()))?;
    Ok(slave)
}

/// A place for a device that is let through.
fn make_place(path: &Path, root: &Path) -> Result<()> {
    let at = inside(root, path);
    if let Some(parent) = at.parent() {
        std::fs::create_dir_all(parent).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            ViewError::step(format!("make {}", parent.display()), errno)
        })?;
    }
    if at.exists() {
        return Ok(());
    }
    if path.is_dir() { make_dir(&at) } else { make_file(&at) }
}

fn bind_file(from: &Path, at: &Path) -> Result<()> {
    make_file(at)?;
    mount_bind(from, at).map_err(|errno| ViewError::mount(from.display().to_string(), at, errno))
}

/// A node of the host that can be used and not be changed: a mount that is read-only keeps its mode,
/// owner, times and attributes, and opens a device for writing all the same.
fn bind_node(from: &Path, at: &Path) -> Result<()> {
    bind_file(from, at)?;
    remount_read_only(at, mount_flags(true, true, false))
}

/// A program of the host that can be run and not be changed.
fn bind_read_only(from: &Path, at: &Path) -> Result<()> {
    bind_file(from, at)?;
    remount_read_only(at, mount_flags(true, false, true))
}
