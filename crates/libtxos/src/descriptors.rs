//! Open descriptors across the border of a view.
//!
//! | open before the beginning | inside | after a commit | after an abort |
//! |---|---|---|---|
//! | regular file or directory that the view shows | the same file in the view, at the same offset | the descriptor from before, at the new offset | the descriptor from before |
//! | pipe or FIFO ([conduits](crate::conduits)) | another pipe | the descriptor from before | the descriptor from before |
//! | exempt ([`crate::tx_exempt_fd`]), or of another kind | as it is | as it is | as it is |
//!
//! | opened inside | after a commit | after an abort |
//! |---|---|---|
//! | a named file of the view | the committed file, opened again by its name, at its offset | closed |
//! | a file without a name | as it is, private | closed |
//! | of another kind | as it is | as it is |
//!
//! # Invariants
//!
//! - Descriptors that were one open file before are one inside, and are again afterwards.
//! - A number that the program closed inside stays closed after a commit.
//! - Whatever this module holds itself lies above the numbers that programs use, and is closed on exec.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat, Statx, StatxFlags, fcntl_getfl,
        fcntl_setfl, fstat, open, readlink, seek, statx,
    },
    io::{Errno, FdFlags, fcntl_getfd},
    process::{Resource, getrlimit},
    thread::gettid,
};

use crate::{
    conduits::{self, Conduits, End, Inner},
    locks,
    sys::{self, Held},
};

/// Descriptors that are left alone.
static EXEMPT: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Leaves a descriptor alone from now on.
///
/// # Errors
/// `EBADF` if it is not open.
pub(crate) fn exempt(fd: RawFd) -> Result<(), Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    fcntl_getfd(sys::borrow(fd))?;
    let mut exempt = EXEMPT.lock().unwrap_or_else(PoisonError::into_inner);
    if !exempt.contains(&fd) {
        exempt.push(fd);
    }
    Ok(())
}

/// Held while the library has a file or a directory open at a low number, and while a thread looks at
/// what is open: so no thread takes for the program's what another one's way across the border needs for
/// a moment.
static LOW: Mutex<()> = Mutex::new(());

/// See [`LOW`].
pub(crate) fn low() -> MutexGuard<'static, ()> {
    LOW.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lowest number for what the library holds itself.
pub(crate) fn high() -> RawFd {
    static HIGH: OnceLock<RawFd> = OnceLock::new();
    *HIGH.get_or_init(|| {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024).min(1024);
        // Half of the numbers where few are allowed.
        (limit / 2) as RawFd
    })
}

/// A file that was open before the beginning.
#[derive(Debug)]
struct Carried {
    fd: RawFd,
    cloexec: bool,
    /// The offset at the beginning.
    offset: u64,
    before: Held,
    inside: Inside,
}

/// What its number is inside.
#[derive(Debug)]
enum Inside {
    /// The view's file.
    File(Held),
    /// An end of an inner pipe.
    Pipe(Inner),
}

impl Carried {
    /// The view's file.
    fn file(&self) -> Option<&Held> {
        match &self.inside {
            Inside::File(file) => Some(file),
            Inside::Pipe(_) => None,
        }
    }
}

/// What was carried into a view.
#[derive(Debug, Default)]
pub(crate) struct Luggage {
    carried: Vec<Carried>,
}

/// A descriptor that is to be carried in.
#[derive(Debug)]
struct Candidate {
    fd: RawFd,
    path: CString,
    device: u64,
    ino: u64,
    mode: u32,
    flags: OFlags,
    offset: Option<u64>,
    cloexec: bool,
}

/// What is open and could be the view's, to be looked at before it is entered.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    candidates: Vec<Candidate>,
    pipes: Vec<End>,
    /// Numbers of regular files, the exempt ones as well.
    files: Vec<RawFd>,
    /// Whether there is a socket that leads to others.
    has_sockets: bool,
    /// Whether there is a ring of asynchronous calls.
    has_rings: bool,
    /// Whether there is a descriptor for signals.
    has_signals: bool,
}

/// What cannot be carried over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) RawFd);

