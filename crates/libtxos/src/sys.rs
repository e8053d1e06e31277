//! The calls for which no safe wrapper exists.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    ffi::CStr,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::{
    io::Errno,
    process::Pid,
    thread::{CapabilitySets, capabilities, set_capabilities},
};

use crate::guard;

/// `-1` with errno, or the result.
fn checked(result: i64) -> Result<i64, Errno> {
    if result == -1 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(result)
}

/// Leaves the file system attributes that threads share (working directory, root, umask).
pub(crate) fn unshare_fs() -> Result<(), Errno> {
    // SAFETY: the descriptor table stays shared as it is, which is all that could be unsound here.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }
}

/// Where the table of descriptors of a thread is looked for, and where it is (proc_pid_fd(5), proc_pid_fdinfo(5)).
const TABLES: [[&CStr; 2]; 2] = [
    [c"/proc/self/fd", c"/proc/thread-self/fd"],
    [c"/proc/self/fdinfo", c"/proc/thread-self/fdinfo"],
];

/// In the calling thread's mount namespace, has `/proc/self/fd`, and with it `/dev/fd`, show the table of the calling
/// thread, which is not the one of its process.
pub(crate) fn show_own_table() -> Result<(), Errno> {
    let bind = |[shown, own]: &[&CStr; 2]| {
        let [from, to] = [own, shown].map(|path| path.as_ptr() as usize);
        let flags = libc::MS_BIND as usize;
        // SAFETY: both paths end with NUL; a bind mount takes no more.
        match unsafe { guard::call_with(libc::SYS_mount, from, to, 0, flags, 0) } {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(-error as i32)),
        }
    };
    TABLES.iter().try_for_each(bind)
}

/// Undoes [`show_own_table`].
pub(crate) fn hide_own_table() -> Result<(), Errno> {
    let unmount = |[shown, _]: &[&CStr; 2]| {
        let (path, flags) = (shown.as_ptr() as usize, libc::MNT_DETACH as usize);
        // SAFETY: the path ends with NUL.
        match unsafe { guard::call(libc::SYS_umount2, path, flags, 0) } {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(-error as i32)),
        }
    };
    TABLES.iter().try_for_each(unmount)
}

/// All capabilities that the calling thread may have, in effect as long as this lives.
///
/// A program may have lowered its effective rights inside (seteuid(2)): that is no reason why it could not
/// leave the view.
#[derive(Debug)]
pub(crate) struct Rights(Option<CapabilitySets>);

impl Rights {
    pub(crate) fn all() -> Rights {
        let Ok(before) = capabilities(None) else { return Rights(None) };
        if before.effective == before.permitted {
            return Rights(None);
        }
        let raised = CapabilitySets { effective: before.permitted, ..before };
        Rights(set_capabilities(None, raised).is_ok().then_some(before))
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        if let Some(before) = self.0.take()
            && set_capabilities(None, before).is_err()
        {
            end_process("its rights cannot be lowered again");
        }
    }
}

thread_local! {
    /// What standard error was before the transaction, while it leads elsewhere.
    static ERRORS: Cell<RawFd> = const { Cell::new(2) };
}

/// From here on standard error is this number, for the calling thread.
pub(crate) fn errors_go_to(fd: RawFd) {
    ERRORS.set(fd);
}

/// Where to say why a process cannot go on: what it writes inside is dropped with its transaction.
pub(crate) fn errors() -> RawFd {
    ERRORS.get()
}

/// Says why the process cannot go on, and ends it at once, as a signal would.
pub(crate) fn end_process(why: &str) -> ! {
    let _ = rustix::io::write(borrow(errors()), format!("libtxos: {why}\n").as_bytes());
    guard::kill_this_process()
}

