//! Ways out of a view that need system calls without a safe wrapper.
//!
//! Each try is harmless when it succeeds: where a call would change the system it gets arguments
//! that the kernel refuses for another reason, so natively it fails with that reason and in a
//! transaction it has to fail with `ENOTXSUPPORT` before.
#![allow(unsafe_code, reason = "system calls without a safe wrapper in rustix")]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use crate::op::{bytes, escape};
use crate::raw::call;

type Tried = Result<String, Errno>;

/// An address that no process can have mapped, for pointers that must not be followed.
const NOWHERE: u64 = 1;

/// Calls that a transaction refuses with `ENOTXSUPPORT` unless flags say otherwise, each tried.
pub fn refused_calls() -> Vec<(&'static str, Result<u64, Errno>)> {
    const NONE: u64 = u64::MAX;
    let missing = c"/nonexistent/txos".as_ptr() as u64;
    let word = c"none".as_ptr() as u64;
    let calls: [(&str, libc::c_long, [u64; 6]); 27] = [
        ("mount", libc::SYS_mount, [word, missing, word, 0, 0, 0]),
        ("umount2", libc::SYS_umount2, [missing, 0, 0, 0, 0, 0]),
        ("pivot_root", libc::SYS_pivot_root, [missing, missing, 0, 0, 0, 0]),
        ("fsopen", libc::SYS_fsopen, [word, 0xffff, 0, 0, 0, 0]),
        ("open_tree", libc::SYS_open_tree, [NONE, missing, 1, 0, 0, 0]),
        ("move_mount", libc::SYS_move_mount, [NONE, missing, NONE, missing, 0, 0]),
        ("mount_setattr", libc::SYS_mount_setattr, [NONE, missing, 0, NOWHERE, 32, 0]),
        ("reboot", libc::SYS_reboot, [0, 0, 0, 0, 0, 0]),
        ("init_module", libc::SYS_init_module, [NOWHERE, 0, NOWHERE, 0, 0, 0]),
        ("finit_module", libc::SYS_finit_module, [NONE, NOWHERE, 0, 0, 0, 0]),
        ("delete_module", libc::SYS_delete_module, [NOWHERE, 0, 0, 0, 0, 0]),
        ("kexec_load", libc::SYS_kexec_load, [0, 0, 0, 0xffff_ffff, 0, 0]),
        ("swapon", libc::SYS_swapon, [missing, 0, 0, 0, 0, 0]),
        ("swapoff", libc::SYS_swapoff, [missing, 0, 0, 0, 0, 0]),
        ("acct", libc::SYS_acct, [missing, 0, 0, 0, 0, 0]),
        ("settimeofday", libc::SYS_settimeofday, [NOWHERE, 0, 0, 0, 0, 0]),
        ("clock_settime", libc::SYS_clock_settime, [0, NOWHERE, 0, 0, 0, 0]),
        ("sethostname", libc::SYS_sethostname, [NOWHERE, 1 << 20, 0, 0, 0, 0]),
        ("setdomainname", libc::SYS_setdomainname, [NOWHERE, 1 << 20, 0, 0, 0, 0]),
        ("iopl", libc::SYS_iopl, [7, 0, 0, 0, 0, 0]),
        ("ioperm", libc::SYS_ioperm, [1 << 20, 1 << 20, 1, 0, 0, 0]),
        ("bpf", libc::SYS_bpf, [0xffff, NOWHERE, 8, 0, 0, 0]),
        ("fanotify_init", libc::SYS_fanotify_init, [0xffff_ffff, 0, 0, 0, 0, 0]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, [NONE, NOWHERE, 0, 0, 0, 0]),
        ("setns", libc::SYS_setns, [NONE, 0xffff_ffff, 0, 0, 0, 0]),
        ("socket AF_PACKET", libc::SYS_socket, [17, 3, 0, 0, 0, 0]),
        ("socket AF_ALG", libc::SYS_socket, [38, 5, 0, 0, 0, 0]),
    ];
    // SAFETY: every pointer is a constant C string or an address that the kernel can't read and
    // answers with EFAULT; sizes and flags are such that nothing is changed on success.
    calls.map(|(name, number, args)| (name, unsafe { call(number, args) })).to_vec()
}

