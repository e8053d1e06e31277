//! System V and POSIX communication, for which rustix has no wrappers. Buffers are slices, and what the
//! kernel fills is sized by the caller.
#![allow(unsafe_code, reason = "msgget(2), semget(2), shmget(2), mq_open(3) have no safe wrapper")]

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ffi::CString;
use std::{io, mem, ptr};

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Finds or makes a message queue (msgget(2)).
pub fn queue(key: i32, flags: i32) -> io::Result<i32> {
    // SAFETY: the call takes integers.
    checked(unsafe { libc::msgget(key, flags) })
}

/// Finds or makes a set of semaphores (semget(2)).
pub fn semaphores(key: i32, count: i32, flags: i32) -> io::Result<i32> {
    // SAFETY: the call takes integers.
    checked(unsafe { libc::semget(key, count, flags) })
}

/// Finds or makes a segment of shared memory (shmget(2)).
pub fn segment(key: i32, size: usize, flags: i32) -> io::Result<i32> {
    // SAFETY: the call takes integers.
    checked(unsafe { libc::shmget(key, size, flags) })
}

/// How many bytes a queue may hold.
pub fn queue_limit(id: i32) -> io::Result<u64> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut status: libc::msqid_ds = unsafe { mem::zeroed() };
    // SAFETY: the argument is a `msqid_ds` that outlives the call.
    checked(unsafe { libc::msgctl(id, libc::IPC_STAT, &raw mut status) })?;
    Ok(status.msg_qbytes)
}

/// Sets owner, mode and limit of a queue.
pub fn set_queue(id: i32, (uid, gid, mode): (u32, u32, u32), limit: u64) -> io::Result<()> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut status: libc::msqid_ds = unsafe { mem::zeroed() };
    // SAFETY: the argument is a `msqid_ds` that outlives the call.
    checked(unsafe { libc::msgctl(id, libc::IPC_STAT, &raw mut status) })?;
    (status.msg_perm.uid, status.msg_perm.gid, status.msg_qbytes) = (uid, gid, limit);
    status.msg_perm.mode = mode as _;
    // SAFETY: as above.
    checked(unsafe { libc::msgctl(id, libc::IPC_SET, &raw mut status) }).map(drop)
}

/// Sets owner and mode of a set of semaphores.
pub fn set_semaphores(id: i32, (uid, gid, mode): (u32, u32, u32)) -> io::Result<()> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut status: libc::semid_ds = unsafe { mem::zeroed() };
    // SAFETY: the argument is a `semid_ds` that outlives the call.
    checked(unsafe { libc::semctl(id, 0, libc::IPC_STAT, &raw mut status) })?;
    (status.sem_perm.uid, status.sem_perm.gid) = (uid, gid);
    status.sem_perm.mode = mode as _;
    // SAFETY: as above.
    checked(unsafe { libc::semctl(id, 0, libc::IPC_SET, &raw mut status) }).map(drop)
}

/// Sets owner and mode of a segment.
pub fn set_segment(id: i32, (uid, gid, mode): (u32, u32, u32)) -> io::Result<()> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut status: libc::shmid_ds = unsafe { mem::zeroed() };
    // SAFETY: the argument is a `shmid_ds` that outlives the call.
    checked(unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut status) })?;
    (status.shm_perm.uid, status.shm_perm.gid) = (uid, gid);
    status.shm_perm.mode = mode as _;
    // SAFETY: as above.
    checked(unsafe { libc::shmctl(id, libc::IPC_SET, &raw mut status) }).map(drop)
}

/// Removes a queue, a set of semaphores, a segment; what goes wrong does not matter any more.
pub fn remove_queue(id: i32) {
    // SAFETY: the command takes no memory.
    unsafe { libc::msgctl(id, libc::IPC_RMID, ptr::null_mut()) };
}

/// See [`remove_queue`].
pub fn remove_semaphores(id: i32) {
    // SAFETY: the command takes no memory.
    unsafe { libc::semctl(id, 0, libc::IPC_RMID) };
}

/// See [`remove_queue`].
pub fn remove_segment(id: i32) {
    // SAFETY: the command takes no memory.
    unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) };
}

/// Takes the first message, without waiting; `None` when there is none. `room` is the longest message in
/// bytes.
pub fn take_message(id: i32, room: usize) -> io::Result<Option<(i64, Vec<u8>)>> {
    let mut buffer = vec![0u8; size_of::<libc::c_long>() + room];
    // SAFETY: the buffer holds a type and `room` bytes, and outlives the call.
    let length = unsafe { libc::msgrcv(id, buffer.as_mut_ptr().cast(), room, 0, libc::IPC_NOWAIT) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENOMSG) { Ok(None) } else { Err(error) };
    }
    let (kind, text) = buffer.split_at(size_of::<libc::c_long>());
    let kind = kind.first_chunk().map_or(0, |bytes| i64::from_ne_bytes(*bytes));
    Ok(Some((kind, text[..length as usize].to_vec())))
}

