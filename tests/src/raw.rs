//! The system calls that rustix has no safe function for, each in the smallest wrapper that its
//! users need. The only file of this package with unsafe code.
#![allow(unsafe_code, reason = "calls without a safe wrapper in rustix")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;

fn last<T>() -> Result<T, Errno> {
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)
}

/// truncate(2).
///
/// # Errors
/// As the call's.
pub fn truncate(path: &Path, len: u64) -> Result<(), Errno> {
    let path = c_path(path)?;
    // SAFETY: the path is a valid C string that outlives the call.
    if unsafe { libc::truncate(path.as_ptr(), len.cast_signed()) } == 0 { Ok(()) } else { last() }
}

/// Stores `data` at `off` through a `MAP_SHARED` mapping, without changing the size of the file.
///
/// # Errors
/// `EFBIG` when the range is not within the file (a store there would raise `SIGBUS`); else as
/// mmap(2).
pub fn store_shared(fd: BorrowedFd<'_>, off: u64, data: &[u8]) -> Result<(), Errno> {
    let size = rustix::fs::fstat(fd)?.st_size.cast_unsigned();
    if data.is_empty() || off + data.len() as u64 > size {
        return Err(Errno::FBIG);
    }
    let page = off & !0xfff;
    let skip = (off - page) as usize;
    let span = skip + data.len();
    // SAFETY: a new mapping at a place of the kernel's choice; the range lies within the file and
    // nobody else shortens it while the mapping lives; it is unmapped before the return.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            span,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            page.cast_signed(),
        );
        if at == libc::MAP_FAILED {
            return last();
        }
        let first = at.cast::<u8>().add(skip);
        std::ptr::copy_nonoverlapping(data.as_ptr(), first, data.len());
        libc::munmap(at, span);
    }
    Ok(())
}

/// A shared, writable mapping of a file's first page that is held for longer: an outsider who stores
/// without any system call.
pub struct Mapping(*mut u8);

impl Mapping {
    /// Maps the first page; the file has at least one byte, and at most a page is ever used.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn of(fd: BorrowedFd<'_>) -> Result<Mapping, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED { last() } else { Ok(Mapping(at.cast())) }
    }

    /// Stores at the file's beginning.
    ///
    /// # Panics
    /// If it is more than a page.
    pub fn store(&self, data: &[u8]) {
        assert!(data.len() <= 4096);
        // SAFETY: within the mapped page, which the file covers at least in part.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.0, data.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `of`, which nobody uses any more.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

/// Gives a name to what `O_TMPFILE` opened.
///
/// # Errors
/// As linkat(2) through `/proc/self/fd`.
pub fn link_descriptor(fd: BorrowedFd<'_>, to: &Path) -> Result<(), Errno> {
    let from = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
}

/// syscall(2) with plain numbers and pointers. For the calls of which only the refusal matters.
///
/// # Errors
/// As the call's.
///
/// # Safety
/// The arguments must be what the call with this number expects: every pointer among them valid for
/// what the kernel does with it.
pub unsafe fn call(number: libc::c_long, args: [u64; 6]) -> Result<u64, Errno> {
    // SAFETY: the caller's promise.
    let r = unsafe { libc::syscall(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    if r == -1 { last() } else { Ok(r.cast_unsigned()) }
}