/// io_uring_setup(2) with a good argument.
///
/// # Errors
/// The call's.
pub fn io_uring() -> Tried {
    let parameters = [0u64; 15];
    // SAFETY: `struct io_uring_params` is 120 bytes, all zero is valid, and it outlives the call.
    let fd =
        unsafe { call(libc::SYS_io_uring_setup, [1, parameters.as_ptr() as u64, 0, 0, 0, 0]) }?;
    // SAFETY: the call gave the descriptor to us.
    drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    Ok(String::new())
}

/// Attaches the System V shared memory segment of this key and reads its first bytes.
///
/// # Errors
/// `ENOENT` where no such segment is seen.
pub fn shared_memory(key: i32) -> Tried {
    // SAFETY: plain numbers.
    let id = unsafe { call(libc::SYS_shmget, [key as u64, 0, 0, 0, 0, 0]) }?;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { call(libc::SYS_shmat, [id, 0, 0, 0, 0, 0]) }?;
    // SAFETY: a segment has at least a page, and it stays attached while it is read.
    let seen = unsafe { std::slice::from_raw_parts(at as *const u8, 8) }.to_vec();
    // SAFETY: the address that shmat gave.
    unsafe { call(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0]) }?;
    Ok(escape(&seen))
}

/// Makes a System V shared memory segment with 8 bytes in it. The answer is its id.
///
/// # Errors
/// The calls'.
pub fn make_shared_memory(key: i32, text: [u8; 8]) -> Result<u64, Errno> {
    // SAFETY: plain numbers; 01000 is IPC_CREAT.
    let id = unsafe { call(libc::SYS_shmget, [key as u64, 4096, 0o1666, 0, 0, 0]) }?;
    // SAFETY: the kernel chooses the place.
    let at = unsafe { call(libc::SYS_shmat, [id, 0, 0, 0, 0, 0]) }?;
    // SAFETY: the segment has 4096 bytes, just attached for writing.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), at as *mut u8, text.len());
        call(libc::SYS_shmdt, [at, 0, 0, 0, 0, 0])?;
    }
    Ok(id)
}

/// Removes what [`make_shared_memory`] made.
pub fn remove_shared_memory(id: u64) {
    // SAFETY: plain numbers; 0 is IPC_RMID.
    let _ = unsafe { call(libc::SYS_shmctl, [id, 0, 0, 0, 0, 0]) };
}

/// Finds the System V message queue of this key and sends into it.
///
/// # Errors
/// `ENOENT` where no such queue is seen.
pub fn message_queue(key: i32) -> Tried {
    let message: [u64; 2] = [1, 0];
    // SAFETY: the message is a long and 8 bytes, as msgsnd(2) wants.
    unsafe {
        let id = call(libc::SYS_msgget, [key as u64, 0, 0, 0, 0, 0])?;
        call(libc::SYS_msgsnd, [id, message.as_ptr() as u64, 8, 0o4000, 0, 0])?;
    }
    Ok(String::new())
}

/// Makes a System V message queue; the answer is its id.
///
/// # Errors
/// The call's.
pub fn make_message_queue(key: i32) -> Result<u64, Errno> {
    // SAFETY: plain numbers; 01000 is IPC_CREAT.
    unsafe { call(libc::SYS_msgget, [key as u64, 0o1666, 0, 0, 0, 0]) }
}

/// How many messages wait in a queue that [`make_message_queue`] made.
///
/// # Errors
/// The call's.
pub fn messages(id: u64) -> Result<u64, Errno> {
    let mut state = [0u64; 16];
    // SAFETY: `struct msqid_ds` is 120 bytes; 2 is IPC_STAT.
    unsafe { call(libc::SYS_msgctl, [id, 2, state.as_mut_ptr() as u64, 0, 0, 0]) }?;
    // msg_perm is 48 bytes, then three times and the bytes in the queue come before its count.
    Ok(state[10])
}

