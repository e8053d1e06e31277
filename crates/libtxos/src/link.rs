//! The connection of a thread to its session.
//!
//! # Invariants
//!
//! - A connection belongs to one thread of one process: a forked child makes its own.
//! - The session is started once for each table of descriptors that threads of the process have, by whichever
//!   of them begins first, and lives as long as a process holds a connection, or has its [guard]. Under `txos
//!   exec` it is there already.

use std::{
    cell::RefCell,
    ffi::{CString, OsString},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::getpid,
    thread::gettid,
};
use txos_protocol::{Op, Reply, Request, Socket, VERSION, pair, receive, send, send_all};

use crate::{
    descriptors::high,
    guard,
    sys::{self, Held},
    task::{has_own_table, is_single_threaded},
};

/// Set by `txos exec`: the name of the session's socket in the abstract namespace (unix(7)).
const ADDRESS: &str = "TXOS_SESSION";
/// Where the txos program is, if not where it is looked for.
const PROGRAM: &str = "TXOS_PROGRAM";

/// Over which the process asks for further connections.
static FIRST: Mutex<Option<Held>> = Mutex::new(None);

thread_local! {
    /// The same of a thread that had a table of descriptors of its own before there was one in the table that
    /// threads share. Put in the place of that one it would be no descriptor of the others', and that one none
    /// of its own.
    static OWN: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The connection of one thread.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Held,
    pid: i32,
}

impl Link {
    /// Makes a connection, and starts the session if there is none.
    ///
    /// # Errors
    /// `ENOSYS` if no txos program is found.
    pub(crate) fn open() -> Result<Link, Errno> {
        let pid = getpid().as_raw_pid();
        let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        let further = match Link::further(first.as_ref(), pid)? {
            None => OWN.with_borrow(|own| Link::further(own.as_ref(), pid))?,
            found => found,
        };
        if let Some(link) = further {
            return Ok(link);
        }
        // None yet, or it is gone.
        let known = session_of_view()?.or_else(guard::session);
        let socket = match (known, std::env::var_os(ADDRESS)) {
            (Some(address), _) => connect_to(address)?,
            (None, Some(address)) if !is_privileged_by_file() => connect_to(address)?,
            _ => start()?,
        };
        let link = Link { socket: aside(socket)?, pid };
        link.hello()?;
        let (ours, theirs) = pair()?;
        send(&link.socket, &Request::plain(Op::Connect).encode(), Some(theirs.as_fd()))?;
        if is_single_threaded()? || !has_own_table()? {
            *first = Some(link.socket);
        } else {
            OWN.set(Some(link.socket));
        }
        Ok(Link { socket: aside(ours)?, pid })
    }

    /// A connection that is asked for over another one; `None` if there is none, or nobody at its other end.
    fn further(first: Option<&Held>, pid: i32) -> Result<Option<Link>, Errno> {
        let Some(first) = first.filter(|first| first.is_intact()) else { return Ok(None) };
        let (ours, theirs) = pair()?;
        if send(first, &Request::plain(Op::Connect).encode(), Some(theirs.as_fd())).is_err() {
            return Ok(None);
        }
        drop(theirs);
        let link = Link { socket: aside(ours)?, pid };
        Ok(link.hello().is_ok().then_some(link))
    }

    /// Whether the connection is this process's own, and open.
    pub(crate) fn is_ours(&self) -> bool {
        self.pid == getpid().as_raw_pid() && self.socket.is_intact()
    }

    /// The descriptor's number.
    pub(crate) fn number(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.socket.as_raw_fd()
    }