/// Enters a mount namespace (`setns(2)`).
pub(crate) fn enter_mounts(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    let (fd, kind) = (namespace.as_raw_fd() as usize, libc::CLONE_NEWNS as usize);
    // SAFETY: plain numbers; it changes which files names lead to, and no memory.
    match unsafe { guard::call(libc::SYS_setns, fd, kind, 0) } {
        0 => Ok(()),
        error => Err(Errno::from_raw_os_error(-error as i32)),
    }
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(crate) struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

impl Mask {
    /// Blocks every signal that can be blocked, for the calling thread; gives what was blocked before.
    pub(crate) fn block_all() -> Mask {
        // SAFETY: both sets are initialised before they are used, by sigfillset and by the call.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Mask(before)
        }
    }

    /// Every signal that can be blocked, but for those that a fault of the program itself sends.
    pub(crate) fn all() -> Mask {
        // SAFETY: the set is initialised by sigfillset before it is used.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
                libc::sigdelset(&raw mut all, fault);
            }
            Mask(all)
        }
    }

    /// Whether a signal is blocked.
    pub(crate) fn blocks(&self, signal: i32) -> bool {
        // SAFETY: the set is initialised.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }

    /// These, and those that are wanted.
    pub(crate) fn and(&self, wanted: impl Fn(i32) -> bool) -> Mask {
        let mut set = self.0;
        for signal in (1..=64).filter(|signal| wanted(*signal)) {
            // SAFETY: the set is initialised; a number that is no signal changes nothing.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        Mask(set)
    }

    /// Blocks these signals and no others.
    pub(crate) fn set(&self) {
        // SAFETY: the set is initialised.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

/// The calling thread cannot be cancelled (pthread_cancel(3)) as long as this lives: files are opened and read in the
/// library, and each such call could be the end of the thread, with the library's work half done.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    /// What holds afterwards.
    pub(crate) before: libc::c_int,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Uncancelled {
    /// `PTHREAD_CANCEL_DISABLE` (pthread.h).
    pub(crate) const DISABLE: libc::c_int = 1;

    pub(crate) fn now() -> Uncancelled {
        let mut before = 0;
        // SAFETY: the pointer is valid.
        unsafe { pthread_setcancelstate(Self::DISABLE, &raw mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut now = 0;
        // SAFETY: the state is one that the same call has given.
        unsafe { pthread_setcancelstate(self.before, &raw mut now) };
    }
}

/// Whether there is memory for what a beginning takes: the library ends the program where it runs out of it
/// half-way.
pub(crate) fn has_room() -> bool {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    const ROOM: usize = 1 << 20;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, of which nothing is used, and which is given back.
    unsafe {
        let room = mmap_anonymous(std::ptr::null_mut(), ROOM, protection, MapFlags::PRIVATE);
        room.is_ok_and(|room| munmap(room, ROOM).is_ok())
    }
}

/// Whether the program was executed with more privileges than its caller has (getauxval(3), `AT_SECURE`).
pub(crate) fn is_secure() -> bool {
    // SAFETY: a plain number.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Borrows a descriptor by its number; calls on one that is closed fail with `EBADF`.
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0);
    // SAFETY: the number is not negative. Nothing of this library's own has it: numbers come from the
    // program or from /proc/self/fd.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Duplicates onto a number of the program's, closing what had it (`dup3(2)`).
pub(crate) fn dup_onto(from: BorrowedFd<'_>, to: RawFd, cloexec: bool) -> Result<(), Errno> {
    let flags = if cloexec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: plain numbers; the number belongs to the program, which asked for this.
    checked(i64::from(unsafe { libc::dup3(from.as_raw_fd(), to, flags) })).map(drop)
}

/// Gives a number of the program's back what it is to stand for. A program in which that cannot be done
/// would write to the wrong file: it ends.
pub(crate) fn give_back(from: BorrowedFd<'_>, to: RawFd, cloexec: bool) {
    loop {
        match dup_onto(from, to, cloexec) {
            Ok(()) => return,
            // Another thread is about to open this number (dup(2)).
            Err(Errno::BUSY | Errno::INTR) => std::thread::yield_now(),
            Err(errno) => end_process(&format!("cannot give descriptor {to} back: {errno}")),
        }
    }
}

/// Closes a number of the program's.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: a plain number, which belongs to the program and not to an owner of this library.
    unsafe { libc::close(fd) };
}

/// The numbers of all [`Held`], with what is behind them.
static HELD: Mutex<Vec<(RawFd, (u64, u64))>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<(RawFd, (u64, u64))>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a number with this behind it is the library's own. A program may have closed that one and use the
/// number itself, and in a thread's own table of descriptors it may be something else.
pub(crate) fn is_held(fd: RawFd, identity: (u64, u64)) -> bool {
    held().contains(&(fd, identity))
}

/// A descriptor of the library's own, above the numbers that programs use, closed on exec.
///
/// A program may close every number that it finds, and open others: so what is behind this one is
/// looked at before it is used or closed.
#[derive(Debug)]
pub(crate) struct Held {
    fd: RawFd,
    identity: (u64, u64),
}

impl Held {
    /// Duplicates to the lowest number from `lowest` on.
    pub(crate) fn dup(of: BorrowedFd<'_>, lowest: RawFd) -> Result<Held, Errno> {
        // SAFETY: it makes a descriptor that nobody else knows, and changes none.
        let new = checked(i64::from(unsafe {
            libc::fcntl(of.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest)
        }))
        // No number from there on is allowed any more.
        .map_err(|errno| if errno == Errno::INVAL { Errno::MFILE } else { errno })?;
        let stat = rustix::fs::fstat(of)?;
        let (fd, identity) = (new as RawFd, (stat.st_dev, stat.st_ino));
        held().push((fd, identity));
        Ok(Held { fd, identity })
    }

    /// Whether it was made for the object with this device and inode.
    pub(crate) fn is(&self, identity: (u64, u64)) -> bool {
        self.identity == identity
    }

    /// Whether it is still what it was.
    pub(crate) fn is_intact(&self) -> bool {
        let stat = rustix::fs::fstat(borrow(self.fd));
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.identity)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A program that closed it may have made another one get its number.
        let mut held = held();
        if let Some(at) = held.iter().position(|held| *held == (self.fd, self.identity)) {
            held.swap_remove(at);
        }
        drop(held);
        if self.is_intact() {
            close(self.fd);
        }
    }
}

impl std::os::fd::AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        borrow(self.fd)
    }
}

impl AsRawFd for Held {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

/// Whether a descriptor of one task and one of another are the same open file (`kcmp(2)`).
pub(crate) fn same_open_file(task: Pid, a: RawFd, other: Pid, b: RawFd) -> bool {
    const KCMP_FILE: i32 = 0;
    let [task, other] = [task, other].map(Pid::as_raw_pid);
    // SAFETY: it compares, and touches neither memory nor descriptors.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, task, other, KCMP_FILE, a, b) };
    order == 0
}

/// Whether two tasks have one table of descriptors (`kcmp(2)`).
pub(crate) fn shares_table(task: Pid, other: Pid) -> bool {
    const KCMP_FILES: i32 = 2;
    let [task, other] = [task, other].map(Pid::as_raw_pid);
    // SAFETY: it compares, and touches neither memory nor descriptors.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, task, other, KCMP_FILES, 0, 0) };
    order == 0
}

/// Whether a shared mapping of a file of the file system is writable in this process.
///
/// Asks the kernel for just that (`PROCMAP_QUERY`, Linux 6.11); `None` where it can't be asked so.
pub(crate) fn writable_shared_mapping(maps: BorrowedFd<'_>, from: u64) -> Option<Mapped> {
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        size: u64,
        flags: u64,
        addr: u64,
        start: u64,
        end: u64,
        vma_flags: u64,
        page_size: u64,
        offset: u64,
        inode: u64,
        major: u32,
        minor: u32,
        name_size: u32,
        build_id_size: u32,
        name: u64,
        build_id: u64,
    }
    const WRITABLE: u64 = 0x02;
    const SHARED: u64 = 0x08;
    const COVERING_OR_NEXT: u64 = 0x10;
    const FILE_BACKED: u64 = 0x20;
    // _IOWR('f', 17, struct procmap_query), which has 104 bytes.
    const PROCMAP_QUERY: u64 = 0xc068_6611;
    let mut query = Query {
        size: size_of::<Query>() as u64,
        flags: WRITABLE | SHARED | COVERING_OR_NEXT | FILE_BACKED,
        addr: from,
        ..Query::default()
    };
    // SAFETY: the argument is the structure that this request takes, and outlives the call.
    let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    match checked(i64::from(result)) {
        Ok(_) => Some(Mapped::At {
            start: query.start,
            end: query.end,
            device: (query.major, query.minor),
            inode: query.inode,
        }),
        Err(Errno::NOENT) => Some(Mapped::None),
        Err(_) => None,
    }
}

/// What [`writable_shared_mapping`] found.
pub(crate) enum Mapped {
    /// No such mapping from there on.
    None,
    /// One, of this file.
    At { start: u64, end: u64, device: (u32, u32), inode: u64 },
}

/// Starts a program that is no child of this process: nothing of it shows in `wait(2)`, no signal comes
/// when it ends. It gets `socket` as descriptor 3, `/dev/null` as its standard streams, and nothing else.
///
/// # Errors
/// If a process cannot be made. Whether the program could be executed shows in the socket.
pub(crate) fn start_detached(
    program: &std::ffi::CStr,
    arguments: &[&std::ffi::CStr],
    socket: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let null = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let mut words: Vec<*const libc::c_char> = arguments.iter().map(|word| word.as_ptr()).collect();
    words.push(std::ptr::null());
    // Without an end signal, as fork would have.
    // SAFETY: clone without flags is fork; the child calls nothing but what is safe after fork in a
    // program with threads: system calls.
    let middle = checked(unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) })?;
    if middle == 0 {
        // SAFETY: as above. The grandchild is orphaned at once, so it is nobody's child here.
        unsafe {
            if libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) == 0 {
                execute(program, &words, socket.as_raw_fd(), null.as_raw_fd());
            }
            libc::_exit(0);
        }
    }
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid.
        let waited = unsafe { libc::waitpid(middle as i32, &raw mut status, libc::__WCLONE) };
        match checked(i64::from(waited)) {
            Err(Errno::INTR) => {}
            result => return result.map(drop),
        }
    }
}

/// The grandchild's part of [`start_detached`].
///
/// # Safety
/// To be called in a process that was just forked; `words` ends with a null pointer.
unsafe fn execute(
    program: &std::ffi::CStr,
    words: &[*const libc::c_char],
    socket: RawFd,
    null: RawFd,
) -> ! {
    unsafe extern "C" {
        static environ: *const *const libc::c_char;
    }
    // SAFETY: system calls on numbers and valid pointers; the signal set is initialised by sigemptyset.
    unsafe {
        libc::setsid();
        // Numbers may be anything, also those that are wanted: copies above them first.
        let (socket, null) =
            (libc::fcntl(socket, libc::F_DUPFD, 10), libc::fcntl(null, libc::F_DUPFD, 10));
        for to in 0..3 {
            libc::dup2(null, to);
        }
        libc::dup2(socket, 3);
        libc::syscall(libc::SYS_close_range, 4, u32::MAX, 0);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::chdir(c"/".as_ptr());
        libc::execve(program.as_ptr(), words.as_ptr(), environ);
        libc::_exit(127)
    }
}