impl Packed {
    /// Looks at all that is open, but for the library's own and what is open on the mounts `others`,
    /// which are those of other threads' transactions.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the process is out of descriptors or memory.
    pub(crate) fn look(others: &[u32]) -> Result<Packed, Errno> {
        let _low = low();
        let mut packed = Packed::default();
        for fd in numbers()? {
            match packed.add(fd, others) {
                Ok(()) => {}
                // Closed by another thread meanwhile.
                Err(Errno::BADF | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(packed)
    }

    fn add(&mut self, fd: RawFd, others: &[u32]) -> Result<(), Errno> {
        let stat = fstat(sys::borrow(fd))?;
        if sys::is_held(fd, (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            self.files.push(fd);
        }
        if is_exempt(fd) {
            return Ok(());
        }
        self.pipes.extend(End::look(fd, &stat)?);
        self.candidates.extend(candidate(fd, &stat, others)?);
        match FileType::from_raw_mode(stat.st_mode) {
            // Standard streams are left as they are, like a terminal.
            FileType::Socket => {
                self.has_sockets |= fd > 2 && leads_to_others(sys::borrow(fd));
            }
            // What has no type of its own names itself.
            FileType::Unknown => {
                let path = path_of(fd)?;
                self.has_rings |= path.as_bytes() == b"anon_inode:[io_uring]";
                self.has_signals |= path.as_bytes() == b"anon_inode:[signalfd]";
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a socket is open that leads to others: data would go past the transaction.
    pub(crate) fn has_sockets(&self) -> bool {
        self.has_sockets
    }

    /// Whether a ring of asynchronous calls is open (io_uring(7)): its calls would.
    pub(crate) fn has_rings(&self) -> bool {
        self.has_rings
    }

    /// Whether a descriptor for signals is open (signalfd(2)): what is read there does not come again.
    pub(crate) fn has_signals(&self) -> bool {
        self.has_signals
    }

    /// Leaves what cannot be carried as it is: see [`locks`].
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub(crate) fn without_locked(&mut self) -> Result<bool, Errno> {
        if self.candidates.is_empty() {
            return Ok(false);
        }
        let locked = locks::files(&self.files)?;
        let before = self.candidates.len();
        self.candidates.retain(|candidate| !locked.contains(&(candidate.device, candidate.ino)));
        Ok(self.candidates.len() < before)
    }

    /// The ends of pipes, which are carried apart from the rest.
    pub(crate) fn take_pipes(&mut self) -> Vec<End> {
        std::mem::take(&mut self.pipes)
    }

    /// Whether something would be carried.
    pub(crate) fn has_something(&self) -> bool {
        !(self.candidates.is_empty() && self.pipes.is_empty())
    }

    /// Opens everything again, inside the view whose overlays have these mount ids.
    ///
    /// # Errors
    /// The descriptor that cannot be carried, or the error that the kernel gave, `ESTALE` if the transaction has
    /// lost to another one; everything is as before then.
    pub(crate) fn carry(
        self,
        mounts: &[u32],
        lenient: bool,
    ) -> Result<Result<Luggage, Unsupported>, Errno> {
        let mut luggage = Luggage::default();
        for candidate in &self.candidates {
            match luggage.carry(candidate, mounts) {
                // Carried, or not a file that the view shows: one of /proc, or without its name by now.
                Ok(()) | Err(Errno::NOENT) => {}
                // Out of something, or the transaction has lost already.
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::STALE)) => {
                    luggage.restore();
                    return Err(errno);
                }
                Err(_) if lenient => {}
                Err(_) => {
                    let fd = candidate.fd;
                    luggage.restore();
                    return Ok(Err(Unsupported(fd)));
                }
            }
        }
        Ok(Ok(luggage))
    }
}

impl Luggage {
    /// Whether a number was carried into the view.
    pub(crate) fn has(&self, fd: RawFd) -> bool {
        self.carried.iter().any(|carried| carried.fd == fd)
    }

    fn carry(&mut self, candidate: &Candidate, mounts: &[u32]) -> Result<(), Errno> {
        let fd = candidate.fd;
        let twin =
            self.carried.iter().find(|carried| same_open_file(carried.before.as_raw_fd(), fd));
        let twin = twin.and_then(Carried::file);
        let inside = match twin {
            Some(file) => Held::dup(file.as_fd(), high())?,
            None => {
                let opened =
                    open(&candidate.path, candidate.flags | OFlags::CLOEXEC, Mode::empty())?;
                let opened = Held::dup(opened.as_fd(), high())?;
                if !belongs(opened.as_raw_fd(), mounts)? {
                    return Ok(());
                }
                let stat = fstat(&opened)?;
                // The number of a directory tells nothing in a view.
                let kind = FileType::from_raw_mode(stat.st_mode);
                let same = kind == FileType::from_raw_mode(candidate.mode)
                    && (kind == FileType::Directory || stat.st_ino & INO == candidate.ino & INO);
                if !same {
                    // Another object has its name by now: it is as good as without one.
                    return Ok(());
                }
                if let Some(offset) = candidate.offset {
                    seek(&opened, SeekFrom::Start(offset))?;
                }
                opened
            }
        };
        let before = Held::dup(sys::borrow(fd), high())?;
        sys::dup_onto(inside.as_fd(), fd, candidate.cloexec)?;
        let inside = Inside::File(inside);
        let (cloexec, offset) = (candidate.cloexec, candidate.offset.unwrap_or(0));
        self.carried.push(Carried { fd, cloexec, offset, before, inside });
        Ok(())
    }

    /// Gives the program the inner ends of its pipes.
    ///
    /// # Errors
    /// If the process is out of descriptors; what was carried until then has to be restored.
    pub(crate) fn carry_pipes(&mut self, conduits: Conduits) -> Result<(), Errno> {
        for (End { fd, cloexec, .. }, inner, is) in conduits.into_ends() {
            let before = Held::dup(sys::borrow(fd), high())?;
            let inside = Inside::Pipe(is.ok_or(Errno::BADF)?);
            sys::dup_onto(inner.as_fd(), fd, cloexec)?;
            if fd == 2 {
                sys::errors_go_to(before.as_raw_fd());
            }
            self.carried.push(Carried { fd, cloexec, offset: 0, before, inside });
        }
        Ok(())
    }

    /// The pipe from before that a number became; the very number if there are several.
    fn pipe_of(&self, fd: RawFd) -> Option<usize> {
        if !self.carried.iter().any(|carried| matches!(carried.inside, Inside::Pipe(_))) {
            return None;
        }
        let is = Inner::of(fd)?;
        let fits = |carried: &Carried| matches!(carried.inside, Inside::Pipe(of) if of == is);
        let very = self.carried.iter().position(|carried| carried.fd == fd && fits(carried));
        very.or_else(|| self.carried.iter().position(fits))
    }

    /// Gives every number back what it was, whatever has it now.
    pub(crate) fn restore(&mut self) {
        for carried in self.carried.drain(..) {
            sys::give_back(carried.before.as_fd(), carried.fd, carried.cloexec);
        }
        sys::errors_go_to(2);
    }

    fn owns(&self, fd: RawFd) -> bool {
        self.carried.iter().any(|carried| {
            carried.before.as_raw_fd() == fd
                || carried.file().is_some_and(|file| file.as_raw_fd() == fd)
        })
    }
}

/// Inode numbers as views show them: above these bits stands the device.
const INO: u64 = (1 << 48) - 1;

/// A descriptor that refers to the view at the end of a transaction.
#[derive(Debug)]
struct Leaving {
    fd: RawFd,
    cloexec: bool,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// It is what this descriptor from before became.
    Before { at: usize, offset: Option<u64> },
    /// It is what this pipe from before became.
    Pipe { at: usize },
    /// Opened inside, by this name.
    Named { path: CString, flags: OFlags, offset: Option<u64> },
    /// The same open file as another number that comes before it.
    Twin { of: RawFd },
    /// Without a name.
    Nameless,
}

/// What refers to the view, looked at before it is left.
#[derive(Debug)]
pub(crate) struct Departure {
    luggage: Luggage,
    leaving: Vec<Leaving>,
}

impl Departure {
    /// Looks at all that is open, inside the view.
    ///
    /// # Errors
    /// If `/proc` cannot be read, with the luggage.
    pub(crate) fn look(
        luggage: Luggage,
        own: RawFd,
        mounts: &[u32],
    ) -> Result<Departure, (Errno, Luggage)> {
        let numbers = match numbers() {
            Ok(numbers) => numbers,
            Err(errno) => return Err((errno, luggage)),
        };
        let mut leaving: Vec<Leaving> = Vec::new();
        for fd in numbers {
            if fd == own || luggage.owns(fd) {
                continue;
            }
            // One question for each, and more only about those that matter.
            let Ok(stat) = look_at(fd) else { continue };
            let pipe = match FileType::from_raw_mode(stat.stx_mode.into()) {
                FileType::Fifo => luggage.pipe_of(fd),
                _ => None,
            };
            if pipe.is_none() && !is_on(&stat, mounts) {
                continue;
            }
            let cloexec =
                fcntl_getfd(sys::borrow(fd)).map_or(true, |flags| flags.contains(FdFlags::CLOEXEC));
            let way = match pipe {
                Some(at) => Way::Pipe { at },
                None => way_out(fd, &luggage, &leaving),
            };
            leaving.push(Leaving { fd, cloexec, way });
        }
        Ok(Departure { luggage, leaving })
    }

    /// Whether something stays open in the view after a commit.
    pub(crate) fn keeps_something(&self) -> bool {
        self.leaving.iter().any(|leaving| matches!(leaving.way, Way::Nameless))
    }

    /// The numbers from before at which another file of the view is by now.
    pub(crate) fn renewed(&self) -> Vec<RawFd> {
        let at_its_place = |leaving: &&Leaving| match leaving.way {
            Way::Before { at, .. } | Way::Pipe { at } => self.luggage.carried[at].fd == leaving.fd,
            _ => false,
        };
        self.leaving.iter().filter(|leaving| !at_its_place(leaving)).map(|l| l.fd).collect()
    }

    /// After a commit, outside: everything refers to the committed files.
    pub(crate) fn arrive(self) {
        let Departure { luggage, leaving } = self;
        let _low = low();
        for Leaving { fd, cloexec, way } in leaving {
            match way {
                Way::Before { at, offset } => {
                    let Carried { before, offset: then, .. } = &luggage.carried[at];
                    // What was not moved inside others may have moved: it is the open file of all of them.
                    go_to(before.as_fd(), fd, offset.filter(|offset| offset != then));
                    conduits::keep_choice(fd, before.as_fd());
                    sys::give_back(before.as_fd(), fd, cloexec);
                }
                Way::Pipe { at } => {
                    let before = &luggage.carried[at].before;
                    conduits::keep_choice(fd, before.as_fd());
                    sys::give_back(before.as_fd(), fd, cloexec);
                }
                Way::Named { path, flags, offset } => {
                    // Who can't open it again (its mode forbids it by now) keeps the view's, which is
                    // the same content.
                    // A FIFO would wait for its other end.
                    let at_once = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
                    let Ok(opened) = open(&path, at_once, Mode::empty()) else {
                        continue;
                    };
                    if !flags.contains(OFlags::NONBLOCK) {
                        let _ = fcntl_setfl(&opened, flags);
                    }
                    go_to(opened.as_fd(), fd, offset);
                    sys::give_back(opened.as_fd(), fd, cloexec);
                }
                Way::Twin { of } => {
                    sys::give_back(sys::borrow(of), fd, cloexec);
                }
                Way::Nameless => {}
            }
        }
        sys::errors_go_to(2);
    }

    /// Outside, while the transaction goes on without this process: what was open before is back.
    pub(crate) fn part(mut self) {
        self.luggage.restore();
    }

    /// After an abort, outside: what was opened inside is closed, what was open before is back.
    pub(crate) fn retreat(mut self) {
        for leaving in &self.leaving {
            let carried = self.luggage.carried.iter().any(|carried| carried.fd == leaving.fd);
            if !carried {
                sys::close(leaving.fd);
            }
        }
        self.luggage.restore();
    }
}

/// Sets the offset of what is about to become the program's `fd`. With a wrong one the program would write
/// to the wrong place: it ends.
fn go_to(file: BorrowedFd<'_>, fd: RawFd, offset: Option<u64>) {
    if let Some(offset) = offset
        && let Err(errno) = seek(file, SeekFrom::Start(offset))
    {
        sys::end_process(&format!("cannot give descriptor {fd} its offset back: {errno}"));
    }
}

fn way_out(fd: RawFd, luggage: &Luggage, leaving: &[Leaving]) -> Way {
    let borrowed = sys::borrow(fd);
    let offset = offset_of(fd);
    let is =
        |carried: &Carried| carried.file().is_some_and(|file| same_open_file(file.as_raw_fd(), fd));
    let nameless = fstat(borrowed).map_or(true, |stat| stat.st_nlink == 0);
    let carried = luggage.carried.iter().position(is);
    if let Some(at) = carried {
        // What was written to it inside nobody else ever sees, and whoever has it open does.
        return if nameless { Way::Nameless } else { Way::Before { at, offset } };
    }
    let named = |leaving: &&Leaving| matches!(leaving.way, Way::Named { .. });
    let twin = leaving.iter().filter(named).find(|other| same_open_file(other.fd, fd));
    if let Some(twin) = twin {
        return Way::Twin { of: twin.fd };
    }
    match (path_of(fd), flags_of(fd)) {
        (Ok(path), Ok(flags)) if !nameless => Way::Named { path, flags, offset },
        _ => Way::Nameless,
    }
}

/// The descriptors that are open, in order.
///
/// # Errors
/// If `/proc` is not mounted, or the process is out of descriptors.
pub(crate) fn numbers() -> Result<Vec<RawFd>, Errno> {
    let dir = open(
        "/proc/thread-self/fd",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let own = dir.as_raw_fd();
    let mut numbers = Vec::new();
    for entry in Dir::new(dir)? {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok());
        numbers.extend(number.filter(|fd| *fd != own));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Whether two descriptors of this thread are the same open file.
fn same_open_file(a: RawFd, b: RawFd) -> bool {
    sys::same_open_file(gettid(), a, gettid(), b)
}

/// Whether a number is left alone.
pub(crate) fn is_exempt(fd: RawFd) -> bool {
    EXEMPT.lock().unwrap_or_else(PoisonError::into_inner).contains(&fd)
}

/// Whether a descriptor refers to one of these mounts.
pub(crate) fn belongs(fd: RawFd, mounts: &[u32]) -> Result<bool, Errno> {
    Ok(is_on(&look_at(fd)?, mounts))
}

/// The kind of file and the mount behind a descriptor.
fn look_at(fd: RawFd) -> Result<Statx, Errno> {
    statx(sys::borrow(fd), "", AtFlags::EMPTY_PATH, StatxFlags::TYPE | StatxFlags::MNT_ID)
}

fn is_on(stat: &Statx, mounts: &[u32]) -> bool {
    u32::try_from(stat.stx_mnt_id).is_ok_and(|id| mounts.contains(&id))
}

/// A regular file or directory with a name.
fn candidate(fd: RawFd, stat: &Stat, others: &[u32]) -> Result<Option<Candidate>, Errno> {
    let borrowed = sys::borrow(fd);
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Directory) || stat.st_nlink == 0 {
        return Ok(None);
    }
    let path = path_of(fd)?;
    if !path.to_bytes().starts_with(b"/")
        || (path.to_bytes().starts_with(b"/proc/") && !path.to_bytes().starts_with(b"/proc/sys/"))
        || (!others.is_empty() && belongs(fd, others)?)
    {
        return Ok(None);
    }
    // What the explicit API has open stays outside, as it does itself.
    let state = ::api::System::state_of_shared();
    if state.is_some_and(|state| path.to_bytes().starts_with(state.as_os_str().as_bytes())) {
        return Ok(None);
    }
    // Another object may have the name by now: then this one is as good as without.
    let named = statx(CWD, &path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO);
    if named.map(|named| named.stx_ino) != Ok(stat.st_ino) {
        return Ok(None);
    }
    Ok(Some(Candidate {
        fd,
        path,
        device: stat.st_dev,
        ino: stat.st_ino,
        mode: stat.st_mode,
        flags: flags_of(fd)?,
        offset: offset_of(fd).filter(|offset| kind == FileType::RegularFile && *offset != 0),
        cloexec: fcntl_getfd(borrowed)?.contains(FdFlags::CLOEXEC),
    }))
}

/// Whether data can go through a socket: it has a peer, takes connections, or has an address.
fn leads_to_others(socket: BorrowedFd<'_>) -> bool {
    use rustix::net::{
        AddressFamily, SocketAddrAny, SocketAddrV4, SocketAddrV6, getpeername, getsockname, sockopt,
    };
    /// Bytes of the address of a local socket that has none.
    const NAMELESS: u32 = 2;
    let port = |address: SocketAddrAny| {
        let port = SocketAddrV4::try_from(address.clone()).map(|address| address.port());
        port.or_else(|_| SocketAddrV6::try_from(address).map(|address| address.port()))
    };
    let is_named = |family| match (family, getsockname(socket)) {
        (AddressFamily::UNIX, Ok(address)) => address.addr_len() > NAMELESS,
        (AddressFamily::INET | AddressFamily::INET6, Ok(address)) => port(address) != Ok(0),
        _ => true,
    };
    match sockopt::socket_domain(socket) {
        // It leads to the kernel.
        Ok(AddressFamily::NETLINK) => false,
        Ok(family) => {
            getpeername(socket).is_ok_and(|peer| peer.is_some())
                || is_named(family)
                || sockopt::socket_acceptconn(socket).unwrap_or(true)
        }
        Err(_) => true,
    }
}

fn path_of(fd: RawFd) -> Result<CString, Errno> {
    readlink(format!("/proc/thread-self/fd/{fd}"), Vec::new())
}

/// The flags to open the same again: never those that create or cut.
fn flags_of(fd: RawFd) -> Result<OFlags, Errno> {
    let keep = OFlags::RDWR
        | OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::NONBLOCK
        | OFlags::DIRECTORY
        | OFlags::DIRECT
        | OFlags::NOATIME
        | OFlags::SYNC
        | OFlags::PATH
        | OFlags::NOFOLLOW;
    Ok(fcntl_getfl(sys::borrow(fd))? & keep)
}

fn offset_of(fd: RawFd) -> Option<u64> {
    let is_file = fstat(sys::borrow(fd))
        .is_ok_and(|s| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile);
    if !is_file {
        return None;
    }
    seek(sys::borrow(fd), SeekFrom::Current(0)).ok()
}