    fn hello(&self) -> Result<(), Errno> {
        let request = Request { flags: VERSION, ..Request::plain(Op::Hello) };
        match self.ask(&request) {
            Ok((reply, _)) if reply.code == VERSION.cast_signed() => Ok(()),
            Ok(_) => Err(Errno::NOSYS),
            // It ended at once: there is no session that could be had.
            Err(Errno::PIPE) => Err(Errno::NOSYS),
            Err(errno) => Err(errno),
        }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// `EPIPE` if the session is gone.
    pub(crate) fn ask(&self, request: &Request) -> Result<(Reply, Option<OwnedFd>), Errno> {
        self.ask_with(request, &[])
    }

    /// The same with descriptors.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn ask_with(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Option<OwnedFd>), Errno> {
        let request = Request { task: gettid().as_raw_pid(), ..*request };
        send_all(&self.socket, &request.encode(), fds)?;
        let mut bytes = [0; Reply::LIMIT];
        let (length, fd) = receive(&self.socket, &mut bytes)?;
        if length == 0 {
            return Err(Errno::PIPE);
        }
        let reply = Reply::decode(&bytes[..length]).ok_or(Errno::PROTO)?;
        Ok((reply, fd))
    }
}

/// The session in whose view this program was started; `None` if it was started outside.
///
/// # Errors
/// If `/proc` is not mounted.
pub(crate) fn session_of_view() -> Result<Option<OsString>, Errno> {
    static SESSION: OnceLock<Option<OsString>> = OnceLock::new();
    if let Some(session) = SESSION.get() {
        return Ok(session.clone());
    }
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let found = table.split(|byte| *byte == b'\n').find_map(session_of_line);
    Ok(SESSION.get_or_init(|| found.map(|name| OsString::from_vec(name.to_vec()))).clone())
}

/// The session that a line of the mount table names as the root's source (proc_pid_mountinfo(5)).
fn session_of_line(line: &[u8]) -> Option<&[u8]> {
    let mut words = line.split(|byte| *byte == b' ');
    if words.nth(4) != Some(b"/") {
        return None;
    }
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    (words.next() == Some(b"overlay")).then(|| words.next()?.strip_prefix(b"txos@"))?
}

/// The same connection above the numbers that programs use.
fn aside(socket: Socket) -> Result<Held, Errno> {
    Held::dup(socket.as_fd(), high())
}

/// Whether the program runs with more privileges than its caller, whose environment is not to be trusted.
fn is_privileged_by_file() -> bool {
    sys::is_secure()
}

fn connect_to(address: OsString) -> Result<Socket, Errno> {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(&address.into_vec())?)?;
    // Anybody could have taken the name of a session that has ended.
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return Err(Errno::PERM);
    }
    Ok(Socket::from(socket))
}

/// Starts a session that ends with the last process that holds a connection to it.
fn start() -> Result<Socket, Errno> {
    let program = program().ok_or(Errno::NOSYS)?;
    let program = CString::new(program.into_os_string().into_vec()).map_err(|_| Errno::NOSYS)?;
    let (ours, theirs) = pair()?;
    sys::start_detached(&program, &[c"txos", c"__session", c"3"], theirs.as_fd())?;
    Ok(ours)
}

/// The txos program: `$TXOS_PROGRAM`, else the first in `$PATH`, else where it is installed.
fn program() -> Option<PathBuf> {
    let mut candidates = Vec::new();
    if !is_privileged_by_file() {
        candidates.extend(std::env::var_os(PROGRAM).map(PathBuf::from));
        if let Some(path) = std::env::var_os("PATH") {
            candidates.extend(std::env::split_paths(&path).map(|dir| dir.join("txos")));
        }
    }
    candidates.extend(["/usr/local/bin/txos", "/usr/bin/txos"].map(PathBuf::from));
    candidates.into_iter().find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.is_absolute()
        && path.is_file()
        && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::session_of_line;

    #[test]
    fn the_session_stands_in_the_mount_table() {
        let line = b"90 80 0:77 / / rw,relatime - overlay txos@name rw,lowerdir=/x";
        assert_eq!(session_of_line(line), Some(&b"name"[..]));
        for other in [
            &b"90 80 0:77 / /home rw,relatime shared:1 - overlay txos@name rw"[..],
            b"90 80 0:77 / / rw,relatime - overlay txos rw",
            b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw",
            b"",
        ] {
            assert_eq!(session_of_line(other), None);
        }
    }
}
