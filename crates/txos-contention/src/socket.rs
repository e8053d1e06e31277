//! The manager's socket: finding it, and starting the manager where there is none.

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileTypeExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::{Access, AtFlags, CWD, FlockOperation, Mode, OFlags, accessat, flock, openat},
    io::Errno,
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
        sockopt::socket_peercred,
    },
    process::geteuid,
};
use txos_view::Channel;

/// Name of the socket in the state directory.
const SOCKET: &str = "manager";
/// Name of the file that the manager holds locked.
const LOCK: &str = "manager.lock";
/// The variable that says how long a manager stays without a connection.
pub const GRACE: &str = "TXOS_MANAGER_GRACE";
/// How long a manager that is just starting or ending is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The place of the manager in a state directory.
pub struct Place {
    dir: OwnedFd,
    state: PathBuf,
}

impl Place {
    /// The place in the state directory at `state`.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub fn of(state: &Path) -> Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, state, flags, Mode::empty())
            .with_context(|| format!("cannot open the state directory {}", state.display()))?;
        Ok(Place { dir, state: state.to_owned() })
    }

    /// Through the descriptor: the path of the state directory may be too long for an address.
    fn address(&self) -> Result<SocketAddrUnix> {
        SocketAddrUnix::new(self.path(SOCKET)).context("cannot name the manager's socket")
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }

    fn shown(&self) -> String {
        self.state.join(SOCKET).display().to_string()
    }

    /// Whether a manager may run: where there is no socket, none does.
    pub fn has_socket(&self) -> bool {
        accessat(&self.dir, SOCKET, Access::EXISTS, AtFlags::empty()).is_ok()
    }

    /// Connects to the manager, if one runs.
    ///
    /// # Errors
    /// If what listens there is another user's, or no socket.
    pub fn connect(&self) -> Result<Option<Channel>> {
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .context("cannot make a socket")?;
        match connect(&fd, &self.address()?) {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::CONNRESET) => return Ok(None),
            Err(errno) => bail!(
                "{}: cannot be connected to ({errno}): it is not the socket of a contention \
                 manager; remove it",
                self.shown()
            ),
        }
        ensure!(
            is_ours(&fd),
            "{}: the socket belongs to another user's process; remove it",
            self.shown()
        );
        Ok(Some(Channel::from_fd(fd)))
    }

    /// Connects to the manager, and starts it if there is none.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn connect_or_start(&self) -> Result<Channel> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            if let Some(channel) = self.connect()? {
                return Ok(channel);
            }
            self.start()?;
            if let Some(channel) = self.connect()? {
                return Ok(channel);
            }
            // Another process starts it, or the last one is about to end.
            ensure!(
                began.elapsed() < PATIENCE,
                "{}: nobody listens, but {} is locked; end the process that holds it",
                self.shown(),
                self.state.join(LOCK).display()
            );
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Starts the manager, unless another process is about to.
    fn start(&self) -> Result<()> {
        let path = self.state.join(LOCK);
        let lock = open_lock(&self.path(LOCK))
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(()),
            Err(errno) => bail!("cannot lock {}: {errno}", path.display()),
        }
        let stderr = nothing()?;
        let listener = self.listen()?;
        let program = std::env::current_exe().context("cannot find the txos program")?;
        // The socket and the lock are its standard input and output: marked to be inherited in this
        // process, which may have several threads, they would come into whatever another one starts just
        // then, and a lock held there would be held for as long as that lives.
        //
        // It serves others too, when its starter is long gone: nothing of his environment stays in it.
        let started = Command::new(&program)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == GRACE))
            .arg("__manager")
            .arg(&self.state)
            .current_dir("/")
            .stdin(listener)
            .stdout(lock)
            .stderr(stderr)
            .spawn();
        if let Err(error) = started {
            self.remove();
            return Err(error).with_context(|| format!("cannot start {}", program.display()));
        }
        Ok(())
    }

    /// The listening socket. The caller holds the lock: what is there is what a crash left.
    fn listen(&self) -> Result<OwnedFd> {
        let path = self.path(SOCKET);
        if let Ok(meta) = path.symlink_metadata() {
            ensure!(meta.file_type().is_socket(), "{}: is not a socket; remove it", self.shown());
            self.remove();
        }
        let failed = || format!("{}: cannot make the manager's socket", self.shown());
        let flags = SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .with_context(failed)?;
        bind(&fd, &self.address()?).with_context(failed)?;
        listen(&fd, 4096).with_context(failed)?;
        Ok(fd)
    }

    /// Removes the socket; one that is gone is no error.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(self.path(SOCKET));
    }

    /// A file of the state directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path(name)
    }
}

/// Whether the process at the other end is this user's. One in a pid namespace that can't be seen from
/// here has no number, and rustix can give no credentials then; it has come through the state
/// directory, which nobody else may enter.
pub fn is_ours(fd: impl AsFd) -> bool {
    socket_peercred(fd).map_or(true, |peer| peer.uid == geteuid())
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

/// A stream that leads nowhere. Opened here, so that an error names it.
fn nothing() -> Result<Stdio> {
    let file = File::options().read(true).write(true).open("/dev/null");
    let file = file
        .context("cannot open /dev/null for reading and writing; everybody should (chmod 666)")?;
    Ok(file.into())
}