/// Puts a message into a queue, without waiting.
pub fn put_message(id: i32, kind: i64, text: &[u8]) -> io::Result<()> {
    let message = [&kind.to_ne_bytes()[..], text].concat();
    let sent =
        // SAFETY: the message is a type and `text.len()` bytes, and outlives the call.
        unsafe { libc::msgsnd(id, message.as_ptr().cast(), text.len(), libc::IPC_NOWAIT) };
    checked(sent).map(drop)
}

/// The values of all semaphores of a set of `count`.
pub fn values(id: i32, count: usize) -> io::Result<Vec<u16>> {
    let mut values = vec![0u16; count];
    // SAFETY: the kernel writes as many values as the set has, which is `count`.
    checked(unsafe { libc::semctl(id, 0, libc::GETALL, values.as_mut_ptr()) })?;
    Ok(values)
}

/// Sets the values of all semaphores; there are as many as in the set.
pub fn set_values(id: i32, values: &[u16]) -> io::Result<()> {
    // SAFETY: the kernel reads as many values as the set has, which was made with `values.len()`.
    checked(unsafe { libc::semctl(id, 0, libc::SETALL, values.as_ptr()) }).map(drop)
}

/// Attaches a segment of `size` bytes, lets `with` use it, and detaches it.
pub fn with_segment<T>(
    id: i32,
    size: usize,
    read_only: bool,
    with: impl FnOnce(&mut [u8]) -> T,
) -> io::Result<T> {
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe { libc::shmat(id, ptr::null(), if read_only { libc::SHM_RDONLY } else { 0 }) };
    if at as isize == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the segment has `size` bytes at least (the caller asked the kernel), is mapped until the
    // end of this function, and is used by nobody else: its users have ended, or it was just made. A
    // reader does not write through the slice.
    let result = with(unsafe { std::slice::from_raw_parts_mut(at.cast(), size) });
    // SAFETY: the mapping of above, to which no reference is left.
    unsafe { libc::shmdt(at) };
    Ok(result)
}

/// A POSIX message queue: messages at the most, bytes of a message at the most.
pub fn named_queue(name: &str, flags: i32, limits: Option<[i64; 2]>) -> io::Result<OwnedFd> {
    let name = CString::new(format!("/{name}"))?;
    // SAFETY: all fields are integers, for which zero is a value.
    let mut attributes: libc::mq_attr = unsafe { mem::zeroed() };
    let given = match limits {
        Some([most, size]) => {
            (attributes.mq_maxmsg, attributes.mq_msgsize) = (most, size);
            &raw mut attributes
        }
        None => ptr::null_mut(),
    };
    let flags = flags | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the name is a C string, and `given` null or a `mq_attr`; both outlive the call.
    let fd = checked(unsafe { libc::mq_open(name.as_ptr(), flags, 0o600 as libc::mode_t, given) })?;
    // SAFETY: on Linux a queue is a descriptor (mq_overview(7)), which the kernel has just made.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Limits of a queue, as in [`named_queue`].
pub fn queue_limits(queue: impl AsFd) -> io::Result<[i64; 2]> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut attributes: libc::mq_attr = unsafe { mem::zeroed() };
    let fd = queue.as_fd().as_raw_fd();
    // SAFETY: the argument is a `mq_attr` that outlives the call.
    checked(unsafe { libc::mq_getattr(fd, &raw mut attributes) })?;
    Ok([attributes.mq_maxmsg, attributes.mq_msgsize])
}

/// Receives the first message with its priority; `None` when there is none.
pub fn receive(queue: impl AsFd, room: usize) -> io::Result<Option<(u32, Vec<u8>)>> {
    let (mut buffer, mut priority) = (vec![0u8; room], 0);
    let fd = queue.as_fd().as_raw_fd();
    let length =
        // SAFETY: the buffer holds `room` bytes; both outlive the call.
        unsafe { libc::mq_receive(fd, buffer.as_mut_ptr().cast(), room, &raw mut priority) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
    }
    buffer.truncate(length as usize);
    Ok(Some((priority, buffer)))
}

/// Sends a message, without waiting.
pub fn send(queue: impl AsFd, priority: u32, text: &[u8]) -> io::Result<()> {
    let fd = queue.as_fd().as_raw_fd();
    // SAFETY: the text outlives the call.
    checked(unsafe { libc::mq_send(fd, text.as_ptr().cast(), text.len(), priority) }).map(drop)
}

/// Removes a queue by name.
pub fn remove_named_queue(name: &str) {
    if let Ok(name) = CString::new(format!("/{name}")) {
        // SAFETY: the name is a C string.
        unsafe { libc::mq_unlink(name.as_ptr()) };
    }
}