/// Removes what [`make_message_queue`] made.
pub fn remove_message_queue(id: u64) {
    // SAFETY: plain numbers; 0 is IPC_RMID.
    let _ = unsafe { call(libc::SYS_msgctl, [id, 0, 0, 0, 0, 0]) };
}

/// Opens the POSIX message queue of this name (without the slash) for writing.
///
/// # Errors
/// `ENOENT` where no such queue is seen.
pub fn posix_queue(name: &str) -> Tried {
    open_queue(name, libc::O_WRONLY).map(|_| String::new())
}

/// Makes a POSIX message queue.
///
/// # Errors
/// The call's.
pub fn make_posix_queue(name: &str) -> Result<OwnedFd, Errno> {
    open_queue(name, libc::O_RDWR | libc::O_CREAT)
}

/// Removes what [`make_posix_queue`] made.
pub fn remove_posix_queue(name: &str) {
    if let Ok(name) = CString::new(name) {
        // SAFETY: a C string that outlives the call.
        let _ = unsafe { call(libc::SYS_mq_unlink, [name.as_ptr() as u64, 0, 0, 0, 0, 0]) };
    }
}

fn open_queue(name: &str, flags: i32) -> Result<OwnedFd, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    // SAFETY: a C string that outlives the call; no attributes.
    unsafe {
        let fd = call(libc::SYS_mq_open, [name.as_ptr() as u64, flags as u64, 0o600, 0, 0, 0])?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

/// `KEY_SPEC_USER_KEYRING`.
const USER_KEYRING: u64 = -4i64 as u64;

/// Adds a key to the user's keyring, which outlives every process.
///
/// # Errors
/// The call's.
pub fn add_key(name: &str) -> Tried {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let args =
        [c"user".as_ptr() as u64, name.as_ptr() as u64, name.as_ptr() as u64, 1, USER_KEYRING, 0];
    // SAFETY: two C strings and one byte of payload, all alive during the call.
    unsafe { call(libc::SYS_add_key, args) }.map(|_| String::new())
}

/// Looks a key up in the user's keyring.
///
/// # Errors
/// `ENOKEY` (126) if it is not there.
pub fn find_key(name: &str) -> Tried {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let args = [10, USER_KEYRING, c"user".as_ptr() as u64, name.as_ptr() as u64, 0, 0];
    // SAFETY: KEYCTL_SEARCH with two C strings that outlive the call.
    unsafe { call(libc::SYS_keyctl, args) }.map(|_| String::new())
}

/// Removes a key from the user's keyring.
pub fn remove_key(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    let args = [10, USER_KEYRING, c"user".as_ptr() as u64, name.as_ptr() as u64, 0, 0];
    // SAFETY: as above; then KEYCTL_UNLINK with numbers.
    unsafe {
        if let Ok(id) = call(libc::SYS_keyctl, args) {
            let _ = call(libc::SYS_keyctl, [9, id, USER_KEYRING, 0, 0, 0]);
        }
    }
}

/// The handle of a file, in a form that [`open_by_handle`] takes.
///
/// # Errors
/// name_to_handle_at(2)'s.
pub fn handle_of(path: &Path) -> Tried {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let mut handle = [0u8; 136];
    handle[..4].copy_from_slice(&128u32.to_ne_bytes());
    let mut mount = 0i32;
    let at = libc::AT_FDCWD as i64 as u64;
    let (handle_at, mount_at) = (handle.as_mut_ptr() as u64, (&raw mut mount) as u64);
    // SAFETY: a C string, a handle with room for 128 bytes as it says, and an int for the answer.
    unsafe {
        call(libc::SYS_name_to_handle_at, [at, path.as_ptr() as u64, handle_at, mount_at, 0, 0])?;
    }
    let len = u32::from_ne_bytes([handle[0], handle[1], handle[2], handle[3]]) as usize;
    Ok(escape(&handle[..8 + len]))
}

/// Opens a file by its handle, on the file system of `mount`, and reads it.
///
/// # Errors
/// open_by_handle_at(2)'s.
pub fn open_by_handle(handle: &str, mount: &Path) -> Tried {
    let handle = bytes(handle);
    let mount = File::open(mount).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let args = [mount.as_raw_fd() as u64, handle.as_ptr() as u64, libc::O_RDWR as u64, 0, 0, 0];
    // SAFETY: the handle is as name_to_handle_at wrote it; the descriptor is given to us.
    let file = unsafe {
        let fd = call(libc::SYS_open_by_handle_at, args)?;
        File::from_raw_fd(fd as i32)
    };
    let text = std::io::read_to_string(file).unwrap_or_default();
    Ok(text.trim_end().to_owned())
}

/// setns(2) into the namespace behind `path`.
///
/// # Errors
/// The call's, or open's.
pub fn enter(path: &Path) -> Tried {
    let file = File::open(path).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    // SAFETY: plain numbers.
    unsafe { call(libc::SYS_setns, [file.as_raw_fd() as u64, 0, 0, 0, 0, 0]) }
        .map(|_| String::new())
}

/// process_vm_readv(2) of one byte of another process (of its vsyscall page, which everybody has;
/// the permission comes first).
///
/// # Errors
/// The call's.
pub fn peek(pid: u64) -> Tried {
    let mut byte = 0u8;
    let local = [(&raw mut byte) as u64, 1u64];
    let remote = [0xffff_ffff_ff60_0000u64, 1u64];
    let args = [pid, local.as_ptr() as u64, 1, remote.as_ptr() as u64, 1, 0];
    // SAFETY: two vectors of one entry each; the local one is one byte of ours.
    match unsafe { call(libc::SYS_process_vm_readv, args) } {
        // Permission was granted and only the address was bad.
        Err(Errno::FAULT) => Ok("permitted".to_owned()),
        other => other.map(|_| String::new()),
    }
}

/// ptrace(2) `PTRACE_SEIZE`, which stops nobody, and detaching by the end of this process.
///
/// # Errors
/// The call's.
pub fn attach(pid: u64) -> Tried {
    // SAFETY: plain numbers.
    unsafe { call(libc::SYS_ptrace, [0x4206, pid, 0, 0, 0, 0]) }.map(|_| String::new())
}

/// Gives another process a nice value of 7.
///
/// # Errors
/// setpriority(2)'s.
pub fn renice(pid: u64) -> Tried {
    // SAFETY: plain numbers.
    unsafe { call(libc::SYS_setpriority, [0, pid, 7, 0, 0, 0]) }.map(|_| String::new())
}

/// Sets another process's limit of core size to 12345.
///
/// # Errors
/// prlimit(2)'s.
pub fn limit(pid: u64) -> Tried {
    let limit = [12345u64, 12345u64];
    // SAFETY: a `struct rlimit64` that outlives the call; no old one is asked for.
    unsafe { call(libc::SYS_prlimit64, [pid, 4, limit.as_ptr() as u64, 0, 0, 0]) }
        .map(|_| String::new())
}

/// pidfd_getfd(2): takes a descriptor out of another process, and writes to it.
///
/// # Errors
/// The calls'.
pub fn steal_descriptor(pid: u64, fd: u64) -> Tried {
    // SAFETY: plain numbers; both descriptors are given to us.
    unsafe {
        let process =
            OwnedFd::from_raw_fd(call(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0])? as i32);
        let args = [process.as_raw_fd() as u64, fd, 0, 0, 0, 0];
        let stolen = OwnedFd::from_raw_fd(call(libc::SYS_pidfd_getfd, args)? as i32);
        rustix::io::write(&stolen, b"stolen")?;
    }
    Ok(String::new())
}
